package sfq_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"syscall"
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
	"sluice/qdisc/sfq"
)

func build(t testing.TB, env qdisc.Env, v qdisc.Values) qdisc.Qdisc {
	t.Helper()
	q, err := sfq.Kind.New(env, v)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func newContext(t testing.TB, packets int) *qdisc.Context {
	t.Helper()
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: packets, FrameSize: 2048})
	if err != nil {
		t.Fatal(err)
	}
	return qdisc.NewContext(pool, 1)
}

func put(ctx *qdisc.Context, q qdisc.Qdisc, hash uint32, n int) qdisc.Verdict {
	p := ctx.Pool.Get()
	p.SetLen(n)
	p.Hash, p.Flags = hash, qdisc.HashSet
	return q.Enqueue(ctx, p)
}

func values(pairs ...any) qdisc.Values {
	v := qdisc.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i].(string), uint64(pairs[i+1].(int)))
	}
	return v
}

// early is random early detection that is met with small queues.
func early(v qdisc.Values) qdisc.Values {
	v.Set("redflowlimit", 20000).Set("min", 500).Set("max", 4000).Set("ewma", 1)
	return v.Set("probability", math.Float64bits(0.3))
}

var characters = []struct {
	name string
	v    qdisc.Values
}{
	{"default", nil},
	{"small", values("limit", 7, "depth", 3, "flows", 4, "quantum", 300)},
	{"head drop", values("limit", 10, "depth", 4, "headdrop", 1)},
	{"two places", values("divisor", 2, "limit", 20)},
	{"perturbed", values("perturb", 1, "depth", 5, "flows", 5, "limit", 20)},
	{"early", early(values("limit", 50))},
	{"early, marking the head", early(values("limit", 50, "headdrop", 1, "ecn", 1))},
	{"early, harddrop", early(values("limit", 50, "harddrop", 1, "ecn", 1, "perturb", 1))},
}

func TestConformance(t *testing.T) {
	for _, c := range characters {
		t.Run(c.name, func(t *testing.T) {
			qdisctest.Run(t, qdisctest.Config{
				Name: "sfq",
				New:  func(env qdisc.Env) qdisc.Qdisc { return build(t, env, c.v) },
				Order: func(p *qdisc.Packet) uint64 {
					return uint64(p.Priority)<<32 | uint64(p.Mark)<<16 | uint64(p.Hash)
				},
			})
		})
	}
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &sfq.Kind, &prio.Kind)
}

// model is sfq with slices that are searched.
type model struct {
	qdisc.Base
	limit, depth, flows, quantum int
	headdrop                     bool
	round                        []*mflow // its first is the next one
	recent                       []*mflow // in the order of the last change of their length
}

type mflow struct {
	key     uint32
	packets []*qdisc.Packet
	allot   int
}

func (m *model) touch(f *mflow) {
	m.recent = slices.DeleteFunc(m.recent, func(x *mflow) bool { return x == f })
	m.recent = append(m.recent, f)
}

func (m *model) longest() *mflow {
	best := m.recent[len(m.recent)-1]
	for _, f := range slices.Backward(m.recent) {
		if len(f.packets) > len(best.packets) {
			best = f
		}
	}
	if len(best.packets) == 1 {
		return m.round[0]
	}
	return best
}

func (m *model) gone(f *mflow) {
	if len(f.packets) == 0 {
		is := func(x *mflow) bool { return x == f }
		m.round = slices.DeleteFunc(m.round, is)
		m.recent = slices.DeleteFunc(m.recent, is)
	}
}

