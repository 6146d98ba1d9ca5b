package pfifofast_test

import (
	"testing"

	"sluice/qdisc"
	"sluice/qdisc/pfifofast"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
)

func newPfifoFast(t testing.TB, env qdisc.Env) qdisc.Qdisc {
	q, err := pfifofast.Kind.New(env, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestConformance(t *testing.T) {
	qdisctest.Run(t, qdisctest.Config{
		Name:  "pfifo_fast",
		New:   func(env qdisc.Env) qdisc.Qdisc { return newPfifoFast(t, env) },
		Order: func(p *qdisc.Packet) uint64 { return uint64(p.Priority & 15) },
	})
}

// low is a prio that looks at the lower four bits of a priority only.
type low struct{ qdisc.Qdisc }

func (q low) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	p.Priority &= 15
	return q.Qdisc.Enqueue(ctx, p)
}

func TestLikeAPrioOverPfifos(t *testing.T) {
	qdisctest.Like(t,
		qdisctest.Config{New: func(env qdisc.Env) qdisc.Qdisc { return newPfifoFast(t, env) }},
		func(env qdisc.Env) qdisc.Qdisc {
			q, err := prio.Kind.New(env, nil)
			if err != nil {
				t.Fatal(err)
			}
			return low{q}
		})
}

func TestScripts(t *testing.T) { qdisctest.Script(t, "testdata", &pfifofast.Kind) }

func TestTakesNoOptions(t *testing.T) {
	err := pfifofast.Kind.Check(qdisc.Values{}.Set("multiqueue", 1))
	if got, want := err.Error(), "qdisc 'pfifo_fast' does not support option parsing"; got != want {
		t.Errorf("Check: %q; want %q", got, want)
	}
}

func Benchmark(b *testing.B) {
	qdisctest.Bench(b, func(env qdisc.Env) qdisc.Qdisc { return newPfifoFast(b, env) })
}
