package tap

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"
)

// traffic describes a burst of segments of one flow; gopacket makes the frames.
type traffic struct {
	v6, udp   bool
	vlans     int
	ipOptions int  // IPv4: bytes of options
	extension bool // IPv6: a hop-by-hop header
	options   int  // TCP: bytes of options
	id        uint16
	seq       uint32
	flags     uint8 // of the super-packet
	mss       int
	payload   []byte
}

const (
	tcpSYN = 0x02
	tcpRST = 0x04
	tcpACK = 0x10
	tcpURG = 0x20
	tcpECE = 0x40
)

// frame is the frame that carries payload as segment i of n, all its lengths
// and checksums made by gopacket.
func (tr traffic) frame(t testing.TB, i, n int, payload []byte) []byte {
	t.Helper()
	etherType, proto := layers.EthernetTypeIPv4, layers.IPProtocolTCP
	if tr.v6 {
		etherType = layers.EthernetTypeIPv6
	}
	if tr.udp {
		proto = layers.IPProtocolUDP
	}
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: etherType}
	stack := []gopacket.SerializableLayer{eth}
	for v := range tr.vlans {
		tag := &layers.Dot1Q{VLANIdentifier: uint16(5 + v), Type: etherType}
		if v == 0 {
			eth.EthernetType = layers.EthernetTypeDot1Q
			if tr.vlans == 2 {
				eth.EthernetType = layers.EthernetTypeQinQ
				tag.Type = layers.EthernetTypeDot1Q
			}
		}
		stack = append(stack, tag)
	}
	var ip gopacket.NetworkLayer
	if tr.v6 {
		ip6 := &layers.IPv6{Version: 6, TrafficClass: 0xb9, FlowLabel: 0x12345, HopLimit: 61, NextHeader: proto,
			SrcIP: net.ParseIP("2001:db8::1"), DstIP: net.ParseIP("2001:db8:ffff::2")}
		if tr.extension {
			hop := &layers.IPv6HopByHop{Options: []*layers.IPv6HopByHopOption{{OptionType: 0x1e, OptionLength: 4, OptionData: make([]byte, 4)}}}
			hop.NextHeader = proto
			ip6.NextHeader = layers.IPProtocolIPv6HopByHop
			stack = append(stack, ip6, hop)
		} else {
			stack = append(stack, ip6)
		}
		ip = ip6
	} else {
		ip4 := &layers.IPv4{Version: 4, TOS: 0xb9, TTL: 61, Protocol: proto, Id: tr.id + uint16(i), Flags: layers.IPv4DontFragment,
			SrcIP: net.IPv4(192, 0, 2, 1), DstIP: net.IPv4(198, 51, 100, 255)}
		for range tr.ipOptions {
			ip4.Options = append(ip4.Options, layers.IPv4Option{OptionType: 1, OptionLength: 1})
		}
		stack, ip = append(stack, ip4), ip4
	}
	if tr.udp {
		udp := &layers.UDP{SrcPort: 4000, DstPort: 443}
		udp.SetNetworkLayerForChecksum(ip)
		stack = append(stack, udp)
	} else {
		flags := tr.flags
		if i < n-1 {
			flags &^= tcpFIN | tcpPSH
		}
		if i > 0 {
			flags &^= tcpCWR
		}
		tcp := &layers.TCP{SrcPort: 4000, DstPort: 443, Seq: tr.seq + uint32(i*tr.mss), Ack: 77, Window: 501,
			FIN: flags&tcpFIN != 0, SYN: flags&tcpSYN != 0, RST: flags&tcpRST != 0, PSH: flags&tcpPSH != 0, ACK: flags&tcpACK != 0,
			URG: flags&tcpURG != 0, ECE: flags&tcpECE != 0, CWR: flags&tcpCWR != 0}
		for range tr.options {
			tcp.Options = append(tcp.Options, layers.TCPOption{OptionType: layers.TCPOptionKindNop})
		}
		tcp.SetNetworkLayerForChecksum(ip)
		stack = append(stack, tcp)
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		append(stack, gopacket.Payload(payload))...)
	if err != nil {
		t.Fatal(err)
	}
	// gopacket pads short frames to Ethernet's minimum; a TAP does not.
	n4 := 20 + tr.options
	if tr.udp {
		n4 = 8
	}
	return b.Bytes()[:tr.l4()+n4+len(payload)]
}

