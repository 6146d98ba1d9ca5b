package fqcodel_test

import (
	"errors"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/qdisc"
	"sluice/qdisc/fqcodel"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
)

func build(t testing.TB, env qdisc.Env, v qdisc.Values) qdisc.Qdisc {
	t.Helper()
	if v == nil {
		v = qdisc.Values{}
	}
	q, err := fqcodel.Kind.New(env, v)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// sum is what the flows hold, as Walk shows it.
func sum(q qdisc.Qdisc) (packets, bytes int) {
	q.(qdisc.Walker).Walk(func(c qdisc.Class) bool {
		packets += c.Len
		bytes += c.Bytes
		return true
	})
	return packets, bytes
}

func TestConformance(t *testing.T) {
	for name, v := range map[string]qdisc.Values{
		"plenty":    {},
		"few flows": qdisc.Values{}.Set("flows", 3).Set("limit", 9).Set("drop_batch", 4).Set("quantum", 300),
		"memory":    qdisc.Values{}.Set("flows", 70).Set("memory_limit", 9000).Set("drop_batch", 1),
		"eager":     qdisc.Values{}.Set("flows", 5).Set("target", 1e6).Set("interval", 3e6).Set("limit", 30),
	} {
		t.Run(name, func(t *testing.T) {
			qdisctest.Run(t, qdisctest.Config{
				Name: "fq_codel",
				New:  func(env qdisc.Env) qdisc.Qdisc { return build(t, env, v) },
				// A flow keeps its order. Filters send packets of a mark to one
				// flow, and the mark follows from priority and hash.
				Order: func(p *qdisc.Packet) uint64 { return uint64(p.Priority)<<32 | uint64(p.Hash) },
				Own:   sum,
				Changes: []qdisc.Values{
					{}, qdisc.Values{}.Set("limit", 3), qdisc.Values{}.Set("limit", 0), qdisc.Values{}.Set("limit", 100),
					qdisc.Values{}.Set("memory_limit", 3000), qdisc.Values{}.Set("quantum", 2<<20), qdisc.Values{}.Set("quantum", 700),
					qdisc.Values{}.Set("flows", 9), qdisc.Values{}.Set("noecn", 1), qdisc.Values{}.Set("ce_threshold", 1e6),
				},
			})
		})
	}
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &fqcodel.Kind, &prio.Kind)
}

// obvious is fq_codel's scheduling written down as RFC 8290 §4.1 says it, with
// slices, and no CoDel.
type obvious struct {
	qdisc.Base
	queues   [7][]*qdisc.Packet
	deficit  [7]int
	new, old []int
	quantum  int
	limit    int
	batch    int
}

func (q *obvious) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	i := int(uint64(ctx.FlowHash(p)) * 7 >> 32)
	if p.Priority>>16 == 1 && p.Priority&0xffff-1 < 7 {
		i = int(p.Priority&0xffff - 1)
	}
	q.queues[i] = append(q.queues[i], p)
	q.Enqueued(p)
	if !slices.Contains(q.new, i) && !slices.Contains(q.old, i) {
		q.new = append(q.new, i)
		q.deficit[i] = q.quantum
	}
	if q.Len() <= q.limit {
		return qdisc.Success
	}
	fat, most := 0, -1
	for j := range q.queues {
		if n := bytes(q.queues[j]); n > most {
			fat, most = j, n
		}
	}
	for n, dropped := 0, 0; n == 0 || n < q.batch && dropped < most/2; n++ {
		if len(q.queues[fat]) == 0 {
			break
		}
		head := q.queues[fat][0]
		q.queues[fat] = q.queues[fat][1:]
		dropped += int(head.PktLen)
		q.Discard(ctx, head, qdisc.Overlimit)
		if fat == i {
			i = -1
		}
	}
	if i == -1 {
		return qdisc.CN
	}
	return qdisc.Success
}

func bytes(queue []*qdisc.Packet) (n int) {
	for _, p := range queue {
		n += int(p.PktLen)
	}
	return n
}

func (q *obvious) next() *qdisc.Packet {
	for {
		list := &q.new
		if len(*list) == 0 {
			list = &q.old
		}
		if len(*list) == 0 {
			return nil
		}
		i := (*list)[0]
		switch {
		case q.deficit[i] <= 0:
			q.deficit[i] += q.quantum
			*list = (*list)[1:]
			q.old = append(q.old, i)
		case len(q.queues[i]) > 0:
			p := q.queues[i][0]
			q.queues[i] = q.queues[i][1:]
			q.deficit[i] -= int(p.PktLen)
			q.Dequeued(p)
			return p
		default:
			*list = (*list)[1:]
			if list == &q.new && len(q.old) > 0 {
				q.old = append(q.old, i)
			}
		}
	}
}

func (q *obvious) Dequeue(*qdisc.Context) *qdisc.Packet {
	if p := q.Unpark(); p != nil {
		return p
	}
	return q.next()
}

