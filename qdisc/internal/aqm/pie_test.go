package aqm_test

import (
	"math"
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/internal/aqm"
)

// reference is PIE's probability in floating point, as RFC 8033 §4.2 has it.
type reference struct {
	prob float64
	old  float64 // delay, seconds
}

func (r *reference) update(delay float64, backlog bool) {
	alpha, beta := 2./16, 20./16
	if r.prob < 0.1 {
		scale := 0.5
		for power := 100.; power <= 1e6 && r.prob < 1/power; power *= 10 {
			scale /= 4
		}
		alpha, beta = alpha*scale, beta*scale
	}
	delta := alpha*(delay-0.015) + beta*(delay-r.old)
	if r.prob >= 0.1 {
		delta = math.Min(delta, 0.02)
	}
	if delay > 0.25 {
		delta += 0.02
	}
	r.prob = math.Min(math.Max(r.prob+delta, 0), 1)
	if delay == 0 && r.old == 0 && !backlog {
		r.prob -= r.prob / 64
	}
	r.old = delay
}

func pie() *aqm.PIE {
	c := &aqm.PIE{}
	aqm.DefaultPIE.Set(c, 1514)
	return c
}

// The probability follows the reference, through light and heavy congestion and
// back to none.
func TestPIEProbabilityIsTheRFCs(t *testing.T) {
	c, s, ref := pie(), &aqm.PIEState{}, &reference{}
	pool := pool(t)
	s.Init()
	delays := []time.Duration{}
	for ms := range 400 { // a hump of delay, up to 300 ms
		x := float64(ms) / 400
		delays = append(delays, time.Duration(3e8*x*x*(1-x)*4))
	}
	for range 400 {
		delays = append(delays, 0)
	}
	now := time.Second
	c.Advance(s, now, now, 0)
	now += 500 * time.Millisecond
	highest := 0.
	for i, d := range delays {
		d = d / 64 * 64
		p := pool.Get()
		p.SetLen(1000)
		c.Enqueued(p, now-d)
		backlog := 100000
		if d == 0 {
			backlog = 0
		}
		c.Dequeued(s, p, now, backlog)
		p.Free()
		c.Advance(s, time.Second, now, backlog)
		ref.update(d.Seconds(), backlog != 0)
		got := float64(s.Prob) / aqm.MaxProb
		if math.Abs(got-ref.prob) > 1e-6+ref.prob/1e4 {
			t.Fatalf("update %d, delay %v: probability %g, want %g", i, d, got, ref.prob)
		}
		highest = max(highest, got)
		now += 15 * time.Millisecond
	}
	if highest < 0.5 || s.Prob != 0 {
		t.Errorf("the probability rose to %g and came back to %g", highest, float64(s.Prob)/aqm.MaxProb)
	}
}

// Updates that nobody looked at in between are made up for: the same as if
// somebody had.
func TestPIEMakesUpForUpdates(t *testing.T) {
	for _, pause := range []time.Duration{0, 14 * time.Millisecond, 15 * time.Millisecond, time.Second, time.Minute, 30 * time.Hour} {
		c := pie()
		var often, once aqm.PIEState
		pool := pool(t)
		for _, s := range []*aqm.PIEState{&often, &once} {
			s.Init()
			c.Advance(s, 0, 0, 0)
			for at := 500 * time.Millisecond; at < 3*time.Second; at += 15 * time.Millisecond {
				p := pool.Get()
				p.SetLen(1000)
				c.Enqueued(p, at-60*time.Millisecond)
				c.Dequeued(s, p, at, 50000)
				p.Free()
				c.Advance(s, 0, at, 50000)
			}
			p := pool.Get() // the last one leaves
			c.Enqueued(p, 3*time.Second)
			c.Dequeued(s, p, 3*time.Second, 0)
			p.Free()
		}
		if often.Prob == 0 {
			t.Fatal("no congestion to recover from")
		}
		end := 3*time.Second + pause
		for at := 3 * time.Second; at < min(end, 2*time.Minute); at += 5 * time.Millisecond {
			c.Advance(&often, 0, at, 0)
		}
		c.Advance(&often, 0, end, 0)
		c.Advance(&once, 0, end, 0)
		if often != once {
			t.Errorf("after %v: %+v\nwant %+v", pause, once, often)
		}
	}
}

