// Packet path.

package classify

import (
	"encoding/binary"

	"sluice/qdisc"
)

// Protocols of the network header, as Packet.EtherType has them.
const (
	EtherLLC            = 0x0004 // ETH_P_802_2: the frame has a length where others have a type
	EtherIPv4           = 0x0800
	EtherARP            = 0x0806
	EtherVLAN           = 0x8100 // 802.1Q
	EtherIPv6           = 0x86dd
	EtherPPPoEDiscovery = 0x8863
	EtherPPPoE          = 0x8864 // session; stays only when what it carries is not IP
	EtherQinQ           = 0x88a8 // 802.1ad
	EtherQinQ1          = 0x9100 // QinQ before 802.1ad
)

// Protocols of the transport header, as Packet.L4Proto has them.
const (
	ProtoICMP    = 1
	ProtoTCP     = 6
	ProtoUDP     = 17
	ProtoDCCP    = 33
	ProtoESP     = 50
	ProtoICMPv6  = 58
	ProtoSCTP    = 132
	ProtoUDPLite = 136

	protoHopByHop = 0
	protoRouting  = 43
	protoFragment = 44
	protoAH       = 51
	protoNone     = 59
	protoDestOpts = 60
)

const (
	etherHeader = 14
	maxTags     = 2

	// A packet with more extension headers than this is not followed. The
	// kernel's flow dissector draws the line at the same number.
	maxExtensions = 15

	parseFlags = qdisc.Parsed | qdisc.VLANSet | qdisc.Malformed | qdisc.Fragment
)

// minHeader is the part of a transport header that must be there.
var minHeader = [256]uint8{
	ProtoICMP: 8, ProtoTCP: 20, ProtoUDP: 8, ProtoDCCP: 12, ProtoESP: 8,
	ProtoICMPv6: 4, ProtoSCTP: 12, ProtoUDPLite: 8,
}

// Parse reads the headers of p, as [ParseHeaders], and derives the priority
// from them, as [SetPriority].
func Parse(p *qdisc.Packet) {
	ParseHeaders(p)
	SetPriority(p)
}

// ParseHeaders fills L3, L4, EtherType, L4Proto, TOS, VLAN and the flags Parsed,
// VLANSet, Malformed and Fragment from the frame. It reads Ethernet, up to two
// VLAN tags, PPPoE sessions, IPv4, IPv6 with its extension headers, and the
// transport header behind AH.
//
// What it leaves can be relied on, Malformed or not: with L3 set and EtherType
// IPv4 or IPv6 the whole network header, options included, lies in the frame and
// has the right version; with L4 set so does the fixed part of the transport
// header.
func ParseHeaders(p *qdisc.Packet) {
	b := p.Bytes()
	p.L3, p.L4, p.EtherType, p.VLAN = 0, 0, 0, 0
	p.L4Proto, p.TOS = 0, 0
	p.Flags = p.Flags&^parseFlags | qdisc.Parsed

	if len(b) < etherHeader {
		p.Flags |= qdisc.Malformed
		return
	}
	off := etherHeader
	proto := binary.BigEndian.Uint16(b[12:])
	p.EtherType = proto
	if proto != EtherIPv4 && proto != EtherIPv6 {
		if b, off = parseLink(p, b); b == nil {
			p.Flags |= qdisc.Malformed
			return
		}
		proto = p.EtherType
	}
	var ok bool
	switch proto {
	case EtherIPv4:
		ok = parseIPv4(p, b, off)
	case EtherIPv6:
		ok = parseIPv6(p, b, off)
	default:
		p.L3 = uint16(off)
		ok = true
	}
	if !ok {
		p.Flags |= qdisc.Malformed
	}
}

// parseLink goes through VLAN tags and PPPoE. It returns the frame without what
// lies behind the PPPoE payload, and the offset of the network header; nil when
// a header is cut off or lies. p.EtherType is what it got to.
func parseLink(p *qdisc.Packet, b []byte) ([]byte, int) {
	off := etherHeader
	for tags := 0; isTag(p.EtherType) && tags < maxTags; tags++ {
		if len(b) < off+4 {
			return nil, 0
		}
		if tags == 0 {
			p.VLAN = binary.BigEndian.Uint16(b[off:])
			p.Flags |= qdisc.VLANSet
		}
		p.EtherType = binary.BigEndian.Uint16(b[off+2:])
		off += 4
	}
	switch {
	case p.EtherType == EtherPPPoE:
		return parsePPPoE(p, b, off)
	case p.EtherType < 0x0600: // IEEE 802.3 §3.2.6: a length
		n := int(p.EtherType)
		p.EtherType = EtherLLC
		if len(b) < off+n {
			return nil, 0
		}
	}
	return b, off
}

func isTag(t uint16) bool { return t == EtherVLAN || t == EtherQinQ || t == EtherQinQ1 }

