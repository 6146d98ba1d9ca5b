// Packet path.

package tap

import (
	"encoding/binary"
	"math/bits"
)

// sum adds b to a ones' complement sum of 16-bit big-endian words (RFC 1071),
// as if b began at an even place. An odd last byte counts as the upper one.
func sum(b []byte, acc uint64) uint64 {
	var c uint64
	for len(b) >= 32 {
		acc, c = bits.Add64(acc, binary.BigEndian.Uint64(b), c)
		acc, c = bits.Add64(acc, binary.BigEndian.Uint64(b[8:]), c)
		acc, c = bits.Add64(acc, binary.BigEndian.Uint64(b[16:]), c)
		acc, c = bits.Add64(acc, binary.BigEndian.Uint64(b[24:]), c)
		b = b[32:]
	}
	for len(b) >= 8 {
		acc, c = bits.Add64(acc, binary.BigEndian.Uint64(b), c)
		b = b[8:]
	}
	var rest uint64
	for len(b) >= 2 {
		rest += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		rest += uint64(b[0]) << 8
	}
	acc, c = bits.Add64(acc, rest, c)
	return acc + c
}

// fold brings a sum to 16 bits.
func fold(acc uint64) uint16 {
	acc = acc>>32 + acc&0xffffffff
	acc = acc>>16 + acc&0xffff
	acc = acc>>16 + acc&0xffff
	acc = acc>>16 + acc&0xffff
	return uint16(acc)
}

// finish turns a sum into a transport checksum: 0 means "none" in UDP, so its
// other form is sent, which is right for TCP too (skb_checksum_help,
// CSUM_MANGLED_0).
func finish(acc uint64) uint16 {
	c := ^fold(acc)
	if c == 0 {
		c = 0xffff
	}
	return c
}

// complete does what VIRTIO_NET_HDR_F_NEEDS_CSUM asks for: sum everything from
// start, where the checksum field holds the sum of the pseudo header, and store
// the result in that field. It returns false when the field is not in the
// frame.
func complete(frame []byte, start, offset int) bool {
	at := start + offset
	if at+2 > len(frame) {
		return false
	}
	binary.BigEndian.PutUint16(frame[at:], finish(sum(frame[start:], 0)))
	return true
}
