package cake

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/qdisc"
	"sluice/qdisc/internal/aqm"
)

// audit compares all counters of q with what they count.
func audit(t interface {
	Helper()
	Fatalf(string, ...any)
}, q *cake) {
	t.Helper()
	memory := 0
	for n := range q.tins {
		tn := &q.tins[n]
		if tn.table == nil {
			continue
		}
		var states [decaying + 1]int32
		src, dst := map[uint16]host{}, map[uint16]host{}
		backlog := 0
		count := func(m map[uint16]host, i uint16, f *flow) {
			h := m[i]
			h.flows++
			if f.state == bulk {
				h.bulk++
			}
			m[i] = h
		}
		for i := range tn.flows {
			f := &tn.flows[i]
			states[f.state]++
			backlog += f.queue.Bytes()
			for p := f.queue.Front(); p != nil; p = p.Next() {
				memory += aqm.TrueSize(p.Len())
			}
			if f.queue.Len() > 0 && (f.state == idle || f.state == decaying || f.state == sparseWait) {
				t.Fatalf("tin %d flow %d holds packets in state %d", n, i, f.state)
			}
			if f.state != idle {
				count(src, f.src, f)
				count(dst, f.dst, f)
			}
		}
		if tn.sparse != states[sparse]+states[sparseWait] || tn.bulk != states[bulk] || tn.decaying != states[decaying] {
			t.Fatalf("tin %d counts %d sparse, %d bulk, %d decaying of %v", n, tn.sparse, tn.bulk, tn.decaying, states)
		}
		if tn.backlog != backlog {
			t.Fatalf("tin %d counts %d bytes of %d", n, tn.backlog, backlog)
		}
		for i := range tn.src {
			for _, x := range []struct {
				counted bool
				got     host
				want    host
			}{{q.flows.countsSrc(), tn.src[i], src[uint16(i)]}, {q.flows.countsDst(), tn.dst[i], dst[uint16(i)]}} {
				if x.counted && (x.got.flows != x.want.flows || x.got.bulk != x.want.bulk) {
					t.Fatalf("tin %d host %d has %d flows and %d in bulk; counted %d and %d",
						n, i, x.want.flows, x.want.bulk, x.got.flows, x.got.bulk)
				}
			}
		}
		listed := int32(0)
		for _, list := range []uint16{newFlows, oldFlows, decayingFlows} {
			for i := tn.first(list); i != list; i = tn.links[i].next {
				if s := tn.flows[i].state; s == idle || (s == decaying) != (list == decayingFlows) {
					t.Fatalf("flow %d of state %d is on list %d", i, s, list)
				}
				listed++
			}
		}
		if listed != queues-states[idle] {
			t.Fatalf("tin %d: %d flows on lists, %d active", n, listed, queues-states[idle])
		}
	}
	if memory != q.memory {
		t.Fatalf("%d bytes of memory, counted %d", memory, q.memory)
	}
	if q.byBacklog.countdown > 0 {
		auditHeap(t, q)
	}
}

func auditHeap(t interface {
	Helper()
	Fatalf(string, ...any)
}, q *cake) {
	t.Helper()
	longest, full := 0, 0
	for n := range q.n {
		if q.tins[n].table == nil {
			continue
		}
		for i := range q.tins[n].flows {
			if f := &q.tins[n].flows[i]; f.queue.Len() > 0 {
				full++
				longest = max(longest, f.queue.Bytes())
			}
		}
	}
	h := q.byBacklog.heap
	if len(h) != full || full > 0 && q.bytes(h[0]) != longest {
		t.Fatalf("%d queues in the heap, the longest %d; there are %d and %d", len(h), q.bytes(h[0]), full, longest)
	}
	for i, who := range h {
		if _, f := q.flow(who); int(f.place) != i+1 {
			t.Fatalf("place %d holds a flow that believes to be in %d", i, f.place-1)
		}
		if i > 0 && q.bytes(h[(i-1)/2]) < q.bytes(who) {
			t.Fatalf("the queue in place %d is longer than the one above it", i)
		}
	}
}

