package hfsc_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/qdisc"
	"sluice/qdisc/fifo"
	"sluice/qdisc/hfsc"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
	"sluice/qdisc/tbf"
)

const (
	mbit = 125_000
	gbit = 125_000_000
	ms   = uint64(time.Millisecond)
)

// line is a curve of one slope, twoPiece one of two.
func line(name string, rate uint64) qdisc.Values { return qdisc.Values{}.Set(name+".m2", rate) }

func twoPiece(name string, m1, d, m2 uint64) qdisc.Values {
	return qdisc.Values{}.Set(name+".m1", m1).Set(name+".d", d).Set(name+".m2", m2)
}

// with joins curves.
func with(all ...qdisc.Values) qdisc.Values {
	v := qdisc.Values{}
	for _, x := range all {
		for name, value := range x {
			v[name] = value
		}
	}
	return v
}

// class is one class of a tree under test.
type class struct {
	parent, minor uint32
	curves        qdisc.Values
}

func build(env qdisc.Env, classes ...class) (qdisc.Qdisc, error) {
	q, err := hfsc.Kind.New(env, nil)
	if err != nil {
		return nil, err
	}
	for _, c := range classes {
		id, parent := qdisc.MakeID(env.Handle, c.minor), qdisc.MakeID(env.Handle, c.parent)
		if err := q.(qdisc.ClassEditor).AddClass(nil, parent, id, c.curves); err != nil {
			return nil, err
		}
	}
	return q, nil
}

func TestConformance(t *testing.T) {
	for name, classes := range map[string][]class{
		"shares": {
			{0, 5, line("ls", gbit)},
			{5, 1, line("ls", 10*mbit)}, {5, 2, line("ls", 30*mbit)}, {0, 3, line("ls", 40*mbit)},
		},
		"real time": {
			{0, 5, line("sc", 8*mbit)},
			{5, 1, twoPiece("sc", 6*mbit, 10*ms, mbit)}, {5, 2, twoPiece("rt", 0, 10*ms, 4*mbit)},
			{0, 3, with(twoPiece("rt", 2*mbit, 5*ms, mbit), line("ls", mbit))},
		},
		"limits": {
			{0, 5, with(line("sc", 8*mbit), line("ul", 8*mbit))},
			{5, 1, with(twoPiece("sc", 6*mbit, 10*ms, mbit), line("ul", 2*mbit))},
			{5, 2, with(line("ls", mbit), twoPiece("ul", 10*mbit, 2*ms, mbit))},
			{0, 3, with(line("ls", mbit), line("ul", 100*mbit))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			qdisctest.Run(t, qdisctest.Config{
				Name: "hfsc",
				New: func(env qdisc.Env) qdisc.Qdisc {
					q, err := build(env, classes...)
					if err != nil {
						t.Fatal(err)
					}
					return q
				},
				Throttles: true,
				Changes: []qdisc.Values{
					qdisc.Values{}.Set("default", 1), qdisc.Values{}.Set("default", 3), {},
					qdisc.Values{}.Set("default", 1<<16),
				},
				ClassValues: []qdisc.Values{
					line("sc", 2*mbit), line("ls", 5*mbit), line("rt", mbit), {}, line("ul", mbit),
					with(twoPiece("sc", 6*mbit, 10*ms, mbit), line("ul", 3*mbit)),
					twoPiece("rt", 0, 5*ms, 10*mbit),
					qdisc.Values{}.Set("rt.umax", 1500).Set("rt.dmax", 0).Set("rt.rate", mbit),
				},
			})
		})
	}
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &hfsc.Kind, &fifo.Pfifo, &fifo.Bfifo, &prio.Kind, &tbf.Kind)
}

func newContext(t testing.TB, packets int) *qdisc.Context {
	t.Helper()
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: packets})
	if err != nil {
		t.Fatal(err)
	}
	return qdisc.NewContext(pool, 1)
}

