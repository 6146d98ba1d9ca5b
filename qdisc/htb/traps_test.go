package htb_test

import (
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/fifo"
)

// ids returns the classes of the next n departures.
func ids(t testing.TB, ctx *qdisc.Context, q qdisc.Qdisc, n int) (all []uint32) {
	t.Helper()
	for range n {
		p := q.Dequeue(ctx)
		if p == nil {
			t.Fatalf("after %v nothing comes", all)
		}
		all = append(all, p.Class.Minor())
		p.Free()
	}
	return all
}

func equal(t testing.TB, what string, got []uint32, want ...uint32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
}

const gigabit = 125_000_000

// empty drops all that waits below a class, behind htb's back, as a change of its
// qdisc would.
func empty(t testing.TB, ctx *qdisc.Context, q scheduler, minor uint32) {
	t.Helper()
	leaf := class(q, minor).Leaf
	if err := qdisc.Edit([]qdisc.Step{{Qdisc: q, Class: id(minor)}, {Qdisc: leaf}}, func() error {
		for leaf.Len() > 0 {
			leaf.Shed(ctx, leaf.Len())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Told once, twice or not at all that a class became empty, htb goes on with the
// others, and the class comes back like any other.
func TestTrap17HTBQlenNotifyTwice(t *testing.T) {
	for notices := range 3 {
		ctx := newContext(t, 16)
		q := build(t, nil)
		for minor := range uint32(3) {
			add(t, ctx, q, 0, minor+1, "rate", gigabit, "burst", 10_000, "cburst", 10_000, "quantum", 1)
			put(t, ctx, q, minor+1, 100)
		}
		empty(t, ctx, q, 2)
		for range notices {
			q.QlenNotify(id(2))
		}
		equal(t, "without 2", ids(t, ctx, q, 2), 1, 3)
		put(t, ctx, q, 2, 100)
		equal(t, "with 2 again", ids(t, ctx, q, 1), 2)
	}
}

// A class goes while it is somebody's turn, with packets or without: the others
// take theirs.
func TestTrap18HTBDeletedClassIsInNoRing(t *testing.T) {
	for _, drained := range []bool{false, true} {
		ctx := newContext(t, 16)
		q := build(t, nil)
		for minor := range uint32(3) {
			add(t, ctx, q, 0, minor+1, "rate", gigabit, "burst", 10_000, "cburst", 10_000, "quantum", 1)
			put(t, ctx, q, minor+1, 100)
			put(t, ctx, q, minor+1, 100)
		}
		equal(t, "first", ids(t, ctx, q, 1), 1)
		if drained {
			empty(t, ctx, q, 2)
		}
		if err := q.DeleteClass(ctx, id(2)); err != nil {
			t.Fatal(err)
		}
		equal(t, "the others", ids(t, ctx, q, 3), 3, 1, 3)
		if q.Len() != 0 || q.Self().Drops != 2 {
			t.Errorf("%d packets left, %d drops; want 0, 2", q.Len(), q.Self().Drops)
		}
	}
}

// The parent id that means the root names no class, and nothing goes wrong with
// classes that hang off it.
func TestTrap19HTBRootIsNoClass(t *testing.T) {
	ctx := newContext(t, 4)
	q := build(t, nil)
	root := qdisc.MakeID(0xffff, 0xffff)
	if err := q.AddClass(ctx, root, id(1), values("rate", gigabit)); err != nil {
		t.Fatal(err)
	}
	if c := class(q, 1); c.Parent != 0 {
		t.Errorf("the class hangs off %v", c.Parent)
	}
	if err := q.AddClass(ctx, 0, root, values("rate", gigabit)); err == nil {
		t.Error("a class has the id of the root")
	}
	q.QlenNotify(root)
}

// A child that is replaced is empty and belongs to nobody, and its class comes
// back with the new one.
func TestTrap20HTBGraftLeavesNothingBehind(t *testing.T) {
	ctx := newContext(t, 8)
	q := build(t, nil)
	add(t, ctx, q, 0, 1, "rate", gigabit)
	put(t, ctx, q, 1, 100)
	old, err := q.Graft(ctx, id(1), fifo.NewPfifo(1))
	if err != nil || old.Len() != 0 || q.Len() != 0 || q.Dequeue(ctx) != nil {
		t.Fatalf("graft: %v, %d packets in the old child, %d in all", err, old.Len(), q.Len())
	}
	put(t, ctx, q, 1, 100)
	equal(t, "after the graft", ids(t, ctx, q, 1), 1)
}

// The last class of a row becomes empty unseen: there is no row to look into.
func TestTrap30HTBRowIsEmptyAfterDeactivation(t *testing.T) {
	ctx := newContext(t, 8)
	q := build(t, nil)
	add(t, ctx, q, 0, 1, "rate", gigabit)
	add(t, ctx, q, 1, 2, "rate", 1000, "ceil", gigabit, "burst", 1)
	put(t, ctx, q, 2, 100)
	put(t, ctx, q, 2, 100)
	equal(t, "on its own", ids(t, ctx, q, 1), 2) // and now it borrows
	leaf := class(q, 2).Leaf
	q.Self().Enqueued(&qdisc.Packet{}) // something waits elsewhere
	empty(t, ctx, q, 2)
	if leaf.Len() != 0 || q.Dequeue(ctx) != nil {
		t.Fatal("something comes out of nothing")
	}
}

// A quantum of 0 is none given, a rate below r2q makes the least quantum.
func TestTrap30HTBQuantumIsNeverZero(t *testing.T) {
	ctx := newContext(t, 8)
	q := build(t, nil)
	add(t, ctx, q, 0, 1, "rate", 1, "quantum", 0)
	if got := class(q, 1).Params.N("quantum", 0); got != 1000 {
		t.Errorf("quantum %d, want 1000", got)
	}
}

// A leaf with packets, in debt, becomes an inner class: they are dropped, and it
// is in no ring and owes nobody a wake.
func TestTrap30HTBLeafWithPacketsBecomesInner(t *testing.T) {
	ctx := newContext(t, 16)
	q := build(t, nil)
	add(t, ctx, q, 0, 1, "rate", 1000, "burst", 1, "cburst", 1)
	for range 3 {
		put(t, ctx, q, 1, 1000)
	}
	equal(t, "before", ids(t, ctx, q, 1), 1)
	if q.Dequeue(ctx) != nil {
		t.Fatal("it is in debt and sends")
	}
	add(t, ctx, q, 1, 2, "rate", gigabit)
	if q.Len() != 0 || q.Self().Drops != 2 || q.NextAt() != qdisc.Never {
		t.Fatalf("%d packets, %d drops, next at %v; want none, 2, never", q.Len(), q.Self().Drops, q.NextAt())
	}
	put(t, ctx, q, 2, 100)
	equal(t, "the child", ids(t, ctx, q, 1), 2)
}

// The last child of a class in debt goes: the class is a leaf with full buckets,
// and waits no more.
func TestTrap30HTBLastChildOfAWaitingParentGoes(t *testing.T) {
	ctx := newContext(t, 16)
	q := build(t, nil)
	add(t, ctx, q, 0, 1, "rate", 1000, "burst", 1, "cburst", 1)
	add(t, ctx, q, 1, 2, "rate", gigabit)
	put(t, ctx, q, 2, 1000)
	equal(t, "the child", ids(t, ctx, q, 1), 2)
	if tokens(q, 1) > 0 {
		t.Fatal("the parent is not in debt")
	}
	if err := q.DeleteClass(ctx, id(2)); err != nil {
		t.Fatal(err)
	}
	put(t, ctx, q, 1, 100)
	equal(t, "the parent", ids(t, ctx, q, 1), 1)
	ctx.Now += time.Minute
	if q.Dequeue(ctx) != nil {
		t.Fatal("something comes out of nothing")
	}
}

// However many classes are due at once, one call sees to all of them, and what is
// left for later is announced.
func TestTrap30HTBManyEventsAtOnce(t *testing.T) {
	const classes = 2000
	ctx := newContext(t, 2*classes)
	q := build(t, nil)
	for minor := range uint32(classes) {
		add(t, ctx, q, 0, minor+1, "rate", 100_000, "burst", 1, "cburst", 1, "quantum", 1)
		put(t, ctx, q, minor+1, 100)
		put(t, ctx, q, minor+1, 100)
	}
	ids(t, ctx, q, classes)
	// 100 bytes are a millisecond; a burst of one is 157 ticks of 64 ns.
	if want := time.Millisecond - 157*64; q.Dequeue(ctx) != nil || q.NextAt() != want {
		t.Fatalf("all are in debt until %v, want %v", q.NextAt(), want)
	}
	ctx.Now = q.NextAt()
	got := ids(t, ctx, q, classes)
	for i, minor := range got {
		if int(minor) != i+1 {
			t.Fatalf("departure %d is of class %d", i, minor)
		}
	}
}

// A deficit gets one quantum a turn, also when it stays negative: a quantum below
// the size of a packet makes turns of a packet each, and no more.
func TestTrap31HTBDeficitAddsOneQuantum(t *testing.T) {
	ctx := newContext(t, 32)
	q := build(t, nil)
	for minor, quantum := range map[uint32]int{1: 100, 2: 1500} {
		add(t, ctx, q, 0, minor, "rate", gigabit, "burst", 100_000, "cburst", 100_000, "quantum", quantum)
		for range 6 {
			put(t, ctx, q, minor, 1000)
		}
	}
	// The deficit of 2 after its packets: 0 − 1000 + 1500, 500 − 1000 + 1500, 0
	// (and goes on), 0 − 1000 + 1500, and so on.
	equal(t, "turns", ids(t, ctx, q, 12), 1, 2, 1, 2, 1, 2, 2, 1, 2, 1, 2, 1)
}

// A leaf that can send on its own does not ask its ancestors: rates that add up
// to more than the parent's ceil overrun it.
func TestRatesAboveTheParentsCeilOverrunIt(t *testing.T) {
	ctx := newContext(t, 16)
	q := build(t, nil)
	add(t, ctx, q, 0, 1, "rate", 100_000)
	for minor := uint32(2); minor < 4; minor++ {
		add(t, ctx, q, 1, minor, "rate", 100_000, "quantum", 1514)
		put(t, ctx, q, minor, 1000)
		put(t, ctx, q, minor, 1000)
	}
	bytes := 0
	drive(t, ctx, q, 10*time.Second, func(p *qdisc.Packet) { bytes += 1000; q.Enqueue(ctx, p) })
	if bytes < 1_990_000 || bytes > 2_010_000 {
		t.Errorf("%d bytes in 10 s, want twice the parent's rate", bytes)
	}
}

// A level counts before a prio: who sends on its own account goes before who
// borrows, and who borrows from its parent before who borrows from further up.
func TestLevelDominatesPrio(t *testing.T) {
	ctx := newContext(t, 16)
	q := build(t, nil)
	add(t, ctx, q, 0, 1, "rate", gigabit)
	add(t, ctx, q, 1, 2, "rate", gigabit)
	add(t, ctx, q, 2, 3, "rate", 1000, "ceil", gigabit, "burst", 1, "prio", 5)
	add(t, ctx, q, 1, 4, "rate", 1000, "ceil", gigabit, "burst", 1, "prio", 0)
	add(t, ctx, q, 1, 5, "rate", gigabit, "prio", 7)
	for minor := uint32(3); minor < 6; minor++ {
		put(t, ctx, q, minor, 100)
		put(t, ctx, q, minor, 100)
	}
	equal(t, "order", ids(t, ctx, q, 6), 4, 3, 5, 5, 3, 4)
}

// Trees may be deeper than the kernel's eight levels. Who borrows from nearer goes
// first also there, and the levels shown count on.
func TestNoLimitOfDepth(t *testing.T) {
	const depth = 20
	ctx := newContext(t, 64)
	q := build(t, nil)
	add(t, ctx, q, 0, 1, "rate", gigabit)
	for minor := uint32(2); minor < depth; minor++ {
		add(t, ctx, q, minor-1, minor, "rate", 1000, "ceil", gigabit, "burst", 1)
	}
	add(t, ctx, q, depth-1, 100, "rate", 1000, "ceil", gigabit, "burst", 1, "quantum", 1514)
	for range 3 {
		put(t, ctx, q, 100, 100)
	}
	equal(t, "order", ids(t, ctx, q, 3), 100, 100, 100)
	if top, low := class(q, 1).Params.N("level/all", 99), class(q, depth-1).Params.N("level/all", 99); top != depth-1 || low != 1 {
		t.Errorf("levels %d to %d, want %d to 1", top, low, depth-1)
	}
}

// Ids of 32 bits, and classes in any order, are found and take turns by id.
func TestNoLimitOfIDs(t *testing.T) {
	ctx := newContext(t, 16)
	q := build(t, values("default", 0x7fff_ffff))
	for _, minor := range []uint32{0xffff_fffe, 3, 0x1_0000, 0x7fff_ffff} {
		add(t, ctx, q, 0, minor, "rate", gigabit, "quantum", 1)
		put(t, ctx, q, minor, 64)
	}
	p := ctx.Pool.Get()
	p.SetLen(64)
	p.Class = id(0x7fff_ffff)
	q.Enqueue(ctx, p)
	equal(t, "order", ids(t, ctx, q, 5), 3, 0x1_0000, 0x7fff_ffff, 0xffff_fffe, 0x7fff_ffff)
}

// With hysteresis a class in credit goes on until it owes a burst.
func TestHysteresisSendsInBursts(t *testing.T) {
	for _, c := range []struct{ hysteresis, want int }{{0, 3}, {1, 5}} {
		ctx := newContext(t, 16)
		q := build(t, values("hysteresis", c.hysteresis))
		add(t, ctx, q, 0, 1, "rate", 100_000, "burst", 2000, "cburst", 2000)
		for range 10 {
			put(t, ctx, q, 1, 1000)
		}
		n := 0
		for p := q.Dequeue(ctx); p != nil; p = q.Dequeue(ctx) {
			n++
			p.Free()
		}
		if n != c.want {
			t.Errorf("hysteresis %d: %d packets at once, want %d", c.hysteresis, n, c.want)
		}
	}
}

// chain sends everything on to a class.
type chain struct{ to qdisc.ClassID }

func (c chain) Classify(*qdisc.Context, *qdisc.Packet) (qdisc.FilterVerdict, qdisc.ClassID) {
	return qdisc.Match, c.to
}

// Filters of inner classes go on from there; one that goes round, or that names a
// class that is not, ends in the default class; one that names the qdisc, in the
// direct queue.
func TestFiltersOfInnerClasses(t *testing.T) {
	for _, c := range []struct {
		what        string
		root, inner qdisc.ClassID
		want        uint32 // 0: the direct queue
	}{
		{"down", id(1), id(2), 2},
		{"round", id(1), id(1), 3},
		{"nowhere", id(1), id(99), 3},
		{"direct", id(1), id(0), 0},
		{"at once", id(2), 0, 2},
		{"inner without filters", id(1), 0, 3},
	} {
		t.Run(c.what, func(t *testing.T) {
			ctx := newContext(t, 4)
			q := build(t, values("default", 3))
			add(t, ctx, q, 0, 1, "rate", gigabit)
			add(t, ctx, q, 1, 2, "rate", gigabit)
			add(t, ctx, q, 1, 3, "rate", gigabit)
			if err := q.SetClassifier(0, chain{c.root}); err != nil {
				t.Fatal(err)
			}
			if c.inner != 0 {
				if err := q.SetClassifier(id(1), chain{c.inner}); err != nil {
					t.Fatal(err)
				}
			}
			p := ctx.Pool.Get()
			p.SetLen(100)
			q.Enqueue(ctx, p)
			if c.want != 0 && class(q, c.want).Len != 1 || c.want == 0 && q.Dump()["direct_packets_stat"].N != 1 {
				t.Errorf("the packet is not in %x", c.want)
			}
		})
	}
}

// The alternation of a class in and out, a thousand times: nothing allocates, and
// idle classes cost no call.
func TestIdleClassesDoNotAllocate(t *testing.T) {
	ctx := newContext(t, 64)
	q := build(t, nil)
	add(t, ctx, q, 0, 1, "rate", gigabit)
	for minor := uint32(2); minor < 300; minor++ {
		add(t, ctx, q, 1, minor, "rate", 1000, "ceil", gigabit, "burst", 1, "quantum", 1514)
	}
	minor := uint32(2)
	if got := testing.AllocsPerRun(1000, func() {
		put(t, ctx, q, minor, 64)
		if minor++; minor == 300 {
			minor = 2
		}
		ctx.Now = max(ctx.Now, 1)
		for p := q.Dequeue(ctx); ; p = q.Dequeue(ctx) {
			if p != nil {
				p.Free()
				return
			}
			ctx.Now = q.NextAt()
		}
	}); got != 0 {
		t.Errorf("%v allocations a packet", got)
	}
}
