// Packet path.

package qdisc

import "encoding/binary"

// Ethernet types of what can carry a mark.
const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
)

// SetCE marks p with Congestion Experienced (RFC 3168 §5) in its frame and in
// TOS, and says whether p is marked now: one that was before is, and one whose
// sender does not take part in ECN never is, nor is what is not IP. The IPv4
// checksum stays as right as it was (INET_ECN_set_ce).
func SetCE(p *Packet) bool {
	l3 := int(p.L3)
	if l3 == 0 || p.ECN() == 0 {
		return false
	}
	switch p.EtherType {
	case etherIPv4:
		h := p.Bytes()[l3 : l3+12]
		// RFC 1624 eqn. 3: ~sum' = ~sum + ~old + new, in ones' complement. TOS
		// is the lower half of its word.
		tos := h[1]
		h[1] = tos | 3
		sum := uint32(^binary.BigEndian.Uint16(h[10:])) + uint32(^uint16(tos)) + uint32(h[1])
		sum = sum&0xffff + sum>>16
		sum = sum&0xffff + sum>>16
		binary.BigEndian.PutUint16(h[10:], ^uint16(sum))
	case etherIPv6:
		// The traffic class lies across the first two bytes; its lowest four
		// bits are the upper half of the second.
		p.Bytes()[l3+1] |= 3 << 4
	default:
		return false
	}
	p.TOS |= 3
	return true
}
