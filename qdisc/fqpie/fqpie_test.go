package fqpie_test

import (
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/fqpie"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
)

func build(t testing.TB, env qdisc.Env, v qdisc.Values) qdisc.Qdisc {
	t.Helper()
	q, err := fqpie.Kind.New(env, v)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestConformance(t *testing.T) {
	for name, v := range map[string]qdisc.Values{
		"plain":  qdisc.Values{}.Set("limit", 12),
		"memory": qdisc.Values{}.Set("flows", 3).Set("memory_limit", 9000).Set("quantum", 300),
		"eager":  qdisc.Values{}.Set("target", 0).Set("tupdate", 1e6).Set("alpha", 32).Set("beta", 32).Set("ecn", 1).Set("flows", 2),
	} {
		t.Run(name, func(t *testing.T) {
			qdisctest.Run(t, qdisctest.Config{
				Name:  "fq_pie",
				New:   func(env qdisc.Env) qdisc.Qdisc { return build(t, env, v) },
				Order: func(p *qdisc.Packet) uint64 { return uint64(p.Priority)<<32 | uint64(p.Hash) },
				Changes: []qdisc.Values{
					{}, qdisc.Values{}.Set("limit", 3), qdisc.Values{}.Set("limit", 0), qdisc.Values{}.Set("limit", 40),
					qdisc.Values{}.Set("memory_limit", 2000), qdisc.Values{}.Set("flows", 3), qdisc.Values{}.Set("noecn", 1),
				},
			})
		})
	}
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &fqpie.Kind, &prio.Kind)
}

func Benchmark(b *testing.B) {
	qdisctest.Bench(b, func(env qdisc.Env) qdisc.Qdisc { return build(b, env, nil) })
}

func TestWhatTheKernelRefuses(t *testing.T) {
	for _, n := range []uint64{0, 65537} {
		_, err := fqpie.Kind.New(qdisctest.Env(1), qdisc.Values{}.Set("flows", n))
		if !errors.Is(err, syscall.EINVAL) || err.Error() != "Number of flows must range in [1..65536]" {
			t.Errorf("%d flows: %v", n, err)
		}
	}
}

// Eight flows offer a link far more than it takes, a ninth sends a packet of 200
// bytes every 20 ms. The greedy ones are held at the target, and share; the other
// loses nothing and waits for a round of the others at most.
func TestFlowsAreHeldAtTheTarget(t *testing.T) {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 16384, FrameSize: 1600, Headroom: 64})
	if err != nil {
		t.Fatal(err)
	}
	ctx := qdisc.NewContext(pool, 1)
	q := build(t, qdisctest.Env(1), nil)
	const greedy, sparse = 8, 99
	put := func(flow uint32, n int) {
		p := pool.Get()
		p.SetLen(n)
		p.Hash, p.Mark, p.Arrival = flow*0x9e3779b1, flow, ctx.Now
		p.Flags |= qdisc.HashSet
		q.Enqueue(ctx, p)
	}
	sent := make([]int, greedy)
	var greedyDelay time.Duration
	var n int
	var delays []time.Duration
	for round := 0; ctx.Now < 40*time.Second; round++ { // 20 Mbit/s
		for flow := range uint32(greedy) {
			if round%4 == 0 {
				put(flow, 1514)
			}
		}
		if round%33 == 0 {
			put(sparse, 200)
		}
		p := q.Dequeue(ctx)
		switch {
		case p.Mark == sparse:
			delays = append(delays, ctx.Now-p.Arrival)
		case ctx.Now > 20*time.Second:
			sent[p.Mark]++
			greedyDelay += ctx.Now - p.Arrival
			n++
		}
		ctx.Now += time.Duration(p.PktLen) * 400
		p.Free()
	}
	if mean := greedyDelay / time.Duration(n); mean < 10*time.Millisecond || mean > 25*time.Millisecond {
		t.Errorf("mean delay of the greedy flows %v, want 15ms about", mean)
	}
	if r := float64(slices.Max(sent)) / float64(slices.Min(sent)); r > 1.03 {
		t.Errorf("shares differ by a factor of %.3f: %v", r, sent)
	}
	if worst := slices.Max(delays); worst > (greedy+1)*1514*400 {
		t.Errorf("the sparse flow waited up to %v", worst)
	}
}
