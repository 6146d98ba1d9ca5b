package prio_test

import (
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/fifo"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
)

func build(t testing.TB, env qdisc.Env) qdisc.Qdisc {
	q, err := prio.Kind.New(env, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestConformance(t *testing.T) {
	qdisctest.Run(t, qdisctest.Config{
		Name:  "prio",
		New:   func(env qdisc.Env) qdisc.Qdisc { return build(t, env) },
		Order: func(p *qdisc.Packet) uint64 { return uint64(p.Priority)<<32 | uint64(p.Mark) },
		Changes: []qdisc.Values{
			qdisc.Values{}.Set("bands", 3),
			qdisc.Values{}.Set("bands", 16),
			qdisc.Values{}.Set("bands", 17),
			qdisc.Values{}.Set("bands", 1),
			qdisc.Values{"bands": {N: 2}, "priomap": {List: make([]uint64, 16)}},
			qdisc.Values{"bands": {N: 5}, "priomap": {List: []uint64{4, 3, 2, 1, 0, 0, 1, 2, 3, 4, 4, 3, 2, 1, 0, 2}}},
			{"priomap": {List: []uint64{2, 0, 1}}},
		},
	})
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &prio.Kind, &fifo.Pfifo, &fifo.Bfifo)
}

// A parent must not be skipped: its child might refuse the packet.
func TestForbidsTheBypass(t *testing.T) {
	if _, ok := build(t, qdisctest.Env(1)).(qdisc.Bypasser); ok {
		t.Error("prio offers the bypass")
	}
}

// Two slow bands: the sleep ends when the first of them is ready, whichever it
// is, and an empty band does not count.
func TestSleepsUntilTheFirstBandIsReady(t *testing.T) {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 16})
	if err != nil {
		t.Fatal(err)
	}
	ctx := qdisc.NewContext(pool, 1)
	q := build(t, qdisctest.Env(1))
	for i, gap := range []time.Duration{30 * time.Millisecond, 20 * time.Millisecond, time.Millisecond} {
		slow := &qdisctest.Slow{Fifo: qdisctest.Fifo{Limit: 8}, Gap: gap}
		if _, err := q.(qdisc.Classful).Graft(ctx, qdisc.MakeID(1, uint32(i+1)), slow); err != nil {
			t.Fatal(err)
		}
	}
	for _, band := range []uint32{1, 1, 2, 2} {
		p := pool.Get()
		p.SetLen(100)
		p.Priority = 1<<16 | band
		q.Enqueue(ctx, p)
	}
	for range 2 {
		q.Dequeue(ctx).Free()
	}
	for _, want := range []time.Duration{20 * time.Millisecond, 30 * time.Millisecond} {
		if p := q.Dequeue(ctx); p != nil {
			t.Fatalf("at %v: a packet before its time", ctx.Now)
		}
		if got := q.NextAt(); got != want {
			t.Fatalf("at %v: NextAt is %v; want %v", ctx.Now, got, want)
		}
		ctx.Now = want
		q.Dequeue(ctx).Free()
	}
	if got := q.NextAt(); got != qdisc.Never {
		t.Errorf("empty: NextAt is %v", got)
	}
}

func Benchmark(b *testing.B) {
	qdisctest.Bench(b, func(env qdisc.Env) qdisc.Qdisc { return build(b, env) })
}