// l4 returns where the transport header of the traffic's frames starts.
func (tr traffic) l4() int {
	at := 14 + 4*tr.vlans + 20 + tr.ipOptions
	if tr.v6 {
		at = 14 + 4*tr.vlans + 40
		if tr.extension {
			at += 8
		}
	}
	return at
}

// super is the super-packet as the kernel hands it over, and its header: the
// checksum field holds the sum of the pseudo header.
func (tr traffic) super(t testing.TB) ([]byte, vnet) {
	b := bytes.Clone(tr.frame(t, 0, 1, tr.payload))
	h := vnet{flags: needsCsum, gsoType: gsoTCPv4, gsoSize: tr.mss, csumStart: tr.l4(), csumOffset: 16}
	proto := byte(6)
	switch {
	case tr.udp:
		h.gsoType, h.csumOffset, proto = gsoUDPL4, 6, 17
	case tr.v6:
		h.gsoType = gsoTCPv6
	}
	if tr.flags&tcpCWR != 0 && !tr.udp {
		h.gsoType |= gsoECN
	}
	seed(b, 14+4*tr.vlans, h, tr.v6, proto)
	return b, h
}

// seed writes the pseudo header's sum into the checksum field.
func seed(b []byte, l3 int, h vnet, v6 bool, proto byte) {
	pseudo := bytes.Clone(b[l3+12 : l3+20])
	if v6 {
		pseudo = bytes.Clone(b[l3+8 : l3+40])
	}
	pseudo = append(pseudo, 0, proto)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(b)-h.csumStart))
	binary.BigEndian.PutUint16(b[h.csumStart+h.csumOffset:], slowSum(pseudo))
}

// slowSum is RFC 1071 as it is written there.
func slowSum(b []byte) uint16 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		s += uint32(b[i]) << 8
		if i+1 < len(b) {
			s += uint32(b[i+1])
		}
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

func drawTraffic(t *rapid.T) traffic {
	bytesOf := func(name string, most int) []byte {
		n := rapid.IntRange(1, most).Draw(t, name)
		b := make([]byte, n)
		x := rapid.Uint64().Draw(t, "content")
		for i := range b {
			x = x*6364136223846793005 + 1442695040888963407
			b[i] = byte(x >> 56)
		}
		return b
	}
	return traffic{
		v6:        rapid.Bool().Draw(t, "v6"),
		udp:       rapid.Bool().Draw(t, "udp"),
		vlans:     rapid.IntRange(0, 2).Draw(t, "vlans"),
		ipOptions: 4 * rapid.IntRange(0, 10).Draw(t, "ipOptions"),
		extension: rapid.Bool().Draw(t, "extension"),
		options:   4 * rapid.IntRange(0, 10).Draw(t, "options"),
		id:        rapid.Uint16().Draw(t, "id"),
		seq:       rapid.Uint32().Draw(t, "seq"),
		flags:     rapid.Uint8().Draw(t, "flags"),
		mss:       rapid.IntRange(1, 1448).Draw(t, "mss"),
		payload:   bytesOf("payload", rapid.SampledFrom([]int{10, 5000, 60000}).Draw(t, "scale")),
	}
}

// A super-packet comes apart into exactly the frames that gopacket makes of the
// same segments: every byte of every header, and the payload in order.
func TestCutFramesAreThoseOfTheSegments(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tr := drawTraffic(rt)
		tr.mss = max(tr.mss, len(tr.payload)/200) // gopacket is slow
		super, h := tr.super(t)
		var c cutter
		if !c.start(super, h) {
			rt.Fatalf("refused %+v", h)
		}
		n := (len(tr.payload) + tr.mss - 1) / tr.mss
		slot := bytes.Repeat([]byte{0xaa}, c.size())
		for i := range n {
			if !c.more() {
				rt.Fatalf("%d frames, want %d", i, n)
			}
			part := tr.payload[i*tr.mss : min((i+1)*tr.mss, len(tr.payload))]
			got, want := slot[:c.next(slot)], tr.frame(t, i, n, part)
			if !bytes.Equal(got, want) && !onlyZeroForm(got, want, tr) {
				rt.Fatalf("frame %d of %d is\n%x\nwant\n%x", i, n, got, want)
			}
		}
		if c.more() {
			rt.Fatalf("more than %d frames", n)
		}
	})
}

