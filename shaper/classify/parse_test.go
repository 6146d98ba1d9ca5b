package classify_test

import (
	"encoding/binary"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"sluice/qdisc"
	"sluice/shaper/classify"
)

var pool = func() *qdisc.Pool {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 8, FrameSize: 4096})
	if err != nil {
		panic(err)
	}
	return pool
}()

// packet puts frame into a packet. The caller frees it.
func packet(frame []byte) *qdisc.Packet {
	p := pool.Get()
	p.SetLen(copy(p.Room(), frame))
	return p
}

func parsed(frame []byte) *qdisc.Packet {
	p := packet(frame)
	classify.Parse(p)
	return p
}

var (
	macA, macB = net.HardwareAddr{2, 0, 0, 0, 0, 0xa}, net.HardwareAddr{2, 0, 0, 0, 0, 0xb}
	ip4A, ip4B = net.IP{192, 0, 2, 1}, net.IP{198, 51, 100, 7}
	ip6A, ip6B = net.ParseIP("2001:db8::1"), net.ParseIP("2001:db8::2")
)

func eth(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: macA, DstMAC: macB, EthernetType: t}
}

func vlan(id uint16, t layers.EthernetType) *layers.Dot1Q {
	return &layers.Dot1Q{VLANIdentifier: id, Priority: 3, Type: t}
}

func ip4(proto layers.IPProtocol, tos uint8) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, TOS: tos, Protocol: proto, SrcIP: ip4A, DstIP: ip4B}
}

func ip6(next layers.IPProtocol, tos uint8) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, TrafficClass: tos, NextHeader: next, SrcIP: ip6A, DstIP: ip6B}
}

func udp(src, dst int) *layers.UDP {
	return &layers.UDP{SrcPort: layers.UDPPort(src), DstPort: layers.UDPPort(dst)}
}

func tcp(src, dst int) *layers.TCP {
	return &layers.TCP{SrcPort: layers.TCPPort(src), DstPort: layers.TCPPort(dst), ACK: true}
}

// bytes builds a frame with lengths and checksums right, unpadded.
func bytes(stack ...gopacket.SerializableLayer) []byte {
	var network gopacket.NetworkLayer
	for _, l := range stack {
		switch l := l.(type) {
		case *layers.IPv4:
			network = l
		case *layers.IPv6:
			network = l
		case *layers.UDP:
			l.SetNetworkLayerForChecksum(network)
		case *layers.TCP:
			l.SetNetworkLayerForChecksum(network)
		case *layers.ICMPv6:
			l.SetNetworkLayerForChecksum(network)
		}
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, stack...); err != nil {
		panic(err)
	}
	return append([]byte(nil), buf.Bytes()...)
}

// pppoe wraps an IP packet (built with a throw-away Ethernet header) in a session.
func pppoe(proto uint16, payload []byte) []byte {
	b := []byte{2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa, 0x88, 0x64, 0x11, 0, 0, 1}
	b = binary.BigEndian.AppendUint16(b, uint16(len(payload)+2))
	b = binary.BigEndian.AppendUint16(b, proto)
	return append(b, payload...)
}

func payload(n int) gopacket.Payload { return make(gopacket.Payload, n) }

// edit returns a copy of frame with the bytes at off replaced.
func edit(frame []byte, off int, with ...byte) []byte {
	frame = append([]byte(nil), frame...)
	copy(frame[off:], with)
	return frame
}

type want struct {
	l3, l4    uint16
	etherType uint16
	proto     uint8
	tos       uint8
	vlan      uint16
	flags     qdisc.PacketFlags
	priority  uint32
}

func got(p *qdisc.Packet) want {
	return want{p.L3, p.L4, p.EtherType, p.L4Proto, p.TOS, p.VLAN, p.Flags, p.Priority}
}

const (
	isParsed  = qdisc.Parsed
	tagged    = qdisc.Parsed | qdisc.VLANSet
	malformed = qdisc.Parsed | qdisc.Malformed
	fragment  = qdisc.Parsed | qdisc.Fragment
)

