package classify_test

import (
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"sluice/qdisc"
	"sluice/shaper/classify"
)

// Any stack of headers that is put together properly is read without
// complaint, every header where it was put.
func TestParseFindsEveryHeader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tos := rapid.Byte().Draw(t, "tos")
		size := rapid.IntRange(0, 1200).Draw(t, "payload")
		transport, proto := drawTransport(t)
		network, headers := drawNetwork(t, proto, tos)
		ipType := uint16(classify.EtherIPv4)
		if _, ok := network[0].(*layers.IPv6); ok {
			ipType = classify.EtherIPv6
		}
		ip := bytes(append(append([]gopacket.SerializableLayer{eth(0)}, append(network, transport...)...), payload(size))...)[14:]

		want := want{etherType: ipType, proto: uint8(proto), tos: tos, flags: qdisc.Parsed, priority: classify.TOSPriority(tos)}
		inner := ipType
		if rapid.Bool().Draw(t, "pppoe") {
			ppp := map[uint16]uint16{classify.EtherIPv4: 0x21, classify.EtherIPv6: 0x57}[ipType]
			ip, inner = pppoe(ppp, ip)[14:], classify.EtherPPPoE
			want.l3 = 8
		}
		types := rapid.SliceOfN(rapid.SampledFrom([]uint16{classify.EtherVLAN, classify.EtherQinQ, classify.EtherQinQ1}), 0, 2).Draw(t, "tags")
		frame := append([]byte(nil), udp4[:12]...)
		for i, tag := range types {
			tci := rapid.Uint16().Draw(t, "tci")
			if i == 0 {
				want.vlan = tci
				want.flags |= qdisc.VLANSet
			}
			frame = append(frame, byte(tag>>8), byte(tag), byte(tci>>8), byte(tci))
		}
		frame = append(frame, byte(inner>>8), byte(inner))
		want.l3 += uint16(len(frame))
		want.l4 = want.l3 + uint16(headers)
		frame = append(append(frame, ip...), make([]byte, rapid.IntRange(0, 50).Draw(t, "padding"))...)

		p := parsed(frame)
		defer p.Free()
		if got := got(p); got != want {
			t.Fatalf("frame %x\n got %+v\nwant %+v", frame, got, want)
		}
		checkOffsets(t, p)
	})
}

func drawTransport(t *rapid.T) ([]gopacket.SerializableLayer, layers.IPProtocol) {
	a, b := rapid.IntRange(1, 65535).Draw(t, "sport"), rapid.IntRange(1, 65535).Draw(t, "dport")
	switch rapid.IntRange(0, 4).Draw(t, "transport") {
	case 0:
		return []gopacket.SerializableLayer{udp(a, b)}, layers.IPProtocolUDP
	case 1:
		tcp := tcp(a, b)
		if rapid.Bool().Draw(t, "mss") {
			tcp.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 0xb4}}}
		}
		return []gopacket.SerializableLayer{tcp}, layers.IPProtocolTCP
	case 2:
		return []gopacket.SerializableLayer{&layers.ICMPv4{TypeCode: 0x0800}}, layers.IPProtocolICMPv4
	case 3:
		return []gopacket.SerializableLayer{&layers.SCTP{SrcPort: layers.SCTPPort(a), DstPort: layers.SCTPPort(b)}}, layers.IPProtocolSCTP
	}
	return []gopacket.SerializableLayer{payload(1)}, layers.IPProtocolOSPF
}

// drawNetwork returns the layers between Ethernet and the transport header, and
// how many bytes they are.
func drawNetwork(t *rapid.T, proto layers.IPProtocol, tos uint8) ([]gopacket.SerializableLayer, int) {
	if rapid.Bool().Draw(t, "IPv4") {
		ip := ip4(proto, tos)
		n := rapid.IntRange(0, 10).Draw(t, "option words")
		for range n { // router alert, again and again
			ip.Options = append(ip.Options, layers.IPv4Option{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}})
		}
		return []gopacket.SerializableLayer{ip}, 20 + 4*n
	}
	// The chain, built from its end: every header names what follows it.
	var chain []byte
	next := uint8(proto)
	for range rapid.IntRange(0, 4).Draw(t, "extensions") {
		kind := rapid.SampledFrom([]uint8{0, 43, 44, 51, 60}).Draw(t, "kind")
		units := rapid.IntRange(0, 3).Draw(t, "units")
		h := make([]byte, 8*(units+1))
		switch kind {
		case 44:
			h = make([]byte, 8) // an atomic fragment
		case 51:
			h = make([]byte, 16+8*units)
			h[1] = uint8(len(h)/4 - 2)
		default:
			h[1] = uint8(units)
		}
		h[0] = next
		chain, next = append(h, chain...), kind
	}
	return []gopacket.SerializableLayer{ip6(layers.IPProtocol(next), tos), raw(chain...)}, 40 + len(chain)
}
