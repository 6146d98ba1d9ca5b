package aqm_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/qdisc"
	"sluice/qdisc/internal/aqm"
)

const (
	target   = 5 * time.Millisecond
	interval = 100 * time.Millisecond
)

func codel() *aqm.CoDel {
	return &aqm.CoDel{Target: aqm.Span(target), Interval: aqm.Span(interval), CEThreshold: aqm.Off, MTU: 1514}
}

func pool(t testing.TB) *qdisc.Pool {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 8})
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// late returns a packet that has waited for d at instant now.
func late(pool *qdisc.Pool, now, d time.Duration) *qdisc.Packet {
	p := pool.Get()
	p.SetLen(1000)
	aqm.Stamp(p, now-d)
	return p
}

func TestSpansAreTheKernels(t *testing.T) {
	for _, c := range []struct {
		d     time.Duration
		ticks aqm.Ticks
		shown time.Duration
	}{
		{5 * time.Millisecond, 4882, 4999 * time.Microsecond},
		{100 * time.Millisecond, 97656, 99999 * time.Microsecond},
		{time.Second, 976562, 999999 * time.Microsecond},
		{time.Microsecond, 0, 0},
	} {
		if got := aqm.Span(c.d); got != c.ticks || got.Duration() != c.shown {
			t.Errorf("%v is %d ticks, shown as %v; want %d, %v", c.d, got, got.Duration(), c.ticks, c.shown)
		}
	}
}

// The integers that the kernel's one Newton step a drop gives, from entering the
// dropping state on: how far each next drop lies behind the one before.
func TestCoDelLawIsTheKernels(t *testing.T) {
	want := map[uint32]aqm.Ticks{
		1: 97654, 2: 48829, 3: 54931, 4: 47635, 5: 43116, 6: 39459, 7: 36638, 8: 34327,
		9: 32403, 10: 30766, 11: 29353, 12: 28116, 16: 24378,
	}
	c, s := codel(), &aqm.CoDelState{}
	pool := pool(t)
	now := time.Second
	var last aqm.Ticks
	for s.Count < 16 {
		before := s.Count
		p := late(pool, now, time.Second)
		for c.Drops(s, aqm.TicksAt(now), p, 1e6) {
			p.Free()
			p = late(pool, now, time.Second)
		}
		p.Free()
		if s.Count != before {
			since := last
			if s.Count == 1 {
				since = aqm.TicksAt(now)
			}
			if d, ok := want[s.Count]; ok && s.DropNext-since != d {
				t.Errorf("count %d: the next drop comes %d ticks later, want %d", s.Count, s.DropNext-since, d)
			}
		}
		last = s.DropNext
		now += 500 * time.Microsecond
	}
}

// Against a slow reference in floating point: the spacing of drops is
// interval/√count, within what 16 bits and one Newton step a drop allow.
func TestCoDelLawIsASquareRoot(t *testing.T) {
	c, s := codel(), &aqm.CoDelState{}
	pool := pool(t)
	var drops []time.Duration
	for now := time.Second; now < 20*time.Second; now += 100 * time.Microsecond {
		p := late(pool, now, time.Second)
		for c.Drops(s, aqm.TicksAt(now), p, 1e6) {
			drops = append(drops, now)
			p.Free()
			p = late(pool, now, time.Second)
		}
		p.Free()
	}
	if len(drops) < 500 {
		t.Fatalf("%d drops in 19 s of standing queue", len(drops))
	}
	// The n-th drop comes at the sum of interval/√k over all before it.
	at := drops[0]
	for n := 1; n < len(drops); n++ {
		at += time.Duration(float64(interval) / math.Sqrt(float64(n)))
		if off := (drops[n] - at).Abs(); off > (at-drops[0])/50+2*interval/3 {
			t.Fatalf("drop %d came at %v, want %v", n, drops[n], at)
		}
	}
}