// The counters of hosts, flow states, bytes and memory are exact after anything that
// can happen: collisions that evict a flow, drops, modes that change. (In the kernel
// the counters of bulk flows ran over and under when a flow was evicted, and the heap
// of queue lengths was stale after its time.)
func TestTrap40CountersStayExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 512, FrameSize: 2048})
		if err != nil {
			t.Fatal(err)
		}
		ctx := qdisc.NewContext(pool, rapid.Uint64().Draw(t, "seed"))
		made, _ := newCake(qdisc.Env{Handle: 1, MTU: 1500, HeaderLen: 14}, qdisc.Values{
			"memlimit": {N: 60_000}, "rtt": {N: uint64(200 * time.Microsecond)},
		})
		q := made.(*cake)
		q.seed = 1
		for range rapid.IntRange(10, 300).Draw(t, "ops") {
			switch op := rapid.IntRange(0, 99).Draw(t, "op"); {
			case op < 55:
				p := pool.Get()
				if p == nil {
					continue
				}
				p.SetLen(rapid.SampledFrom([]int{64, 300, 1514}).Draw(t, "len"))
				clear(p.Bytes()[:40])
				p.L3, p.EtherType = 14, etherIPv4
				p.Bytes()[29], p.Bytes()[33] = byte(rapid.IntRange(0, 3).Draw(t, "src")), byte(rapid.IntRange(0, 3).Draw(t, "dst"))
				p.Hash = uint32(rapid.IntRange(0, 11).Draw(t, "flow")) << 10 // all of one set: collisions
				p.Flags |= qdisc.HashSet
				p.TOS = uint8(rapid.SampledFrom([]int{0, 8 << 2, 46 << 2}).Draw(t, "tos"))
				q.Enqueue(ctx, p)
			case op < 90:
				if p := q.Dequeue(ctx); p != nil {
					p.Free()
				}
			case op < 94:
				ctx.Now += time.Duration(rapid.IntRange(1, 2_000_000).Draw(t, "ns"))
			case op < 96:
				q.byBacklog.countdown = min(q.byBacklog.countdown, 1) // its time is over soon
			case op < 98:
				v := qdisc.Values{}
				for _, words := range [][]string{flowWords, tinWords, ingressWords} {
					v.Set(rapid.SampledFrom(words).Draw(t, "word"), 1)
				}
				v.Set("bandwidth", uint64(rapid.SampledFrom([]int{0, 125_000, 12_500_000}).Draw(t, "rate")))
				if err := q.Change(ctx, v); err != nil {
					t.Fatal(err)
				}
			case op < 99:
				q.Shed(ctx, rapid.IntRange(1, 5).Draw(t, "shed"))
			default:
				q.Reset(ctx)
			}
			audit(t, q)
		}
	})
}

// 2^32/√count to within a thousandth, also where it follows by steps, up and down.
func TestInverseRoot(t *testing.T) {
	var c cobalt
	check := func() {
		t.Helper()
		want := math.Min((1<<32)/math.Sqrt(float64(max(c.count, 1))), math.MaxUint32)
		if off := math.Abs(float64(c.root)-want) / want; off > 0.002 {
			t.Fatalf("count %d: %d, want %.0f", c.count, c.root, want)
		}
	}
	for c.count < 100_000 {
		c.count++
		c.newRoot()
		check()
	}
	for c.count > 0 {
		c.count--
		c.newRoot()
		check()
	}
}

// judged feeds one flow packets that waited for sojourn each step, and returns at
// which steps it was signalled.
func judged(c *cobalt, l *law, sojourn, step time.Duration, n int, busy int32) (signals []int) {
	ctx := &qdisc.Context{Now: time.Second}
	for i := range n {
		p := &qdisc.Packet{}
		p.Scratch[stamp] = uint64(ctx.Now - sojourn)
		if c.judge(ctx, l, p, busy) != passed {
			signals = append(signals, i)
		}
		ctx.Now += step
	}
	return signals
}