func newTree(t testing.TB, classes ...class) qdisc.Qdisc {
	t.Helper()
	env := qdisctest.Env(1)
	env.TxQueueLen = 1 << 20
	q, err := build(env, classes...)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// put enqueues a packet of n bytes into class minor.
func put(t testing.TB, ctx *qdisc.Context, q qdisc.Qdisc, minor uint32, n int) qdisc.Verdict {
	t.Helper()
	p := ctx.Pool.Get()
	if p == nil {
		t.Fatal("out of packets")
	}
	p.SetLen(n)
	p.Priority = 1<<16 | minor
	return q.Enqueue(ctx, p)
}

// take gives the next packet, sleeping until NextAt when there is none yet.
func take(t testing.TB, ctx *qdisc.Context, q qdisc.Qdisc) *qdisc.Packet {
	t.Helper()
	for range 3 {
		if p := q.Dequeue(ctx); p != nil {
			return p
		}
		if q.NextAt() <= ctx.Now || q.NextAt() == qdisc.Never {
			t.Fatalf("%d packets wait, none leaves at %v, and NextAt is %v", q.Len(), ctx.Now, q.NextAt())
		}
		ctx.Now = q.NextAt()
	}
	t.Fatal("NextAt was early three times")
	return nil
}

// Each packet of a limited class leaves exactly when the limit allows it, over
// many packets, from 1 Mbit/s to 100 Gbit/s, and of a real-time one when its
// curve asks for it: with no rounding that adds up.
func TestScheduleIsExact(t *testing.T) {
	for _, c := range []struct {
		name string
		rate uint64
	}{
		{"1 Mbit", mbit}, {"100 Mbit", 100 * mbit}, {"1 Gbit", gbit}, {"10 Gbit", 10 * gbit},
		{"100 Gbit", 100 * gbit}, {"odd", 99_999_989},
	} {
		for name, curves := range map[string]qdisc.Values{
			"ul": with(line("ls", 400*gbit), line("ul", c.rate)),
			"rt": line("rt", c.rate),
		} {
			t.Run(c.name+" "+name, func(t *testing.T) {
				ctx := newContext(t, 32)
				q := newTree(t, class{0, 1, curves})
				sizes := []int{1514, 64, 577}
				in, total := 0, uint64(0)
				for ; in < 8; in++ {
					put(t, ctx, q, 1, sizes[in%3])
				}
				for range 20_000 {
					p := take(t, ctx, q)
					if want := time.Duration((total*1e9 + c.rate - 1) / c.rate); ctx.Now != want {
						t.Fatalf("after %d bytes the next packet leaves at %v, want %v", total, ctx.Now, want)
					}
					total += uint64(p.PktLen)
					p.Free()
					put(t, ctx, q, 1, sizes[in%3])
					in++
				}
			})
		}
	}
}

// Classes with always something to send share in the ratio of their curves,
// whatever the sizes of their packets, at every level.
func TestSharesFollowTheCurves(t *testing.T) {
	ctx := newContext(t, 64)
	q := newTree(t,
		class{0, 1, line("ls", 100*mbit)}, class{0, 2, line("ls", 300*mbit)},
		class{1, 11, line("ls", mbit)}, class{1, 12, line("ls", 4*mbit)},
		class{2, 21, line("ls", 2*mbit)}, class{2, 22, line("ls", mbit)},
	)
	size := map[uint32]int{11: 64, 12: 1514, 21: 1514, 22: 200}
	for minor, n := range size {
		put(t, ctx, q, minor, n)
		put(t, ctx, q, minor, n)
	}
	got := map[uint32]float64{}
	for range 50_000 {
		p := take(t, ctx, q)
		minor := p.Priority & 0xffff
		got[minor] += float64(p.PktLen)
		p.Free()
		put(t, ctx, q, minor, size[minor])
	}
	all := got[11] + got[12] + got[21] + got[22]
	for minor, want := range map[uint32]float64{11: 0.05, 12: 0.2, 21: 0.5, 22: 0.25} {
		if off := got[minor]/all - want; off > 0.001 || off < -0.001 {
			t.Errorf("class %d got %.4f of the link, want %.2f", minor, got[minor]/all, want)
		}
	}
}

// However a class is pressed by others, each of its packets is out by what its
// real-time curve promises from the instant at which it became active, plus one
// full frame at the link's rate (the paper's theorem 2).
func TestDelayBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const link = 100 * mbit
		type leaf struct {
			m1, d, m2    uint64
			start        time.Duration
			sent, queued uint64
		}
		n := rapid.IntRange(1, 6).Draw(t, "leaves")
		leaves := make([]leaf, n)
		classes := []class{{0, 99, line("ls", gbit)}}
		slope := rapid.Uint64Range(mbit/10, link/uint64(n))
		for i := range leaves {
			l := &leaves[i]
			l.m1, l.m2 = slope.Draw(t, "m1"), slope.Draw(t, "m2")
			l.d = rapid.Uint64Range(0, 20*ms).Draw(t, "d")
			l.start = time.Duration(rapid.Uint64Range(0, 20*ms).Draw(t, "start"))
			curves := twoPiece("rt", l.m1, l.d, l.m2)
			if rapid.Bool().Draw(t, "shares") {
				curves = with(curves, line("ls", slope.Draw(t, "ls")))
			}
			classes = append(classes, class{0, uint32(i + 1), curves})
		}
		q, err := build(qdisctest.Env(1), classes...)
		if err != nil {
			t.Fatal(err)
		}
		pool, _ := qdisc.NewPool(qdisc.PoolConfig{Packets: 256})
		ctx := qdisc.NewContext(pool, 1)
		enqueue := func(minor uint32, n int) {
			p := pool.Get()
			p.SetLen(n)
			p.Priority = 1<<16 | minor
			q.Enqueue(ctx, p)
		}
		enqueue(99, 1514)
		size := rapid.IntRange(64, 1514)
		for ctx.Now < 60*time.Millisecond {
			for i := range leaves {
				if l := &leaves[i]; l.start <= ctx.Now && l.queued == 0 {
					l.start = ctx.Now // seen by the scheduler now
					for range 3 {
						n := size.Draw(t, "len")
						l.queued += uint64(n)
						enqueue(uint32(i+1), n)
					}
				}
			}
			p := q.Dequeue(ctx)
			minor, n := p.Priority&0xffff, uint64(p.PktLen)
			p.Free()
			ctx.Now += time.Duration((n*1e9 + link - 1) / link)
			if minor == 99 {
				enqueue(99, 1514)
				continue
			}
			l := &leaves[minor-1]
			l.sent += n
			// From the start by the curve, in floating point as on paper.
			due, first := 0.0, float64(l.m1)*float64(l.d)/1e9
			if y := float64(l.sent); y <= first {
				due = y / float64(l.m1)
			} else {
				due = float64(l.d)/1e9 + (y-first)/float64(l.m2)
			}
			bound := l.start + time.Duration(due*1e9) + time.Duration(1514*1e9/link) + 10
			if ctx.Now > bound {
				t.Fatalf("byte %d of class %d is out at %v, promised by %v", l.sent, minor, ctx.Now, bound)
			}
			next := size.Draw(t, "len")
			l.queued += uint64(next)
			enqueue(minor, next)
		}
	})
}

