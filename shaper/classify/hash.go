// Packet path.

package classify

import (
	"encoding/binary"
	"math/bits"

	"sluice/qdisc"
)

// FlowHash returns the flow hash of p and keeps it in the packet; the NIC's, or
// one computed before, is returned as it is.
//
// Like the kernel's skb_get_hash it covers addresses, protocol and ports (ESP:
// the SPI; ICMP: the identifier of an echo), in one direction, without VLAN.
// Every fragment of a packet, the first included, hashes by addresses and
// protocol, so that they stay together. What is not IP hashes by Ethernet
// addresses and type.
//
// seed keeps outsiders from choosing flows that collide; with the same seed the
// same frame has the same hash, which is what makes a run repeatable.
//
// Preconditions: p is parsed.
func FlowHash(p *qdisc.Packet, seed uint64) uint32 {
	if p.Flags&qdisc.HashSet != 0 {
		return p.Hash
	}
	b := p.Bytes()
	l3 := int(p.L3)
	var h uint64
	switch {
	case l3 != 0 && p.EtherType == EtherIPv4:
		h = mix(binary.BigEndian.Uint64(b[l3+12:])^seed, transportKey(p, b)^key0)
	case l3 != 0 && p.EtherType == EtherIPv6:
		a := b[l3+8 : l3+40]
		h = mix(binary.BigEndian.Uint64(a)^seed, binary.BigEndian.Uint64(a[8:])^key0)
		h ^= mix(binary.BigEndian.Uint64(a[16:])^seed^key2, binary.BigEndian.Uint64(a[24:])^key1)
		h = mix(h^seed, transportKey(p, b)^key0)
	case len(b) >= etherHeader:
		h = mix(binary.BigEndian.Uint64(b)^seed,
			uint64(binary.BigEndian.Uint32(b[8:]))<<16^uint64(p.EtherType)^key0)
	}
	h = mix(h^key1, seed^key2)
	p.Hash = uint32(h ^ h>>32)
	p.Flags |= qdisc.HashSet
	return p.Hash
}

// Odd constants with half their bits set, so that zeros in a packet do not
// become zeros in a product.
const (
	key0 = 0xa0761d6478bd642f
	key1 = 0xe7037ed1a0b428db
	key2 = 0x8ebc6af09c88c6e3
)

// mix folds a 128-bit product: every bit of the result depends on every bit of
// both.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// transportKey is protocol and ports in one word.
func transportKey(p *qdisc.Packet, b []byte) uint64 {
	key := uint64(p.L4Proto) << 32
	l4 := int(p.L4)
	if l4 == 0 || fragmented(p, b) {
		return key
	}
	switch p.L4Proto {
	case ProtoTCP, ProtoUDP, ProtoSCTP, ProtoDCCP, ProtoUDPLite, ProtoESP:
		key |= uint64(binary.BigEndian.Uint32(b[l4:]))
	case ProtoICMP:
		switch b[l4] {
		case 0, 8, 13, 14, 42, 43: // echo, timestamp, extended echo
			key |= uint64(binary.BigEndian.Uint16(b[l4+4:]))
		}
	case ProtoICMPv6:
		switch b[l4] {
		case 128, 129, 160, 161:
			if len(b) >= l4+6 {
				key |= uint64(binary.BigEndian.Uint16(b[l4+4:]))
			}
		}
	}
	return key
}

// fragmented says whether p, which has a transport header, is the first fragment
// of several.
func fragmented(p *qdisc.Packet, b []byte) bool {
	l3 := int(p.L3)
	if p.EtherType == EtherIPv4 {
		return b[l3+6]&0x20 != 0
	}
	if int(p.L4) == l3+40 {
		return false
	}
	_, _, frag, _ := skipExtensions(b[:p.L4], l3+40, b[l3+6])
	return frag&1 != 0
}
