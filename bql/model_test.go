package bql_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sluice/bql"
)

// model is the algorithm told without counters: a list of what is in flight,
// numbers that never wrap, and for stalls the list of all ticks at which
// something was queued.
type model struct {
	flight             []piece // oldest first
	limit, lo, hi      int64
	avail              int64 // what may still be queued until the next completion
	over               int64 // bytes over the limit at the previous completion, 0 if the limit changed there
	object, prevObject int64 // the last object queued, and as of the previous completion
	slacks             []int64
	windowStart, hold  bql.Tick

	threshold, lastReap bql.Tick
	ticks               []bql.Tick
	stalls              uint64
	worst               bql.Tick
}

// piece is an object, or what a partial completion left of it.
type piece struct {
	bytes int64
	known bool // it was in flight at the previous completion already
}

func (m *model) inflight() (all, known int64) {
	for _, p := range m.flight {
		all += p.bytes
		if p.known {
			known += p.bytes
		}
	}
	return all, known
}

func (m *model) queue(n int64, now bql.Tick) {
	m.flight = append(m.flight, piece{bytes: n})
	m.object = n
	m.avail -= n
	if m.threshold != 0 {
		m.ticks = append(m.ticks, now)
	}
}

func (m *model) complete(n int64, now bql.Tick) {
	before, knownBefore := m.inflight()
	fresh := int64(0) // completed bytes that the previous completion had not seen
	for left := n; left > 0; {
		p := &m.flight[0]
		part := min(left, p.bytes)
		if !p.known {
			fresh += part
		}
		p.bytes -= part
		left -= part
		if p.bytes == 0 {
			m.flight = m.flight[1:]
		}
	}
	after, knownAfter := m.inflight()
	over := max(0, before-m.limit)

	limit := m.limit
	ranEmpty := over > 0 && after == 0
	ranEmptyBetween := m.over > 0 && knownAfter == 0
	busyThroughout := knownBefore > 0 && knownAfter > 0
	if ranEmpty || ranEmptyBetween {
		limit += fresh + m.over
		m.slacks, m.windowStart = nil, now
	} else if busyThroughout {
		slack := m.limit + m.over - 2*n
		if m.over > 0 {
			slack = max(slack, m.prevObject-m.over)
		}
		m.slacks = append(m.slacks, max(0, slack))
		if now > m.windowStart+m.hold {
			limit -= m.leastSlack()
			m.slacks, m.windowStart = nil, now
		}
	}
	limit = min(max(limit, m.lo, 0), m.hi)

	m.over = over
	if limit != m.limit {
		m.over = 0
	}
	m.limit = limit
	m.avail = limit - after
	m.prevObject = m.object
	for i := range m.flight {
		m.flight[i].known = true
	}
	m.reap(now)
}

func (m *model) leastSlack() int64 {
	if m.slacks == nil {
		return 0
	}
	return slices.Min(m.slacks)
}

// reap looks for a stall between the previous completion and this one.
func (m *model) reap(now bql.Tick) {
	if m.threshold == 0 {
		return
	}
	if now >= m.lastReap+m.threshold && len(m.ticks) > 0 {
		newest := m.ticks[len(m.ticks)-1]
		oldest := newest - newest%64 - 3*64 // what a ring of four words of 64 can know
		for _, t := range m.ticks {
			if t > m.lastReap && t >= oldest && t <= now-m.threshold/2 {
				m.stalls++
				m.worst = max(m.worst, now-t)
				break
			}
		}
	}
	m.lastReap = now
}

func (m *model) reset(now bql.Tick) {
	*m = model{
		limit: m.lo, avail: m.lo, lo: m.lo, hi: m.hi, windowStart: now, hold: m.hold,
		threshold: m.threshold, lastReap: now, stalls: m.stalls, worst: m.worst,
	}
}

