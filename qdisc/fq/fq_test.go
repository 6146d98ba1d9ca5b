package fq_test

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/fifo"
	"sluice/qdisc/fq"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
	"sluice/qdisc/tbf"
)

func build(t testing.TB, env qdisc.Env, v qdisc.Values) qdisc.Qdisc {
	t.Helper()
	q, err := fq.Kind.New(env, v)
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

func list(n ...uint64) qdisc.Value { return qdisc.Value{List: n} }

// characters are settings between which fq behaves quite differently.
var characters = []struct {
	name     string
	throttle bool
	v        qdisc.Values
}{
	{"default", false, nil},
	{"small limits", false, values("limit", 10, "flow_limit", 3, "quantum", 300, "initial_quantum", 500)},
	{"low rate", true, values("maxrate", 50_000, "flow_limit", 5)},
	{"high rate", true, values("maxrate", 10_000_000, "quantum", 2000, "limit", 20)},
	{"small quantum", true, values("maxrate", 10_000_000, "quantum", 100, "initial_quantum", 1)},
	{"two flows", true, values("maxrate", 1_000_000, "orphan_mask", 1, "buckets", 2)},
	{"small weights", false, qdisc.Values{"weights": list(16384, 16384, 16384), "quantum": {N: 1 << 20}}},
}

func TestConformance(t *testing.T) {
	for _, c := range characters {
		t.Run(c.name, func(t *testing.T) {
			qdisctest.Run(t, qdisctest.Config{
				Name:      "fq",
				New:       func(env qdisc.Env) qdisc.Qdisc { return build(t, env, c.v) },
				Throttles: true, // a change may make it
				Changes: []qdisc.Values{
					values("limit", 3), values("limit", 0), values("limit", 40), values("maxrate", 200_000),
					values("maxrate", 1<<61), values("maxrate", 0), values("nopacing", 1), values("pacing", 1),
					values("quantum", 0), values("quantum", 1<<20), values("quantum", 1514), values("quantum", 1<<21),
					values("orphan_mask", 7), values("orphan_mask", 1<<30), values("flow_limit", 2), values("buckets", 3),
					values("ce_threshold", 1000), {"weights": list(16384, 1<<30, 20000)}, {"weights": list(1, 2, 3)},
				},
			})
		})
	}
}

// A flow's packets never overtake each other, also when some take the short cut.
func TestOrderWithinAFlow(t *testing.T) {
	for _, c := range characters[:4] {
		t.Run(c.name, func(t *testing.T) {
			qdisctest.Run(t, qdisctest.Config{
				Name:      "fq",
				New:       func(env qdisc.Env) qdisc.Qdisc { return build(t, env, c.v) },
				Throttles: true,
				Order:     func(p *qdisc.Packet) uint64 { return uint64(p.Hash) },
			})
		})
	}
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &fq.Kind, &prio.Kind, &tbf.Kind, &fifo.Pfifo)
}

func TestErrorsAreTheKernels(t *testing.T) {
	for _, c := range []struct {
		v     qdisc.Values
		errno syscall.Errno
		text  string
	}{
		{values("quantum", 0), syscall.EINVAL, "invalid quantum"},
		{values("quantum", 1<<20+1), syscall.EINVAL, "invalid quantum"},
		{values("initial_quantum", 1<<31), syscall.ERANGE, "integer out of range"},
		{values("buckets", 1), syscall.EINVAL, "invalid argument"},
		{values("buckets", 1<<18+1), syscall.EINVAL, "invalid argument"},
		{values("offload_horizon", 1), syscall.EINVAL, "invalid offload_horizon"},
		{values("bands", 4), syscall.EINVAL, "FQ only supports 3 bands"},
		{qdisc.Values{"priomap": list(0, 3)}, syscall.EINVAL, "FQ priomap field 1 maps to a too high band 3"},
		{qdisc.Values{"weights": list(16383)}, syscall.EINVAL, "Weight 16383 less that minimum allowed 16384"},
		{qdisc.Values{"weights": list(1<<20, 1<<20, 1<<20, 1<<20)}, syscall.EINVAL, "invalid argument"},
	} {
		_, err := fq.Kind.New(qdisctest.Env(1), c.v)
		if !errors.Is(err, c.errno) || err.Error() != c.text {
			t.Errorf("%v: %v, want %q", c.v, err, c.text)
		}
		q := build(t, qdisctest.Env(1), nil)
		before := fmt.Sprint(q.(qdisc.Dumper).Dump())
		if q.(qdisc.Changer).Change(newContext(t, 1), c.v) == nil {
			t.Errorf("%v: a change is accepted", c.v)
		}
		if after := fmt.Sprint(q.(qdisc.Dumper).Dump()); after != before {
			t.Errorf("%v: refused, and yet %s became %s", c.v, before, after)
		}
	}
}

