package netem_test

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/qdisc"
	"sluice/qdisc/fifo"
	"sluice/qdisc/netem"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
	"sluice/qdisc/tbf"
)

const (
	ms   = uint64(time.Millisecond)
	mbit = 125_000
)

func percent(n float64) uint64 { return uint64(math.Round(n / 100 * math.MaxUint32)) }

// with makes values of names and numbers, or words.
func with(kv ...any) qdisc.Values {
	v := qdisc.Values{}
	for i := 0; i < len(kv); i += 2 {
		switch x := kv[i+1].(type) {
		case int:
			v.Set(kv[i].(string), uint64(x))
		case uint64:
			v.Set(kv[i].(string), x)
		case float64: // a percentage
			v.Set(kv[i].(string), percent(x))
		case string:
			v[kv[i].(string)] = qdisc.Value{Word: x}
		}
	}
	return v
}

var (
	everything = with("limit", 12, "delay.delay", ms/2, "delay.jitter", ms/4, "delay.correlation", 30., "distribution", "normal",
		"loss.loss", 10., "loss.correlation", 20., "duplicate.duplicate", 20., "corrupt.corrupt", 5.,
		"reorder.reorder", 30., "gap", 3, "ecn", 1)
	slow    = with("limit", 15, "rate.rate", 10*mbit, "delay.delay", ms, "duplicate.duplicate", 50.)
	slotted = with("limit", 15, "delay.delay", ms/2, "slot.min-delay", ms/4, "slot.max-delay", ms, "slot.packets", 3,
		"slot.bytes", 4000, "duplicate.duplicate", 10.)
)

func TestConformance(t *testing.T) {
	for name, v := range map[string]qdisc.Values{
		"everything": everything, "rate": slow, "slots": slotted, "nothing": with("limit", 5),
	} {
		t.Run(name, func(t *testing.T) {
			qdisctest.Run(t, qdisctest.Config{
				Name: "netem",
				New: func(env qdisc.Env) qdisc.Qdisc {
					q, err := netem.Kind.New(env, v)
					if err != nil {
						t.Fatal(err)
					}
					return q
				},
				Throttles: true,
				Changes: []qdisc.Values{
					everything, slow, slotted, with("limit", 3), with("loss-gemodel.p", 10.), with("loss-state.p13", 10.),
					with("slot.min-delay", 2*ms, "slot.max-delay", ms), with("seed", 7), with("distribution", "nosuch"),
					with("slot-distribution.name", "normal", "slot-distribution.delay", ms, "slot-distribution.jitter", ms),
				},
			})
		})
	}
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &netem.Kind, &fifo.Pfifo, &fifo.Bfifo, &prio.Kind, &tbf.Kind)
}

func newContext(t testing.TB, packets int) *qdisc.Context {
	t.Helper()
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: packets})
	if err != nil {
		t.Fatal(err)
	}
	return qdisc.NewContext(pool, 1)
}

