package drr_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"sluice/qdisc"
	"sluice/qdisc/drr"
	"sluice/qdisc/fifo"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
)

func quantum(n uint64) qdisc.Values { return qdisc.Values{}.Set("quantum", n) }

func id(minor uint32) qdisc.ClassID { return qdisc.MakeID(1, minor) }

// scheduler is what a drr is to its tests.
type scheduler interface {
	qdisc.Qdisc
	qdisc.ClassEditor
}

// build makes a drr with a class 1:1, 1:2 and so on for each quantum.
func build(t testing.TB, env qdisc.Env, quanta ...uint64) scheduler {
	t.Helper()
	q, err := drr.Kind.New(env, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := q.(scheduler)
	for i, n := range quanta {
		if err := e.AddClass(nil, 0, qdisc.MakeID(env.Handle, uint32(i+1)), quantum(n)); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func newContext(t testing.TB) *qdisc.Context {
	t.Helper()
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 8192, FrameSize: 1600, Headroom: 64})
	if err != nil {
		t.Fatal(err)
	}
	return qdisc.NewContext(pool, 1)
}

func put(ctx *qdisc.Context, q qdisc.Qdisc, minor uint32, n int) qdisc.Verdict {
	p := ctx.Pool.Get()
	p.SetLen(n)
	p.Priority = 1<<16 | minor
	return q.Enqueue(ctx, p)
}

func TestConformance(t *testing.T) {
	qdisctest.Run(t, qdisctest.Config{
		Name: "drr",
		New: func(env qdisc.Env) qdisc.Qdisc {
			return build(t, env, 300, 1514, 5000)
		},
		// Filters send packets elsewhere by their mark, from one moment on, and
		// a change of filters begins a new order: so the priority is the class.
		Order: func(p *qdisc.Packet) uint64 { return uint64(p.Priority)<<32 | uint64(p.Mark) },
		ClassValues: []qdisc.Values{
			{}, quantum(256), quantum(700), quantum(3000), quantum(0), quantum(1 << 32),
		},
	})
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &drr.Kind, &fifo.Pfifo, &fifo.HeadDrop, &prio.Kind)
}

func TestErrorsAreTheKernels(t *testing.T) {
	ctx := newContext(t)
	q := build(t, qdisctest.Env(1), 1000)
	for _, c := range []struct {
		what string
		err  error
		want syscall.Errno
		text string
	}{
		{"add twice", q.AddClass(ctx, 0, id(1), nil), syscall.EEXIST, "file exists"},
		{"add of another major", q.AddClass(ctx, 0, qdisc.MakeID(2, 1), nil), syscall.EINVAL, "invalid argument"},
		{"add of the qdisc", q.AddClass(ctx, 0, id(0), nil), syscall.EINVAL, "invalid argument"},
		{"quantum 0", q.AddClass(ctx, 0, id(2), quantum(0)), syscall.EINVAL, "Specified DRR quantum cannot be zero"},
		{"quantum 0 by change", q.ChangeClass(ctx, id(1), quantum(0)), syscall.EINVAL, "Specified DRR quantum cannot be zero"},
		{"quantum of 33 bits", q.ChangeClass(ctx, id(1), quantum(1<<32)), syscall.EINVAL, "invalid argument"},
		{"change of nothing", q.ChangeClass(ctx, id(7), quantum(1000)), syscall.ENOENT, "no such file or directory"},
		{"delete of nothing", q.DeleteClass(ctx, id(7)), syscall.ENOENT, "no such file or directory"},
		{"filters of a class", q.(qdisc.Filtered).SetClassifier(id(1), nil), syscall.EINVAL, "DRR classid must be zero"},
	} {
		if !errors.Is(c.err, c.want) || c.err.Error() != c.text {
			t.Errorf("%s: %v, want %q", c.what, c.err, c.text)
		}
	}
	q.Walk(func(c qdisc.Class) bool {
		if c.ID != id(1) || c.Params.N("quantum", 0) != 1000 {
			t.Errorf("a refusal left class %v with %v", c.ID, c.Params)
		}
		return true
	})
}