func TestWhatTcRefuses(t *testing.T) {
	sixteen := list(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2)
	for _, c := range []struct {
		v    qdisc.Values
		text string
	}{
		{qdisc.Values{"priomap": sixteen}, `What is "priomap"?`},
		{values("bands", 2), `"bands" must be 3`},
		{values("bands", 3), `"priomap" expected`},
		{qdisc.Values{"bands": {N: 3}, "priomap": list(1, 2)}, "Not enough elements in priomap"},
		{qdisc.Values{"bands": {N: 3}, "priomap": list(append(sixteen.List, 9)...)}, `What is "9"?`},
		{qdisc.Values{"bands": {N: 3}, "priomap": list(append(sixteen.List[1:16:16], 3)...)}, `"priomap" element 3 too big`},
		{qdisc.Values{"weights": list(1 << 20)}, "Not enough elements in weights"},
		{qdisc.Values{"weights": list(1<<20, 1<<20, 1<<20, 7)}, `What is "7"?`},
		{qdisc.Values{"weights": list(1<<20, 1<<20, 7)}, `"weights" element 7 too small`},
		{qdisc.Values{"bands": {N: 3}, "priomap": sixteen, "weights": list(1<<20, 1<<20, 1<<20)}, "<nil>"},
	} {
		if got := fmt.Sprint(fq.Kind.Check(c.v)); got != c.text {
			t.Errorf("%v: %s, want %s", c.v, got, c.text)
		}
	}
}

// The schedule of a paced flow is exact: over ten seconds it sends at its rate,
// to within a quantum, however many nanoseconds a quantum takes.
func TestPacingIsExact(t *testing.T) {
	const mbit = 1_000_000 / 8
	for _, c := range []struct {
		rate uint64
		time time.Duration
	}{
		{mbit / 4, 10 * time.Second}, {mbit, 10 * time.Second}, {100 * mbit, 10 * time.Second},
		{1000 * mbit, 10 * time.Second}, {10_000 * mbit, 10 * time.Second}, {100_000 * mbit, time.Second},
	} {
		t.Run(fmt.Sprintf("%d", c.rate), func(t *testing.T) {
			if testing.Short() && c.rate > 1000*mbit {
				t.Skip("millions of packets")
			}
			ctx := newContext(t, 64)
			v := qdisc.Values{}.Set("maxrate", c.rate)
			q := build(t, qdisctest.Env(1), v)
			for range 16 {
				put(ctx, q, 1, 1514)
			}
			ctx.Now = 1
			begin, sent := time.Duration(0), uint64(0)
			for {
				p := q.Dequeue(ctx)
				if p == nil {
					ctx.Now = q.NextAt()
					if begin == 0 { // the initial quantum is over
						begin, sent = ctx.Now, 0
					}
					if ctx.Now-begin > c.time {
						break
					}
					continue
				}
				sent += uint64(p.PktLen)
				q.Enqueue(ctx, p)
			}
			want := float64(c.rate) * (ctx.Now - begin).Seconds()
			if off := float64(sent) - want; off < -1514 || off > 1514 {
				t.Errorf("sent %d bytes in %v, want %.0f", sent, ctx.Now-begin, want)
			}
		})
	}
}

// Who comes late makes up for it, by half of the delay at most.
func TestLatenessIsMadeUpFor(t *testing.T) {
	ctx := newContext(t, 64)
	q := build(t, qdisctest.Env(1), values("maxrate", 1_000_000, "quantum", 1000, "initial_quantum", 1000))
	for range 10 {
		put(ctx, q, 1, 1000)
	}
	ctx.Now = time.Millisecond
	for i, late := range []time.Duration{0, 100 * time.Microsecond, 400 * time.Microsecond, 900 * time.Microsecond} {
		if i > 0 {
			ctx.Now = q.NextAt() + late
		}
		sent := ctx.Now
		q.Dequeue(ctx).Free()
		if q.Dequeue(ctx) != nil {
			t.Fatal("two at once")
		}
		want := sent + time.Millisecond - min(late, time.Millisecond/2)
		if got := q.NextAt(); got != want {
			t.Errorf("%v late: the next one at %v, want %v", late, got, want)
		}
	}
}