func (m *model) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	var f *mflow
	for _, x := range m.round {
		if x.key == p.Hash {
			f = x
		}
	}
	switch {
	case f == nil && len(m.round) == m.flows:
		m.Refuse(ctx, p, qdisc.MaxFlows)
		return qdisc.Dropped
	case f == nil:
		f = &mflow{key: p.Hash, allot: m.quantum}
		m.round = append(m.round, f)
	case len(f.packets) == m.depth && m.headdrop:
		m.Discard(ctx, f.packets[0], qdisc.FlowLimit)
		f.packets = append(f.packets[1:], p)
		m.Enqueued(p)
		return qdisc.CN
	case len(f.packets) == m.depth:
		m.Refuse(ctx, p, qdisc.FlowLimit)
		return qdisc.Dropped
	}
	f.packets = append(f.packets, p)
	m.touch(f)
	m.Enqueued(p)
	if m.Len() <= m.limit {
		return qdisc.Success
	}
	fat := m.longest()
	at := len(fat.packets) - 1
	if m.headdrop {
		at = 0
	}
	m.Discard(ctx, fat.packets[at], qdisc.Overlimit)
	fat.packets = slices.Delete(fat.packets, at, at+1)
	m.touch(fat)
	m.gone(fat)
	if fat == f {
		return qdisc.CN
	}
	return qdisc.Success
}

func (m *model) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if p := m.Unpark(); p != nil {
		return p
	}
	if len(m.round) == 0 {
		return nil
	}
	f := m.round[0]
	for f.allot <= 0 {
		f.allot += m.quantum
		m.round = append(m.round[1:], f)
		f = m.round[0]
	}
	p := f.packets[0]
	f.packets = f.packets[1:]
	f.allot -= int(p.PktLen)
	m.touch(f)
	m.gone(f)
	m.Dequeued(p)
	return p
}

func (m *model) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := m.Parked(); p != nil {
		return p
	}
	return m.Park(m.Dequeue(ctx))
}

func (m *model) Shed(*qdisc.Context, int) int { panic("not drawn") }
func (m *model) Reset(*qdisc.Context)         { panic("not drawn") }

// named gives every flow a place of its own, so that there are no accidents for
// the model to know of.
type named struct{ qdisc.Qdisc }

func (n named) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	p.Priority = 1<<16 | (p.Hash + 1)
	return n.Qdisc.Enqueue(ctx, p)
}

func TestAgainstModel(t *testing.T) {
	for _, m := range []model{
		{limit: 127, depth: 127, flows: 127, quantum: 1514},
		{limit: 7, depth: 4, flows: 3, quantum: 300},
		{limit: 9, depth: 6, flows: 9, quantum: 1514},
		{limit: 5, depth: 127, flows: 5, quantum: 4000, headdrop: true},
		{limit: 30, depth: 5, flows: 30, quantum: 1000, headdrop: true},
	} {
		v := values("limit", m.limit, "depth", m.depth, "flows", m.flows, "quantum", m.quantum)
		if m.headdrop {
			v.Set("headdrop", 1)
		}
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			qdisctest.Like(t, qdisctest.Config{
				Name: "sfq",
				New:  func(env qdisc.Env) qdisc.Qdisc { return named{build(t, env, v)} },
			}, func(env qdisc.Env) qdisc.Qdisc {
				fresh := m
				return &fresh
			})
		})
	}
}

func TestErrorsAreTheKernels(t *testing.T) {
	for _, c := range []struct {
		v    qdisc.Values
		text string
	}{
		{values("limit", 1), "invalid limit"},
		{values("quantum", 1<<31), "invalid quantum"},
		{values("perturb", -10), "invalid perturb period"},
		{values("perturb", 1<<31), "invalid perturb period"},
		{values("divisor", 1000), "invalid argument"},
		{values("divisor", 1<<17), "invalid argument"},
		{values("redflowlimit", 1000, "min", 10, "max", 9), "invalid argument"},
		{values("redflowlimit", 1000, "min", 10, "max", 20, "ewma", 32), "invalid argument"},
		{values("redflowlimit", 1000, "min", 10, "max", 1<<20, "ewma", 12), "invalid argument"},
	} {
		_, err := sfq.Kind.New(qdisctest.Env(1), c.v)
		if !errors.Is(err, syscall.EINVAL) || err.Error() != c.text {
			t.Errorf("%v: %v, want %q", c.v, err, c.text)
		}
	}
}