// Nothing is dropped before a whole interval of delay above the target, nor when
// a frame or less is left, nor when the delay came below the target once.
func TestCoDelLeavesBurstsAlone(t *testing.T) {
	pool := pool(t)
	for _, tc := range []struct {
		name    string
		delay   func(now time.Duration) time.Duration
		backlog int
		drops   bool
	}{
		{"standing queue", func(time.Duration) time.Duration { return 6 * time.Millisecond }, 5000, true},
		{"below target", func(time.Duration) time.Duration { return 4998 * time.Microsecond }, 5000, false},
		{"one frame is left", func(time.Duration) time.Duration { return time.Second }, 1514, false},
		{"empties every 90 ms", func(now time.Duration) time.Duration {
			if now/time.Millisecond%90 == 0 {
				return 0
			}
			return 50 * time.Millisecond
		}, 5000, false},
	} {
		c, s := codel(), &aqm.CoDelState{}
		first := time.Duration(0)
		for now := time.Duration(0); now < time.Second && first == 0; now += time.Millisecond {
			p := late(pool, now, tc.delay(now))
			if c.Drops(s, aqm.TicksAt(now), p, tc.backlog) {
				first = now
			}
			p.Free()
		}
		if (first != 0) != tc.drops {
			t.Errorf("%s: first drop at %v", tc.name, first)
		}
		if tc.drops && first < interval {
			t.Errorf("%s: dropped after %v", tc.name, first)
		}
	}
}

// Time in 32 bits of 1024 ns wraps after 73 minutes; the law does not notice.
func TestTrap36CoDelTimeWraps(t *testing.T) {
	pool := pool(t)
	run := func(start time.Duration) (drops []time.Duration) {
		c, s := codel(), &aqm.CoDelState{}
		for at := time.Duration(0); at < 2*time.Second; at += 1024 * time.Microsecond {
			now := start + at
			p := late(pool, now, 20*time.Millisecond)
			for c.Drops(s, aqm.TicksAt(now), p, 1e6) {
				drops = append(drops, at)
				p.Free()
				p = late(pool, now, 20*time.Millisecond)
			}
			p.Free()
		}
		return drops
	}
	early := run(time.Second)
	wrap := time.Duration(1) << 42 // 2³² ticks
	late := run(wrap - time.Second/2/1024*1024)
	if len(early) == 0 || len(early) != len(late) {
		t.Fatalf("%d drops, across the wrap %d", len(early), len(late))
	}
	for i := range early {
		if d := (early[i] - late[i]).Abs(); d > 1100*time.Microsecond {
			t.Fatalf("drop %d at %v, across the wrap at %v", i, early[i], late[i])
		}
	}
}

// An instant that an earlier standing queue left behind must not make the first
// packets after an idle time look late.
func TestTrap36CoDelForgetsWhenTheQueueIsEmpty(t *testing.T) {
	pool := pool(t)
	c, s := codel(), &aqm.CoDelState{}
	now := time.Second
	p := late(pool, now, 50*time.Millisecond)
	c.Drops(s, aqm.TicksAt(now), p, 1e6) // the interval begins
	if c.Drops(s, aqm.TicksAt(now), nil, 0) {
		t.Fatal("nothing to drop")
	}
	now += 10 * time.Second
	aqm.Stamp(p, now-50*time.Millisecond)
	if c.Drops(s, aqm.TicksAt(now), p, 1e6) {
		t.Error("the first packet after 10 s of silence was dropped")
	}
}

// A count that leapt, or wrapped, still leads to an interval that shrinks with
// it.
func TestTrap36CoDelCountLeaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, s := codel(), &aqm.CoDelState{}
		pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 1})
		if err != nil {
			t.Fatal(err)
		}
		leaps := rapid.SliceOfN(rapid.IntRange(0, 100000), 1, 8).Draw(t, "leaps")
		now := time.Second
		for _, leap := range leaps {
			s.Aggravate(leap)
			for range 40 {
				now = max(now+200*time.Millisecond, time.Duration(s.DropNext)<<10)
				p := late(pool, now, time.Second)
				for dropped := 0; c.Drops(s, aqm.TicksAt(now), p, 1e6); dropped++ {
					if dropped == 1e6 {
						t.Fatalf("count %d: the drops do not end", s.Count)
					}
					p.Free()
					p = late(pool, now, time.Second)
				}
				p.Free()
				if s.DropNext-aqm.TicksAt(now) > c.Interval && s.DropNext.After(aqm.TicksAt(now)) {
					t.Fatalf("count %d: the next drop lies %v ahead", s.Count, (s.DropNext - aqm.TicksAt(now)).Duration())
				}
			}
		}
	})
}

func TestTrueSizeIsTheKernels(t *testing.T) {
	for _, c := range []struct{ frame, memory int }{
		{60, 960}, {256, 960}, {300, 960}, {500, 1280}, {600, 1280}, {700, 2304}, {1000, 2304}, {1514, 2304}, {4000, 8448},
	} {
		if got := aqm.TrueSize(c.frame); got != c.memory {
			t.Errorf("a frame of %d bytes counts %d, want %d", c.frame, got, c.memory)
		}
	}
}