// A clock that goes back makes flows wait, and nothing worse.
func TestTrap38TimeGoesBack(t *testing.T) {
	ctx := newContext(t, 64)
	q := build(t, qdisctest.Env(1), values("maxrate", 1_000_000, "ce_threshold", 1000))
	ctx.Now = time.Second
	put(ctx, q, 1, 1000)
	ctx.Now = time.Second / 2
	put(ctx, q, 2, 1000)
	if p := q.Dequeue(ctx); p == nil || p.Hash != 2 {
		t.Fatalf("%v leaves first", p)
	}
	if p := q.Dequeue(ctx); p != nil || q.NextAt() != time.Second {
		t.Fatalf("%v, next at %v; want nothing until 1s", p, q.NextAt())
	}
	ctx.Now = q.NextAt()
	if p := q.Dequeue(ctx); p == nil || p.Hash != 1 {
		t.Fatalf("%v leaves at its time", p)
	}
}

// The largest initial quantum does not overflow when a flow comes back and is
// given more.
func TestTrap38HugeQuanta(t *testing.T) {
	ctx := newContext(t, 64)
	q := build(t, qdisctest.Env(1), values("initial_quantum", 1<<31-1, "quantum", 1<<20, "maxrate", 1<<40))
	for range 100 {
		ctx.Now += time.Second
		put(ctx, q, 1, 1514)
		if p := q.Dequeue(ctx); p == nil {
			t.Fatal("it does not send")
		} else {
			p.Free()
		}
		if q.Dequeue(ctx) != nil {
			t.Fatal("from nowhere")
		}
	}
}

// The short cut is closed while a flow whose time has come was not served yet:
// what came later would overtake it.
func TestTrap38ShortCutDoesNotOvertake(t *testing.T) {
	ctx := newContext(t, 64)
	q := build(t, qdisctest.Env(1), values("maxrate", 1_000_000, "initial_quantum", 1000))
	put(ctx, q, 1, 1000)
	put(ctx, q, 1, 1000)
	q.Dequeue(ctx).Free()
	if q.Dequeue(ctx) != nil {
		t.Fatal("the second packet is not delayed")
	}
	if err := q.(qdisc.Changer).Change(ctx, values("maxrate", 1<<61)); err != nil {
		t.Fatal(err)
	}
	fastpath := func() uint64 { return q.(qdisc.XStatser).XStats().N("fastpath", 0) }
	put(ctx, q, 1, 100) // the flow is delayed; nobody is waiting for this one
	if fastpath() != 1 {
		t.Error("no short cut past a flow that has to wait")
	}
	ctx.Now = q.NextAt()
	put(ctx, q, 1, 200)
	if fastpath() != 1 {
		t.Error("a short cut past a flow whose time has come")
	}
	var got []uint32
	for p := q.Dequeue(ctx); p != nil; p = q.Dequeue(ctx) {
		got = append(got, p.PktLen)
	}
	if !slices.Equal(got, []uint32{100, 1000, 200}) {
		t.Errorf("left: %v", got)
	}
}

// Shrinking the limit drops the parked packet too, and ends (trap 25).
func TestTrap25ShrinkingSeesTheParkedPacket(t *testing.T) {
	ctx := newContext(t, 64)
	q := build(t, qdisctest.Env(1), values("maxrate", 1_000_000, "initial_quantum", 1000))
	for range 5 {
		put(ctx, q, 1, 1000)
	}
	q.Peek(ctx)
	if err := q.(qdisc.Changer).Change(ctx, values("limit", 2)); err != nil {
		t.Fatal(err)
	}
	if q.Self().Parked() != nil || q.Len() != 4 || q.Self().Drops != 1 {
		t.Errorf("len %d, drops %d; want the parked one dropped and the rest, which wait, left",
			q.Len(), q.Self().Drops)
	}
}

