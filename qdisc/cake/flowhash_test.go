package cake_test

import (
	"slices"
	"testing"
	"time"

	"sluice/qdisc"
)

// hashed makes a packet with a given flow hash.
func (s *sim) hashed(hash uint32) *qdisc.Packet {
	p := s.udp(1, 1, 1, 1000, 0)
	p.Hash = hash
	p.Flags |= qdisc.HashSet
	return p
}

// classes returns the minor numbers of the queues in use.
func (s *sim) classes() (ids []uint32) {
	s.q.(qdisc.Walker).Walk(func(c qdisc.Class) bool {
		ids = append(ids, c.ID.Minor())
		return true
	})
	return ids
}

// Eight flows whose hashes want the same queue get one each of the eight around it;
// the ninth has to share.
func TestEightWays(t *testing.T) {
	s := newSim(t, 64, "besteffort", "flows")
	const want = 8*5 + 3
	for i := range uint32(8) {
		s.put(s.hashed(want + 1024*i))
	}
	if got := s.classes(); !slices.Equal(got, []uint32{41, 42, 43, 44, 45, 46, 47, 48}) {
		t.Errorf("queues %v are in use; want the set of eight", got)
	}
	s.put(s.hashed(want + 1024*3)) // is found where it went
	tin := s.tin(0)
	if tin["way_misses"].N != 8 || tin["way_indirect_hits"].N != 1 || tin["way_collisions"].N != 0 {
		t.Errorf("%d misses, %d indirect hits, %d collisions; want 8, 1, 0",
			tin["way_misses"].N, tin["way_indirect_hits"].N, tin["way_collisions"].N)
	}
	s.put(s.hashed(want + 1024*8))
	if tin := s.tin(0); tin["way_collisions"].N != 1 || len(s.classes()) != 8 {
		t.Errorf("%d collisions, %d queues; want 1 and 8", tin["way_collisions"].N, len(s.classes()))
	}
}

// What the modes keep apart.
func TestModes(t *testing.T) {
	type host struct {
		src, dst byte
		port     uint16
	}
	all := []host{{1, 1, 1}, {1, 1, 2}, {1, 2, 1}, {2, 1, 1}, {2, 2, 1}}
	for mode, want := range map[string]int{
		"flowblind": 1, "srchost": 2, "dsthost": 2, "hosts": 4, "flows": 5,
		"dual-srchost": 5, "dual-dsthost": 5, "triple-isolate": 5,
	} {
		s := newSim(t, 8, "besteffort", mode)
		for _, h := range all {
			s.put(s.udp(h.src, h.dst, h.port, 100, 0))
		}
		if got := len(s.classes()); got != want {
			t.Errorf("%s: %d queues, want %d", mode, got, want)
		}
	}
}

// Of an IPv6 address all of it counts.
func TestIPv6Hosts(t *testing.T) {
	for mode, want := range map[string]int{"srchost": 3, "dsthost": 3, "hosts": 5} {
		s := newSim(t, 8, "besteffort", mode)
		for _, at := range []int{-1, 8, 23, 24, 39} { // first and last byte of both
			p := s.udp(0, 0, 0, 100, 0)
			p.EtherType = 0x86dd
			b := p.Bytes()[14:54]
			clear(b)
			if b[0], b[30] = 0x60, 1; at > 0 {
				b[at] = 1
			}
			s.put(p)
		}
		if got := len(s.classes()); got != want {
			t.Errorf("%s: %d queues, want %d", mode, got, want)
		}
	}
}

// byMark answers with the class that is the packet's mark.
type byMark struct{}

func (byMark) Classify(_ *qdisc.Context, p *qdisc.Packet) (qdisc.FilterVerdict, qdisc.ClassID) {
	switch p.Mark {
	case 0:
		return qdisc.NoMatch, 0
	case 1:
		return qdisc.FilterDrop, 0
	case 2:
		return qdisc.FilterStolen, 0
	}
	return qdisc.Match, qdisc.FromTC(p.Mark)
}

