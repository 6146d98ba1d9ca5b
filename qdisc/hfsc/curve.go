// Packet path.

package hfsc

import (
	"math/bits"
	"time"
)

// curve is a service curve of two pieces: slope m1 for the first d, then m2.
// Convex (m1 ≤ m2) postpones, concave gives a head start.
type curve struct {
	m1, m2 uint64 // bytes a second
	dx     time.Duration
	dy     uint64 // bytes of the first piece
}

func newCurve(m1 uint64, d time.Duration, m2 uint64) curve {
	return curve{m1: m1, m2: m2, dx: d, dy: carried(m1, d)}
}

// none says that the class does not have this curve.
func (c *curve) none() bool { return c.m1 == 0 && c.m2 == 0 }

func (c *curve) convex() bool { return c.m1 <= c.m2 }

// far is the instant that does not come. It is small enough for a sum of several
// to stay below 2⁶³.
const far = time.Duration(1 << 60)

// carried returns the whole bytes that a rate carries in a time.
func carried(rate uint64, d time.Duration) uint64 {
	hi, lo := bits.Mul64(rate, uint64(d))
	if hi >= uint64(time.Second) {
		return 1<<63 - 1
	}
	n, _ := bits.Div64(hi, lo, uint64(time.Second))
	return min(n, 1<<63-1)
}

// taken returns the nanoseconds that a rate takes for n bytes, rounded up: what
// becomes due is never early.
func taken(rate, n uint64) time.Duration {
	if n == 0 {
		return 0
	}
	hi, lo := bits.Mul64(n, uint64(time.Second))
	if hi >= rate {
		return far
	}
	t, rest := bits.Div64(hi, lo, rate)
	if rest > 0 {
		t++
	}
	return time.Duration(min(t, uint64(far)))
}

// runtime is a curve that begins at a point (x, y): what has been promised from
// there on (runtime_sc).
//
// The kernel computes in ticks of 64 ns with slopes of 24 and reciprocals of 14
// bits of fraction, which is good to 2 % at 100 Gbit/s. Here a time is whole
// nanoseconds and both directions are exact but for one rounding.
type runtime struct {
	curve
	x time.Duration
	y uint64
}

// start lets the curve begin at (x, y) (rtsc_init).
func (c *curve) start(x time.Duration, y uint64) runtime { return runtime{*c, x, y} }

// at returns the first instant at which the curve reaches y (rtsc_y2x).
func (r *runtime) at(y uint64) time.Duration {
	if y <= r.y {
		return r.x
	}
	if y -= r.y; y <= r.dy {
		return min(far, r.x+taken(r.m1, y))
	}
	return min(far, r.x+r.dx+taken(r.m2, y-r.dy))
}

// by returns what the curve reaches by x (rtsc_x2y).
func (r *runtime) by(x time.Duration) uint64 {
	if x <= r.x {
		return r.y
	}
	if x -= r.x; x <= r.dx {
		return r.y + carried(r.m1, x)
	}
	return r.y + r.dy + carried(r.m2, x-r.dx)
}

// lower makes r the lesser of itself and c begun at (x, y), from x on (rtsc_min;
// the paper's equations 7 and 12). r is c begun somewhere before, or what came
// of it in the same way.
func (r *runtime) lower(c *curve, x time.Duration, y uint64) {
	now := r.by(x)
	if c.convex() {
		if now >= y {
			r.x, r.y = x, y
		}
		return
	}
	if now <= y {
		return // below it already, and never steeper: it stays below
	}
	if r.by(x+c.dx) >= y+c.dy {
		*r = c.start(x, y)
		return
	}
	// They cross within c's first piece: c is the lesser until then. The
	// difference shrinks by m1 − m2 from where r is past its own first piece.
	dx := taken(c.m1-c.m2, now-y)
	if end := r.x + r.dx; end > x {
		dx += end - x
	}
	r.x, r.y, r.dx, r.dy = x, y, dx, carried(c.m1, dx)
}