func build(t testing.TB, v qdisc.Values) qdisc.Qdisc {
	t.Helper()
	if err := netem.Kind.Check(v); err != nil {
		t.Fatal(err)
	}
	q, err := netem.Kind.New(qdisctest.Env(1), v)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// send enqueues a packet of n bytes that carries its number.
func send(t testing.TB, ctx *qdisc.Context, q qdisc.Qdisc, number, n int) qdisc.Verdict {
	t.Helper()
	p := ctx.Pool.Get()
	if p == nil {
		t.Fatal("out of packets")
	}
	p.SetLen(n)
	clear(p.Bytes())
	p.Mark = uint32(number)
	return q.Enqueue(ctx, p)
}

// arrival is a packet that came out.
type arrival struct {
	number int
	at     time.Duration
}

// drain takes out what leaves until the queue is empty, sleeping until NextAt.
func drain(t testing.TB, ctx *qdisc.Context, q qdisc.Qdisc) (out []arrival) {
	t.Helper()
	for q.Len() > 0 {
		p := q.Dequeue(ctx)
		if p == nil {
			if q.NextAt() <= ctx.Now || q.NextAt() == qdisc.Never {
				t.Fatalf("nothing leaves at %v, NextAt %v", ctx.Now, q.NextAt())
			}
			ctx.Now = q.NextAt()
			continue
		}
		out = append(out, arrival{int(p.Mark), ctx.Now})
		p.Free()
	}
	return out
}

// lossRun sends n packets and says of each whether it was lost.
func lossRun(t *testing.T, v qdisc.Values, n int) []bool {
	ctx := newContext(t, 4)
	q := build(t, v.Set("seed", 1))
	lost := make([]bool, n)
	for i := range lost {
		lost[i] = send(t, ctx, q, i, 60) == qdisc.Dropped
		if p := q.Dequeue(ctx); p != nil {
			p.Free()
		}
	}
	if got := int(ctx.Drops[qdisc.Lost]); got != count(lost) || q.Self().Drops != uint64(got) {
		t.Errorf("%d lost, %d dropped as such, %d drops", count(lost), got, q.Self().Drops)
	}
	return lost
}

func count(b []bool) (n int) {
	for _, x := range b {
		if x {
			n++
		}
	}
	return n
}

// bursts returns how many runs of losses there are.
func bursts(b []bool) (n int) {
	for i, x := range b {
		if x && (i == 0 || !b[i-1]) {
			n++
		}
	}
	return n
}

// Over 200,000 packets of a known seed losses are as many as asked for, and as
// often one after the other as the model says: within five standard deviations.
func TestLossIsAsAskedFor(t *testing.T) {
	const n = 200_000
	for _, c := range []struct {
		name  string
		v     qdisc.Values
		loss  float64 // part of all
		burst float64 // packets in a row
		tol   float64 // of both, relative
	}{
		{"random", with("loss.loss", 10.), 0.1, 1 / 0.9, 0.04},
		{"rare", with("loss.loss", 1.), 0.01, 1 / 0.99, 0.12},
		{"all", with("loss.loss", 100.), 1, n, 0},
		// Stationary parts of the chain: bad = p/(p+r).
		{"gilbert", with("loss-gemodel.p", 1., "loss-gemodel.r", 25.), 1. / 26, 1 / 0.25, 0.08},
		{"elliott", with("loss-gemodel.p", 5., "loss-gemodel.r", 20., "loss-gemodel.1-h", 50., "loss-gemodel.1-k", 1.),
			0.2*0.5 + 0.8*0.01, 0, 0.05},
		{"bernoulli by one chance", with("loss-state.p13", 5.), 0.05, 1 / 0.95, 0.06},
		{"bursts of four", with("loss-state.p13", 1., "loss-state.p31", 25.), 1. / 26, 1 / 0.25, 0.08},
		{"single ones", with("loss-state.p13", 0., "loss-state.p31", 0., "loss-state.p32", 0., "loss-state.p23", 0., "loss-state.p14", 5.),
			0.05 / 1.05, 1, 0.06},
	} {
		t.Run(c.name, func(t *testing.T) {
			lost := lossRun(t, c.v, n)
			got := float64(count(lost)) / n
			if math.Abs(got-c.loss) > c.tol*c.loss {
				t.Errorf("%.4f were lost, want %.4f", got, c.loss)
			}
			if mean := float64(count(lost)) / float64(bursts(lost)); c.burst > 0 && math.Abs(mean-c.burst) > c.tol*c.burst {
				t.Errorf("%.3f in a row, want %.3f", mean, c.burst)
			}
		})
	}
}

// With correlation each draw keeps its part of the one before. The result is not
// spread evenly any more, so there is no exact number to expect of the losses;
// but they come in longer runs.
func TestCorrelationMakesRuns(t *testing.T) {
	free, tied := lossRun(t, with("loss.loss", 30.), 50_000), lossRun(t, with("loss.loss", 30., "loss.correlation", 60.), 50_000)
	mean := func(b []bool) float64 { return float64(count(b)) / float64(bursts(b)) }
	if mean(free) > 1.5 || mean(tied) < 1.6 {
		t.Errorf("runs of %.2f without correlation, of %.2f with", mean(free), mean(tied))
	}
}

// delays returns how long each of n packets waited.
func delays(t *testing.T, n int, v qdisc.Values) []float64 {
	ctx := newContext(t, n+1)
	q := build(t, v.Set("seed", 1).Set("limit", uint64(n)))
	for i := range n {
		send(t, ctx, q, i, 60)
	}
	all := make([]float64, n)
	for _, a := range drain(t, ctx, q) {
		all[a.number] = float64(a.at)
	}
	return all
}

func moments(x []float64) (mean, deviation, skew float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		deviation += (v - mean) * (v - mean) / float64(len(x))
	}
	deviation = math.Sqrt(deviation)
	for _, v := range x {
		skew += math.Pow((v-mean)/deviation, 3) / float64(len(x))
	}
	return mean, deviation, skew
}

