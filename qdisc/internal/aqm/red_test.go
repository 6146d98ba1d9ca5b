package aqm_test

import (
	"math"
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/internal/aqm"
)

func red() *aqm.RED {
	c := &aqm.RED{Min: 30000, Max: 90000, Wlog: 5, CellLog: 15, MaxProb: 1 << 32 / 50}
	for i := range c.Decay {
		c.Decay[i] = uint8(i / 12)
	}
	c.Set()
	return c
}

// At a standing backlog the part of packets that is marked is the line from 0 at
// min to the maximum probability at max; below nothing is, above everything. The
// reference is the line itself.
func TestREDMarksAlongALine(t *testing.T) {
	ctx := qdisc.NewContext(pool(t), 3)
	for _, backlog := range []int{0, 20000, 29000, 31000, 40000, 60000, 75000, 89000, 91000, 500000} {
		c, s := red(), &aqm.REDState{}
		s.Start()
		var early, hard, n float64
		for i := range 400000 {
			a := c.Arrives(ctx, s, backlog)
			if i < 1000 {
				continue // until the average is there
			}
			n++
			switch a {
			case aqm.Early:
				early++
			case aqm.Hard:
				hard++
			}
		}
		// Marks are spread evenly over 1 to 2 times the expected distance, whose
		// mean is half of it more than a lone die's (Floyd and Jacobson §7).
		p := 0.02 * (float64(backlog) - 30000) / 60000
		p = 2 * p / (1 + p)
		switch {
		case backlog < 30000 && early+hard > 0, backlog >= 90000 && hard != n:
			t.Errorf("backlog %d: %v marked early, %v hard, of %v", backlog, early, hard, n)
		case backlog >= 30000 && backlog < 90000 && (math.Abs(early/n-p) > 0.0002+p/20 || hard > 0):
			t.Errorf("backlog %d: %.5f marked, want %.5f; %v hard", backlog, early/n, p, hard)
		}
	}
}

// The average is a low-pass of the backlog: with a weight of 1/32 it takes 22
// packets to go half of the way.
func TestREDAverages(t *testing.T) {
	ctx := qdisc.NewContext(pool(t), 3)
	c, s := red(), &aqm.REDState{}
	s.Start()
	n := 0
	for c.Arrives(ctx, s, 180000) != aqm.Hard { // half of it is max
		n++
	}
	if n < 20 || n > 23 {
		t.Errorf("the average reached half of the backlog after %d packets", n)
	}
}

// While the queue is empty the average falls with time.
func TestREDIdleTimeLowersTheAverage(t *testing.T) {
	ctx := qdisc.NewContext(pool(t), 3)
	for _, tc := range []struct {
		idle time.Duration
		hard bool
	}{
		{0, true},
		{time.Millisecond, true},         // by a straight line within the first cells
		{1000 * time.Millisecond, false}, // a thirtieth of a cell's steps: halved
		{time.Hour, false},
	} {
		c, s := red(), &aqm.REDState{}
		s.Start()
		for range 1000 {
			c.Arrives(ctx, s, 110000)
		}
		s.Idle(ctx.Now)
		ctx.Now += tc.idle
		s.Idle(ctx.Now) // it was idle already
		if a := c.Arrives(ctx, s, 0); (a == aqm.Hard) != tc.hard {
			t.Errorf("idle for %v: action %v", tc.idle, a)
		}
	}
}

// Adaptive: the maximum probability rises while the average is above 60 % of the
// way from min to max, and falls while it is below 40 %, from 1 to 50 %.
func TestREDAdapts(t *testing.T) {
	for _, tc := range []struct {
		backlog  int
		from, to float64
	}{
		{80000, 0.02, 0.5}, {60000, 0.1, 0.1}, {40000, 0.5, 0.01}, {0, 0.3, 0.01},
	} {
		ctx := qdisc.NewContext(pool(t), 3)
		c, s := red(), &aqm.REDState{}
		c.Adaptive, c.MaxProb = true, uint32(tc.from*(1<<32))
		c.Set()
		s.Start()
		for ; ctx.Now < time.Minute; ctx.Now += 100 * time.Millisecond {
			for range 100 {
				c.Arrives(ctx, s, tc.backlog)
			}
		}
		if got := float64(c.MaxProb) / (1 << 32); math.Abs(got-tc.to) > 0.012 {
			t.Errorf("backlog %d: %.3f became %.3f, want %.3f", tc.backlog, tc.from, got, tc.to)
		}
	}
}