// onlyZeroForm reports that want has the checksum 0 where got has 0xffff, which
// is the same number, and in UDP the only one allowed.
func onlyZeroForm(got, want []byte, tr traffic) bool {
	at := tr.l4() + 16
	if tr.udp {
		at = tr.l4() + 6
	}
	return len(got) == len(want) && bytes.Equal(got[:at], want[:at]) && bytes.Equal(got[at+2:], want[at+2:]) &&
		binary.BigEndian.Uint16(got[at:]) == 0xffff && binary.BigEndian.Uint16(want[at:]) == 0
}

// The checksum that NEEDS_CSUM leaves to the device is gopacket's, for frames
// of any length.
func TestCompletedChecksumIsThatOfTheWholeFrame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tr := drawTraffic(rt)
		tr.payload = tr.payload[:min(len(tr.payload), 1400)]
		got, h := tr.super(t)
		want := tr.frame(t, 0, 1, tr.payload)
		if !complete(got, h.csumStart, h.csumOffset) {
			rt.Fatal("refused")
		}
		if !bytes.Equal(got, want) && !onlyZeroForm(got, want, tr) {
			rt.Fatalf("is\n%x\nwant\n%x", got, want)
		}
	})
}

func TestChecksumFieldOutsideTheFrameIsRefused(t *testing.T) {
	for _, c := range []struct {
		start, offset int
		ok            bool
	}{{0, 0, true}, {18, 0, true}, {2, 16, true}, {19, 0, false}, {20, 0, false}, {65535, 65535, false}} {
		if got := complete(make([]byte, 20), c.start, c.offset); got != c.ok {
			t.Errorf("start %d offset %d in 20 bytes: %v", c.start, c.offset, got)
		}
	}
}

func TestSumIsThatOfRFC1071(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0x7f, 0x80, 0xff, 0xff, 0xff}), 0, 200).Draw(t, "b")
		got, want := fold(sum(b, 0)), slowSum(b)
		if got != want {
			t.Fatalf("%#04x, want %#04x", got, want)
		}
		// A sum goes on where another one stopped, wherever the carry is.
		if got := fold(sum(b, ^uint64(0))); got != want && !(got == 0xffff && want == 0) {
			t.Fatalf("on top of all ones: %#04x, want %#04x", got, want)
		}
	})
}

func TestUDPChecksumIsNeverNone(t *testing.T) {
	if got := finish(0xffff); got != 0xffff {
		t.Errorf("a sum of ffff gives checksum %#04x; 0 would say there is none", got)
	}
}

