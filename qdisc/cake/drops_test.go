package cake_test

import (
	"testing"
	"time"

	"sluice/qdisc"
)

// Over the memory limit the longest queue loses its head. The verdict says whose queue
// that was: of another flow, Success; of the same, CN; the packet itself, Dropped.
// (The kernel said success when the packet was gone, and parents counted a phantom:
// CVE-2025-39766.)
func TestTrap22OverflowVerdicts(t *testing.T) {
	const memory = 2304 // of a frame of 1000 bytes
	s := newSim(t, 16, "besteffort", "flows", "memlimit", 4*memory)
	for i := range uint32(4) {
		if v := s.put(s.hashed(i / 3)); v != qdisc.Success { // three of flow 0, one of flow 1
			t.Fatalf("packet %d: verdict %d", i, v)
		}
	}
	if v := s.put(s.hashed(0)); v != qdisc.CN {
		t.Errorf("the longest queue's own packet: verdict %d, want CN", v)
	}
	if v := s.put(s.hashed(1)); v != qdisc.Success {
		t.Errorf("another's packet: verdict %d, want Success", v)
	}
	if s.q.Len() != 4 || s.q.Self().Drops != 2 {
		t.Errorf("%d queued, %d drops; want 4 and 2", s.q.Len(), s.q.Self().Drops)
	}
	s = newSim(t, 16, "besteffort", "flows", "memlimit", memory-1)
	if v := s.put(s.hashed(0)); v != qdisc.Dropped || s.q.Len() != 0 {
		t.Errorf("larger than the limit: verdict %d, %d queued; want Dropped and none", v, s.q.Len())
	}
}

// The AQM marks what can be marked, and drops what cannot, but never the last packet
// of a queue.
func TestTrap40LastPacketIsNeverDropped(t *testing.T) {
	for _, c := range []struct {
		tos          uint8
		drops, marks bool
	}{{0, true, false}, {ect0, false, true}} {
		s := newSim(t, 512, "besteffort", "flows")
		for range 200 {
			s.put(s.udp(1, 1, 1, 1000, c.tos))
		}
		marks, left := 0, 0
		for s.q.Len() > 0 {
			s.ctx.Now += 10 * time.Millisecond
			p := s.q.Dequeue(s.ctx)
			if p == nil {
				t.Fatal("the last packet was dropped")
			}
			if p.ECN() == 3 {
				marks++
			}
			p.Free()
			left++
		}
		drops := int(s.q.Self().Drops)
		if drops+left != 200 || c.drops != (drops > 20) || c.marks != (marks > 20) {
			t.Errorf("ECN %d: %d left, %d marked, %d dropped", c.tos, left, marks, drops)
		}
		if tin := s.tin(0); int(tin["drops"].N) != drops || int(tin["ecn_mark"].N) != marks {
			t.Errorf("the tin counts %d drops and %d marks of %d and %d", tin["drops"].N, tin["ecn_mark"].N, drops, marks)
		}
		// A packet at a time is always the last one.
		before := s.q.Self().Drops
		for range 100 {
			s.put(s.udp(1, 1, 1, 1000, c.tos))
			s.ctx.Now += time.Second
			if p := s.q.Dequeue(s.ctx); p == nil {
				t.Fatal("a packet alone in its queue was dropped")
			} else {
				p.Free()
			}
		}
		if s.q.Self().Drops != before {
			t.Error("packets alone in their queue were dropped")
		}
	}
}

// A change that takes tins away drops what waits in them, and counts it.
func TestChangeToFewerTins(t *testing.T) {
	s := newSim(t, 16, "diffserv4", "flows")
	for i, tos := range []uint8{0, 8 << 2, 34 << 2, 46 << 2} {
		s.put(s.udp(byte(i), 1, 1, 1000, tos))
	}
	if err := s.q.(qdisc.Changer).Change(s.ctx, given("besteffort")); err != nil {
		t.Fatal(err)
	}
	if s.q.Len() != 1 || s.q.Backlog() != 1000 || s.q.Self().Drops != 3 {
		t.Errorf("%d of %d bytes wait, %d drops; want 1 of 1000 and 3", s.q.Len(), s.q.Backlog(), s.q.Self().Drops)
	}
	if n := s.drain(); n != 1 {
		t.Errorf("%d leave, want 1", n)
	}
}

// A change leaves alone what it does not name.
func TestChangeKeepsTheRest(t *testing.T) {
	q := build(t, "bandwidth", 125_000, "diffserv4", "dual-srchost", "wash", "ethernet", "memlimit", 1<<20, "fwmark", 7)
	before := q.(qdisc.Dumper).Dump()
	ctx := qdisc.NewContext(nil, 1)
	if err := q.(qdisc.Changer).Change(ctx, given("rtt", 30*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	after := q.(qdisc.Dumper).Dump()
	for name, v := range before {
		if name != "rtt" && (after[name].N != v.N || after[name].Word != v.Word) {
			t.Errorf("%s was %v and is %v", name, v, after[name])
		}
	}
	if got := time.Duration(after["rtt"].N); got != 30*time.Millisecond {
		t.Errorf("rtt is %v", got)
	}
	// What Dump gives makes the same again.
	again, err := newFrom(after)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range again.(qdisc.Dumper).Dump() {
		if after[name].N != v.N || after[name].Word != v.Word {
			t.Errorf("%s was %v and is %v when made again", name, after[name], v)
		}
	}
}

// A flood that no signal slows down meets BLUE: it counts as unresponsive, and loses
// packets for that reason, before the memory is full again.
func TestFloodMeetsBlue(t *testing.T) {
	s := newSim(t, 512, "bandwidth", 125_000, "besteffort", "memlimit", 100_000)
	for range 3000 {
		for range 2 { // twice the rate
			s.put(s.udp(1, 1, 1, 1000, ect0))
		}
		s.next().Free()
	}
	if got := s.tin(0)["unresponsive_flows"].N; got != 1 {
		t.Errorf("%d unresponsive flows, want 1", got)
	}
	if got := s.ctx.Drops[qdisc.FloodProtection]; got < 100 {
		t.Errorf("%d drops by BLUE", got)
	}
	s.drain()
	for range 5000 {
		s.ctx.Now += 100 * time.Millisecond
		s.put(s.udp(1, 1, 1, 1000, 0))
		s.next().Free()
	}
	if got := s.tin(0)["unresponsive_flows"].N; got != 0 {
		t.Errorf("%d unresponsive flows after it has become quiet, want none", got)
	}
}