func (q *obvious) Peek(*qdisc.Context) *qdisc.Packet {
	if p := q.Parked(); p != nil {
		return p
	}
	return q.Park(q.next())
}

func (q *obvious) Shed(*qdisc.Context, int) int { panic("not part of the comparison") }
func (q *obvious) Reset(*qdisc.Context)         { panic("not part of the comparison") }

func (q *obvious) Walk(f func(qdisc.Class) bool) {
	for i := range q.queues {
		f(qdisc.Class{Len: len(q.queues[i]), Bytes: bytes(q.queues[i])})
	}
}

// The fast fq_codel does what the obvious one does, full queues included.
func TestLikeTheRFC(t *testing.T) {
	for _, batch := range []int{1, 5} {
		qdisctest.Like(t, qdisctest.Config{
			Name: "fq_codel",
			New: func(env qdisc.Env) qdisc.Qdisc {
				return build(t, env, qdisc.Values{}.Set("flows", 7).Set("limit", 11).Set("quantum", 600).
					Set("drop_batch", uint64(batch)).Set("target", uint64(time.Hour)))
			},
			Own: sum,
		}, func(env qdisc.Env) qdisc.Qdisc {
			return &obvious{quantum: 600, limit: 11, batch: batch}
		})
	}
}

func newContext(t testing.TB, packets int) *qdisc.Context {
	t.Helper()
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: packets, FrameSize: 1600, Headroom: 64})
	if err != nil {
		t.Fatal(err)
	}
	return qdisc.NewContext(pool, 1)
}

func take(ctx *qdisc.Context, flow uint32, n int) *qdisc.Packet {
	p := ctx.Pool.Get()
	p.SetLen(n)
	p.Hash = flow * 0x9e3779b1
	p.Flags |= qdisc.HashSet
	p.Mark = flow
	p.Arrival = ctx.Now
	return p
}

// A sparse flow, a call with a packet of 200 bytes every 20 ms, waits less than
// twice the target beside 32 flows that always have more to send, on a link of 20
// Mbit/s. It begins when those have become old flows.
func TestASparseFlowIsNotDelayedByGreedyOnes(t *testing.T) {
	const (
		rate   = 20e6 / 8
		greedy = 32
		sparse = 1000
	)
	ctx := newContext(t, 16384)
	q := build(t, qdisctest.Env(1), qdisc.Values{})
	var delays []time.Duration
	shares := map[uint32]int{}
	next := time.Second
	for ctx.Now < 11*time.Second {
		for flow := range uint32(greedy) { // each keeps its queue full
			for q.Len() < 64*greedy {
				q.Enqueue(ctx, take(ctx, flow+1, 1514))
				if q.Len()%greedy == 0 {
					break
				}
			}
		}
		for next <= ctx.Now {
			p := take(ctx, sparse, 200)
			p.Arrival = next
			q.Enqueue(ctx, p)
			next += 20 * time.Millisecond
		}
		p := q.Dequeue(ctx)
		if p.Mark == sparse {
			delays = append(delays, ctx.Now-p.Arrival)
		} else {
			shares[p.Mark] += int(p.PktLen)
		}
		ctx.Now += time.Duration(float64(p.PktLen) * 1e9 / rate)
		p.Free()
	}
	if len(delays) < 490 {
		t.Fatalf("%d packets of the sparse flow left in 10 s, want 500", len(delays))
	}
	if worst := slices.Max(delays); worst >= 2*5*time.Millisecond {
		t.Errorf("the sparse flow waited up to %v", worst)
	}
	if len(shares) != greedy {
		t.Errorf("%d of %d flows sent", len(shares), greedy)
	}
}

// Greedy flows of different packet sizes get the same share of bytes.
func TestFlowsShareBytes(t *testing.T) {
	ctx := newContext(t, 1024)
	q := build(t, qdisctest.Env(1), qdisc.Values{}.Set("target", uint64(time.Hour)))
	sizes := []int{64, 300, 1000, 1514}
	sent := make([]float64, len(sizes))
	for range 60 {
		for i, n := range sizes {
			q.Enqueue(ctx, take(ctx, uint32(i+1), n))
		}
	}
	for range 200000 {
		p := q.Dequeue(ctx)
		sent[p.Mark-1] += float64(p.PktLen)
		q.Enqueue(ctx, p)
	}
	for i := range sizes {
		if r := sent[i] / sent[0]; r < 0.99 || r > 1.01 {
			t.Errorf("packets of %d bytes got %.3f times what those of %d got", sizes[i], r, sizes[0])
		}
	}
}

