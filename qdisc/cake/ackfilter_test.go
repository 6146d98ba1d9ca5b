package cake_test

import (
	"encoding/binary"
	"testing"

	"sluice/qdisc"
)

// ack describes a TCP segment from 10.0.0.1:5000 to 10.1.0.1:80.
type ack struct {
	no       uint32
	flags    uint8 // beside ACK
	payload  int
	sack     []uint32 // edges of the blocks
	ts, echo uint32   // 0: no timestamps
	options  []byte   // others
	port     uint16   // instead of 5000
	over     string   // "ipv6", "6in4"; empty: IPv4
	noACK    bool
	padding  int // behind the segment, as Ethernet does
	fragment bool
}

const (
	fin = 0x01
	syn = 0x02
	psh = 0x08
	urg = 0x20
	ece = 0x40
	cwr = 0x80
)

// tcp makes the frame of a.
func (s *sim) tcp(a ack) *qdisc.Packet {
	s.Helper()
	var options []byte
	if a.ts != 0 {
		options = append(options, 1, 1, 8, 10)
		options = binary.BigEndian.AppendUint32(options, a.ts)
		options = binary.BigEndian.AppendUint32(options, a.echo)
	}
	options = append(options, a.options...)
	if a.sack != nil {
		options = append(options, 1, 1, 5, byte(2+4*len(a.sack)))
		for _, edge := range a.sack {
			options = binary.BigEndian.AppendUint32(options, edge)
		}
	}
	for len(options)%4 != 0 {
		options = append(options, 0)
	}
	tcp := make([]byte, 20, 60+a.payload)
	port := a.port
	if port == 0 {
		port = 5000
	}
	binary.BigEndian.PutUint16(tcp, port)
	binary.BigEndian.PutUint16(tcp[2:], 80)
	binary.BigEndian.PutUint32(tcp[8:], a.no)
	tcp[12] = byte(5+len(options)/4) << 4
	tcp[13] = a.flags | 0x10
	if a.noACK {
		tcp[13] = a.flags
	}
	tcp = append(append(tcp, options...), make([]byte, a.payload)...)

	inner := tcp
	if a.over != "" {
		ip6 := make([]byte, 40)
		ip6[0], ip6[6], ip6[7], ip6[23], ip6[39] = 0x60, 6, 64, 1, 2
		binary.BigEndian.PutUint16(ip6[4:], uint16(len(tcp)))
		inner = append(ip6, tcp...)
	}
	p := s.ctx.Pool.Get()
	p.L3, p.EtherType, p.L4Proto = 14, 0x86dd, 6
	network := inner
	if a.over != "ipv6" {
		p.EtherType = 0x0800
		h := make([]byte, 20)
		h[0], h[8], h[9] = 0x45, 64, 6
		if a.over == "6in4" {
			h[9], p.L4Proto = 41, 41
		}
		if a.fragment {
			h[6] = 0x20
		}
		binary.BigEndian.PutUint16(h[2:], uint16(20+len(inner)))
		copy(h[12:], []byte{10, 0, 0, 1, 10, 1, 0, 1})
		network = append(h, inner...)
	}
	p.SetLen(14 + len(network) + a.padding)
	b := p.Bytes()
	clear(b)
	copy(b[14:], network)
	p.L4 = uint16(14 + len(network) - len(tcp))
	p.Hash, p.Flags = 1, p.Flags|qdisc.Parsed|qdisc.HashSet // one queue for all
	return p
}

