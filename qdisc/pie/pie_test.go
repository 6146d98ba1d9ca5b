package pie_test

import (
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/pie"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
)

func build(t testing.TB, env qdisc.Env, v qdisc.Values) qdisc.Qdisc {
	t.Helper()
	q, err := pie.Kind.New(env, v)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestConformance(t *testing.T) {
	for name, v := range map[string]qdisc.Values{
		"plain":    qdisc.Values{}.Set("limit", 12),
		"eager":    qdisc.Values{}.Set("target", 0).Set("tupdate", 1e6).Set("alpha", 32).Set("beta", 32).Set("ecn", 1).Set("bytemode", 1),
		"estimate": qdisc.Values{}.Set("dq_rate_estimator", 1).Set("tupdate", 1e6),
	} {
		t.Run(name, func(t *testing.T) {
			qdisctest.Run(t, qdisctest.Config{
				Name:  "pie",
				New:   func(env qdisc.Env) qdisc.Qdisc { return build(t, env, v) },
				Order: func(*qdisc.Packet) uint64 { return 0 },
				Changes: []qdisc.Values{
					{}, qdisc.Values{}.Set("limit", 3), qdisc.Values{}.Set("limit", 0), qdisc.Values{}.Set("limit", 40),
					qdisc.Values{}.Set("target", 1e6), qdisc.Values{}.Set("tupdate", 0), qdisc.Values{}.Set("noecn", 1),
				},
			})
		})
	}
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &pie.Kind, &prio.Kind)
}

func Benchmark(b *testing.B) {
	qdisctest.Bench(b, func(env qdisc.Env) qdisc.Qdisc { return build(b, env, nil) })
}

// Twice as much as the link takes is offered for a minute, by a sender that does
// not care: the delay settles at the target, and about half is dropped.
func TestDelaySettlesAtTheTarget(t *testing.T) {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 2048, FrameSize: 1600, Headroom: 64})
	if err != nil {
		t.Fatal(err)
	}
	ctx := qdisc.NewContext(pool, 1)
	q := build(t, qdisctest.Env(1), nil)
	var sum time.Duration
	n := 0
	for ms := range 60000 {
		for range 2 {
			p := pool.Get()
			p.SetLen(1000)
			p.Arrival = ctx.Now
			q.Enqueue(ctx, p)
			ctx.Now += 500 * time.Microsecond
		}
		if p := q.Dequeue(ctx); p != nil {
			if ms > 20000 {
				sum += ctx.Now - p.Arrival
				n++
			}
			p.Free()
		}
	}
	if mean := sum / time.Duration(n); mean < 10*time.Millisecond || mean > 20*time.Millisecond {
		t.Errorf("mean delay %v, want 15ms about", mean)
	}
	if part := float64(q.Self().Drops) / 120000; part < 0.48 || part > 0.52 {
		t.Errorf("%.3f of the packets were dropped, want half", part)
	}
}