// Of packets that meet a probability of p a part of p is dropped, more evenly
// than by chance: never two within 85 % of a drop's worth (RFC 8033 §5.4).
func TestPIEDropsEvenly(t *testing.T) {
	c, s := pie(), &aqm.PIEState{}
	s.Init()
	pool := pool(t)
	ctx := qdisc.NewContext(pool, 7)
	p := pool.Get()
	p.SetLen(1000)
	// Use up the burst allowance and make a delay.
	for at := time.Second; at < 2*time.Second; at += 10 * time.Millisecond {
		c.Enqueued(p, at-100*time.Millisecond)
		c.Dequeued(s, p, at, 1e6)
	}
	s.Prob = aqm.MaxProb / 20
	drops, last := 0, 0
	const n = 200000
	for i := range n {
		if !c.Drops(ctx, s, p, 1e6) {
			continue
		}
		s.Dropped()
		if gap := i - last; drops > 0 && gap < 17 {
			t.Fatalf("two drops within %d packets at 5 %%", gap)
		}
		drops++
		last = i
	}
	// 17 packets are spared, then each is dropped with 5 %.
	if part := float64(drops) / n; math.Abs(part-1./36) > 0.002 {
		t.Errorf("%.4f of the packets were dropped", part)
	}
}

// Nothing is dropped during the burst allowance, with two frames or less queued,
// or while both delay and probability are low.
func TestPIESparesPackets(t *testing.T) {
	pool := pool(t)
	ctx := qdisc.NewContext(pool, 7)
	p := pool.Get()
	p.SetLen(1000)
	worn := func(delay time.Duration) *aqm.PIEState {
		c, s := pie(), &aqm.PIEState{}
		s.Init()
		for at := time.Second; at < 2*time.Second; at += 10 * time.Millisecond {
			c.Enqueued(p, at-delay)
			c.Dequeued(s, p, at, 1e6)
		}
		return s
	}
	fresh := &aqm.PIEState{}
	fresh.Init()
	for _, tc := range []struct {
		name    string
		s       *aqm.PIEState
		prob    uint64
		backlog int
		drops   bool
	}{
		{"burst allowance", fresh, aqm.MaxProb, 1e6, false},
		{"certain", worn(100 * time.Millisecond), aqm.MaxProb, 1e6, true},
		{"two frames", worn(100 * time.Millisecond), aqm.MaxProb, 2*1514 - 1, false},
		{"low delay, low probability", worn(5 * time.Millisecond), aqm.MaxProb/5 - 1, 1e6, false},
		{"low delay, high probability", worn(5 * time.Millisecond), aqm.MaxProb / 5, 1e6, true},
	} {
		tc.s.Prob = tc.prob
		dropped := false
		for range 200 {
			dropped = dropped || pie().Drops(ctx, tc.s, p, tc.backlog)
		}
		if dropped != tc.drops {
			t.Errorf("%s: dropped %v", tc.name, dropped)
		}
	}
}

// With bytemode a packet half as long is dropped half as often, about.
func TestPIEByteMode(t *testing.T) {
	pool := pool(t)
	p := pool.Get()
	count := func(n int) (drops int) {
		ctx := qdisc.NewContext(pool, 7)
		c, s := pie(), &aqm.PIEState{}
		c.ByteMode = true
		s.Init()
		p.SetLen(1000)
		for at := time.Second; at < 2*time.Second; at += 10 * time.Millisecond {
			c.Enqueued(p, at-100*time.Millisecond)
			c.Dequeued(s, p, at, 1e6)
		}
		s.Prob = aqm.MaxProb / 50
		p.SetLen(n)
		for range 100000 {
			if c.Drops(ctx, s, p, 1e6) {
				s.Dropped()
				drops++
			}
		}
		return drops
	}
	if r := float64(count(1514)) / float64(count(757)); r < 1.9 || r > 2.1 {
		t.Errorf("full frames are dropped %.2f times as often as half ones", r)
	}
}

// The drain rate that is estimated is the rate of departures.
func TestPIEEstimatesTheDrainRate(t *testing.T) {
	c, s := pie(), &aqm.PIEState{}
	c.Estimate = true
	s.Init()
	pool := pool(t)
	p := pool.Get()
	p.SetLen(1000)
	for at := time.Second; at < 3*time.Second; at += 10 * time.Microsecond { // 100 MB/s
		c.Dequeued(s, p, at, 4e6)
		c.Advance(s, time.Second, at, 4e6)
	}
	if r := s.BytesPerSecond(); r < 98e6 || r > 102e6 {
		t.Errorf("rate %d bytes a second, want 100000000", r)
	}
	if d := s.DelayTime(); d < 39*time.Millisecond || d > 41*time.Millisecond {
		t.Errorf("4 MB are a delay of %v, want 40ms", d)
	}
}