// The limit is what the flows can hold, and is checked after everything it
// depends on: a queue for one packet could not drop from another flow than the
// one that is being served (CVE-2024-57996, CVE-2025-37752).
func TestTrap39DerivedLimitOfOne(t *testing.T) {
	for _, v := range []qdisc.Values{
		values("limit", 2, "depth", 1, "flows", 1),
		values("limit", 2, "depth", 1, "divisor", 1),
		values("depth", 1, "flows", 1),
		values("depth", 1, "divisor", 1),
	} {
		if _, err := sfq.Kind.New(qdisctest.Env(1), v); err == nil || err.Error() != "invalid limit" {
			t.Errorf("%v: %v", v, err)
		}
	}
}

// When every flow has one packet, the one whose turn it is gives its own.
func TestAllFlowsHaveOnePacket(t *testing.T) {
	ctx := newContext(t, 256)
	q := build(t, qdisctest.Env(1), nil)
	for flow := range uint32(128) {
		p := ctx.Pool.Get()
		p.SetLen(100)
		p.Priority, p.Mark = 1<<16|(flow+1), flow
		if v := q.Enqueue(ctx, p); v != qdisc.Success {
			t.Fatalf("flow %d: verdict %v", flow, v)
		}
	}
	if p := q.Dequeue(ctx); q.Self().Drops != 1 || p.Mark != 1 {
		t.Errorf("%d dropped, flow %d is next; want one, of the first flow", q.Self().Drops, p.Mark)
	}
}

// The longest period is far away, and does not come at once.
func TestTrap39LongestPerturbPeriod(t *testing.T) {
	ctx := newContext(t, 4)
	q := build(t, qdisctest.Env(1), values("perturb", 1<<31-1))
	for _, now := range []time.Duration{0, 1, 1_000_000 * time.Hour / 2} {
		ctx.Now = now
		state := ctx.Rand
		put(ctx, q, 1, 100)
		q.Dequeue(ctx).Free()
		if now > 0 && ctx.Rand != state {
			t.Errorf("at %v there is another hash", now)
		}
	}
}

// The largest frame leaves a flow at most as many rounds behind as it is quanta
// long.
func TestTrap39LargePacketsAndSmallQuanta(t *testing.T) {
	ctx := newContext(t, 64)
	q := build(t, qdisctest.Env(1), values("quantum", 1))
	for flow := range uint32(3) {
		for range 3 {
			put(ctx, q, flow, 1514)
		}
	}
	seen := map[uint32]int{}
	for range 9 {
		p := q.Dequeue(ctx)
		seen[p.Hash]++
		p.Free()
		for _, n := range seen {
			if n-seen[p.Hash] > 1 {
				t.Fatalf("sent by flow: %v", seen)
			}
		}
	}
}

// Flows that share a place are apart after a while, for nearly all keys.
func TestPerturbPartsFlows(t *testing.T) {
	ctx := newContext(t, 4096)
	q := build(t, qdisctest.Env(1), values("perturb", 1, "divisor", 64, "flows", 64, "limit", 4000))
	places := func() (n int) {
		q.(qdisc.Walker).Walk(func(qdisc.Class) bool { n++; return true })
		return n
	}
	together := 0
	for round := range 200 {
		ctx.Now = time.Duration(round) * 2 * time.Second
		put(ctx, q, 12345, 100)
		put(ctx, q, 54321, 100)
		if places() == 1 {
			together++
		}
		for p := q.Dequeue(ctx); p != nil; p = q.Dequeue(ctx) {
			p.Free()
		}
	}
	if together > 12 { // 1 in 64 by chance
		t.Errorf("together %d times of 200", together)
	}
}