// TestModel compares the two on random histories, the counters wrapping many
// times. Objects are queued while the queue is not over its limit, as the
// caller promises, and limits stay below 2^29: so the model's numbers never
// exceed 2^31, beyond which wrapping arithmetic means something else.
func TestModel(t *testing.T) {
	const top = 1 << 29
	rapid.Check(t, func(t *rapid.T) {
		now := bql.Tick(rapid.Int64Range(0, 1<<40).Draw(t, "epoch"))
		var l bql.Limit
		l.Init(now)
		m := model{hold: 1000, windowStart: now, lastReap: now}
		m.hi = rapid.SampledFrom([]int64{3000, 16000, 1 << 20, top}).Draw(t, "max")
		m.lo = rapid.SampledFrom([]int64{0, 0, 0, 1000, 3000}).Draw(t, "min")
		if err := l.SetMax(uint32(m.hi)); err != nil {
			t.Fatal(err)
		}
		if err := l.SetMin(uint32(m.lo)); err != nil {
			t.Fatal(err)
		}
		m.hold = bql.Tick(rapid.SampledFrom([]int{0, 5, 100, 1000}).Draw(t, "hold"))
		l.SetHoldTime(m.hold)
		m.threshold = bql.Tick(rapid.SampledFrom([]int{0, 4, 8, 128}).Draw(t, "stall"))
		if err := l.SetStallThreshold(m.threshold, now); err != nil {
			t.Fatal(err)
		}
		object := rapid.SampledFrom([]int{1514, 65535, bql.MaxObject}).Draw(t, "largest object")

		t.Repeat(map[string]func(*rapid.T){
			"queue": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "burst") {
					if m.avail < 0 {
						break
					}
					n := rapid.IntRange(1, object).Draw(t, "bytes")
					l.Queued(uint32(n), now)
					m.queue(int64(n), now)
				}
			},
			"complete": func(t *rapid.T) {
				all, known := m.inflight()
				n := rapid.OneOf(rapid.Int64Range(0, all), rapid.SampledFrom([]int64{0, known, all})).Draw(t, "bytes")
				l.Completed(uint32(n), now)
				m.complete(n, now)
			},
			"wait": func(t *rapid.T) {
				now += bql.Tick(rapid.OneOf(rapid.IntRange(1, 10), rapid.IntRange(1, 2000)).Draw(t, "ticks"))
			},
			"limit": func(t *rapid.T) {
				n := rapid.Int64Range(0, m.hi).Draw(t, "limit")
				if err := l.SetLimit(uint32(n)); err != nil {
					t.Fatal(err)
				}
				m.limit = n
			},
			"reset": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "one in ten") == 0 {
					l.Reset(now)
					m.reset(now)
				}
			},
			"": func(t *rapid.T) {
				s := l.Snapshot()
				over, slack, ok := l.Memory()
				if !ok {
					slack = 0
				}
				all, _ := m.inflight()
				got := fmt.Sprint(s.Limit, l.Avail(), s.Inflight, over, ok, slack, s.StallCount, s.StallMax)
				want := fmt.Sprint(m.limit, m.avail, all, m.over, m.slacks != nil, m.leastSlack(), m.stalls, m.worst)
				if got != want {
					t.Fatalf("limit, avail, inflight, over, slack (any, least), stalls, longest:\n%s; the model has\n%s", got, want)
				}
			},
		})
	})
}

// TestStallGuarantee checks what the detector promises: of the gaps between two
// completions, as far as the ring can know, all that reach the threshold with
// data queued in their first half are found, and none in which nothing was
// queued, or that are shorter.
func TestStallGuarantee(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := bql.Tick(rapid.Int64Range(0, 1<<40).Draw(t, "epoch"))
		threshold := bql.Tick(rapid.IntRange(4, 128).Draw(t, "threshold"))
		var l bql.Limit
		l.Init(now)
		if err := l.SetStallThreshold(threshold, now); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 20).Draw(t, "gaps") {
			gap := bql.Tick(rapid.IntRange(1, 192).Draw(t, "gap"))
			early, any := false, false
			for at := bql.Tick(1); at <= gap; at += bql.Tick(rapid.IntRange(1, 200).Draw(t, "pause")) {
				if rapid.Bool().Draw(t, "queue") {
					l.Queued(1, now+at)
					any = true
					early = early || at <= gap/2
				}
			}
			now += gap
			before := l.Snapshot().StallCount
			l.Completed(l.Inflight(), now)
			found := l.Snapshot().StallCount - before
			switch {
			case gap >= threshold && early && found != 1:
				t.Fatalf("a gap of %d ticks, threshold %d, was missed", gap, threshold)
			case (gap < threshold || !any) && found != 0:
				t.Fatalf("a gap of %d ticks, threshold %d, anything queued: %v, counts as a stall", gap, threshold, any)
			}
		}
	})
}
