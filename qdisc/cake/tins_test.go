package cake_test

import (
	"testing"

	"sluice/qdisc"
)

// arrivedIn returns the number of the tin, as shown, that p went to.
func (s *sim) arrivedIn(p *qdisc.Packet) int {
	s.Helper()
	var before []uint64
	for _, tin := range s.stats()["tins"].Rows {
		before = append(before, tin["sent_packets"].N)
	}
	s.put(p)
	for i, tin := range s.stats()["tins"].Rows {
		if tin["sent_packets"].N > before[i] {
			return i
		}
	}
	return -1
}

// Every code point goes to its tin. Tins are numbered as they are shown.
func TestTinsByDSCP(t *testing.T) {
	for mode, c := range map[string]struct {
		def  int
		tins map[int][]int
	}{
		"besteffort": {0, nil},
		"diffserv3":  {1, map[int][]int{0: {1, 8}, 2: {4, 44, 46, 48, 56}}},
		"diffserv4": {1, map[int][]int{
			0: {1, 8}, 2: {4, 16, 18, 20, 22, 24, 26, 28, 30, 34, 36, 38}, 3: {32, 40, 44, 46, 48, 56}}},
		"diffserv8": {2, map[int][]int{
			0: {1}, 1: {2, 8, 10, 12, 14}, 3: {24, 26, 28, 30, 34, 36, 38}, 4: {4, 18, 20, 22},
			5: {16}, 6: {32, 40, 44, 46}, 7: {48, 56}}},
		"precedence": {0, map[int][]int{
			1: {8, 9, 10, 11, 12, 13, 14, 15}, 2: {16, 17, 18, 19, 20, 21, 22, 23},
			3: {24, 25, 26, 27, 28, 29, 30, 31}, 4: {32, 33, 34, 35, 36, 37, 38, 39},
			5: {40, 41, 42, 43, 44, 45, 46, 47}, 6: {48, 49, 50, 51, 52, 53, 54, 55},
			7: {56, 57, 58, 59, 60, 61, 62, 63}}},
	} {
		want := map[int]int{}
		for dscp := range 64 {
			want[dscp] = c.def
		}
		for tin, all := range c.tins {
			for _, dscp := range all {
				want[dscp] = tin
			}
		}
		s := newSim(t, 64, mode)
		for dscp := range 64 {
			if got := s.arrivedIn(s.udp(1, 1, 1, 100, uint8(dscp<<2))); got != want[dscp] {
				t.Errorf("%s: DSCP %d goes to tin %d, want %d", mode, dscp, got, want[dscp])
			}
		}
	}
}

// The mark names the tin before the priority does, and that before the DSCP; what is
// out of range names none. ARP goes where network control goes.
func TestTinByMarkPriorityAndProtocol(t *testing.T) {
	const ef = 46 << 2
	for _, c := range []struct {
		name string
		mask int
		set  func(p *qdisc.Packet)
		want int
	}{
		{"nothing", 0xff, func(p *qdisc.Packet) {}, 1},
		{"DSCP", 0xff, func(p *qdisc.Packet) { p.TOS = ef }, 3},
		{"mark", 0xff, func(p *qdisc.Packet) { p.Mark, p.TOS = 3, ef }, 2},
		{"mark behind a mask", 0xf0, func(p *qdisc.Packet) { p.Mark, p.TOS = 0x1f, ef }, 0},
		{"mark out of range", 0xff, func(p *qdisc.Packet) { p.Mark, p.TOS = 5, ef }, 3},
		{"mark without a mask", 0, func(p *qdisc.Packet) { p.Mark, p.TOS = 1, ef }, 3},
		{"highest bits of the mark", 0xf << 28, func(p *qdisc.Packet) { p.Mark, p.TOS = 1<<28|7, ef }, 0},
		{"priority", 0xff, func(p *qdisc.Packet) { p.Priority, p.TOS = 1<<16|1, ef }, 0},
		{"priority out of range", 0xff, func(p *qdisc.Packet) { p.Priority, p.TOS = 1<<16|5, ef }, 3},
		{"priority of another qdisc", 0xff, func(p *qdisc.Packet) { p.Priority, p.TOS = 2<<16|1, ef }, 3},
		{"mark before priority", 0xff, func(p *qdisc.Packet) { p.Mark, p.Priority = 3, 1<<16|1 }, 2},
		{"ARP", 0xff, func(p *qdisc.Packet) { p.EtherType, p.TOS = 0x0806, 0 }, 3},
	} {
		s := newSim(t, 4, "diffserv4", "fwmark", c.mask)
		p := s.udp(1, 1, 1, 100, 0)
		c.set(p)
		if got := s.arrivedIn(p); got != c.want {
			t.Errorf("%s: tin %d, want %d", c.name, got, c.want)
		}
	}
}

// wash clears the DSCP after the tin is chosen, leaves ECN, and the checksum right.
func TestWash(t *testing.T) {
	const ef = 46 << 2
	for tos := range 256 {
		s := newSim(t, 2, "diffserv4", "wash")
		p := s.udp(1, 1, 1, 100, uint8(tos))
		s.put(p)
		if tos&^3 == ef && s.tin(3)["sent_packets"].N != 1 {
			t.Error("the tin was chosen by the washed DSCP")
		}
		p = s.next()
		if h := p.Bytes()[14:34]; h[1] != uint8(tos)&3 || p.TOS != h[1] || sum(h) != 0xffff {
			t.Errorf("TOS %#x became %#x (packet says %#x), sum %#x", tos, h[1], p.TOS, sum(h))
		}
	}
	s := newSim(t, 1, "wash")
	p := s.udp(1, 1, 1, 100, ef|1)
	p.EtherType = 0x86dd
	copy(p.Bytes()[14:], []byte{6<<4 | (ef|1)>>4, (ef|1)<<4&0xff | 0xa, 0xbc, 0xde}) // a flow label, too
	s.put(p)
	if h := s.next().Bytes()[14:]; h[0] != 0x60 || h[1] != 0x1a || h[2] != 0xbc || h[3] != 0xde {
		t.Errorf("IPv6: traffic class and flow label became %x", h[:4])
	}
}

// Without a shaper tins share by their quanta, 1024 : 64 : 512 : 256.
func TestTinsWithoutShaperShareByQuanta(t *testing.T) {
	s := newSim(t, 4096, "diffserv4", "interplanetary", "flows")
	flows := []greedy{
		{src: 1, size: 1000}, {src: 2, size: 1000, tos: 8 << 2},
		{src: 3, size: 1000, tos: 34 << 2}, {src: 4, size: 1000, tos: 46 << 2},
	}
	sent := map[uint8]int{}
	for _, f := range flows {
		for range 8 {
			s.put(s.udp(f.src, 1, 1, f.size, f.tos))
		}
	}
	const n = 18560 // 10 rounds of 1856 times 1000 bytes
	for range n {
		p := s.next()
		sent[p.TOS>>2]++
		s.put(p)
	}
	for dscp, quantum := range map[uint8]int{0: 1024, 8: 64, 34: 512, 46: 256} {
		if got, want := sent[dscp], n*quantum/1856; got < want-20 || got > want+20 {
			t.Errorf("DSCP %d: %d of %d packets, want %d", dscp, got, n, want)
		}
	}
}