// The delays of a distribution have its mean, its deviation, and its shape.
func TestDistributions(t *testing.T) {
	const n = 20_000
	for _, c := range []struct {
		name                    string
		mean, deviation         float64 // in jitters from the delay, and of it
		leastSkew, greatestSkew float64
	}{
		{"uniform", 0, 1 / math.Sqrt(3), -0.05, 0.05},
		{"normal", 0, 1, -0.06, 0.06},
		// The tail is cut at four deviations, which is c = 4√¾ + 3/2 of the
		// Pareto distribution: its mean becomes 3/2 − 1/2c², its square 3 − 2/c.
		{"pareto", -0.023, 0.737, 2, 3},
		{"paretonormal", -0.018, 0.811, 1.2, 2.2},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := delays(t, n, with("delay.delay", 100*ms, "delay.jitter", 10*ms, "distribution", c.name))
			mean, deviation, skew := moments(x)
			if off := (mean-100e6)/10e6 - c.mean; math.Abs(off) > 0.03 {
				t.Errorf("mean %.3f jitters from the delay, want %.3f", off+c.mean, c.mean)
			}
			if off := deviation/10e6 - c.deviation; math.Abs(off) > 0.02 {
				t.Errorf("deviation %.3f jitters, want %.3f", off+c.deviation, c.deviation)
			}
			if skew < c.leastSkew || skew > c.greatestSkew {
				t.Errorf("skewness %.2f", skew)
			}
			if c.name == "uniform" && (slices.Min(x) < 90e6 || slices.Max(x) >= 110e6) {
				t.Errorf("from %v to %v, want 90 to 110 ms", slices.Min(x), slices.Max(x))
			}
		})
	}
}

// A delay of its own correlation follows the one before.
func TestDelayCorrelation(t *testing.T) {
	follow := func(rho float64) float64 {
		x := delays(t, 20_000, with("delay.delay", 100*ms, "delay.jitter", 10*ms, "delay.correlation", rho))
		mean, deviation, _ := moments(x)
		sum := 0.0
		for i := 1; i < len(x); i++ {
			sum += (x[i] - mean) * (x[i-1] - mean)
		}
		return sum / float64(len(x)-1) / deviation / deviation
	}
	for _, rho := range []float64{0, 25, 75} {
		if got := follow(rho); math.Abs(got-rho/100) > 0.03 {
			t.Errorf("asked for %v %%, measured %.3f", rho, got)
		}
	}
}

// Copies are as many as asked for, and the books hold: each is one more packet
// in, and one more out.
func TestDuplicates(t *testing.T) {
	const n = 20_000
	ctx := newContext(t, 4)
	q := build(t, with("duplicate.duplicate", 25., "seed", 1))
	copies := 0
	ctx.OnClone = func(p, c *qdisc.Packet) { copies++ }
	for i := range n {
		send(t, ctx, q, i, 60)
		for p := q.Dequeue(ctx); p != nil; p = q.Dequeue(ctx) {
			if p.Mark != uint32(i) {
				t.Fatalf("packet %d instead of %d", p.Mark, i)
			}
			p.Free()
		}
	}
	if got := float64(copies) / n; math.Abs(got-0.25) > 0.015 {
		t.Errorf("%.4f were copied, want 0.25", got)
	}
	if s := q.Self(); s.Packets != uint64(n+copies) || s.Drops != 0 || q.Len() != 0 {
		t.Errorf("%d left of %d and %d copies", s.Packets, n, copies)
	}
}