var (
	udp4  = bytes(eth(0x0800), ip4(17, 0xb8), udp(4000, 5060), payload(20))
	tcp4  = bytes(eth(0x0800), ip4(6, 0x10), tcp(4000, 443), payload(20))
	udp6  = bytes(eth(0x86dd), ip6(17, 0xb9), udp(4000, 53), payload(20))
	icmp4 = bytes(eth(0x0800), ip4(1, 0), &layers.ICMPv4{TypeCode: 0x0800, Id: 7}, payload(4))
	icmp6 = bytes(eth(0x86dd), ip6(58, 0), &layers.ICMPv6{TypeCode: 0x8000}, &layers.ICMPv6Echo{Identifier: 7})
	arp   = bytes(eth(0x0806), &layers.ARP{AddrType: 1, Protocol: 0x0800, HwAddressSize: 6, ProtAddressSize: 4,
		Operation: 1, SourceHwAddress: macA, SourceProtAddress: ip4A, DstHwAddress: macB, DstProtAddress: ip4B})
	vlan4   = bytes(eth(0x8100), vlan(5, 0x0800), ip4(17, 0), udp(1, 2))
	qinq6   = bytes(eth(0x88a8), vlan(5, 0x8100), vlan(6, 0x86dd), ip6(6, 0), tcp(1, 2))
	chained = bytes(eth(0x86dd), ip6(0, 0x20), payload(0), raw(
		60, 0, 1, 4, 0, 0, 0, 0, // hop-by-hop
		43, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // destination options
		44, 0, 4, 0, 0, 0, 0, 0, // routing
		51, 0, 0, 0, 0, 0, 0, 9, // atomic fragment
		17, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, // AH
		0, 1, 0, 2, 0, 8, 0, 0))
	first6 = bytes(eth(0x86dd), ip6(44, 0), raw(17, 0, 0, 1, 0, 0, 0, 9, 0, 1, 0, 2, 4, 0, 0, 0))
	later6 = bytes(eth(0x86dd), ip6(44, 0), raw(17, 0, 0, 9, 0, 0, 0, 9, 0, 1, 0, 2, 4, 0, 0, 0))
	first4 = bytes(eth(0x0800), &layers.IPv4{Version: 4, TTL: 1, Protocol: 17, Flags: layers.IPv4MoreFragments,
		SrcIP: ip4A, DstIP: ip4B}, raw(0, 1, 0, 2, 4, 0, 0, 0))
	later4 = bytes(eth(0x0800), &layers.IPv4{Version: 4, TTL: 1, Protocol: 17, FragOffset: 1,
		SrcIP: ip4A, DstIP: ip4B}, raw(0, 1, 0, 2, 4, 0, 0, 0))
	options4 = bytes(eth(0x0800), &layers.IPv4{Version: 4, TTL: 1, Protocol: 17, SrcIP: ip4A, DstIP: ip4B,
		Options: []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}}, udp(1, 2))
	stp = append([]byte{1, 0x80, 0xc2, 0, 0, 0, 2, 0, 0, 0, 0, 0xa, 0, 38, 0x42, 0x42, 3}, make([]byte, 43)...)
)

func raw(b ...byte) gopacket.Payload { return b }

