package qfq_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"sluice/qdisc"
	"sluice/qdisc/fifo"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
	"sluice/qdisc/qfq"
	"sluice/qdisc/tbf"
)

// scheduler is what a qfq is to its tests.
type scheduler interface {
	qdisc.Qdisc
	qdisc.ClassEditor
}

func values(pairs ...any) qdisc.Values {
	v := qdisc.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i].(string), uint64(pairs[i+1].(int)))
	}
	return v
}

func id(minor uint32) qdisc.ClassID { return qdisc.MakeID(1, minor) }

// build makes a qfq with a class 1:1, 1:2 and so on for each weight.
func build(t testing.TB, env qdisc.Env, weights ...int) scheduler {
	t.Helper()
	q, err := qfq.Kind.New(env, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := q.(scheduler)
	for i, w := range weights {
		if err := e.AddClass(nil, 0, qdisc.MakeID(env.Handle, uint32(i+1)), values("weight", w)); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func newContext(t testing.TB, packets int) *qdisc.Context {
	t.Helper()
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: packets, FrameSize: 2048})
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
	for _, weights := range [][]int{{1, 3, 10}, {1, 1, 1, 1, 1}, {1024, 1, 1000, 2}} {
		t.Run(fmt.Sprint(weights), func(t *testing.T) {
			qdisctest.Run(t, qdisctest.Config{
				Name:  "qfq",
				New:   func(env qdisc.Env) qdisc.Qdisc { return build(t, env, weights...) },
				Order: func(p *qdisc.Packet) uint64 { return uint64(p.Priority)<<32 | uint64(p.Mark) },
				ClassValues: []qdisc.Values{
					{}, values("weight", 5), values("weight", 1024, "maxpkt", 512), values("maxpkt", 9000),
					values("weight", 0), values("weight", 1025), values("maxpkt", 511), values("weight", 5, "maxpkt", 600),
				},
			})
		})
	}
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &qfq.Kind, &fifo.Pfifo, &fifo.HeadDrop, &prio.Kind, &tbf.Kind)
}

func TestErrorsAreTheKernels(t *testing.T) {
	ctx := newContext(t, 1)
	q := build(t, qdisctest.Env(1), 1)
	for minor := range uint32(63) {
		if err := q.AddClass(ctx, 0, id(minor+100), values("weight", 1024)); err != nil {
			t.Fatal(err)
		}
	}
	env := qdisctest.Env(2)
	env.MTU = 1 << 20
	jumbo := build(t, env)
	for _, c := range []struct {
		what string
		err  error
		want syscall.Errno
		text string
	}{
		{"add twice", q.AddClass(ctx, 0, id(1), nil), syscall.EEXIST, "file exists"},
		{"add of another major", q.AddClass(ctx, 0, qdisc.MakeID(2, 1), nil), syscall.EINVAL, "invalid argument"},
		{"weight 0", q.AddClass(ctx, 0, id(2), values("weight", 0)), syscall.ERANGE, "integer out of range"},
		{"weight 9999", q.AddClass(ctx, 0, id(2), values("weight", 9999)), syscall.ERANGE, "integer out of range"},
		{"maxpkt 128", q.AddClass(ctx, 0, id(2), values("maxpkt", 128)), syscall.ERANGE, "integer out of range"},
		{"maxpkt 99999", q.ChangeClass(ctx, id(1), values("maxpkt", 99999)), syscall.ERANGE, "integer out of range"},
		{"total weight", q.AddClass(ctx, 0, id(2), values("weight", 1024)), syscall.EINVAL, "total weight out of range (1024 + 64513)"},
		{"no default maxpkt", jumbo.AddClass(ctx, 0, qdisc.MakeID(2, 1), nil), syscall.EINVAL, "MTU size out of bounds for qfq"},
		{"change of nothing", q.ChangeClass(ctx, id(7), nil), syscall.ENOENT, "no such file or directory"},
		{"delete of nothing", q.DeleteClass(ctx, id(7)), syscall.ENOENT, "no such file or directory"},
		{"filters of a class", q.(qdisc.Filtered).SetClassifier(id(1), nil), syscall.EINVAL, "invalid argument"},
	} {
		if !errors.Is(c.err, c.want) || c.err.Error() != c.text {
			t.Errorf("%s: %v, want %q", c.what, c.err, c.text)
		}
	}
}