// Two netems that duplicate everything, one below the other, make four of one,
// not more and more; and the limit holds for the copies too.
func TestTrap34NestedDuplicates(t *testing.T) {
	ctx := newContext(t, 64)
	outer := build(t, with("duplicate.duplicate", 100.))
	inner, err := netem.Kind.New(qdisctest.Env(2), with("duplicate.duplicate", 100., "limit", 6))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := outer.(qdisc.Classful).Graft(ctx, qdisc.MakeID(1, 1), inner); err != nil {
		t.Fatal(err)
	}
	send(t, ctx, outer, 1, 60)
	if n := len(drain(t, ctx, outer)); n != 4 {
		t.Errorf("%d of one, want 4", n)
	}
	for i := range 4 {
		send(t, ctx, outer, i, 60)
	}
	if n, free := len(drain(t, ctx, outer)), ctx.Pool.Available(); n < 6 || n > 16 || free != 64 {
		t.Errorf("%d of four, %d frames free", n, free)
	}
}

// limit counts what waits for its time and what waits in the child (trap 34),
// and what is to be reordered is not exempt.
func TestTrap34LimitCountsTheChild(t *testing.T) {
	ctx := newContext(t, 16)
	q := build(t, with("limit", 3, "delay.delay", ms, "reorder.reorder", 100.))
	if _, err := q.(qdisc.Classful).Graft(ctx, qdisc.MakeID(1, 1), &qdisctest.Slow{Fifo: qdisctest.Fifo{Limit: 9}, Gap: time.Second}); err != nil {
		t.Fatal(err)
	}
	var got []qdisc.Verdict
	for i := range 5 {
		got = append(got, send(t, ctx, q, i, 60))
	}
	want := []qdisc.Verdict{qdisc.Success, qdisc.Success, qdisc.Success, qdisc.Dropped, qdisc.Dropped}
	if !slices.Equal(got, want) {
		t.Errorf("verdicts %v, want %v", got, want)
	}

	q = build(t, with("limit", 3))
	if _, err := q.(qdisc.Classful).Graft(ctx, qdisc.MakeID(1, 1), &qdisctest.Slow{Fifo: qdisctest.Fifo{Limit: 9}, Gap: time.Second}); err != nil {
		t.Fatal(err)
	}
	sent := 0
	for i := range 6 {
		if send(t, ctx, q, i, 60) == qdisc.Success {
			sent++
		}
		if p := q.Dequeue(ctx); p != nil {
			p.Free()
		}
	}
	if sent != 4 || q.Len() != 3 {
		t.Errorf("%d taken, %d wait; want 4, one of which left, and 3", sent, q.Len())
	}
}

// One bit of the frame is flipped, any bit, and nothing in a frame without any.
func TestCorruptFlipsOneBit(t *testing.T) {
	ctx := newContext(t, 4)
	q := build(t, with("corrupt.corrupt", 100., "seed", 1))
	var seen [64]int
	for range 64 * 200 {
		send(t, ctx, q, 0, 8)
		p := q.Dequeue(ctx)
		x := binary.BigEndian.Uint64(p.Bytes())
		p.Free()
		if bits.OnesCount64(x) != 1 {
			t.Fatalf("%064b", x)
		}
		seen[bits.TrailingZeros64(x)]++
	}
	for i, n := range seen {
		if n < 130 || n > 270 {
			t.Errorf("bit %d was flipped %d times of 200", i, n)
		}
	}
	p := ctx.Pool.Get()
	if v := q.Enqueue(ctx, p); v != qdisc.Success {
		t.Errorf("an empty frame: %v", v)
	}
}