func TestHeadersOf(t *testing.T) {
	for _, tc := range []struct {
		name  string
		frame []byte
		want  want
	}{
		{"IPv4 UDP, EF", udp4, want{14, 34, 0x0800, 17, 0xb8, 0, isParsed, 4}},
		{"IPv4 TCP, minimise delay", tcp4, want{14, 34, 0x0800, 6, 0x10, 0, isParsed, 6}},
		{"IPv6 UDP, EF and ECT(1)", udp6, want{14, 54, 0x86dd, 17, 0xb9, 0, isParsed, 4}},
		{"ICMP", icmp4, want{14, 34, 0x0800, 1, 0, 0, isParsed, 0}},
		{"ICMPv6", icmp6, want{14, 54, 0x86dd, 58, 0, 0, isParsed, 0}},
		{"ARP", arp, want{14, 0, 0x0806, 0, 0, 0, isParsed, 0}},
		{"padding behind IPv4", append(udp4[:62:62], 0, 0, 0, 0), want{14, 34, 0x0800, 17, 0xb8, 0, isParsed, 4}},
		{"IPv4 options", options4, want{14, 38, 0x0800, 17, 0, 0, isParsed, 0}},
		{"IPv4 AH", bytes(eth(0x0800), ip4(51, 0), raw(17, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
			0, 1, 0, 2, 0, 8, 0, 0)), want{14, 58, 0x0800, 17, 0, 0, isParsed, 0}},
		{"IPv4 GRE", bytes(eth(0x0800), ip4(47, 0), payload(4)), want{14, 34, 0x0800, 47, 0, 0, isParsed, 0}},
		{"802.1Q", vlan4, want{18, 38, 0x0800, 17, 0, 3<<13 | 5, tagged, 0}},
		{"QinQ", qinq6, want{22, 62, 0x86dd, 6, 0, 3<<13 | 5, tagged, 0}},
		{"QinQ of two 802.1Q tags", bytes(eth(0x8100), vlan(5, 0x8100), vlan(6, 0x0800), ip4(17, 0), udp(1, 2)),
			want{22, 42, 0x0800, 17, 0, 3<<13 | 5, tagged, 0}},
		{"a third tag is a protocol not known", bytes(eth(0x88a8), vlan(5, 0x8100), vlan(6, 0x8100), vlan(7, 0x0800), ip4(17, 0), udp(1, 2)),
			want{22, 0, 0x8100, 0, 0, 3<<13 | 5, tagged, 0}},
		{"PPPoE IPv4", pppoe(0x21, udp4[14:]), want{22, 42, 0x0800, 17, 0xb8, 0, isParsed, 4}},
		{"PPPoE IPv6", pppoe(0x57, udp6[14:]), want{22, 62, 0x86dd, 17, 0xb9, 0, isParsed, 4}},
		{"PPPoE LCP", pppoe(0xc021, make([]byte, 8)), want{14, 0, 0x8864, 0, 0, 0, isParsed, 0}},
		{"PPPoE discovery", edit(pppoe(0x21, udp4[14:]), 13, 0x63), want{14, 0, 0x8863, 0, 0, 0, isParsed, 0}},
		{"IPv6 with five extension headers", chained, want{14, 118, 0x86dd, 17, 0x20, 0, isParsed, 0}},
		{"IPv6 no next header", bytes(eth(0x86dd), ip6(59, 0), payload(3)), want{14, 0, 0x86dd, 59, 0, 0, isParsed, 0}},
		{"first fragment, IPv4", first4, want{14, 34, 0x0800, 17, 0, 0, isParsed, 0}},
		{"first fragment, TCP options in the next one", edit(edit(tcp4[:54], 16, 0, 40, 0, 0, 0x20), 46, 0xf0),
			want{14, 34, 0x0800, 6, 0x10, 0, isParsed, 6}},
		{"later fragment, IPv4", later4, want{14, 0, 0x0800, 17, 0, 0, fragment, 0}},
		{"first fragment, IPv6", first6, want{14, 62, 0x86dd, 17, 0, 0, isParsed, 0}},
		{"later fragment, IPv6", later6, want{14, 0, 0x86dd, 17, 0, 0, fragment, 0}},
		{"LLC", stp, want{14, 0, 4, 0, 0, 0, isParsed, 0}},

		{"nothing", nil, want{flags: malformed}},
		{"no EtherType", udp4[:13], want{flags: malformed}},
		{"tag cut off", vlan4[:17], want{etherType: 0x8100, flags: malformed}},
		{"second tag cut off", qinq6[:20], want{etherType: 0x8100, vlan: 3<<13 | 5, flags: malformed | tagged}},
		{"LLC shorter than its length", stp[:40], want{etherType: 4, flags: malformed}},
		{"PPPoE code", edit(pppoe(0x21, udp4[14:]), 15, 9), want{etherType: 0x8864, flags: malformed}},
		{"PPPoE longer than the frame", edit(pppoe(0x21, udp4[14:]), 18, 1), want{etherType: 0x8864, flags: malformed}},
		{"PPPoE shorter than its packet", edit(pppoe(0x21, udp4[14:]), 19, 24), want{22, 0, 0x0800, 17, 0xb8, 0, malformed, 0}},
		{"IPv4 header cut off", udp4[:33], want{etherType: 0x0800, flags: malformed}},
		{"IPv4 that is version 6", edit(udp4, 14, 0x65), want{etherType: 0x0800, flags: malformed}},
		{"IPv4 header of 16 bytes", edit(udp4, 14, 0x44), want{etherType: 0x0800, flags: malformed}},
		{"IPv4 options cut off", options4[:36], want{etherType: 0x0800, flags: malformed}},
		{"IPv4 longer than the frame", udp4[:61], want{14, 0, 0x0800, 17, 0xb8, 0, malformed, 0}},
		{"IPv4 shorter than its header", edit(udp4, 16, 0, 19), want{14, 0, 0x0800, 17, 0xb8, 0, malformed, 0}},
		{"IPv6 header cut off", udp6[:53], want{etherType: 0x86dd, flags: malformed}},
		{"IPv6 that is version 4", edit(udp6, 14, 0x40), want{etherType: 0x86dd, flags: malformed}},
		{"IPv6 longer than the frame", udp6[:60], want{14, 0, 0x86dd, 17, 0xb9, 0, malformed, 0}},
		{"extension header longer than the packet", edit(chained, 55, 200), want{14, 0, 0x86dd, 0, 0x20, 0, malformed, 0}},
		{"extension headers without end", bytes(eth(0x86dd), ip6(60, 0), payload(0), endless()),
			want{14, 0, 0x86dd, 60, 0, 0, malformed, 0}},
		{"UDP cut off", bytes(eth(0x0800), ip4(17, 0), payload(7)), want{14, 0, 0x0800, 17, 0, 0, malformed, 0}},
		{"UDP header half in the padding, IPv4", edit(udp4, 16, 0, 24), want{14, 0, 0x0800, 17, 0xb8, 0, malformed, 0}},
		{"UDP header half in the padding, IPv6", edit(udp6, 18, 0, 4), want{14, 0, 0x86dd, 17, 0xb9, 0, malformed, 0}},
		{"UDP longer than its packet", edit(udp4, 39, 29), want{14, 0, 0x0800, 17, 0xb8, 0, malformed, 0}},
		{"UDP length 7", edit(udp4, 39, 7), want{14, 0, 0x0800, 17, 0xb8, 0, malformed, 0}},
		{"TCP header of 16 bytes", edit(tcp4, 46, 0x40), want{14, 0, 0x0800, 6, 0x10, 0, malformed, 0}},
		{"TCP options cut off", edit(tcp4, 46, 0xf0), want{14, 0, 0x0800, 6, 0x10, 0, malformed, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := parsed(tc.frame)
			defer p.Free()
			if got := got(p); got != tc.want {
				t.Errorf("frame %x\n got %+v\nwant %+v", tc.frame, got, tc.want)
			}
			// Parsing again, with what the first time left, changes nothing.
			classify.Parse(p)
			if got := got(p); got != tc.want {
				t.Errorf("the second time %+v, want %+v", got, tc.want)
			}
		})
	}
}