// While all classes are busy, none is further from its share at any moment than
// a few packets: the bound is about the class's own packets and weight, not about
// how many classes there are (Checconi, Rizzo and Valente 2013, B-WFI).
func TestShareErrorIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.SampledFrom([]int{1, 1, 1, 2, 3, 5, 10, 100, 1000}), 2, 24).Draw(t, "weights")
		const longest = 1514
		q, err := qfq.Kind.New(qdisctest.Env(1), nil)
		if err != nil {
			t.Fatal(err)
		}
		e := q.(scheduler)
		total := 0
		for i, w := range weights {
			if err := e.AddClass(nil, 0, id(uint32(i+1)), values("weight", w)); err != nil {
				t.Fatal(err)
			}
			total += w
		}
		pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 4 * len(weights), FrameSize: 2048})
		if err != nil {
			t.Fatal(err)
		}
		ctx := qdisc.NewContext(pool, 1)
		length := rapid.IntRange(60, longest)
		for i := range weights {
			for range 4 {
				put(ctx, q, uint32(i+1), length.Draw(t, "len"))
			}
		}
		sent, all := make([]float64, len(weights)), 0.
		for step := range 3000 {
			p := q.Dequeue(ctx)
			i := p.Priority&0xffff - 1
			sent[i] += float64(p.PktLen)
			all += float64(p.PktLen)
			p.SetLen(60 + (int(p.PktLen)*7+int(i)*31+step)%(longest-59))
			q.Enqueue(ctx, p)
			for j, w := range weights {
				share := float64(w) / float64(total)
				// The paper has 6 packets of its own and 2 of the others, scaled to its
				// share; others' budgets are up to 8 packets here, and within an
				// aggregate turns come to 3 more.
				bound := longest * (9 + 16*share)
				if off := sent[j] - share*all; off > bound || off < -bound {
					t.Fatalf("after %.0f bytes class %d of weight %d of %d has sent %.0f, which is off by %.0f; bound %.0f",
						all, j, w, total, sent[j], off, bound)
				}
			}
		}
	})
}

// In the long run bytes go by weight, to a few packets, whatever the sizes of packets.
func TestLongRunShares(t *testing.T) {
	ctx := newContext(t, 64)
	weights := []int{1, 3, 10, 10, 50}
	q := build(t, qdisctest.Env(1), weights...)
	sizes := []int{1514, 64, 600, 1514, 100}
	for i := range weights {
		for range 4 {
			put(ctx, q, uint32(i+1), sizes[i])
		}
	}
	sent, all := make([]float64, len(weights)), 0.
	for range 200_000 {
		p := q.Dequeue(ctx)
		sent[p.Priority&0xffff-1] += float64(p.PktLen)
		all += float64(p.PktLen)
		q.Enqueue(ctx, p)
	}
	for i, w := range weights {
		if off := sent[i] - all*float64(w)/74; off < -9*1514 || off > 9*1514 {
			t.Errorf("class of weight %d has sent %.0f of %.0f, %.0f off its share", w, sent[i], all, off)
		}
	}
}

// qfq spreads what drr sends in bursts: between two packets of a heavy class at
// most one turn of the light ones passes.
func TestHeavyClassIsSpread(t *testing.T) {
	ctx := newContext(t, 64)
	q := build(t, qdisctest.Env(1), 10, 1, 2, 3, 4)
	for minor := range uint32(5) {
		for range 4 {
			put(ctx, q, minor+1, 1000)
		}
	}
	gap, worst := 0, 0
	for range 2000 {
		p := q.Dequeue(ctx)
		if gap++; p.Priority&0xffff == 1 {
			worst, gap = max(worst, gap), 0
		}
		q.Enqueue(ctx, p)
	}
	if worst > 6 {
		t.Errorf("%d packets between two of the class with half of the link", worst)
	}
}

// Being active is being on the list: a class that became empty behind qfq's back is
// told of once, twice, or not at all, and comes back like any other.
func TestTrap33ActiveIsMembership(t *testing.T) {
	for notices := range 3 {
		t.Run(fmt.Sprintf("notices=%d", notices), func(t *testing.T) {
			ctx := newContext(t, 64)
			q := build(t, qdisctest.Env(1), 1, 2, 3)
			for minor := range uint32(3) {
				put(ctx, q, minor+1, 100)
			}
			for _, victim := range []uint32{1, 2} { // in service, and scheduled
				leaf(q, id(victim)).Reset(ctx)
				for range notices {
					q.(qdisc.QlenNotifier).QlenNotify(id(victim))
				}
			}
			if p := q.Dequeue(ctx); p == nil || p.Priority != 1<<16|3 {
				t.Fatalf("%+v leaves, want a packet of class 3", p)
			}
			if p := q.Dequeue(ctx); p != nil {
				t.Fatalf("%+v leaves, from nowhere", p)
			}
			for minor := range uint32(3) {
				put(ctx, q, minor+1, 100)
			}
			for range 3 {
				if q.Dequeue(ctx) == nil {
					t.Fatal("a class does not come back")
				}
			}
		})
	}
}

func leaf(q qdisc.Walker, want qdisc.ClassID) (leaf qdisc.Qdisc) {
	q.Walk(func(c qdisc.Class) bool {
		if c.ID == want {
			leaf = c.Leaf
		}
		return true
	})
	return leaf
}