var internet = law{target: 5 * time.Millisecond, interval: 100 * time.Millisecond, mtuTime: 100 * time.Microsecond}

// A standing queue is signalled at distances of interval/√count: 70.7, 57.7, 50 ...
// ms after the first one. One within target, or within four full frames, never is.
func TestSignalsComeFaster(t *testing.T) {
	var c cobalt
	at := judged(&c, &internet, 20*time.Millisecond, time.Millisecond, 1000, 0)
	if len(at) < 15 || at[0] != 1 {
		t.Fatalf("signals at %v ms", at)
	}
	due := 1.0
	for i := range at[:15] {
		if got := float64(at[i]); got < due-1 || got > due+2 {
			t.Errorf("signal %d at %v ms, want %.1f", i, at[i], due)
		}
		due += 100 / math.Sqrt(float64(i+2))
	}
	if at := judged(&cobalt{}, &internet, 5*time.Millisecond, time.Millisecond, 1000, 0); at != nil {
		t.Errorf("a delay of the target is signalled, at %v ms", at)
	}
	slow := law{target: time.Millisecond, interval: 100 * time.Millisecond, mtuTime: 5 * time.Millisecond}
	if at := judged(&cobalt{}, &slow, 20*time.Millisecond, time.Millisecond, 1000, 0); at != nil {
		t.Errorf("four frames' time is signalled, at %v ms", at)
	}
	if at := judged(&cobalt{}, &internet, 20*time.Millisecond, time.Millisecond, 1000, 100); at != nil {
		t.Errorf("two frames for each of 100 flows are signalled (ingress), at %v ms", at)
	}
}

// When the queue has gone the number of signals goes down again at the pace it came,
// and is not forgotten at once: a queue that comes back soon finds it.
func TestSignalsDecay(t *testing.T) {
	var c cobalt
	judged(&c, &internet, 20*time.Millisecond, time.Millisecond, 1000, 0)
	high := c.count
	ctx := &qdisc.Context{Now: 2 * time.Second}
	p := &qdisc.Packet{}
	for _, step := range []struct {
		d    time.Duration
		less bool
	}{{10 * time.Millisecond, true}, {20 * time.Millisecond, true}, {time.Second, true}, {10 * time.Second, true}} {
		ctx.Now += step.d
		p.Scratch[stamp] = uint64(ctx.Now)
		c.judge(ctx, &internet, p, 0)
		if c.dropping {
			t.Fatal("still dropping without a queue")
		}
	}
	if c.count != 0 || high < 10 {
		t.Errorf("count went from %d to %d, want 0 in the end", high, c.count)
	}
}

// BLUE rises by 1/256 at most once a target while the queue overflows, falls by
// 1/4096 when it is empty, and says when it begins and ends.
func TestBlue(t *testing.T) {
	var c cobalt
	now := time.Second
	if !c.queueFull(&internet, now) || c.blue != 1<<24 {
		t.Errorf("after the first overflow %#x", c.blue)
	}
	if c.queueFull(&internet, now+time.Millisecond) || c.blue != 1<<24 {
		t.Errorf("within target of it %#x", c.blue)
	}
	for range 300 {
		now += 6 * time.Millisecond
		if c.queueFull(&internet, now) {
			t.Error("it begins again")
		}
	}
	if c.blue != math.MaxUint32 {
		t.Errorf("after 300 more %#x, want all ones", c.blue)
	}
	ends := 0
	for range 5000 {
		now += 6 * time.Millisecond
		if c.queueEmpty(&internet, now) {
			ends++
		}
	}
	if ends != 1 || c.blue != 0 || c.count != 0 {
		t.Errorf("after being empty for long: %#x, count %d, ended %d times", c.blue, c.count, ends)
	}
	if !c.atRest(now + time.Second) {
		t.Error("and is not at rest")
	}
}

