package hfsc_test

import (
	"testing"
	"time"

	"sluice/qdisc"
)

// onLink sends for a time what q gives over a link of so many bytes a second, and
// puts back a packet of 1000 bytes for each that left. It returns the bytes by
// class, and calls left after each.
func onLink(t *testing.T, ctx *qdisc.Context, q qdisc.Qdisc, rate uint64, until time.Duration, left func(minor uint32)) map[uint32]uint64 {
	t.Helper()
	got := map[uint32]uint64{}
	for ctx.Now < until {
		p := take(t, ctx, q)
		minor, n := p.Priority&0xffff, uint64(p.PktLen)
		p.Free()
		ctx.Now += time.Duration(n * 1e9 / rate)
		got[minor] += n
		if left != nil {
			left(minor)
		}
		put(t, ctx, q, minor, 1000)
	}
	return got
}

// A convex curve promises little now and much later. When others come later with
// a steep promise of their own, the link is too slow for both at once, and both
// promises are kept only because the convex one was served ahead of its deadlines
// (the paper's section 4.1).
func TestConvexCurveIsServedAhead(t *testing.T) {
	ctx := newContext(t, 16)
	q := newTree(t,
		class{0, 1, twoPiece("rt", 0, 10*ms, 80*mbit)},
		class{0, 2, twoPiece("rt", 80*mbit, 10*ms, 10*mbit)},
		class{0, 3, line("ls", gbit)},
	)
	put(t, ctx, q, 1, 1000)
	put(t, ctx, q, 1, 1000)
	put(t, ctx, q, 3, 1000)
	put(t, ctx, q, 3, 1000)
	late := 1000*time.Second/(100*mbit) + 10*time.Microsecond // one packet, and as much again for luck
	var sent [4]uint64
	second := time.Duration(0)
	onLink(t, ctx, q, 100*mbit, 20*time.Millisecond, func(minor uint32) {
		if second == 0 && ctx.Now >= 10*time.Millisecond {
			second = ctx.Now
			put(t, ctx, q, 2, 1000)
			put(t, ctx, q, 2, 1000)
		}
		sent[minor] += 1000
		var due time.Duration
		switch y := time.Duration(sent[minor]) * time.Second; minor {
		case 1:
			due = 10*time.Millisecond + y/(80*mbit)
		case 2:
			due = second + y/(80*mbit)
		default:
			return
		}
		if ctx.Now > due+late {
			t.Fatalf("byte %d of class %d is out at %v, promised by %v", sent[minor], minor, ctx.Now, due)
		}
	})
	if sent[2] < 90_000 {
		t.Errorf("class 2 got %d bytes in its first 10 ms", sent[2])
	}
}

// A class that its upper limit kept from its share has no claim to what it
// missed: when the limit goes it gets its share from then on.
func TestLimitedClassDoesNotCatchUp(t *testing.T) {
	ctx := newContext(t, 16)
	q := newTree(t, class{0, 1, with(line("ls", 50*mbit), line("ul", 5*mbit))}, class{0, 2, line("ls", 50*mbit)})
	for range 2 {
		put(t, ctx, q, 1, 1000)
		put(t, ctx, q, 2, 1000)
	}
	got := onLink(t, ctx, q, 100*mbit, 200*time.Millisecond, nil)
	if part := float64(got[1]) / float64(got[1]+got[2]); part < 0.045 || part > 0.055 {
		t.Errorf("limited to 5 %% of the link it got %.3f", part)
	}
	if err := q.(qdisc.ClassEditor).ChangeClass(ctx, qdisc.MakeID(1, 1), line("ul", gbit)); err != nil {
		t.Fatal(err)
	}
	got = onLink(t, ctx, q, 100*mbit, 220*time.Millisecond, nil)
	if part := float64(got[1]) / float64(got[1]+got[2]); part < 0.48 || part > 0.52 {
		t.Errorf("without its limit it got %.3f of the link, want a half", part)
	}
}
