package cake_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/qdisc"
)

// The rate is delivered to a tenth of a percent, from slow to fast, and the long-run
// rate exactly: what does not divide is carried on.
func TestRateIsDelivered(t *testing.T) {
	for _, c := range []struct {
		bits float64
		d    time.Duration
	}{
		{1e6, 10 * time.Second}, {100e6, 10 * time.Second}, {1e9, 10 * time.Second},
		{10e9, 10 * time.Second}, {100e9, time.Second},
	} {
		if testing.Short() && c.bits > 1e9 {
			continue
		}
		s := newSim(t, 64, "bandwidth", int(c.bits/8), "besteffort", "flowblind", "interplanetary")
		for range 32 {
			s.put(s.udp(1, 1, 1, 1514, 0))
		}
		sent := 0
		for s.ctx.Now < c.d {
			p := s.next()
			sent += p.Len()
			s.put(p)
		}
		want := c.bits / 8 * s.ctx.Now.Seconds()
		if off := math.Abs(float64(sent) - want); off > 2*1514+want/1e6 {
			t.Errorf("%g bit/s: %d bytes in %v, want %.0f", c.bits, sent, s.ctx.Now, want)
		}
	}
}

// A packet moves the clock by what it takes: 1000 bytes at 8 Mbit/s are 1 ms, with
// no burst at the beginning.
func TestNoBurst(t *testing.T) {
	s := newSim(t, 8, "bandwidth", 1_000_000, "besteffort")
	for range 4 {
		s.put(s.udp(1, 1, 1, 1000, 0))
	}
	var at []time.Duration
	for p := s.next(); p != nil; p = s.next() {
		at = append(at, s.ctx.Now)
		p.Free()
	}
	if diff := cmp.Diff([]time.Duration{0, time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond}, at); diff != "" {
		t.Error(diff)
	}
}

// Kept waiting, the shaper catches up; that is its only burst.
func TestCatchesUpWhenKeptWaiting(t *testing.T) {
	s := newSim(t, 16, "bandwidth", 1_000_000, "besteffort", "interplanetary")
	for range 10 {
		s.put(s.udp(1, 1, 1, 1000, 0))
	}
	s.next().Free()
	s.ctx.Now = 5500 * time.Microsecond // the device stood still
	n := 0
	for p := s.q.Dequeue(s.ctx); p != nil; p = s.q.Dequeue(s.ctx) {
		p.Free()
		n++
	}
	if n != 5 {
		t.Errorf("%d packets leave at once after 5.5 ms, want the 5 that were due", n)
	}
	if at := s.q.NextAt(); at != 6*time.Millisecond {
		t.Errorf("the next at %v, want 6ms", at)
	}
}

// The clocks of a shaper that was idle do not lag behind: idle time is no credit.
func TestTrap40IdleTimeIsNoCredit(t *testing.T) {
	for _, held := range []bool{false, true} {
		s := newSim(t, 16, "bandwidth", 1_000_000)
		s.put(s.udp(1, 1, 1, 1000, 0))
		p := s.next()
		if held { // the device gave it back: queued here, yet nothing to send
			s.q.Self().Hold(p)
		} else {
			p.Free()
		}
		s.ctx.Now = time.Second
		for range 3 {
			s.put(s.udp(1, 1, 1, 1000, 0))
		}
		n := 0
		for p := s.q.Dequeue(s.ctx); p != nil; p = s.q.Dequeue(s.ctx) {
			p.Free()
			n++
		}
		if n != 1 {
			t.Errorf("held %v: %d packets leave at once after a second of idling, want 1", held, n)
		}
	}
}

// What a packet takes on the wire, by the words for the link.
func TestOverhead(t *testing.T) {
	for _, c := range []struct {
		words []any
		size  map[int]uint64 // of the frame: on the wire
	}{
		{[]any{}, map[int]uint64{60: 60, 1514: 1514}},
		{[]any{"raw"}, map[int]uint64{60: 60, 1514: 1514}},
		{[]any{"mpu", 100}, map[int]uint64{60: 100, 1514: 1514}},
		{[]any{"atm"}, map[int]uint64{60: 106, 48: 53, 49: 106}},
		{[]any{"overhead", 0}, map[int]uint64{60: 46, 1514: 1500}},
		{[]any{"overhead", 44, "atm"}, map[int]uint64{64: 106, 1514: 1749}},
		{[]any{"overhead", 22, "ptm"}, map[int]uint64{60: 46 + 22 + 2, 1514: 1522 + 24}},
		{[]any{"ethernet"}, map[int]uint64{60: 84, 1514: 1538}},
		{[]any{"ethernet", "ether-vlan"}, map[int]uint64{60: 88, 1514: 1542}},
		{[]any{"docsis"}, map[int]uint64{54: 64, 1514: 1518}},
		{[]any{"conservative"}, map[int]uint64{60: 106, 1514: 53 * 33}},
		{[]any{"pppoe-ptm"}, map[int]uint64{1506: 1522 + 24}},
		{[]any{"pppoe-llcsnap"}, map[int]uint64{1506: 53 * 32}},
		{[]any{"ethernet", "raw"}, map[int]uint64{1514: 1514}},
		{[]any{"raw", "overhead", 24}, map[int]uint64{1514: 1538}},
	} {
		for n, want := range c.size {
			s := newSim(t, 1, c.words...)
			s.put(s.udp(1, 1, 1, n, 0))
			if got := s.stats()["max_adj_size"].N; got != want {
				t.Errorf("%v: a frame of %d bytes takes %d, want %d", c.words, n, got, want)
			}
		}
	}
}