// With ecn, what would be lost is marked if it can be, and does not count as a
// drop.
func TestMarkInsteadOfLoss(t *testing.T) {
	ctx := newContext(t, 4)
	q := build(t, with("loss.loss", 100., "ecn", 1))
	for _, ecn := range []uint8{0, 1, 2, 3} {
		p := ctx.Pool.Get()
		p.SetLen(60)
		p.L3, p.EtherType, p.Flags, p.TOS = 14, 0x0800, qdisc.Parsed, ecn
		p.Bytes()[15] = ecn
		v := q.Enqueue(ctx, p)
		if ecn == 0 {
			if v != qdisc.Dropped {
				t.Errorf("not ECN capable: %v", v)
			}
			continue
		}
		if p := q.Dequeue(ctx); v != qdisc.Success || p.ECN() != 3 {
			t.Errorf("ECN %d: verdict %v, then ECN %d", ecn, v, p.ECN())
		} else {
			p.Free()
		}
	}
	if q.Self().Drops != 1 {
		t.Errorf("%d drops, want 1", q.Self().Drops)
	}
}

// At a rate packets leave one behind the other, at once if they come when the
// link is free, with nothing lost to rounding; overhead and cells count.
func TestRateIsExact(t *testing.T) {
	for _, c := range []struct {
		name string
		v    qdisc.Values
		wire uint64 // of 1000 bytes
	}{
		{"1 Mbit", with("rate.rate", mbit), 1000},
		{"10 Gbit", with("rate.rate", 10_000*mbit), 1000},
		{"100 Gbit, odd", with("rate.rate", 12_499_999_989), 1000},
		{"overhead", with("rate.rate", mbit, "rate.packetoverhead", 24), 1024},
		{"less", with("rate.rate", mbit, "rate.packetoverhead", uint64(math.MaxUint64-13)), 986},
		{"cells", with("rate.rate", mbit, "rate.packetoverhead", 8, "rate.cellsize", 48, "rate.celloverhead", 5), 21 * 53},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := newContext(t, 600)
			q := build(t, c.v)
			rate := c.v.N("rate.rate", 0)
			for i := range 500 {
				send(t, ctx, q, i, 1000)
			}
			for i, a := range drain(t, ctx, q) {
				if want := time.Duration(uint64(i+1) * c.wire * 1e9 / rate); a.at != want || a.number != i {
					t.Fatalf("packet %d leaves at %v as number %d, want %v", a.number, a.at, i, want)
				}
			}
			ctx.Now += time.Second
			send(t, ctx, q, 0, 1000)
			if at := drain(t, ctx, q)[0].at; ctx.Now != at || at < time.Second {
				t.Errorf("after a pause at %v", at)
			}
		})
	}
}