// What waits when the hash changes is sorted again, and leaves in the same order
// within each flow.
func TestPerturbSortsWhatWaits(t *testing.T) {
	ctx := newContext(t, 256)
	q := build(t, qdisctest.Env(1), values("perturb", 1))
	for i := range 30 {
		put(ctx, q, uint32(i%3), 100+i)
	}
	ctx.Now = time.Second
	last := map[uint32]uint32{}
	for range 30 {
		p := q.Dequeue(ctx)
		if p == nil {
			t.Fatal("one is lost")
		}
		if p.PktLen <= last[p.Hash] {
			t.Errorf("flow %d: %d after %d", p.Hash, p.PktLen, last[p.Hash])
		}
		last[p.Hash] = p.PktLen
		p.Free()
		ctx.Now += time.Second
	}
}

// Early detection counts what it does: marks where it may, drops where not, and
// none of it below the minimum.
func TestEarlyDetection(t *testing.T) {
	stat := func(q qdisc.Qdisc, name string) uint64 { return q.(qdisc.Dumper).Dump().N(name, 0) }
	run := func(v qdisc.Values, tos uint8) (qdisc.Qdisc, uint64) {
		ctx := newContext(t, 256)
		q := build(t, qdisctest.Env(1), early(v))
		for range 60 {
			p := ctx.Pool.Get()
			p.SetLen(100)
			p.L3, p.EtherType, p.TOS = 14, 0x0800, tos
			p.Bytes()[14], p.Bytes()[15] = 0x45, tos
			p.Hash, p.Flags = 1, qdisc.HashSet
			q.Enqueue(ctx, p)
		}
		marked := uint64(0)
		for p := q.Dequeue(ctx); p != nil; p = q.Dequeue(ctx) {
			if p.ECN() == 3 {
				marked++
			}
			p.Free()
		}
		return q, marked
	}
	q, marked := run(values("ecn", 1), 2)
	if n := stat(q, "prob_mark") + stat(q, "forced_mark"); marked == 0 || n != marked || q.Self().Drops != 0 {
		t.Errorf("%d marked, %d counted, %d dropped", marked, n, q.Self().Drops)
	}
	if q.Self().Overlimits != marked {
		t.Errorf("%d overlimits", q.Self().Overlimits)
	}
	q, marked = run(values("ecn", 1), 0)
	if n := stat(q, "prob_drop") + stat(q, "forced_drop"); marked != 0 || n == 0 || q.Self().Drops != n {
		t.Errorf("not capable: %d marked, %d drops counted, %d dropped", marked, n, q.Self().Drops)
	}
	q, marked = run(values("ecn", 1, "headdrop", 1), 2)
	if n := stat(q, "prob_mark_head") + stat(q, "forced_mark_head"); marked == 0 || n < marked || q.Self().Drops != 0 {
		t.Errorf("head: %d marked, %d counted, %d dropped", marked, n, q.Self().Drops)
	}
	q, _ = run(values("ecn", 1, "harddrop", 1), 2)
	if stat(q, "forced_mark") != 0 || stat(q, "forced_drop") == 0 {
		t.Errorf("harddrop: %v", q.(qdisc.Dumper).Dump())
	}
}

func TestWhatTcWorksOut(t *testing.T) {
	v := values("redflowlimit", 100000, "min", 8000, "max", 60000)
	if err := sfq.Kind.Check(v); err != nil || v.N("ewma", 0) != 6 {
		t.Errorf("%v, ewma %d, want 6", err, v.N("ewma", 0))
	}
	for _, c := range []struct {
		v    qdisc.Values
		text string
	}{
		{values("ecn", 1), "Required parameter (limit) is missing"},
		{values("redflowlimit", 1000, "max", 2000), `"max" is larger than "limit"`},
		{values("redflowlimit", 1000, "max", 500, "min", 500), `"min" is not smaller than "max"`},
		{values("redflowlimit", 1000, "burst", 1, "min", 200, "max", 300, "avpkt", 50), "SFQ: failed to calculate EWMA constant."},
	} {
		if err := sfq.Kind.Check(c.v); err == nil || err.Error() != c.text {
			t.Errorf("%v: %v, want %q", c.v, err, c.text)
		}
	}
}

func Benchmark(b *testing.B) {
	qdisctest.Bench(b, func(env qdisc.Env) qdisc.Qdisc { return build(b, env, values("limit", 1000)) })
}