// Trap 37: hash index 0 is no flow. A filter that names class 0, one beyond the
// flows, or nothing at all, leaves the packet without one, and it is dropped.
func TestTrap37NoFlowIsADrop(t *testing.T) {
	for _, c := range []struct {
		name    string
		v       qdisc.FilterVerdict
		class   uint32
		verdict qdisc.Verdict
		drops   uint64
	}{
		{"no match", qdisc.NoMatch, 0, qdisc.Dropped, 1},
		{"class 0", qdisc.Match, 0, qdisc.Dropped, 1},
		{"the last flow", qdisc.Match, 8, qdisc.Success, 0},
		{"beyond the last", qdisc.Match, 9, qdisc.Dropped, 1},
		{"drop", qdisc.FilterDrop, 3, qdisc.Dropped, 1},
		{"stolen", qdisc.FilterStolen, 3, qdisc.Stolen, 0},
	} {
		ctx := newContext(t, 2)
		q := build(t, qdisctest.Env(1), qdisc.Values{}.Set("flows", 8))
		q.(qdisc.Filtered).SetClassifier(0, answer{c.v, qdisc.MakeID(1, c.class)})
		if v := q.Enqueue(ctx, take(ctx, 5, 100)); v != c.verdict || q.Self().Drops != c.drops {
			t.Errorf("%s: verdict %v, %d drops", c.name, v, q.Self().Drops)
		}
		if c.verdict == qdisc.Success {
			q.(qdisc.Walker).Walk(func(got qdisc.Class) bool {
				if got.ID != qdisc.MakeID(1, c.class) {
					t.Errorf("%s: it went to %v", c.name, got.ID)
				}
				return true
			})
		}
	}
}

type answer struct {
	v  qdisc.FilterVerdict
	id qdisc.ClassID
}

func (a answer) Classify(*qdisc.Context, *qdisc.Packet) (qdisc.FilterVerdict, qdisc.ClassID) {
	return a.v, a.id
}

// The fattest flow is found as if all were looked at, whatever changed between.
func TestTheFattestFlowPays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 512, FrameSize: 1600, Headroom: 64})
		if err != nil {
			t.Fatal(err)
		}
		ctx := qdisc.NewContext(pool, 1)
		q, err := fqcodel.Kind.New(qdisctest.Env(1), qdisc.Values{}.Set("flows", 300).Set("limit", 100).Set("drop_batch", 1))
		if err != nil {
			t.Fatal(err)
		}
		bytes := map[uint32]int{}
		var victim uint32
		ctx.OnDrop = func(p *qdisc.Packet, _ qdisc.Reason) {
			victim = p.Priority & 0xffff
			most, first := 0, uint32(0)
			for flow := uint32(1); flow <= 300; flow++ {
				if bytes[flow] > most {
					most, first = bytes[flow], flow
				}
			}
			if victim != first {
				t.Fatalf("flow %d gave, with %d bytes; flow %d has %d", victim, bytes[victim], first, most)
			}
			bytes[victim] -= int(p.PktLen)
		}
		for range 400 {
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				if p := q.Dequeue(ctx); p != nil {
					bytes[p.Priority&0xffff] -= int(p.PktLen)
					p.Free()
				}
				continue
			}
			p := pool.Get()
			p.SetLen(rapid.SampledFrom([]int{60, 100, 1000}).Draw(t, "size"))
			flow := uint32(rapid.IntRange(1, 300).Draw(t, "flow"))
			p.Priority = 1<<16 | flow
			bytes[flow] += int(p.PktLen)
			q.Enqueue(ctx, p)
		}
	})
}

func TestWhatTheKernelRefuses(t *testing.T) {
	for _, c := range []struct {
		v    qdisc.Values
		text string
	}{
		{qdisc.Values{}.Set("flows", 0), "invalid argument"},
		{qdisc.Values{}.Set("flows", 65537), "invalid argument"},
		{qdisc.Values{}.Set("quantum", 1<<20+1), "Invalid quantum"},
	} {
		if _, err := fqcodel.Kind.New(qdisctest.Env(1), c.v); !errors.Is(err, syscall.EINVAL) || err.Error() != c.text {
			t.Errorf("%v: %v, want %q", c.v, err, c.text)
		}
	}
	q := build(t, qdisctest.Env(1), nil)
	if err := q.(qdisc.Changer).Change(newContext(t, 1), qdisc.Values{}.Set("flows", 1024)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a change of flows: %v", err)
	}
	for word, ok := range map[string]bool{"4/fc": true, "0x04/0xfc": true, "4": false, "x/1": false, "100/1": false} {
		if err := fqcodel.Kind.Check(qdisc.Values{"ce_threshold_selector": {Word: word}}); (err == nil) != ok {
			t.Errorf("selector %q: %v", word, err)
		}
	}
}

// An fq_codel that nothing was sent through has no flow table yet.
func TestIdleOnesAreSmall(t *testing.T) {
	const many = 1000
	var before, after runtime.MemStats
	all := make([]qdisc.Qdisc, many)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range all {
		all[i] = build(t, qdisctest.Env(1), nil)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if n := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / many; n > 512 {
		t.Errorf("an idle fq_codel takes %d bytes", n)
	}
	runtime.KeepAlive(all)
}
