package cake_test

import (
	"slices"
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/cake"
	"sluice/qdisc/qdisctest"
)

// model is cake diffserv4 flows without an AQM, slow and obvious: slices, a flow for
// each hash, and a shaper of 1 MB/s, at which a byte takes a microsecond, or none.
type model struct {
	qdisc.Base
	shaped          bool
	clock, failsafe time.Duration
	tins            [4]modelTin
	cur             int
}

type modelTin struct {
	flows      map[uint32]*modelFlow
	first, old []*modelFlow // in their first round, and later
	deficit    int
	clock      time.Duration
}

type modelFlow struct {
	packets []*qdisc.Packet
	deficit int
	listed  bool
	quantum int
}

func newModel(shaped bool) func(qdisc.Env) qdisc.Qdisc {
	return func(qdisc.Env) qdisc.Qdisc { return &model{shaped: shaped} }
}

// Besteffort, bulk, video, voice.
var (
	quanta    = [4]int{1024, 64, 512, 256}
	tinOfDSCP = func(p *qdisc.Packet) int {
		if n := p.Priority & 0xffff; p.Priority>>16 == 1 && n >= 1 && n <= 4 {
			return []int{1, 0, 2, 3}[n-1]
		}
		switch d := p.TOS >> 2; {
		case d == 1 || d == 8:
			return 1
		case d == 32 || d == 40 || d == 44 || d == 46 || d == 48 || d == 56:
			return 3
		case d == 4 || d >= 16 && d < 40 && d%2 == 0 && d != 32:
			return 2
		}
		return 0
	}
	slower = [4]time.Duration{1, 16, 2, 4}
)

func (m *model) stored() int {
	held, _ := m.Held()
	return m.Len() - held
}

func (m *model) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	t := &m.tins[tinOfDSCP(p)]
	if t.flows == nil {
		t.flows = map[uint32]*modelFlow{}
	}
	if t.backlog() == 0 {
		t.clock = max(t.clock, ctx.Now)
		if m.stored() == 0 && m.clock < ctx.Now {
			m.clock, m.failsafe = ctx.Now, ctx.Now
		}
	}
	hash := ctx.FlowHash(p)
	f := t.flows[hash]
	if f == nil {
		f = &modelFlow{quantum: 1514}
		if m.shaped {
			f.quantum = 300
		}
		t.flows[hash] = f
	}
	f.packets = append(f.packets, p)
	m.Enqueued(p)
	if !f.listed {
		f.listed = true
		f.deficit = f.quantum
		t.first = append(t.first, f)
	}
	return qdisc.Success
}

func (t *modelTin) backlog() (n int) {
	for _, f := range t.flows {
		n += len(f.packets)
	}
	return n
}

func (t *modelTin) busy() bool { return len(t.first)+len(t.old) > 0 }

func (m *model) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if p := m.Unpark(); p != nil {
		return p
	}
	return m.next(ctx)
}

func (m *model) next(ctx *qdisc.Context) *qdisc.Packet {
	for m.stored() > 0 {
		if m.shaped && m.clock > ctx.Now && m.failsafe > ctx.Now {
			m.SetNextAt(min(m.clock, m.failsafe))
			return nil
		}
		if m.shaped {
			m.cur = -1
			for i := range m.tins {
				t := &m.tins[i]
				if t.busy() && (m.cur < 0 || t.clock <= ctx.Now || t.clock <= m.tins[m.cur].clock) {
					m.cur = i
				}
			}
		} else {
			for {
				t := &m.tins[m.cur]
				if t.busy() && t.deficit >= 0 {
					break
				}
				if t.deficit <= 0 {
					t.deficit += quanta[m.cur]
				}
				m.cur = (m.cur + 1) % 4
			}
		}
		if p := m.fromTin(ctx, m.cur); p != nil {
			return p
		}
	}
	return nil
}

// fromTin gives the next packet of a tin; nil when a flow left its round instead.
func (m *model) fromTin(ctx *qdisc.Context, n int) *qdisc.Packet {
	t := &m.tins[n]
	for {
		list := &t.first
		if len(t.first) == 0 {
			list = &t.old
		}
		f := (*list)[0]
		if f.deficit <= 0 {
			f.deficit += f.quantum
			*list = slices.Delete(*list, 0, 1)
			t.old = append(t.old, f)
			continue
		}
		if len(f.packets) == 0 {
			*list = slices.Delete(*list, 0, 1)
			f.listed = false
			return nil
		}
		p := f.packets[0]
		f.packets = f.packets[1:]
		size := p.Len()
		f.deficit -= size
		t.deficit -= size
		if m.shaped {
			d := time.Duration(size) * time.Microsecond
			m.clock += d
			m.failsafe += d * 3 / 2
			d *= slower[n]
			if t.clock < ctx.Now {
				t.clock += d
			} else {
				t.clock = max(t.clock, ctx.Now+d)
			}
		}
		m.Dequeued(p)
		return p
	}
}

func (m *model) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := m.Parked(); p != nil {
		return p
	}
	return m.Park(m.next(ctx))
}

func (m *model) Shed(*qdisc.Context, int) int { return 0 }
func (m *model) Reset(*qdisc.Context)         {}

// Order and times are those of the model, with a shaper and without.
func TestLikeTheModel(t *testing.T) {
	for name, c := range map[string]struct {
		shaped bool
		v      qdisc.Values
	}{
		"unlimited": {false, given("diffserv4", "flows", "interplanetary")},
		"shaped":    {true, given("diffserv4", "flows", "interplanetary", "bandwidth", 1_000_000)},
	} {
		t.Run(name, func(t *testing.T) {
			qdisctest.Like(t, qdisctest.Config{
				Name:      "cake",
				New:       func(env qdisc.Env) qdisc.Qdisc { q, _ := cake.Kind.New(env, c.v); return q },
				Throttles: true,
			}, newModel(c.shaped))
		})
	}
}