// twin is a qdisc that queues every packet twice, as netem duplicates.
type twin struct{ qdisctest.Fifo }

func (q *twin) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	if c := ctx.Clone(p); c != nil {
		q.Fifo.Enqueue(ctx, c)
	}
	return q.Fifo.Enqueue(ctx, p)
}

// A class whose first arrival is two packets becomes active once.
func TestTrap32aDuplicatesActivateOnce(t *testing.T) {
	ctx := newContext(t, 16)
	q := newTree(t, class{0, 1, line("sc", mbit)}, class{0, 2, line("sc", mbit)})
	if _, err := q.(qdisc.Classful).Graft(ctx, qdisc.MakeID(1, 1), &twin{qdisctest.Fifo{Limit: 9}}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		put(t, ctx, q, 1, 100)
		put(t, ctx, q, 2, 100)
		for left := 3; left > 0; left-- {
			take(t, ctx, q).Free()
		}
		if p := q.Dequeue(ctx); p != nil || q.Len() != 0 {
			t.Fatalf("%v and %d more after all left", p, q.Len())
		}
	}
}

// Slopes whose difference is 2³² cross without a division by its lower half.
func TestTrap32cWideSlopesCross(t *testing.T) {
	ctx := newContext(t, 16)
	q := newTree(t, class{0, 1, twoPiece("rt", 1<<32+mbit, 1000, mbit)})
	for _, now := range []time.Duration{0, 10, 500, 2000, 2500, 1e6, 1e9} {
		ctx.Now = max(ctx.Now, now)
		put(t, ctx, q, 1, 1000)
		take(t, ctx, q).Free()
	}
}

