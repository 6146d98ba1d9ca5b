package codel_test

import (
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/codel"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
	"sluice/qdisc/tbf"
)

func build(t testing.TB, env qdisc.Env, v qdisc.Values) qdisc.Qdisc {
	t.Helper()
	q, err := codel.Kind.New(env, v)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// eager drops and marks soon, so that short random sequences see it.
func eager(ecn uint64) qdisc.Values {
	return qdisc.Values{}.Set("limit", 12).Set("target", 1e6).Set("interval", 5e6).Set("ecn", ecn)
}

func TestConformance(t *testing.T) {
	for _, ecn := range []uint64{0, 1} {
		qdisctest.Run(t, qdisctest.Config{
			Name:  "codel",
			New:   func(env qdisc.Env) qdisc.Qdisc { return build(t, env, eager(ecn)) },
			Order: func(*qdisc.Packet) uint64 { return 0 },
			Changes: []qdisc.Values{
				{}, qdisc.Values{}.Set("limit", 3), qdisc.Values{}.Set("limit", 0), qdisc.Values{}.Set("limit", 40),
				qdisc.Values{}.Set("target", 0), qdisc.Values{}.Set("interval", 1e8), qdisc.Values{}.Set("ce_threshold", 1e6),
			},
		})
	}
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &codel.Kind, &prio.Kind, &tbf.Kind)
}

func Benchmark(b *testing.B) {
	qdisctest.Bench(b, func(env qdisc.Env) qdisc.Qdisc { return build(b, env, nil) })
}

// A link of 8 Mbit/s is offered twice that, without congestion control: CoDel
// alone brings the delay to its target, by and by (RFC 8289 §3.3).
func TestAQueueThatStandsComesDown(t *testing.T) {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 4096, FrameSize: 1600, Headroom: 64})
	if err != nil {
		t.Fatal(err)
	}
	ctx := qdisc.NewContext(pool, 1)
	q := build(t, qdisctest.Env(1), qdisc.Values{}.Set("limit", 4000))
	late := 0
	for ms := range 12000 { // a packet of 1000 bytes leaves each millisecond
		ctx.Now = time.Duration(ms) * time.Millisecond
		if ms%5 != 0 || ms < 1000 { // 20 % too much at first, then 80 % of the rate
			p := pool.Get()
			p.SetLen(1000)
			p.Arrival = ctx.Now
			q.Enqueue(ctx, p)
		}
		if ms < 1000 && ms%5 == 0 {
			p := pool.Get()
			p.SetLen(1000)
			p.Arrival = ctx.Now
			q.Enqueue(ctx, p)
		}
		if p := q.Dequeue(ctx); p != nil {
			if ms > 3000 && ctx.Now-p.Arrival > 10*time.Millisecond {
				late++
			}
			p.Free()
		}
	}
	if q.Self().Drops == 0 || late > 0 {
		t.Errorf("%d drops, %d packets late long after the burst", q.Self().Drops, late)
	}
}