// BLUE drops what can be marked, too, in the ratio of its probability.
func TestBlueDrops(t *testing.T) {
	ctx := qdisc.NewContext(nil, 7)
	ctx.Now = time.Second
	c := cobalt{blue: 1 << 30}
	flood := 0
	for range 10_000 {
		p := &qdisc.Packet{}
		p.Scratch[stamp] = uint64(ctx.Now)
		if c.judge(ctx, &internet, p, 0) == flooded {
			flood++
		}
	}
	if flood < 2300 || flood > 2700 {
		t.Errorf("%d of 10000 dropped, want about a quarter", flood)
	}
}

// A flow that is served seldom gets its signals one by one: marks do not pile up,
// drops make up for the time.
func TestSignalsDoNotPileUp(t *testing.T) {
	for _, ecn := range []uint8{0, 2} {
		c := cobalt{}
		ctx := &qdisc.Context{Now: time.Second}
		pool, _ := qdisc.NewPool(qdisc.PoolConfig{Packets: 1})
		p := pool.Get()
		p.SetLen(100)
		for i := range 5 {
			p.L3, p.EtherType, p.TOS = 14, etherIPv4, ecn
			p.Scratch[stamp] = uint64(ctx.Now - time.Second)
			v := c.judge(ctx, &internet, p, 0)
			if want := map[uint8]verdict{0: congested, 2: marked}[ecn]; i > 0 && v != want {
				t.Fatalf("packet %d: verdict %d, want %d", i, v, want)
			}
			if behind := c.dropNext < ctx.Now; i > 1 && behind != (ecn == 0) {
				t.Errorf("packet %d with ECN %d: the next signal was due at %v, now is %v", i, ecn, c.dropNext, ctx.Now)
			}
			ctx.Now += 3 * time.Second
		}
	}
}

// The longest of many queues is always on top while they grow and shrink.
func TestFattestOfMany(t *testing.T) {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 1024, FrameSize: 2048})
	if err != nil {
		t.Fatal(err)
	}
	ctx := qdisc.NewContext(pool, 3)
	made, _ := newCake(qdisc.Env{Handle: 1, MTU: 1500, HeaderLen: 14}, qdisc.Values{"memlimit": {N: 400_000}})
	q := made.(*cake)
	for range 4000 {
		switch r := ctx.Rand.Uint64(); {
		case r%8 < 5:
			if p := pool.Get(); p != nil {
				p.SetLen(64 + int(r>>8%1400))
				p.Hash, p.Flags = uint32(r>>32%100), qdisc.HashSet
				q.Enqueue(ctx, p)
			}
		case r%8 < 7:
			if p := q.Dequeue(ctx); p != nil {
				p.Free()
			}
		default:
			q.Shed(ctx, 1)
		}
		if q.byBacklog.countdown > 0 {
			auditHeap(t, q)
		}
	}
}

// After an overflow the next packet that waited too long is signalled at once.
func TestOverflowSignalsAtOnce(t *testing.T) {
	c := cobalt{}
	c.queueFull(&internet, time.Second)
	at := judged(&c, &internet, 20*time.Millisecond, time.Millisecond, 100, 0)
	if len(at) != 2 || at[0] != 0 || at[1] != 71 {
		t.Errorf("signals after %v ms, want 0, and 71 = 100/√2", at)
	}
}

// Where all eight entries have active flows a new host takes one whose host is not in
// bulk, its own first; where all are, its own.
func TestHostsTakeTheLeastHarm(t *testing.T) {
	var h hosts
	for i := range h[:8] {
		h[i] = host{tag: uint32(i) + 1024, flows: 1, bulk: 1}
	}
	if got := h.reserve(3); got != 3 {
		t.Errorf("all in bulk: entry %d, want its own, 3", got)
	}
	h[6].bulk = 0
	if got := h.reserve(3 + 2048); got != 6 {
		t.Errorf("6 is not in bulk: entry %d", got)
	}
	h[1].flows, h[1].bulk = 0, 0
	if got := h.reserve(3 + 4096); got != 1 {
		t.Errorf("1 has no flow: entry %d", got)
	}
	h[1].flows = 1
	if got := h.reserve(3 + 4096); got != 1 {
		t.Errorf("it is found again in entry %d, want 1", got)
	}
}