// A parent that looks first takes what it saw, also when a class's child parks, and
// nothing is lost or counted twice.
func TestTrap23PeekThenDequeue(t *testing.T) {
	ctx := newContext(t, 64)
	q := build(t, qdisctest.Env(1), 1, 1)
	shaper, err := tbf.Kind.New(qdisctest.Env(3), values("rate", 125_000, "burst", 1000, "limit", 100_000))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Graft(ctx, id(1), shaper); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		put(ctx, q, 1, 1000)
		put(ctx, q, 2, 1000)
	}
	for left := 8; left > 0; left-- {
		seen := q.Peek(ctx)
		for seen == nil {
			ctx.Now = q.NextAt()
			seen = q.Peek(ctx)
		}
		if again := q.Peek(ctx); again != seen || q.Len() != left {
			t.Fatalf("peek again: another packet, or len %d instead of %d", q.Len(), left)
		}
		if p := q.Dequeue(ctx); p != seen {
			t.Fatal("dequeue gives another packet")
		} else {
			p.Free()
		}
	}
	if q.Len() != 0 || q.Backlog() != 0 || q.Self().Packets != 8 {
		t.Errorf("len %d, backlog %d, sent %d", q.Len(), q.Backlog(), q.Self().Packets)
	}
}

// A child that drops what it has when it is looked at leaves the schedule, and
// nobody is served a packet that is not there.
func TestTrap24PeekEmptiesTheChild(t *testing.T) {
	ctx := newContext(t, 64)
	q := build(t, qdisctest.Env(1), 1, 1)
	if _, err := q.Graft(ctx, id(1), &moody{}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		put(ctx, q, 1, 1000)
		put(ctx, q, 2, 1000)
	}
	for range 3 {
		if p := q.Dequeue(ctx); p == nil || p.Priority != 1<<16|2 {
			t.Fatalf("%v leaves", p)
		}
	}
	if p := q.Dequeue(ctx); p != nil || q.Len() != 0 || q.Self().Drops != 3 {
		t.Errorf("%v leaves, len %d, %d drops", p, q.Len(), q.Self().Drops)
	}
}

// moody drops everything when it is looked at.
type moody struct{ qdisctest.Fifo }

func (m *moody) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	m.Limit = 100
	return m.Fifo.Enqueue(ctx, p)
}

func (m *moody) Peek(ctx *qdisc.Context) *qdisc.Packet {
	m.Shed(ctx, m.Len())
	return nil
}

// What an aggregate does to itself: classes come, go and change in every order, and
// those that stay are served.
func TestClassesComeAndGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 512, FrameSize: 2048})
		if err != nil {
			t.Fatal(err)
		}
		ctx := qdisc.NewContext(pool, 1)
		root, err := qfq.Kind.New(qdisctest.Env(1), nil)
		if err != nil {
			t.Fatal(err)
		}
		q := root.(scheduler)
		queued := map[uint32]int{}
		weight := rapid.SampledFrom([]int{1, 1, 1, 2, 1024})
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			minor := rapid.Uint32Range(1, 12).Draw(t, "class")
			_, there := queued[minor]
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				if err := q.AddClass(ctx, 0, id(minor), values("weight", weight.Draw(t, "weight"))); (err != nil) != there {
					t.Fatal(err)
				}
				if !there {
					queued[minor] = 0
				}
			case 1:
				if err := q.DeleteClass(ctx, id(minor)); (err == nil) != there {
					t.Fatal(err)
				}
				delete(queued, minor)
			case 2, 3:
				v := values("weight", weight.Draw(t, "weight"), "maxpkt", rapid.SampledFrom([]int{512, 1514}).Draw(t, "maxpkt"))
				if err := q.ChangeClass(ctx, id(minor), v); (err == nil) != there {
					t.Fatal(err)
				}
			case 4, 5, 6, 7:
				if put(ctx, q, minor, rapid.IntRange(60, 1514).Draw(t, "len")) == qdisc.Success {
					queued[minor]++
				}
			default:
				if p := q.Dequeue(ctx); p != nil {
					queued[p.Priority&0xffff]--
					p.Free()
				} else if q.Len() != 0 {
					t.Fatalf("nothing comes, and %d wait", q.Len())
				}
			}
			sum := 0
			for _, n := range queued {
				sum += n
			}
			if q.Len() != sum {
				t.Fatalf("len %d, want %d", q.Len(), sum)
			}
		}
		for q.Len() > 0 {
			p := q.Dequeue(ctx)
			if p == nil {
				t.Fatalf("nothing comes, and %d wait", q.Len())
			}
			p.Free()
		}
	})
}

func Benchmark(b *testing.B) {
	qdisctest.Bench(b, func(env qdisc.Env) qdisc.Qdisc { return build(b, env, 1, 2, 3) })
}

func BenchmarkClasses(b *testing.B) {
	for _, n := range []int{2, 64, 4096} {
		b.Run(fmt.Sprintf("classes=%d", n), func(b *testing.B) {
			ctx := newContext(b, 2*n)
			env := qdisctest.Env(1)
			env.TxQueueLen = 1000
			q := build(b, env)
			for i := range n {
				if err := q.AddClass(ctx, 0, id(uint32(i+1)), values("weight", 1+i%16)); err != nil {
					b.Fatal(err)
				}
				put(ctx, q, uint32(i+1), 64)
				put(ctx, q, uint32(i+1), 64)
			}
			b.ReportAllocs()
			for b.Loop() {
				q.Enqueue(ctx, q.Dequeue(ctx))
			}
		})
	}
}