// What the filter takes out of a queue of segments, by their places. "normal" leaves
// one acknowledgement besides the newest, "aggressive" none.
func TestAckFilter(t *testing.T) {
	plain := func(n ...uint32) (all []ack) {
		for _, x := range n {
			all = append(all, ack{no: x})
		}
		return all
	}
	for _, c := range []struct {
		name               string
		queue              []ack
		normal, aggressive []int // dropped
	}{
		{"one", plain(1), nil, nil},
		{"two", plain(1, 2), nil, []int{0}},
		{"three", plain(1, 2, 3), []int{0}, []int{0, 1}},
		{"five", plain(1, 2, 3, 4, 5), []int{0, 1, 2}, []int{0, 1, 2, 3}},
		{"duplicates count for themselves", plain(7, 7, 7, 7), nil, nil},
		{"an older number does not replace a newer one", plain(5, 6, 4), nil, []int{0}},
		{"numbers wrap", plain(0xfffffff0, 0xfffffffe, 3), []int{0}, []int{0, 1}},
		{"with data", []ack{{no: 1, payload: 10}, {no: 2, payload: 10}, {no: 3}}, nil, nil},
		{"data acknowledges, too", []ack{{no: 1}, {no: 2}, {no: 3, payload: 10}}, []int{0}, []int{0, 1}},
		{"padding is no data", []ack{{no: 1, padding: 6}, {no: 2, padding: 6}, {no: 3, padding: 6}}, []int{0}, []int{0, 1}},
		{"FIN", []ack{{no: 1, flags: fin}, {no: 2, flags: fin}, {no: 3}}, nil, nil},
		{"PSH", []ack{{no: 1, flags: psh}, {no: 2}, {no: 3}}, nil, []int{1}},
		{"URG", []ack{{no: 1, flags: urg}, {no: 2}, {no: 3}}, nil, []int{1}},
		{"SYN triggers nothing", []ack{{no: 1}, {no: 2}, {no: 3, flags: syn}}, nil, []int{0}},
		{"no ACK", []ack{{no: 1}, {no: 2}, {no: 3, noACK: true}}, nil, []int{0}},
		{"another flow in the same queue", []ack{{no: 1}, {no: 2, port: 6}, {no: 3}}, nil, nil},
		{"two flows in the same queue", []ack{{no: 1}, {no: 1, port: 6}, {no: 2}, {no: 2, port: 6}, {no: 3}}, []int{0}, []int{0}},
		{"the echo changes", []ack{{no: 1}, {no: 2, flags: ece}, {no: 3, flags: ece}}, nil, []int{1}},
		{"the echo stays", []ack{{no: 1, flags: ece}, {no: 2, flags: ece}, {no: 3, flags: ece}}, []int{0}, []int{0, 1}},
		{"CWR", []ack{{no: 1}, {no: 2, flags: cwr}, {no: 3}, {no: 4}}, nil, []int{2}},
		{"timestamps", []ack{{no: 1, ts: 10, echo: 5}, {no: 2, ts: 11, echo: 5}, {no: 3, ts: 12, echo: 6}}, []int{0}, []int{0, 1}},
		{"timestamps go back", []ack{{no: 1, ts: 10, echo: 5}, {no: 2, ts: 11, echo: 7}, {no: 3, ts: 12, echo: 6}}, nil, []int{0}},
		{"timestamps are lost", []ack{{no: 1, ts: 10, echo: 5}, {no: 2, ts: 10, echo: 5}, {no: 3}}, nil, []int{0}},
		{"an unknown option", []ack{{no: 1, options: []byte{254, 4, 1, 2}}, {no: 2}, {no: 3}}, nil, []int{1}},
		{"an option that lies", []ack{{no: 1, options: []byte{5, 90, 1, 2}}, {no: 2}, {no: 3}}, nil, []int{1}},
		{"SACK grows", []ack{{no: 1, sack: []uint32{10, 20}}, {no: 1, sack: []uint32{10, 30}}, {no: 1, sack: []uint32{10, 40}}},
			[]int{0}, []int{0, 1}},
		{"SACK is the same", []ack{{no: 1, sack: []uint32{10, 20}}, {no: 1, sack: []uint32{10, 20}}, {no: 1, sack: []uint32{10, 20}}}, nil, nil},
		{"SACK is lost", []ack{{no: 1, sack: []uint32{10, 20}}, {no: 2, sack: []uint32{10, 20}}, {no: 3}}, nil, []int{0}},
		{"SACK has another block", []ack{{no: 1, sack: []uint32{10, 20}}, {no: 1, sack: []uint32{30, 40, 10, 20}}, {no: 1, sack: []uint32{50, 60, 30, 40, 10, 20}}},
			[]int{0}, []int{0, 1}},
		{"SACK has one block less", []ack{{no: 1, sack: []uint32{10, 20, 30, 40}}, {no: 1}, {no: 2, sack: []uint32{30, 50}}}, nil, []int{1}},
		{"D-SACK", []ack{{no: 100, sack: []uint32{10, 20}}, {no: 101, sack: []uint32{10, 20}}, {no: 102, sack: []uint32{10, 20}}}, nil, nil},
		{"IPv6", []ack{{no: 1, over: "ipv6"}, {no: 2, over: "ipv6"}, {no: 3, over: "ipv6"}}, []int{0}, []int{0, 1}},
		{"IPv6 in IPv4", []ack{{no: 1, over: "6in4"}, {no: 2, over: "6in4"}, {no: 3, over: "6in4"}}, []int{0}, []int{0, 1}},
		{"IPv6 and IPv4", []ack{{no: 1}, {no: 2, over: "ipv6"}, {no: 3, over: "ipv6"}}, nil, []int{1}},
		{"fragments", []ack{{no: 1, fragment: true}, {no: 2, fragment: true}, {no: 3}}, nil, nil},
	} {
		for mode, want := range map[string][]int{"ack-filter": c.normal, "ack-filter-aggressive": c.aggressive, "no-ack-filter": nil} {
			s := newSim(t, 16, mode, "besteffort")
			place := map[*qdisc.Packet]int{}
			dropped := map[int]bool{}
			s.ctx.OnDrop = func(p *qdisc.Packet, _ qdisc.Reason) { dropped[place[p]] = true }
			for i, a := range c.queue {
				p := s.tcp(a)
				place[p] = i
				if v := s.put(p); v != qdisc.Success {
					t.Errorf("%s, %s: verdict %d", c.name, mode, v)
				}
			}
			if len(dropped) != len(want) {
				t.Errorf("%s, %s: dropped %v, want %v", c.name, mode, dropped, want)
			}
			for _, i := range want {
				if !dropped[i] {
					t.Errorf("%s, %s: dropped %v, want %v", c.name, mode, dropped, want)
				}
			}
		}
	}
}