// Words for a link add up with the words before them; raw comes back to the frame.
func TestWordsForLinks(t *testing.T) {
	for _, c := range []struct {
		words    []any
		overhead int64
		mpu      uint64
		atm      string
		raw      bool
	}{
		{[]any{"conservative"}, 48, 0, "atm", false},
		{[]any{"ipoa-vcmux"}, 8, 0, "atm", false},
		{[]any{"ipoa-llcsnap"}, 16, 0, "atm", false},
		{[]any{"bridged-vcmux"}, 24, 0, "atm", false},
		{[]any{"bridged-llcsnap"}, 32, 0, "atm", false},
		{[]any{"pppoa-vcmux"}, 10, 0, "atm", false},
		{[]any{"pppoa-llc"}, 14, 0, "atm", false},
		{[]any{"pppoe-vcmux"}, 32, 0, "atm", false},
		{[]any{"pppoe-llcsnap"}, 40, 0, "atm", false},
		{[]any{"pppoe-ptm"}, 30, 0, "ptm", false},
		{[]any{"bridged-ptm"}, 22, 0, "ptm", false},
		{[]any{"bridged-ptm", "ether-vlan", "ether-vlan"}, 30, 0, "ptm", false},
		{[]any{"docsis"}, 18, 64, "noatm", false},
		{[]any{"ethernet"}, 38, 84, "noatm", false},
		{[]any{"ethernet", "overhead", 10}, 10, 84, "noatm", false},
		{[]any{"atm", "ethernet"}, 38, 84, "atm", false},
		{[]any{"docsis", "via-ethernet"}, 18, 64, "noatm", false},
		{[]any{"via-ethernet"}, 0, 0, "", true},
		{[]any{"ethernet", "raw"}, 0, 84, "", true},
	} {
		v := build(t, c.words...).(qdisc.Dumper).Dump()
		if got := int64(v["overhead"].N); got != c.overhead {
			t.Errorf("%v: overhead %d, want %d", c.words, got, c.overhead)
		}
		if got := v.N("mpu", 0); got != c.mpu {
			t.Errorf("%v: mpu %d, want %d", c.words, got, c.mpu)
		}
		if got := v["atm/json"].Word; got != c.atm {
			t.Errorf("%v: %q, want %q", c.words, got, c.atm)
		}
		if got := v.Has("raw"); got != c.raw {
			t.Errorf("%v: raw is %v", c.words, got)
		}
	}
}

// What follows from the rate (kernel-semantics of cake: quantum, target, interval and
// the memory limit of a tin by its rate), at 1514 bytes a frame.
func TestDerivedFromTheRate(t *testing.T) {
	for _, c := range []struct {
		rate             int
		quantum          uint64
		target, interval time.Duration
		memory           uint64
	}{
		{0, 1514, 5 * time.Millisecond, 100 * time.Millisecond, 15_503_360},
		{125_000, 300, 18168 * time.Microsecond, 113168 * time.Microsecond, 4 << 20},
		{1_250_000, 305, 5 * time.Millisecond, 100 * time.Millisecond, 4 << 20},
		{12_500_000, 1514, 5 * time.Millisecond, 100 * time.Millisecond, 5_000_000},
		{125_000_000, 1514, 5 * time.Millisecond, 100 * time.Millisecond, 15_503_360},
	} {
		s := newSim(t, 1, "bandwidth", c.rate, "besteffort")
		v := s.tin(0)
		if got := v["flow_quantum"].N; got != c.quantum {
			t.Errorf("%d B/s: quantum %d, want %d", c.rate, got, c.quantum)
		}
		for key, want := range map[string]time.Duration{"target_us": c.target, "interval_us": c.interval} {
			if got := time.Duration(v[key].N); got != want {
				t.Errorf("%d B/s: %s %v, want %v", c.rate, key, got, want)
			}
		}
		if got := s.stats()["memory_limit"].N; got != c.memory {
			t.Errorf("%d B/s: memory limit %d, want %d", c.rate, got, c.memory)
		}
	}
}