// parsePPPoE goes through the session header (RFC 2516 §4) and the two bytes of
// PPP protocol. Anything but IP, PPP's own control protocols above all, keeps
// EtherPPPoE.
func parsePPPoE(p *qdisc.Packet, b []byte, off int) ([]byte, int) {
	if len(b) < off+8 {
		return nil, 0
	}
	end := off + 6 + int(binary.BigEndian.Uint16(b[off+4:]))
	if b[off] != 0x11 || b[off+1] != 0 || end < off+8 || len(b) < end {
		return nil, 0
	}
	switch binary.BigEndian.Uint16(b[off+6:]) {
	case 0x0021:
		p.EtherType = EtherIPv4
		off += 8
	case 0x0057:
		p.EtherType = EtherIPv6
		off += 8
	}
	return b[:end], off
}

func parseIPv4(p *qdisc.Packet, b []byte, off int) bool {
	if len(b) < off+20 {
		return false
	}
	h := b[off : off+20 : len(b)]
	hlen := int(h[0]&0x0f) * 4
	if h[0]>>4 != 4 || hlen < 20 || len(b) < off+hlen {
		return false
	}
	proto := h[9]
	p.L3 = uint16(off)
	p.TOS = h[1]
	p.L4Proto = proto

	frag := binary.BigEndian.Uint16(h[6:])
	total := int(binary.BigEndian.Uint16(h[2:]))
	if frag&0x1fff != 0 {
		p.Flags |= qdisc.Fragment
		return total >= hlen && len(b) >= off+total
	}
	if total < hlen || len(b) < off+total {
		return false
	}
	b, off = b[:off+total], off+hlen
	for range maxExtensions {
		if proto != protoAH {
			break
		}
		if len(b) < off+12 {
			return false
		}
		proto = b[off]
		off += (int(b[off+1]) + 2) * 4
		p.L4Proto = proto
	}
	return parseTransport(p, b, off, proto, frag&0x2000 != 0)
}

func parseIPv6(p *qdisc.Packet, b []byte, off int) bool {
	if len(b) < off+40 {
		return false
	}
	h := b[off : off+40 : len(b)]
	if h[0]>>4 != 6 {
		return false
	}
	p.L3 = uint16(off)
	p.TOS = h[0]<<4 | h[1]>>4
	proto := h[6]
	p.L4Proto = proto
	end := off + 40 + int(binary.BigEndian.Uint16(h[4:]))
	if len(b) < end {
		return false
	}
	b, off = b[:end], off+40
	first := false
	if isExtension[proto] {
		var frag uint16
		var ok bool
		proto, off, frag, ok = skipExtensions(b, off, proto)
		p.L4Proto = proto
		if frag&^7 != 0 {
			p.Flags |= qdisc.Fragment
			return ok
		}
		if !ok {
			return false
		}
		first = frag&1 != 0
	}
	return parseTransport(p, b, off, proto, first)
}

var isExtension = [256]bool{
	protoHopByHop: true, protoRouting: true, protoFragment: true, protoAH: true, protoDestOpts: true,
}

// skipExtensions walks the extension headers (RFC 8200 §4) from off on, where
// one of protocol proto begins. It returns the protocol and offset of what comes
// behind, and the offset-and-flags word of the fragment header, 0 without one:
// offset in the upper 13 bits, more fragments in the lowest. The walk ends at
// the header of a later fragment.
func skipExtensions(b []byte, off int, proto uint8) (_ uint8, _ int, frag uint16, ok bool) {
	for range maxExtensions {
		if !isExtension[proto] {
			return proto, off, frag, true
		}
		if len(b) < off+8 {
			return proto, off, frag, false
		}
		n := (int(b[off+1]) + 1) * 8
		switch proto {
		case protoFragment:
			n = 8
			frag = binary.BigEndian.Uint16(b[off+2:])
			if frag&^7 != 0 {
				return b[off], off + 8, frag, true
			}
		case protoAH:
			n = (int(b[off+1]) + 2) * 4
		}
		if len(b) < off+n {
			return proto, off, frag, false
		}
		proto, off = b[off], off+n
	}
	return proto, off, frag, !isExtension[proto]
}

// parseTransport checks the transport header at off and notes it. Of a first
// fragment the lengths say nothing about this frame.
func parseTransport(p *qdisc.Packet, b []byte, off int, proto uint8, fragmented bool) bool {
	rest := len(b) - off
	if rest < int(minHeader[proto]) {
		return false
	}
	switch proto {
	case ProtoTCP:
		n := int(b[off+12]>>4) * 4
		if n < 20 || !fragmented && rest < n {
			return false
		}
	case ProtoUDP:
		n := int(binary.BigEndian.Uint16(b[off+4:]))
		if n < 8 || !fragmented && rest < n {
			return false
		}
	default:
		if rest == 0 || proto == protoNone {
			return true
		}
	}
	p.L4 = uint16(off)
	return true
}