// A packet that the filter drops is off every counter, here and above, and never more
// than that.
func TestTrap40AckFilterAccounting(t *testing.T) {
	s := newSim(t, 16, "ack-filter", "besteffort")
	first := s.tcp(ack{no: 1, ts: 1, echo: 1})
	size := int(first.PktLen)
	s.put(first)
	s.put(s.tcp(ack{no: 2}))
	s.put(s.tcp(ack{no: 3, ts: 2, echo: 1}))
	b := s.q.Self()
	if s.q.Len() != 2 || s.q.Backlog() != 54+size || b.Drops != 1 {
		t.Errorf("%d packets of %d bytes, %d drops; want 2 of %d, and 1 drop", s.q.Len(), s.q.Backlog(), b.Drops, 54+size)
	}
	tin := s.tin(0)
	if tin["ack_drops"].N != 1 || tin["drops"].N != 0 || tin["backlog_bytes"].N != uint64(54+size) {
		t.Errorf("the tin counts %d filtered, %d dropped, %d bytes", tin["ack_drops"].N, tin["drops"].N, tin["backlog_bytes"].N)
	}
	if n := s.drain(); n != 2 || s.q.Len() != 0 || s.q.Backlog() != 0 {
		t.Errorf("%d left, then %d of %d bytes", n, s.q.Len(), s.q.Backlog())
	}
}

// Whatever is in the frames, the filter reads within them.
func FuzzAckFilter(f *testing.F) {
	seed := newSim(f, 8)
	for _, a := range []ack{{no: 1}, {no: 2, over: "ipv6"}, {no: 3, over: "6in4"}, {no: 4, sack: []uint32{5, 6}, ts: 1}} {
		p := seed.tcp(a)
		f.Add(append([]byte(nil), p.Bytes()...), append([]byte(nil), p.Bytes()...), p.EtherType == 0x86dd)
	}
	f.Fuzz(func(t *testing.T, a, b []byte, six bool) {
		s := newSim(t, 4, "ack-filter-aggressive", "besteffort")
		for _, frame := range [][]byte{a, b, a} {
			if len(frame) < 14 || len(frame) > 1500 {
				return
			}
			p := s.ctx.Pool.Get()
			p.SetLen(len(frame))
			copy(p.Bytes(), frame)
			p.L3, p.EtherType = 14, 0x0800
			if six {
				p.EtherType = 0x86dd
			}
			if least := map[bool]int{false: 34, true: 54}[six]; len(frame) < least {
				p.L3 = 0 // as the parser says of what is cut off
			}
			p.Hash, p.Flags = 1, qdisc.HashSet
			s.put(p)
		}
		if got := s.drain(); got != s.ctx.Pool.Size()-1-int(s.q.Self().Drops) {
			t.Errorf("%d left, %d dropped of 3", got, s.q.Self().Drops)
		}
	})
}