// autorate-ingress follows what arrives, a sixteenth below it.
func TestAutorateFollowsTheArrivals(t *testing.T) {
	s := newSim(t, 4096, "bandwidth", 1_000_000, "autorate-ingress", "besteffort")
	arrive := func(gap, d time.Duration) uint64 {
		for end := s.ctx.Now + d; s.ctx.Now < end; s.ctx.Now += gap {
			// Pairs, so that gaps differ: a window ends with a long one.
			s.put(s.udp(1, 1, 1, 1250, 0))
			s.put(s.udp(1, 1, 1, 1250, 0))
			for p := s.q.Dequeue(s.ctx); p != nil; p = s.q.Dequeue(s.ctx) {
				p.Free()
			}
		}
		return s.tin(0)["threshold_rate"].N
	}
	for _, rate := range []float64{2.5e6, 10e6, 1e6} {
		got := arrive(time.Duration(2500/rate*1e9), 20*time.Second)
		if want := rate * 15 / 16; math.Abs(float64(got)-want) > want/20 {
			t.Errorf("%.0f B/s arrive: the shaper is at %d, want about %.0f", rate, got, want)
		}
	}
	learnt := s.tin(0)["threshold_rate"].N
	if err := s.q.(qdisc.Changer).Change(s.ctx, given("rtt", 50*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if got := s.tin(0)["threshold_rate"].N; got != learnt {
		t.Errorf("after a change of rtt the rate is %d, want what was learnt, %d", got, learnt)
	}
	s.q.Reset(s.ctx)
	if got := s.tin(0)["threshold_rate"].N; got != 1_000_000 {
		t.Errorf("after Reset the rate is %d, want the given one again", got)
	}
}

// The sizes seen begin anew when the framing changes.
func TestSizesSeen(t *testing.T) {
	s := newSim(t, 4, "ethernet")
	s.put(s.udp(1, 1, 1, 60, 0))
	s.put(s.udp(1, 1, 1, 1514, 0))
	check := func(want ...uint64) {
		t.Helper()
		v := s.stats()
		for i, key := range []string{"min_network_size", "max_network_size", "min_adj_size", "max_adj_size"} {
			if v[key].N != want[i] {
				t.Errorf("%s %d, want %d", key, v[key].N, want[i])
			}
		}
	}
	check(46, 1500, 84, 1538)
	if err := s.q.(qdisc.Changer).Change(s.ctx, given("raw")); err != nil {
		t.Fatal(err)
	}
	check(65535, 0, 65535, 0)
	s.put(s.udp(1, 1, 1, 500, 0))
	check(500, 500, 500, 500)
}

// Delays are averaged: the peak goes up by a quarter of the way and down by 1/256, the
// base the other way round, the average by 1/256 both ways.
func TestDelaysSeen(t *testing.T) {
	s := newSim(t, 4, "besteffort")
	want := func(peak, avg, base time.Duration) {
		t.Helper()
		for key, want := range map[string]time.Duration{"peak_delay_us": peak, "avg_delay_us": avg, "base_delay_us": base} {
			if got := time.Duration(s.tin(0)[key].N); got != want.Truncate(time.Microsecond) {
				t.Errorf("%s %v, want %v", key, got, want)
			}
		}
	}
	wait := func(d time.Duration) {
		s.put(s.udp(1, 1, 1, 100, 0))
		s.ctx.Now += d
		s.next().Free()
	}
	const ms = time.Millisecond
	wait(256 * ms)
	want(64*ms, 1*ms, 1*ms)
	wait(0)
	want(64*ms-250*time.Microsecond, 1*ms-3906*time.Nanosecond, 750*time.Microsecond)
}

// With ingress a queue is allowed two frames for each busy flow, for they share the
// bottleneck where it really stands.
func TestIngressAllowsTwoFramesAFlow(t *testing.T) {
	for mode, marks := range map[string]bool{"egress": true, "ingress": false} {
		s := newSim(t, 512, "bandwidth", 12_500_000, "besteffort", "flows", mode)
		var flows []greedy
		for i := range 64 {
			flows = append(flows, greedy{src: byte(i), sport: uint16(i), size: 1000, tos: ect0})
		}
		s.run(flows, 2, 2*time.Second, nil) // 128 packets take 10 ms
		if got := s.tin(0)["ecn_mark"].N; marks != (got > 100) || !marks && got > 0 {
			t.Errorf("%s: %d marks", mode, got)
		}
	}
}

// With ingress a drop takes its time on the link: what leaves and what is dropped
// make up the rate together. Yet two thirds of the rate get through in any case.
func TestIngressCountsDrops(t *testing.T) {
	for _, mode := range []string{"egress", "ingress"} {
		s := newSim(t, 4096, "bandwidth", 1_250_000, "besteffort", "flows", mode)
		var flows []greedy
		for i := range 8 {
			flows = append(flows, greedy{src: byte(i), sport: uint16(i), size: 1250})
		}
		s.run(flows, 40, 20*time.Second, nil)
		sent := float64(s.q.Self().Bytes) / s.ctx.Now.Seconds()
		gone := sent + float64(s.q.Self().Drops*1250)/s.ctx.Now.Seconds()
		if s.q.Self().Drops < 100 {
			t.Fatalf("%s: only %d drops", mode, s.q.Self().Drops)
		}
		switch mode {
		case "egress":
			if math.Abs(sent-1_250_000) > 5000 {
				t.Errorf("egress: %.0f B/s leave, want the rate", sent)
			}
		case "ingress":
			if math.Abs(gone-1_250_000) > 5000 && math.Abs(sent-1_250_000*2/3) > 5000 {
				t.Errorf("ingress: %.0f B/s leave, %.0f with drops; want the rate with drops, or two thirds", sent, gone)
			}
		}
	}
}
