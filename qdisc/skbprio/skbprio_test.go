package skbprio_test

import (
	"slices"
	"testing"

	"sluice/qdisc"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
	"sluice/qdisc/skbprio"
	"sluice/qdisc/tbf"
)

func build(t testing.TB, env qdisc.Env, limit uint64) qdisc.Qdisc {
	t.Helper()
	q, err := skbprio.Kind.New(env, qdisc.Values{}.Set("limit", limit))
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestConformance(t *testing.T) {
	for _, limit := range []uint64{0, 1, 10, 64} {
		qdisctest.Run(t, qdisctest.Config{
			Name:    "skbprio",
			New:     func(env qdisc.Env) qdisc.Qdisc { return build(t, env, limit) },
			Order:   func(p *qdisc.Packet) uint64 { return uint64(min(p.Priority, 63)) },
			Changes: []qdisc.Values{{}, qdisc.Values{}.Set("limit", 3), qdisc.Values{}.Set("limit", 30)},
		})
	}
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &skbprio.Kind, &prio.Kind, &tbf.Kind)
}

// model is one slice that is sorted for every question.
type model struct {
	qdisc.Base
	limit   int
	packets []*qdisc.Packet // in the order they came
}

func of(p *qdisc.Packet) uint32 { return min(p.Priority, 63) }

func (m *model) next() int {
	best := -1
	for i, p := range m.packets {
		if best < 0 || of(p) > of(m.packets[best]) {
			best = i
		}
	}
	return best
}

func (m *model) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	v := qdisc.Success
	if len(m.packets) >= m.limit {
		worst := 0
		for i, x := range m.packets {
			if of(x) <= of(m.packets[worst]) {
				worst = i
			}
		}
		if of(p) <= of(m.packets[worst]) {
			m.Refuse(ctx, p, qdisc.Overlimit)
			return qdisc.Dropped
		}
		m.Discard(ctx, m.packets[worst], qdisc.Overlimit)
		m.packets = slices.Delete(m.packets, worst, worst+1)
		v = qdisc.CN
	}
	m.packets = append(m.packets, p)
	m.Enqueued(p)
	return v
}

func (m *model) Peek(*qdisc.Context) *qdisc.Packet {
	if i := m.next(); i >= 0 {
		return m.packets[i]
	}
	return nil
}

func (m *model) Dequeue(*qdisc.Context) *qdisc.Packet {
	i := m.next()
	if i < 0 {
		return nil
	}
	p := m.packets[i]
	m.packets = slices.Delete(m.packets, i, i+1)
	m.Dequeued(p)
	return p
}

func (m *model) Shed(*qdisc.Context, int) int { panic("not drawn") }
func (m *model) Reset(*qdisc.Context)         { panic("not drawn") }

func TestAgainstModel(t *testing.T) {
	for _, limit := range []int{1, 4, 20} {
		qdisctest.Like(t, qdisctest.Config{
			Name: "skbprio",
			New:  func(env qdisc.Env) qdisc.Qdisc { return build(t, env, uint64(limit)) },
		}, func(qdisc.Env) qdisc.Qdisc { return &model{limit: limit} })
	}
}

func Benchmark(b *testing.B) {
	qdisctest.Bench(b, func(env qdisc.Env) qdisc.Qdisc { return build(b, env, 1000) })
}
