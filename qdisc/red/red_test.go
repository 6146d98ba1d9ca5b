package red_test

import (
	"errors"
	"math"
	"syscall"
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/fifo"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
	"sluice/qdisc/red"
	"sluice/qdisc/tbf"
)

func build(t testing.TB, env qdisc.Env, v qdisc.Values) qdisc.Qdisc {
	t.Helper()
	q, err := red.Kind.New(env, v)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// small has thresholds that short sequences reach.
func small() qdisc.Values {
	return qdisc.Values{}.Set("limit", 12000).Set("min", 1000).Set("max", 4000).Set("avpkt", 500).Set("burst", 3).
		Set("probability", math.Float64bits(0.5))
}

func TestConformance(t *testing.T) {
	for name, v := range map[string]qdisc.Values{
		"drop":     small(),
		"ecn":      small().Set("ecn", 1).Set("adaptive", 1),
		"nodrop":   small().Set("ecn", 1).Set("nodrop", 1),
		"harddrop": small().Set("ecn", 1).Set("harddrop", 1),
	} {
		t.Run(name, func(t *testing.T) {
			qdisctest.Run(t, qdisctest.Config{
				Name:  "red",
				New:   func(env qdisc.Env) qdisc.Qdisc { return build(t, env, v) },
				Order: func(*qdisc.Packet) uint64 { return 0 },
				Changes: []qdisc.Values{
					small(), small().Set("limit", 3000), small().Set("limit", 50000), small().Set("nodrop", 1),
					{}, small().Set("min", 5000), small().Set("max", 1<<31),
				},
			})
		})
	}
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &red.Kind, &prio.Kind, &fifo.Pfifo, &fifo.Bfifo, &tbf.Kind)
}

func Benchmark(b *testing.B) {
	qdisctest.Bench(b, func(env qdisc.Env) qdisc.Qdisc {
		return build(b, env, qdisc.Values{}.Set("limit", 400000).Set("avpkt", 1000))
	})
}

// Trap 42: what would shift beyond a word is refused: tables and logarithms come
// out of the parameters, and nothing odd gets through.
func TestTrap42ParametersOutOfRange(t *testing.T) {
	for _, c := range []struct {
		name string
		v    qdisc.Values
		ext  string
	}{
		{"max below min", small().Set("min", 5000), "invalid argument"},
		{"min and weight have more than 32 bits", qdisc.Values{}.Set("limit", 1<<31).Set("min", 1<<30).Set("max", 1<<31-1).Set("avpkt", 1500).Set("burst", 1<<22), "invalid argument"},
		{"burst smaller than min", small().Set("burst", 1), "invalid argument"},
		{"no average packet", qdisc.Values{}.Set("limit", 10000), "invalid argument"},
		{"nodrop without ecn", small().Set("nodrop", 1), "nodrop mode is only meaningful with ECN"},
	} {
		if _, err := red.Kind.New(qdisctest.Env(1), c.v); !errors.Is(err, syscall.EINVAL) || err.Error() != c.ext {
			t.Errorf("%s: %v, want %q", c.name, err, c.ext)
		}
	}
	for _, c := range []struct {
		v    qdisc.Values
		text string
	}{
		{qdisc.Values{}.Set("avpkt", 1000), "RED: Required parameter (limit) is missing"},
		{qdisc.Values{}.Set("limit", 10000), "RED: Required parameter (avpkt) is missing"},
		{small().Set("burst", 1), "RED: failed to calculate EWMA constant."},
		{small().Set("min", 5000).Set("burst", 30), "RED: failed to calculate probability."},
		{small().Set("probability", math.Float64bits(1.5)), `Illegal "probability"`},
	} {
		if err := red.Kind.Check(c.v); err == nil || err.Error() != c.text {
			t.Errorf("%v: %v, want %q", c.v, err, c.text)
		}
	}
}

// Trap 42: the idle time of the average begins when the queue is empty, not when a
// child that holds its packets back gives nothing.
func TestTrap42IdleOnlyWhenEmpty(t *testing.T) {
	early := func(empty bool) bool {
		pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 64})
		if err != nil {
			t.Fatal(err)
		}
		ctx := qdisc.NewContext(pool, 1)
		ctx.Now = time.Second
		q := build(t, qdisctest.Env(1), small().Set("limit", 100000))
		child := &qdisctest.Slow{Fifo: qdisctest.Fifo{Limit: 100}, Gap: time.Millisecond}
		if _, err := q.(qdisc.Classful).Graft(ctx, qdisc.MakeID(1, 1), child); err != nil {
			t.Fatal(err)
		}
		put := func() qdisc.Verdict {
			p := pool.Get()
			p.SetLen(1000)
			return q.Enqueue(ctx, p)
		}
		for put() != qdisc.CN { // until the average is at max
		}
		for range 20 {
			put()
		}
		for q.Len() > 0 && (empty || q.Len() > 8) {
			if p := q.Dequeue(ctx); p != nil {
				p.Free()
			} else {
				ctx.Now = q.NextAt()
			}
		}
		q.Dequeue(ctx) // gives nothing, in both cases
		ctx.Now += time.Hour
		return put() == qdisc.CN
	}
	if early(true) {
		t.Error("an hour of emptiness did not lower the average")
	}
	if !early(false) {
		t.Error("the average fell although the queue was not empty")
	}
}