// A filter names the queue by the minor and the host by the major number of a class;
// numbers above 1024 name nothing.
func TestFiltersOverrideHashes(t *testing.T) {
	s := newSim(t, 64, "besteffort", "flows")
	if err := s.q.(qdisc.Filtered).SetClassifier(0, byMark{}); err != nil {
		t.Fatal(err)
	}
	put := func(mark, hash uint32) qdisc.Verdict {
		p := s.hashed(hash)
		p.Mark = mark
		return s.put(p)
	}
	put(1<<16|7, 1)
	put(1<<16|7, 2)
	put(1<<16|1024, 3)
	put(0, 99)
	put(1<<16|1025, 200)
	if got := s.classes(); !slices.Equal(got, []uint32{7, 100, 201, 1024}) {
		t.Errorf("queues %v; want 7, 100, 201, 1024", got)
	}
	if v := put(1, 0); v != qdisc.Dropped || s.q.Self().Drops != 1 {
		t.Errorf("drop: verdict %d, %d drops", v, s.q.Self().Drops)
	}
	if v := put(2, 0); v != qdisc.Stolen || s.q.Self().Drops != 1 {
		t.Errorf("stolen: verdict %d, %d drops", v, s.q.Self().Drops)
	}
	if err := s.q.(qdisc.Filtered).SetClassifier(1, byMark{}); err == nil {
		t.Error("a class takes a filter")
	}

	// Hosts: two majors, whatever the addresses say.
	s = newSim(t, 64, "besteffort", "hosts")
	s.q.(qdisc.Filtered).SetClassifier(0, byMark{})
	for i := range byte(10) {
		p := s.udp(i, i, 1, 100, 0)
		p.Mark = 5<<16 | 2000
		s.put(p)
	}
	if got := len(s.classes()); got != 1 {
		t.Errorf("one host by the filter, %d queues", got)
	}
}

// A flow that has nothing more to send stays in sight for an interval, as long as its
// AQM has something to remember, and is forgotten then by whoever sends next.
func TestFlowsComeToRest(t *testing.T) {
	s := newSim(t, 64, "besteffort", "flows")
	for i := range uint32(5) {
		s.put(s.hashed(i))
	}
	s.drain()
	send := func() int {
		s.put(s.hashed(99))
		s.drain()
		return len(s.classes())
	}
	if got := send(); got != 6 {
		t.Errorf("%d queues in use right after, want all 6", got)
	}
	if tin := s.tin(0); tin["sparse_flows"].N != 6 {
		t.Errorf("%d sparse flows, want those at rest among them: 6", tin["sparse_flows"].N)
	}
	s.ctx.Now += 150 * time.Millisecond
	for range 6 {
		send()
	}
	if got := send(); got != 1 {
		t.Errorf("%d queues in use after an interval, want 1", got)
	}
	if tin := s.tin(0); tin["sparse_flows"].N+tin["bulk_flows"].N != 1 {
		t.Errorf("%d sparse, %d bulk flows; want one in all", tin["sparse_flows"].N, tin["bulk_flows"].N)
	}
}

// A flow that ran empty in debt is sparse until its debt is paid; if it wants more
// before that, it is bulk, and waits for its turn with the others.
func TestDebtIsNotForgotten(t *testing.T) {
	s := newSim(t, 64, "besteffort", "flows", "bandwidth", 1_000_000, "interplanetary")
	for range 6 {
		s.put(s.hashed(1))
	}
	s.put(s.hashed(2)) // 1000 bytes, of a quantum of 300
	sparse, bulk := func() uint64 { return s.tin(0)["sparse_flows"].N }, func() uint64 { return s.tin(0)["bulk_flows"].N }
	var hashes []uint32
	for range 3 {
		p := s.next()
		hashes = append(hashes, p.Hash)
		p.Free()
	}
	if !slices.Equal(hashes, []uint32{1, 2, 1}) || sparse() != 1 || bulk() != 1 {
		t.Fatalf("flows %v left, %d sparse, %d bulk; want 1 2 1, one of each", hashes, sparse(), bulk())
	}
	s.put(s.hashed(2))
	if sparse() != 0 || bulk() != 2 {
		t.Errorf("%d sparse, %d bulk; want both flows in bulk", sparse(), bulk())
	}
}