// Flows idle for three seconds are forgotten when many are known, and no others.
func TestForgetting(t *testing.T) {
	ctx := newContext(t, 64)
	q := build(t, qdisctest.Env(1), values("nopacing", 1, "maxrate", 1<<40, "buckets", 16,
		"quantum", 100, "initial_quantum", 100))
	visit := func(first, n uint32) {
		for h := first; h < first+n; h++ {
			put(ctx, q, h, 100)
			put(ctx, q, h, 100) // beyond its quantum, so that the old flows, the empty ones, are passed
			q.Dequeue(ctx).Free()
			q.Dequeue(ctx).Free()
		}
	}
	known := func() uint64 { return q.(qdisc.XStatser).XStats().N("flows", 0) }
	visit(0, 40)
	if known() != 40 {
		t.Fatalf("%d flows known", known())
	}
	ctx.Now = 2 * time.Second
	visit(100, 10)
	if known() != 50 {
		t.Errorf("%d flows known; none was idle for three seconds", known())
	}
	ctx.Now = 4 * time.Second
	visit(200, 200)
	if n := known(); n < 200 || n > 225 {
		t.Errorf("%d flows known, want the last 200 and those that are not looked for", n)
	}
	if gc := q.(qdisc.XStatser).XStats().N("gc", 0); gc+known() != 250 {
		t.Errorf("%d forgotten, %d known", gc, known())
	}
}

// Wide masks make flows share places, and lose nothing.
func TestWideMask(t *testing.T) {
	ctx := newContext(t, 4096)
	q := build(t, qdisctest.Env(1), values("orphan_mask", 1<<32-1, "maxrate", 1<<40))
	for i := range uint32(4000) {
		put(ctx, q, i*0x9e3779b9, 100)
	}
	if n := q.(qdisc.XStatser).XStats().N("flows", 0); n < 3800 || n > 4000 {
		t.Errorf("%d flows", n)
	}
	for range 4000 {
		if p := q.Dequeue(ctx); p == nil {
			t.Fatal("one is lost")
		} else {
			p.Free()
		}
	}
}

// The table is allocated when it is first needed.
func TestAnIdleFqIsSmall(t *testing.T) {
	ctx := newContext(t, 64)
	if n := testing.AllocsPerRun(100, func() {
		q := build(t, qdisctest.Env(1), nil)
		put(ctx, q, 1, 100)
		q.Dequeue(ctx).Free()
	}); n > 4 {
		t.Errorf("%v allocations for one that takes the short cut only", n)
	}
}

func Benchmark(b *testing.B) {
	qdisctest.Bench(b, func(env qdisc.Env) qdisc.Qdisc { return build(b, env, nil) })
}

// BenchmarkFlows has a standing backlog of 16 packets a flow.
func BenchmarkFlows(b *testing.B) {
	for _, c := range []struct {
		name string
		v    qdisc.Values
	}{
		{"unpaced", nil},
		{"paced", values("maxrate", 1_000_000)},
	} {
		for _, flows := range []int{16, 1024} {
			for _, run := range []int{16, 1} {
				b.Run(fmt.Sprintf("%s/flows=%d/run=%d", c.name, flows, run), func(b *testing.B) {
					ctx := newContext(b, 20*flows)
					v := qdisc.Values{"limit": {N: 1 << 20}}
					for k, x := range c.v {
						v[k] = x
					}
					q := build(b, qdisctest.Env(1), v)
					for i := range 16 * flows {
						put(ctx, q, uint32(i/16), 64)
					}
					var keys []uint32
					for i := range 1 << 14 {
						keys = append(keys, uint32(i/run)*0x9e3779b1>>16)
					}
					n := 0
					b.ReportAllocs()
					for b.Loop() {
						p := q.Dequeue(ctx)
						for p == nil {
							ctx.Now = q.NextAt()
							p = q.Dequeue(ctx)
						}
						p.Hash = keys[n%len(keys)] % uint32(flows)
						n++
						q.Enqueue(ctx, p)
					}
				})
			}
		}
	}
}

// Late packets of senders that take part in ECN are marked.
func TestLatePacketsAreMarked(t *testing.T) {
	ctx := newContext(t, 4)
	q := build(t, qdisctest.Env(1), values("ce_threshold", 1_000_000, "maxrate", 1<<40)) // no short cut: nothing is marked there
	for _, late := range []time.Duration{time.Millisecond, time.Millisecond + 1} {
		p := ctx.Pool.Get()
		p.SetLen(100)
		p.L3, p.EtherType, p.TOS = 14, 0x0800, 2
		p.Bytes()[14], p.Bytes()[15] = 0x45, 2
		p.Hash, p.Flags = 1, qdisc.HashSet
		q.Enqueue(ctx, p)
		ctx.Now += late
		p = q.Dequeue(ctx)
		if marked := p.TOS&3 == 3; marked != (late > time.Millisecond) {
			t.Errorf("%v late: marked %v", late, marked)
		}
	}
}
