package hfsc

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A concave curve that begins again is, from then on, the lesser of what it was
// and itself begun anew, to within the bytes that rounding cuts off.
func TestLowerIsTheLesser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m2 := rapid.Uint64Range(0, 1<<34).Draw(t, "m2")
		c := newCurve(m2+rapid.Uint64Range(1, 1<<34).Draw(t, "steeper"),
			time.Duration(rapid.IntRange(0, 1e7).Draw(t, "d")), m2)
		x, y := time.Duration(0), uint64(0)
		r := c.start(x, y)
		instant := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 3e7))
		for step := range uint64(rapid.IntRange(1, 8).Draw(t, "times")) {
			x += time.Duration(instant.Draw(t, "later"))
			y += carried(c.m1, time.Duration(instant.Draw(t, "served")))
			before, fresh := r, c.start(x, y)
			r.lower(&c, x, y)
			// A nanosecond of the first slope, and a byte each for three
			// roundings, of each time.
			slack := (step + 1) * (c.m1/1e9 + 4)
			for range 8 {
				at := x + time.Duration(instant.Draw(t, "at"))
				want, got := min(before.by(at), fresh.by(at)), r.by(at)
				if got > want+slack || want > got+slack {
					t.Fatalf("%v later it reaches %d, want %d (±%d)", at-x, got, want, slack)
				}
			}
		}
	})
}

// at is the first instant at which by reaches y.
func TestAtIsTheInverseOfBy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slope := rapid.Uint64Range(1, 1<<35)
		c := newCurve(slope.Draw(t, "m1"), time.Duration(rapid.IntRange(0, 1e8).Draw(t, "d")), slope.Draw(t, "m2"))
		r := c.start(time.Duration(rapid.IntRange(0, 1e9).Draw(t, "x")), rapid.Uint64Range(0, 1<<40).Draw(t, "y"))
		y := r.y + rapid.Uint64Range(1, 1<<30).Draw(t, "bytes")
		x := r.at(y)
		if x == far {
			return
		}
		// The first piece ends with a whole byte: the fraction is the second's.
		if r.by(x)+1 < y || r.by(x-2) >= y {
			t.Fatalf("at %v it reaches %d, just before %d; want %d", x, r.by(x), r.by(x-2), y)
		}
	})
}

// The tree of active children gives the first in order that fits, the last, and
// the least f, as a sorted slice does.
func TestOrderAgainstSortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := &hfsc{classes: make([]class, 24)}
		tree := int32(none)
		var in []int32
		short := rapid.IntRange(0, 9)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			i := int32(rapid.IntRange(0, len(q.classes)-1).Draw(t, "class"))
			c := &q.classes[i]
			if at := slices.Index(in, i); at < 0 {
				c.vt, c.f = time.Duration(short.Draw(t, "vt")), time.Duration(short.Draw(t, "f"))
				tree = q.insert(tree, i)
				at, _ = slices.BinarySearchFunc(in, c.vt+1, func(j int32, vt time.Duration) int { return int(q.classes[j].vt - vt) })
				in = slices.Insert(in, at, i)
			} else if rapid.Bool().Draw(t, "stays") {
				c.f = time.Duration(short.Draw(t, "f"))
				q.refresh(tree, i)
			} else {
				tree = q.remove(tree, i)
				in = slices.Delete(in, at, at+1)
			}
			now := time.Duration(short.Draw(t, "now"))
			fit, last, least := int32(none), int32(none), time.Duration(0)
			for n, j := range in {
				f := q.classes[j].f
				if fit == none && f <= now {
					fit = j
				}
				if last = j; n == 0 || f < least {
					least = f
				}
			}
			if a, b, f := q.firstFit(tree, now), q.last(tree), q.leastF(tree); a != fit || b != last || f != least {
				t.Fatalf("first %d, last %d, least %d; want %d, %d, %d", a, b, f, fit, last, least)
			}
		}
	})
}
