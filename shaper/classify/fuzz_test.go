package classify_test

import (
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"sluice/qdisc"
	"sluice/shaper/classify"
)

// Whatever the bytes are, Parse neither panics nor points outside the frame, and
// where gopacket understands a frame the two agree on what it is.
func FuzzParse(f *testing.F) {
	for _, frame := range [][]byte{udp4, tcp4, udp6, icmp4, icmp6, arp, vlan4, qinq6, chained, first4, later4, first6,
		later6, options4, stp, pppoe(0x21, udp4[14:]), pppoe(0x57, udp6[14:]), pppoe(0xc021, make([]byte, 8)), nil, udp4[:20]} {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) > 3000 {
			t.Skip()
		}
		p := parsed(frame)
		defer p.Free()
		classify.FlowHash(p, 1)
		checkOffsets(t, p)
		agree(t, p)
	})
}

// checkOffsets holds Parse to what its comment says can be relied on.
func checkOffsets(t interface{ Errorf(string, ...any) }, p *qdisc.Packet) {
	b := p.Bytes()
	if p.L3 != 0 {
		switch n := int(p.L3); p.EtherType {
		case classify.EtherIPv4:
			if len(b) < n+20 || b[n]>>4 != 4 || len(b) < n+int(b[n]&15)*4 {
				t.Errorf("L3 %d: no whole IPv4 header there in %d bytes", n, len(b))
			}
		case classify.EtherIPv6:
			if len(b) < n+40 || b[n]>>4 != 6 {
				t.Errorf("L3 %d: no whole IPv6 header there in %d bytes", n, len(b))
			}
		default:
			if n > len(b) {
				t.Errorf("L3 %d behind the end of %d bytes", n, len(b))
			}
		}
	}
	if p.L4 != 0 {
		need := map[uint8]int{6: 20, 17: 8, 1: 8, 58: 4, 132: 12}[p.L4Proto]
		if p.L4 < p.L3+20 || len(b) < int(p.L4)+max(need, 1) {
			t.Errorf("L4 %d of protocol %d, L3 %d, in %d bytes", p.L4, p.L4Proto, p.L3, len(b))
		}
	}
	if p.L4 != 0 && p.Flags&(qdisc.Fragment|qdisc.Malformed) != 0 {
		t.Errorf("L4 %d with flags %#x", p.L4, p.Flags)
	}
	if p.Flags&qdisc.Malformed != 0 && p.Priority != 0 {
		t.Errorf("malformed, priority %d", p.Priority)
	}
}

// agree compares p with gopacket's reading, as far as that is clean and both
// cover the protocols.
func agree(t *testing.T, p *qdisc.Packet) {
	frame := append([]byte(nil), p.Bytes()...)
	theirs := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{NoCopy: true})
	if p.EtherType == uint16(layers.EthernetTypeRaw) { // a type of gopacket's own
		return
	}
	if theirs.Metadata().Truncated || p.Flags&qdisc.Malformed != 0 {
		return
	}
	offset := func(l gopacket.Layer) uint16 { return uint16(cap(frame) - cap(l.LayerContents())) }
	tags := 0
	sound := theirs.Layers()
	if theirs.ErrorLayer() != nil { // the last one, and it gave up in the one before
		sound = sound[:max(0, len(sound)-2)]
	}
	for i, l := range sound {
		switch l := l.(type) {
		case *layers.Ethernet:
			if i > 0 {
				return // Ethernet in Ethernet
			}
		case *layers.PPP:
		case *layers.PPPoE:
			if p.EtherType == classify.EtherPPPoEDiscovery {
				return // gopacket takes code 0 for a session whatever the EtherType
			}
		case *layers.Dot1Q:
			if tci := uint16(l.Priority)<<13 | l.VLANIdentifier; tags == 0 && p.VLAN&0xefff != tci {
				t.Errorf("VLAN %#x, gopacket %#x", p.VLAN, tci)
			}
			if tags++; tags > 2 {
				return
			}
		case *layers.ARP:
			if p.EtherType != classify.EtherARP || p.L3 != offset(l) {
				t.Errorf("EtherType %#x at %d, gopacket has ARP at %d", p.EtherType, p.L3, offset(l))
			}
			return
		case *layers.IPv4:
			if p.EtherType != classify.EtherIPv4 || p.L3 != offset(l) || p.TOS != l.TOS {
				t.Errorf("EtherType %#x at %d, TOS %#x, gopacket has IPv4 at %d, TOS %#x",
					p.EtherType, p.L3, p.TOS, offset(l), l.TOS)
			}
			if (p.Flags&qdisc.Fragment != 0) != (l.FragOffset != 0) {
				t.Errorf("flags %#x, gopacket has fragment offset %d", p.Flags, l.FragOffset)
			}
			if l.FragOffset == 0 && l.Flags&layers.IPv4MoreFragments == 0 {
				agreeTransport(t, p, sound, offset)
			}
			return
		case *layers.IPv6:
			if p.EtherType != classify.EtherIPv6 || p.L3 != offset(l) || p.TOS != l.TrafficClass {
				t.Errorf("EtherType %#x at %d, TOS %#x, gopacket has IPv6 at %d, class %#x",
					p.EtherType, p.L3, p.TOS, offset(l), l.TrafficClass)
			}
			agreeTransport(t, p, sound, offset)
			return
		default:
			return
		}
	}
}

// agreeTransport compares the first header behind IP that is neither an
// extension nor AH.
func agreeTransport(t *testing.T, p *qdisc.Packet, sound []gopacket.Layer, offset func(gopacket.Layer) uint16) {
	behind := false
	for _, l := range sound {
		want := uint8(0)
		switch l.(type) {
		case *layers.IPv4, *layers.IPv6:
			if behind {
				return // a tunnel
			}
			behind = true
			continue
		case *layers.IPv6HopByHop, *layers.IPv6Routing, *layers.IPv6Destination, *layers.IPv6Fragment, *layers.IPSecAH:
			continue
		case *layers.TCP:
			want = classify.ProtoTCP
		case *layers.UDP:
			want = classify.ProtoUDP
		case *layers.ICMPv4:
			want = classify.ProtoICMP
		case *layers.ICMPv6:
			want = classify.ProtoICMPv6
		case *layers.SCTP:
			want = classify.ProtoSCTP
		default:
			if behind {
				return
			}
			continue
		}
		if p.L4Proto != want || p.L4 != offset(l) {
			t.Errorf("protocol %d at %d, gopacket has %s at %d", p.L4Proto, p.L4, l.LayerType(), offset(l))
		}
		return
	}
}