// A packet's wait for those before it is part of its delay.
func TestDelayAndRateOverlap(t *testing.T) {
	ctx := newContext(t, 8)
	q := build(t, with("rate.rate", mbit, "delay.delay", 20*ms))
	for i := range 4 {
		send(t, ctx, q, i, 1000) // 8 ms each
	}
	want := []arrival{{0, 28e6}, {1, 36e6}, {2, 44e6}, {3, 52e6}}
	if got := drain(t, ctx, q); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// In slots of three packets, one each 10 ms, nobody leaves between.
func TestSlots(t *testing.T) {
	ctx := newContext(t, 16)
	q := build(t, with("slot.min-delay", 10*ms, "slot.max-delay", 10*ms, "slot.packets", 3))
	ctx.Now = time.Millisecond
	for i := range 7 {
		send(t, ctx, q, i, 100)
	}
	var got []time.Duration
	for _, a := range drain(t, ctx, q) {
		got = append(got, a.at/time.Millisecond)
	}
	if want := []time.Duration{11, 11, 11, 21, 21, 21, 31}; !slices.Equal(got, want) {
		t.Errorf("%v ms, want %v", got, want)
	}
	q = build(t, with("slot-distribution.name", "normal", "slot-distribution.delay", 10*ms, "slot-distribution.jitter", ms,
		"slot-distribution.bytes", 150, "seed", 1))
	ctx.Now = 0
	for i := range 8 {
		send(t, ctx, q, i, 100)
	}
	out := drain(t, ctx, q)
	for i := 0; i < 8; i += 2 {
		if out[i].at != out[i+1].at || i > 0 && (out[i].at-out[i-1].at-10e6).Abs() > 4e6 {
			t.Errorf("packets %d and %d at %v and %v", i, i+1, out[i].at, out[i+1].at)
		}
	}
}

// Whatever the delays, packets leave by their times, those of one time as they
// came: as from a slice that is sorted.
func TestOrderAgainstSortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(t, "packets")
		pool, _ := qdisc.NewPool(qdisc.PoolConfig{Packets: n})
		ctx := qdisc.NewContext(pool, 1)
		q, err := netem.Kind.New(qdisctest.Env(1), with("delay.delay", 0))
		if err != nil {
			t.Fatal(err)
		}
		var want []arrival
		for i := range n {
			delay := time.Duration(rapid.IntRange(0, 9).Draw(t, "delay"))
			if err := q.(qdisc.Changer).Change(ctx, with("delay.delay", uint64(delay))); err != nil {
				t.Fatal(err)
			}
			p := pool.Get()
			p.SetLen(60)
			p.Mark = uint32(i)
			q.Enqueue(ctx, p)
			want = append(want, arrival{i, delay})
		}
		slices.SortStableFunc(want, func(a, b arrival) int { return int(a.at - b.at) })
		for i, w := range want {
			for p := q.Dequeue(ctx); ; p = q.Dequeue(ctx) {
				if p != nil {
					if int(p.Mark) != w.number || ctx.Now != w.at {
						t.Fatalf("departure %d is %d at %v, want %d at %v", i, p.Mark, ctx.Now, w.number, w.at)
					}
					p.Free()
					break
				}
				ctx.Now = q.NextAt()
			}
		}
	})
}

// The same seed does the same, another one something else, and a Reset begins
// again.
func TestSeedRepeats(t *testing.T) {
	run := func(seed int, after func(ctx *qdisc.Context, q qdisc.Qdisc)) (out []qdisc.Verdict) {
		ctx := newContext(t, 200)
		q := build(t, with("loss.loss", 50., "seed", seed))
		if after != nil {
			for i := range 50 {
				send(t, ctx, q, i, 60)
			}
			after(ctx, q)
		}
		for i := range 100 {
			out = append(out, send(t, ctx, q, i, 60))
		}
		return out
	}
	a := run(1, nil)
	if !slices.Equal(a, run(1, nil)) || slices.Equal(a, run(2, nil)) {
		t.Error("a seed does not decide what happens")
	}
	if !slices.Equal(a, run(1, func(ctx *qdisc.Context, q qdisc.Qdisc) { q.Reset(ctx) })) {
		t.Error("after Reset it is another sequence")
	}
}

func BenchmarkNetem(b *testing.B) {
	for name, v := range map[string]qdisc.Values{
		"nothing": with(), "delay": with("delay.delay", ms), "jitter": with("delay.delay", ms, "delay.jitter", ms/10, "distribution", "normal"),
		"loss": with("loss.loss", 1.), "rate": with("rate.rate", 1000*mbit),
	} {
		b.Run(name, func(b *testing.B) {
			ctx := newContext(b, 128)
			q := build(b, v)
			for i := range 64 {
				send(b, ctx, q, i, 64)
			}
			b.ReportAllocs()
			for b.Loop() {
				p := q.Dequeue(ctx)
				for ; p == nil; p = q.Dequeue(ctx) {
					ctx.Now = q.NextAt()
				}
				for q.Enqueue(ctx, p) == qdisc.Dropped {
					p = ctx.Pool.Get()
					p.SetLen(64)
				}
			}
		})
	}
}