// A class that became empty behind drr's back is told of once, or twice, or not
// at all: the round goes on, and the class comes back like any other.
func TestQlenNotifyTwice(t *testing.T) {
	for notices := range 3 {
		t.Run(fmt.Sprintf("notices=%d", notices), func(t *testing.T) {
			ctx := newContext(t)
			q := build(t, qdisctest.Env(1), 500, 500, 500)
			for minor := range uint32(3) {
				put(ctx, q, minor+1, 100)
			}
			var leaf qdisc.Qdisc
			q.Walk(func(c qdisc.Class) bool {
				if c.ID == id(2) {
					leaf = c.Leaf
				}
				return true
			})
			// Edit would tell it once; here it is told as often as we like.
			before := leaf.Self().Len()
			leaf.Reset(ctx)
			for range notices {
				q.(qdisc.QlenNotifier).QlenNotify(id(2))
			}
			for _, want := range []uint32{1, 3} {
				p := q.Dequeue(ctx)
				if p == nil || p.Priority != 1<<16|want {
					t.Fatalf("%+v leaves, want a packet of class %d", p, want)
				}
				p.Free()
			}
			if q.Dequeue(ctx) != nil || q.Len() != before {
				t.Fatalf("len %d, want %d: only Edit settles the books", q.Len(), before)
			}
			put(ctx, q, 2, 100)
			if p := q.Dequeue(ctx); p == nil {
				t.Error("the class does not come back")
			}
		})
	}
}

// A change below, made as the worker makes it, reaches the round through Edit.
func TestEditBelowSettlesTheBooks(t *testing.T) {
	ctx := newContext(t)
	q := build(t, qdisctest.Env(1), 500, 500)
	put(ctx, q, 1, 100)
	put(ctx, q, 2, 100)
	var leaf qdisc.Qdisc
	q.Walk(func(c qdisc.Class) bool { leaf = c.Leaf; return false })
	err := qdisc.Edit([]qdisc.Step{{Qdisc: q, Class: id(1)}, {Qdisc: leaf}}, func() error {
		leaf.Reset(ctx)
		return nil
	})
	if err != nil || q.Len() != 1 || q.Backlog() != 100 {
		t.Errorf("%v, len %d, backlog %d; want 1, 100", err, q.Len(), q.Backlog())
	}
}

// Deleting classes, with and without packets, at the head of the round or not,
// never leaves the round pointing at nothing.
func TestDeleteInEveryPosition(t *testing.T) {
	for victim := range uint32(4) {
		for _, ahead := range []int{0, 1, 2, 3, 4} {
			ctx := newContext(t)
			q := build(t, qdisctest.Env(1), 100, 100, 100, 100)
			for minor := range uint32(4) {
				put(ctx, q, minor+1, 250)
			}
			sent := 0
			for range ahead {
				q.Dequeue(ctx).Free()
				sent++
			}
			if err := q.DeleteClass(ctx, id(victim+1)); err != nil {
				t.Fatal(err)
			}
			lost := int(q.Self().Drops)
			for p := q.Dequeue(ctx); p != nil; p = q.Dequeue(ctx) {
				p.Free()
				sent++
			}
			if sent+lost != 4 || q.Len() != 0 || ctx.Pool.Available() != ctx.Pool.Size() {
				t.Errorf("class %d deleted after %d: %d left, %d dropped, len %d", victim+1, ahead, sent, lost, q.Len())
			}
			if err := q.AddClass(ctx, 0, id(victim+1), nil); err != nil {
				t.Fatal(err)
			}
			if put(ctx, q, victim+1, 100); q.Dequeue(ctx) == nil {
				t.Error("a class made in the deleted one's place sends nothing")
			}
		}
	}
}

// A class can have an id that tc cannot say, and is named by the packet then.
func TestWideClassID(t *testing.T) {
	ctx := newContext(t)
	q := build(t, qdisctest.Env(0x12345), 1000)
	wide := qdisc.MakeID(0x12345, 0x7_0000)
	if err := q.AddClass(ctx, 0, wide, nil); err != nil {
		t.Fatal(err)
	}
	p := ctx.Pool.Get()
	p.SetLen(100)
	p.Class = wide
	if v := q.Enqueue(ctx, p); v != qdisc.Success {
		t.Errorf("verdict %v", v)
	}
}

func BenchmarkClasses(b *testing.B) {
	for _, n := range []uint32{2, 64, 4096} {
		b.Run(fmt.Sprintf("classes=%d", n), func(b *testing.B) {
			ctx := newContext(b)
			q := build(b, qdisctest.Env(1))
			for minor := range n {
				if err := q.AddClass(ctx, 0, id(minor+1), nil); err != nil {
					b.Fatal(err)
				}
				put(ctx, q, minor+1, 1500)
			}
			b.ReportAllocs()
			for b.Loop() {
				q.Enqueue(ctx, q.Dequeue(ctx))
			}
		})
	}
}
