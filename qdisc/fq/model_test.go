package fq_test

import (
	"slices"
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/qdisctest"
)

// model is fq as its rules are told, with slices that are searched, and slow.
type model struct {
	qdisc.Base
	v      qdisc.Values
	paced  bool
	short  []*qdisc.Packet
	flows  map[uint32]*mflow
	fresh  [3][]*mflow
	old    [3][]*mflow
	wait   []*mflow
	credit [3]int
	turn   int
}

type mflow struct {
	packets []*qdisc.Packet
	credit  int
	band    int
	next    time.Duration
	since   time.Duration
	idle    bool // on no list
}

var bandOf = [16]int{1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}

func (m *model) n(name string, def uint64) int { return int(m.v.N(name, def)) }

func (m *model) waiting(now time.Duration) (ready int, next time.Duration) {
	next = qdisc.Never
	for _, f := range m.flows {
		if len(f.packets) == 0 {
			continue
		}
		if slices.Contains(m.wait, f) {
			next = min(next, f.next)
		} else {
			ready++
		}
	}
	return ready, next
}

func (m *model) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	band := bandOf[p.Priority%16]
	inBand := 0
	for _, f := range m.flows {
		for _, q := range f.packets {
			if bandOf[q.Priority%16] == band {
				inBand++
			}
		}
	}
	if inBand >= m.n("limit", 10000) {
		m.Refuse(ctx, p, qdisc.BandLimit)
		return qdisc.Dropped
	}
	ready, next := m.waiting(ctx.Now)
	if !m.paced && (m.Len() == 0 || ready == 0 && len(m.short) < 8 && next > ctx.Now) {
		m.short = append(m.short, p)
		m.Enqueued(p)
		return qdisc.Success
	}
	key := p.Hash & uint32(m.n("orphan_mask", 1023))
	f := m.flows[key]
	if f == nil {
		f = &mflow{credit: m.n("initial_quantum", 15140), idle: true, since: ctx.Now}
		m.flows[key] = f
	}
	if len(f.packets) >= m.n("flow_limit", 100) {
		m.Refuse(ctx, p, qdisc.FlowLimit)
		return qdisc.Dropped
	}
	if f.idle {
		m.fresh[f.band] = append(m.fresh[f.band], f)
		f.idle = false
		if ctx.Now-f.since > 40*time.Millisecond && f.credit >= 0 {
			f.credit = max(f.credit, m.n("quantum", 3028))
		}
	}
	f.band = band
	f.packets = append(f.packets, p)
	m.Enqueued(p)
	return qdisc.Success
}

func (m *model) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if p := m.Unpark(); p != nil {
		return p
	}
	p := m.take(ctx.Now)
	if p != nil {
		m.Dequeued(p)
		return p
	}
	m.SetNextAt(qdisc.Never)
	if len(m.wait) > 0 {
		m.SetNextAt(m.wait[0].next)
	}
	return nil
}

func (m *model) take(now time.Duration) *qdisc.Packet {
	if len(m.short) > 0 {
		p := m.short[0]
		m.short = m.short[1:]
		return p
	}
	if m.Len() == 0 {
		return nil
	}
	for len(m.wait) > 0 && m.wait[0].next <= now {
		f := m.wait[0]
		m.wait = m.wait[1:]
		m.old[f.band] = append(m.old[f.band], f)
	}
	weights := [3]int{9 << 16, 3 << 16, 1 << 16}
	for i, w := range m.v["weights"].List {
		weights[i] = int(w)
	}
	for nothing := 0; ; {
		b := m.turn
		from := &m.fresh[b]
		if len(*from) == 0 {
			from = &m.old[b]
		}
		if m.credit[b] <= 0 || len(*from) == 0 {
			if nothing == 3 {
				return nil
			}
			m.turn = (b + 1) % 3
			b = m.turn
			m.credit[b] = min(m.credit[b]+weights[b], weights[b])
			if nothing++; m.credit[b] <= 0 {
				nothing = 0
			}
			continue
		}
		nothing = 0
		isFresh := from == &m.fresh[b]
		f := (*from)[0]
		quantum := m.n("quantum", 3028)
		switch {
		case f.credit <= 0:
			f.credit += quantum
			*from = (*from)[1:]
			m.old[f.band] = append(m.old[f.band], f)
			continue
		case len(f.packets) == 0 && isFresh:
			*from = (*from)[1:]
			m.old[f.band] = append(m.old[f.band], f)
			continue
		case len(f.packets) == 0:
			*from = (*from)[1:]
			f.idle, f.since = true, now
			continue
		case f.next > now:
			*from = (*from)[1:]
			m.wait = append(m.wait, f)
			slices.SortStableFunc(m.wait, func(a, b *mflow) int { return int(a.next - b.next) })
			continue
		}
		p := f.packets[0]
		f.packets = f.packets[1:]
		f.credit -= int(p.PktLen)
		m.credit[b] -= int(p.PktLen)
		if !m.paced {
			return p
		}
		n := int(p.PktLen)
		if rate := m.n("maxrate", 0); rate <= 68750 {
			f.credit = 0
		} else {
			n = max(n, quantum)
		}
		if f.credit <= 0 {
			delay := min(time.Duration(n)*time.Second/time.Duration(m.n("maxrate", 0)), time.Second)
			if f.next != 0 {
				delay -= min(delay/2, now-f.next)
			}
			f.next = now + delay
		}
		return p
	}
}

func (m *model) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := m.Parked(); p != nil {
		return p
	}
	return m.Park(m.Dequeue(ctx))
}

func (m *model) Shed(*qdisc.Context, int) int { panic("not drawn") }
func (m *model) Reset(*qdisc.Context)         { panic("not drawn") }

// The rates of the characters divide a second evenly: a model without the
// fractions that fq carries comes to the same instants.
func TestAgainstModel(t *testing.T) {
	for _, c := range characters {
		t.Run(c.name, func(t *testing.T) {
			qdisctest.Like(t, qdisctest.Config{
				Name:      "fq",
				New:       func(env qdisc.Env) qdisc.Qdisc { return build(t, env, c.v) },
				Throttles: true,
			}, func(env qdisc.Env) qdisc.Qdisc {
				return &model{v: c.v, paced: c.v.Has("maxrate"), flows: map[uint32]*mflow{}}
			})
		})
	}
}