// leaky is a qdisc that loses its last packet as it is asked for it.
type leaky struct{ qdisctest.Fifo }

func (q *leaky) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if q.Len() == 1 {
		q.Discard(ctx, q.Fifo.Peek(ctx), qdisc.Congested)
		q.Fifo = qdisctest.Fifo{Base: q.Base, Limit: q.Limit}
		return nil
	}
	return q.Fifo.Dequeue(ctx)
}

// A leaf that turns out to be empty while it is served, and is then reported
// empty, goes passive once: its siblings keep their turn.
func TestTrap32dPassiveOnce(t *testing.T) {
	ctx := newContext(t, 16)
	q := newTree(t, class{0, 9, line("ls", mbit)}, class{9, 1, line("ls", 10*mbit)}, class{9, 2, line("ls", mbit)})
	if _, err := q.(qdisc.Classful).Graft(ctx, qdisc.MakeID(1, 1), &leaky{qdisctest.Fifo{Limit: 9}}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for _, minor := range []uint32{1, 1, 2, 2, 2, 2} {
			put(t, ctx, q, minor, 100)
		}
		for range 5 {
			take(t, ctx, q).Free()
		}
		q.(qdisc.QlenNotifier).QlenNotify(qdisc.MakeID(1, 1))
		if q.Len() != 0 {
			t.Fatalf("%d packets are left", q.Len())
		}
	}
	if got := q.Self(); got.Packets != 15 || got.Drops != 3 {
		t.Errorf("%d left and %d were lost, want 15 and 3", got.Packets, got.Drops)
	}
}

func BenchmarkOneClass(b *testing.B) {
	for _, c := range []struct {
		name   string
		curves qdisc.Values
	}{{"ls", line("ls", gbit)}, {"sc", line("sc", gbit)}, {"sc+ul", with(line("sc", gbit), line("ul", 10*gbit))}} {
		b.Run(c.name, func(b *testing.B) {
			qdisctest.Bench(b, func(env qdisc.Env) qdisc.Qdisc {
				q, err := build(env, class{0, 1, c.curves})
				if err != nil {
					b.Fatal(err)
				}
				return q
			})
		})
	}
}

// One packet in and one out, of many classes with a standing backlog.
func BenchmarkClasses(b *testing.B) {
	for _, n := range []uint32{16, 256, 4096} {
		b.Run(fmt.Sprintf("classes=%d", n), func(b *testing.B) {
			ctx := newContext(b, int(4*n))
			classes := []class{{0, 0xffff, line("ls", gbit)}}
			for i := range n {
				classes = append(classes, class{0xffff, i + 1, line("sc", mbit)})
			}
			q := newTree(b, classes...)
			for i := range 2 * n {
				put(b, ctx, q, i%n+1, 64)
			}
			b.ReportAllocs()
			for b.Loop() {
				ctx.Now += 50
				q.Enqueue(ctx, q.Dequeue(ctx))
			}
		})
	}
}