// endless is a chain of 16 destination option headers with UDP at its end.
func endless() gopacket.Payload {
	var b []byte
	for range 15 {
		b = append(b, 60, 0, 1, 4, 0, 0, 0, 0)
	}
	return append(b, 17, 0, 1, 4, 0, 0, 0, 0, 0, 1, 0, 2, 0, 8, 0, 0)
}

// The table of tc-prio(8), row by row.
func TestPriorityFollowsTheTOSBits(t *testing.T) {
	for tos, want := range map[uint8]uint32{
		0x00: 0, 0x02: 0, 0x04: 0, 0x06: 0, 0x08: 2, 0x0a: 2, 0x0c: 2, 0x0e: 2,
		0x10: 6, 0x12: 6, 0x14: 6, 0x16: 6, 0x18: 4, 0x1a: 4, 0x1c: 4, 0x1e: 4,
		0xb8: 4, // EF
		0xc0: 0, // CS6
		0x28: 2, // AF11
		0x30: 6, // AF12
		0x38: 4, // AF13
	} {
		for _, lowest := range []uint8{0, 1} { // "must be zero" is not looked at
			if got := classify.TOSPriority(tos | lowest); got != want {
				t.Errorf("TOS %#02x: priority %d, want %d", tos|lowest, got, want)
			}
		}
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	for _, frame := range [][]byte{udp4, chained, qinq6, udp4[:30]} {
		p := packet(frame)
		if n := testing.AllocsPerRun(100, func() { classify.Parse(p) }); n != 0 {
			t.Errorf("%g allocations", n)
		}
		p.Free()
	}
}

func BenchmarkParse(b *testing.B) {
	for _, bc := range []struct {
		name  string
		frame []byte
	}{{"udp4", udp4}, {"tcp4", tcp4}, {"udp6", udp6}, {"qinq6", qinq6}, {"extensions", chained}} {
		b.Run(bc.name, func(b *testing.B) {
			p := packet(bc.frame)
			defer p.Free()
			for b.Loop() {
				classify.Parse(p)
			}
		})
	}
}
