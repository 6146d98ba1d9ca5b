// Package aqm has the control laws that several disciplines share: when a queue
// has stood too long, and what to do about it. CoDel (RFC 8289) for codel,
// fq_codel; PIE (RFC 8033) for pie and fq_pie; RED for red.
//
// A law decides; the queue, its counters and the drops stay with the discipline.
package aqm

import "math/bits"

// TrueSize returns what the kernel's memory limits would count for a frame of n
// bytes (skb->truesize): the buffer that the allocator gives for the frame,
// some headroom and the shared info behind it, and the sk_buff itself. Here a
// frame takes a slot of the pool whatever its length; but a memory_limit that
// was chosen on a kernel should admit as many packets here.
func TrueSize(n int) int {
	const headroom, sharedInfo, skbuff, smallHead = 64, 320, 256, 704
	n += headroom + sharedInfo
	if n <= smallHead {
		return smallHead + skbuff
	}
	return 1<<bits.Len(uint(n-1)) + skbuff
}
