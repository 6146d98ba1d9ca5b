// Packet path.

package htb

import (
	"math/bits"
	"time"
)

// Tokens are time, as in the kernel: a bucket holds so many nanoseconds, a packet
// costs as many as it takes at the rate. They are counted in 2⁻²⁴ of a
// nanosecond, which makes a byte's cost exact to a part in a million at
// 100 Gbit/s, and holds nine minutes in a word.
const (
	fraction = 24

	// poorest is the deepest debt.
	poorest = -int64(memory-1) << fraction
	// richest is far above any bucket, and above any cost that matters.
	richest = 1 << 62
)

// elapsed returns the tokens that a time earns.
func elapsed(d time.Duration) int64 { return int64(min(d, memory)) << fraction }

// nanoseconds returns tokens as the kernel has them.
func nanoseconds(tokens int64) int64 { return tokens >> fraction }

// cost is what bytes cost at a rate.
type cost uint64

// costOf returns the cost of a byte at a rate, in bytes a second.
//
// Preconditions: rate > 0.
func costOf(rate uint64) cost {
	const second = uint64(time.Second) << fraction
	return cost(max((second+rate/2)/rate, 1))
}

// of returns what n bytes cost, richest at most.
func (c cost) of(n uint64) int64 {
	hi, lo := bits.Mul64(uint64(c), n)
	if hi != 0 || lo > richest {
		return richest
	}
	return int64(lo)
}

// What a class does to lengths before they are charged.
const (
	cells  = 1 << iota // linklayer atm
	framed             // overhead or mpu
)

// wire returns what a packet of n bytes counts for: overhead first, then the
// minimum, then cells (psched_l2t_ns).
func (c *class) wire(n uint32) uint64 {
	if c.shape == 0 {
		return uint64(n)
	}
	w := max(uint64(n)+uint64(c.overhead), uint64(c.mpu))
	if c.shape&cells != 0 {
		w = (w + 47) / 48 * 53
	}
	return w
}

// modeIn returns the mode that a class can have once it has earned d, and how
// long until that changes (htb_class_mode).
func (c *class) modeIn(d int64, hysteresis bool) (mode, time.Duration) {
	low, high := int64(0), int64(0)
	if hysteresis {
		if c.mode != cantSend {
			low = -c.cbuffer
		}
		if c.mode == canSend {
			high = -c.buffer
		}
	}
	if t := c.ctokens + d; t < low {
		return cantSend, until(t)
	}
	if t := c.tokens + d; t < high {
		return mayBorrow, until(t)
	}
	return canSend, 0
}

// until returns how long a debt takes to pay, rounded up: what is earned beyond
// the need stays in the bucket.
func until(tokens int64) time.Duration {
	return time.Duration((-tokens + 1<<fraction - 1) >> fraction)
}

// fill makes a class's buckets full and forgets what it did with them.
func (c *class) fill(now time.Duration) {
	c.tokens, c.ctokens, c.settled = c.buffer, c.cbuffer, now
	c.mode, c.active = canSend, 0
	c.deficit = [len(c.deficit)]int32{}
	clear(c.deeper)
}
