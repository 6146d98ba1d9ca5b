package plug_test

import (
	"testing"

	"sluice/qdisc"
	"sluice/qdisc/plug"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
)

func flag(name string) qdisc.Values { return qdisc.Values{}.Set(name, 1) }

func build(t testing.TB, env qdisc.Env, v qdisc.Values) qdisc.Qdisc {
	t.Helper()
	q, err := plug.Kind.New(env, v)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestConformance(t *testing.T) {
	for _, v := range []qdisc.Values{nil, flag("release_indefinite"), qdisc.Values{}.Set("limit", 5000)} {
		qdisctest.Run(t, qdisctest.Config{
			Name:      "plug",
			New:       func(env qdisc.Env) qdisc.Qdisc { return build(t, env, v) },
			Order:     func(*qdisc.Packet) uint64 { return 0 },
			Throttles: true,
			Blocks:    true,
			Changes: []qdisc.Values{
				flag("block"), flag("release"), flag("block"), flag("release"), flag("release_indefinite"),
				qdisc.Values{}.Set("limit", 3000), qdisc.Values{}.Set("limit", 100_000),
			},
		})
	}
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &plug.Kind, &prio.Kind)
}

// However many of an epoch's packets were shed, a release lets out no packet of the
// next.
func TestSheddingKeepsEpochsApart(t *testing.T) {
	for shed := range 6 {
		pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 16})
		if err != nil {
			t.Fatal(err)
		}
		ctx := qdisc.NewContext(pool, 1)
		q := build(t, qdisctest.Env(1), nil)
		put := func(epoch uint32) {
			p := pool.Get()
			p.SetLen(60)
			p.Mark = epoch
			q.Enqueue(ctx, p)
		}
		for range 3 {
			put(1)
		}
		if err := q.(qdisc.Changer).Change(ctx, flag("block")); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			put(2)
		}
		q.Shed(ctx, shed)
		if err := q.(qdisc.Changer).Change(ctx, flag("release")); err != nil {
			t.Fatal(err)
		}
		got := 0
		for p := q.Dequeue(ctx); p != nil; p = q.Dequeue(ctx) {
			if p.Mark != 1 {
				t.Errorf("%d shed: a packet of the second epoch leaves", shed)
			}
			got++
		}
		if want := max(3-shed, 0); got != want {
			t.Errorf("%d shed: %d left, want %d", shed, got, want)
		}
	}
}

func Benchmark(b *testing.B) {
	qdisctest.Bench(b, func(env qdisc.Env) qdisc.Qdisc { return build(b, env, flag("release_indefinite")) })
}
