package choke_test

import (
	"math"
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/choke"
	"sluice/qdisc/fifo"
	"sluice/qdisc/qdisctest"
)

const mbit = 125_000

func values(kv ...any) qdisc.Values {
	v := qdisc.Values{}.Set("bandwidth", 10*mbit)
	for i := 0; i < len(kv); i += 2 {
		v.Set(kv[i].(string), uint64(kv[i+1].(int)))
	}
	return v
}

func build(t testing.TB, v qdisc.Values) qdisc.Qdisc {
	t.Helper()
	q, err := choke.Kind.New(qdisctest.Env(1), v)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestConformance(t *testing.T) {
	for name, v := range map[string]qdisc.Values{
		"short": values("limit", 12, "min", 2, "max", 6, "burst", 3),
		"ecn":   values("limit", 16, "min", 2, "max", 5, "burst", 3, "ecn", 1),
	} {
		t.Run(name, func(t *testing.T) {
			qdisctest.Run(t, qdisctest.Config{
				Name:  "choke",
				New:   func(env qdisc.Env) qdisc.Qdisc { q, _ := choke.Kind.New(env, v); return q },
				Order: func(*qdisc.Packet) uint64 { return 0 },
				Changes: []qdisc.Values{
					values("limit", 4, "min", 2, "max", 3, "burst", 3), values("limit", 200), values("limit", 20, "ecn", 1),
					values("limit", 1<<18), values(), values("limit", 4, "max", 9),
				},
			})
		})
	}
}

func TestScripts(t *testing.T) { qdisctest.Script(t, "testdata", &choke.Kind, &fifo.Pfifo) }

// A flow that sends ten times what it could get among its equals is kept down by
// meeting itself; the others hardly lose.
func TestFloodMeetsItself(t *testing.T) {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 512})
	if err != nil {
		t.Fatal(err)
	}
	ctx := qdisc.NewContext(pool, 1)
	q := build(t, values("limit", 200, "min", 20, "max", 100))
	var in, out [11]int
	send := func(flow uint32) {
		p := pool.Get()
		p.SetLen(1000)
		p.Hash, p.Flags = flow, qdisc.HashSet
		in[flow]++
		q.Enqueue(ctx, p)
	}
	for step := range 40_000 { // the link carries ten packets where twenty come
		for range 10 {
			send(0)
		}
		for flow := range uint32(10) {
			send(flow + 1)
		}
		for range 10 {
			ctx.Now += 800 * time.Microsecond
			if p := q.Dequeue(ctx); p != nil {
				if step > 100 {
					out[p.Hash]++
				}
				p.Free()
			}
		}
	}
	flood, others := float64(out[0])/float64(in[0]), 0.0
	for flow := 1; flow <= 10; flow++ {
		others += float64(out[flow]) / float64(in[flow]) / 10
	}
	if flood > 0.35 || others < 0.55 {
		t.Errorf("%.2f of the flood got through, and %.2f of the others", flood, others)
	}
	x := q.(qdisc.XStatser).XStats()
	if drops := 2*x.N("matched", 0) + x.N("early", 0) + x.N("pdrop", 0); drops != q.Self().Drops {
		t.Errorf("%v explains %d drops of %d", x, drops, q.Self().Drops)
	}
}

// Below min nothing is compared, and nothing dropped.
func TestShortQueueIsLeftAlone(t *testing.T) {
	pool, _ := qdisc.NewPool(qdisc.PoolConfig{Packets: 64})
	ctx := qdisc.NewContext(pool, 1)
	q := build(t, values("limit", 100, "min", 30, "max", 90))
	for range 1000 {
		for range 20 {
			p := pool.Get()
			p.SetLen(1000)
			p.Flags = qdisc.HashSet
			if v := q.Enqueue(ctx, p); v != qdisc.Success {
				t.Fatalf("%v", v)
			}
		}
		for range 20 {
			ctx.Now += 800 * time.Microsecond
			q.Dequeue(ctx).Free()
		}
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		v    qdisc.Values
		want string
	}{
		"no limit":     {values(), "Required parameter (bandwidth, limit) is missing"},
		"no bandwidth": {qdisc.Values{}.Set("limit", 10), "Required parameter (bandwidth, limit) is missing"},
		"max":          {values("limit", 10, "max", 11), `"max" is larger than "limit"`},
		"min":          {values("limit", 10, "min", 4, "max", 4), `"min" is not smaller than "max"`},
		"probability":  {values("limit", 10).Set("probability", math.Float64bits(1.5)), `Illegal "probability"`},
		"burst":        {values("limit", 100, "burst", 1), "CHOKE: failed to calculate EWMA constant."},
	} {
		if err := choke.Kind.Check(c.v); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func BenchmarkChoke(b *testing.B) {
	qdisctest.Bench(b, func(env qdisc.Env) qdisc.Qdisc {
		return build(b, values("limit", 1000, "min", 600, "max", 900))
	})
}