// What does not fit together is refused before anything is cut.
func TestSuperPacketsThatLieAreRefused(t *testing.T) {
	tcp4 := traffic{payload: make([]byte, 3000), mss: 1000, vlans: 1}
	tcp6 := traffic{payload: make([]byte, 3000), mss: 1000, v6: true}
	udp4 := traffic{payload: make([]byte, 3000), mss: 1000, udp: true}
	for name, c := range map[string]struct {
		tr  traffic
		lie func(b []byte, h *vnet) []byte
	}{
		"unknown type":                 {tcp4, func(b []byte, h *vnet) []byte { h.gsoType = 3; return b }},
		"v6 type on IPv4":              {tcp4, func(b []byte, h *vnet) []byte { h.gsoType = gsoTCPv6; return b }},
		"v4 type on IPv6":              {tcp6, func(b []byte, h *vnet) []byte { h.gsoType = gsoTCPv4; return b }},
		"tcp type on UDP":              {udp4, func(b []byte, h *vnet) []byte { h.gsoType = gsoTCPv4; return b }},
		"no checksum asked for":        {tcp4, func(b []byte, h *vnet) []byte { h.flags = 0; return b }},
		"no segment size":              {tcp4, func(b []byte, h *vnet) []byte { h.gsoSize = 0; return b }},
		"checksum start in IP header":  {tcp4, func(b []byte, h *vnet) []byte { h.csumStart -= 4; return b }},
		"checksum start past the end":  {tcp6, func(b []byte, h *vnet) []byte { h.csumStart = len(b); return b }},
		"checksum start before IPv6's": {tcp6, func(b []byte, h *vnet) []byte { h.csumStart -= 4; return b }},
		"checksum not in its field":    {tcp4, func(b []byte, h *vnet) []byte { h.csumOffset = 6; return b }},
		"wrong IP version":             {tcp4, func(b []byte, _ *vnet) []byte { b[18] = 0x55; return b }},
		"not IP":                       {tcp4, func(b []byte, _ *vnet) []byte { b[17] = 6; return b }},
		"short TCP header":             {tcp4, func(b []byte, _ *vnet) []byte { b[38+12] = 0x40; return b }},
		"nothing behind the headers":   {tcp4, func(b []byte, _ *vnet) []byte { return b[:58] }},
		"cut in the TCP header":        {tcp4, func(b []byte, _ *vnet) []byte { return b[:50] }},
		"cut in the IP header":         {tcp4, func(b []byte, _ *vnet) []byte { return b[:30] }},
		"cut in the link header":       {tcp4, func(b []byte, _ *vnet) []byte { return b[:10] }},
		"empty":                        {tcp4, func(b []byte, _ *vnet) []byte { return b[:0] }},
	} {
		b, h := c.tr.super(t)
		if !new(cutter).start(bytes.Clone(b), h) {
			t.Fatalf("%s: the honest super-packet is refused", name)
		}
		var cut cutter
		if cut.start(c.lie(b, &h), h); cut.more() {
			t.Errorf("%s: something is cut", name)
		}
	}
}

// Whatever the kernel says: no frame is longer than announced, and headers
// apart all bytes come out once and in order.
func FuzzCut(f *testing.F) {
	for _, tr := range []traffic{
		{payload: []byte("some payload"), mss: 5},
		{payload: []byte("some payload"), mss: 5, v6: true, extension: true, vlans: 2},
		{payload: []byte("some payload"), mss: 50, udp: true, ipOptions: 4},
	} {
		b, h := tr.super(f)
		f.Add(b, h.flags, h.gsoType, uint16(h.gsoSize), uint16(h.csumStart), uint16(h.csumOffset))
	}
	slot := make([]byte, 1<<17)
	f.Fuzz(func(t *testing.T, b []byte, flags, gsoType uint8, gsoSize, csumStart, csumOffset uint16) {
		h := vnet{flags, gsoType, int(gsoSize), int(csumStart), int(csumOffset)}
		complete(bytes.Clone(b), h.csumStart, h.csumOffset)
		var c cutter
		if !c.start(b, h) {
			return
		}
		want := bytes.Clone(b[c.data:])
		var got []byte
		for c.more() {
			size := c.size()
			n := c.next(slot[:size])
			if n != size {
				t.Fatalf("a frame of %d bytes was announced as %d", n, size)
			}
			got = append(got, slot[c.data:n]...)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("payload\n%x\nwant\n%x", got, want)
		}
	})
}

func BenchmarkCut(bm *testing.B) {
	for _, v6 := range []bool{false, true} {
		bm.Run(fmt.Sprintf("v6=%v", v6), func(bm *testing.B) {
			tr := traffic{payload: make([]byte, 44*1448), mss: 1448, v6: v6, options: 12}
			super, h := tr.super(bm)
			b, slot := make([]byte, len(super)), make([]byte, 2048)
			bm.ReportAllocs()
			frames := 0
			for range bm.N {
				copy(b, super)
				var c cutter
				c.start(b, h)
				for c.more() {
					c.next(slot)
					frames++
				}
			}
			bm.ReportMetric(float64(bm.Elapsed().Nanoseconds())/float64(frames), "ns/frame")
		})
	}
}
