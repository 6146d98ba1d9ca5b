package tbf_test

import (
	"errors"
	"math"
	"math/big"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/qdisc"
	"sluice/qdisc/fifo"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
	"sluice/qdisc/tbf"
)

func values(kv ...any) qdisc.Values {
	v := qdisc.Values{}
	for i := 0; i < len(kv); i += 2 {
		switch x := kv[i+1].(type) {
		case int:
			v.Set(kv[i].(string), uint64(x))
		case string:
			v[kv[i].(string)] = qdisc.Value{Word: x}
		}
	}
	return v
}

func build(t testing.TB, v qdisc.Values) qdisc.Qdisc {
	t.Helper()
	q, err := tbf.Kind.New(qdisctest.Env(1), v)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func newContext(t testing.TB, packets int) *qdisc.Context {
	t.Helper()
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: packets, FrameSize: 16384})
	if err != nil {
		t.Fatal(err)
	}
	return qdisc.NewContext(pool, 1)
}

// put enqueues one packet of each length.
func put(t testing.TB, ctx *qdisc.Context, q qdisc.Qdisc, lens ...int) (verdicts []qdisc.Verdict) {
	t.Helper()
	for _, n := range lens {
		p := ctx.Pool.Get()
		if p == nil {
			t.Fatal("out of packets")
		}
		p.SetLen(n)
		verdicts = append(verdicts, q.Enqueue(ctx, p))
	}
	return verdicts
}

// departures runs q as a worker does, sleeping until NextAt, until n packets
// left, and returns when each did.
func departures(t testing.TB, ctx *qdisc.Context, q qdisc.Qdisc, n int) (at []time.Duration) {
	t.Helper()
	for len(at) < n {
		if p := q.Dequeue(ctx); p != nil {
			at = append(at, ctx.Now)
			p.Free()
			continue
		}
		next := q.NextAt()
		if next <= ctx.Now || next == qdisc.Never {
			t.Fatalf("after %d of %d departures nothing comes at %v, and NextAt is %v", len(at), n, ctx.Now, next)
		}
		ctx.Now = next
	}
	return at
}

func ms(ns ...time.Duration) []time.Duration {
	for i := range ns {
		ns[i] *= time.Millisecond
	}
	return ns
}

func TestConformance(t *testing.T) {
	for name, v := range map[string]qdisc.Values{
		"rate":     values("rate", 125_000, "burst", 3000, "limit", 20_000),
		"peakrate": values("rate", 12_500_000, "burst", 10_000, "limit", 20_000, "peakrate", 25_000_000, "minburst", 1514),
		"cells":    values("rate", 99_999_989, "burst", 1200, "limit", 20_000, "overhead", 24, "linklayer", "atm"),
	} {
		t.Run(name, func(t *testing.T) {
			qdisctest.Run(t, qdisctest.Config{
				Name:      "tbf",
				New:       func(env qdisc.Env) qdisc.Qdisc { q, _ := tbf.Kind.New(env, v); return q },
				Throttles: true,
				Changes: []qdisc.Values{
					values("rate", 125_000, "burst", 1000),
					values("rate", 1_000_000, "burst", 1514, "limit", 5000),
					values("rate", 1_000_000, "burst", 9000, "peakrate", 2_000_000, "minburst", 1600),
					values("peakrate", 1, "minburst", 1600),
					values("rate", 0),
					values(),
				},
			})
		})
	}
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &tbf.Kind, &fifo.Bfifo, &prio.Kind)
}

// 125,000 bytes a second and 3000 bytes of burst: two packets of 1500 bytes at
// once, then one each 12 ms.
func TestBurstThenRate(t *testing.T) {
	ctx := newContext(t, 8)
	q := build(t, values("rate", 125_000, "burst", 3000, "limit", 20_000))
	put(t, ctx, q, 1500, 1500, 1500, 1500)
	if diff := cmp.Diff(ms(0, 0, 12, 24), departures(t, ctx, q, 4)); diff != "" {
		t.Error(diff)
	}
}

// Asked too early, at 13 ms, it says the same instant as if it had not been
// asked: a failed attempt changes nothing but the count of overlimits.
func TestAskingTooEarlyChangesNothing(t *testing.T) {
	ctx := newContext(t, 8)
	q := build(t, values("rate", 125_000, "burst", 3000, "limit", 20_000))
	put(t, ctx, q, 1500, 1500, 1500, 1500)
	departures(t, ctx, q, 3)
	for i, now := range ms(13, 14, 20) {
		ctx.Now = now
		if q.Dequeue(ctx) != nil {
			t.Fatalf("a packet leaves at %v", now)
		}
		if at := q.NextAt(); at != 24*time.Millisecond {
			t.Errorf("at %v NextAt is %v, want 24ms", now, at)
		}
		if got, want := q.Self().Overlimits, uint64(i+2); got != want {
			t.Errorf("%d overlimits, want %d: one for every attempt", got, want)
		}
	}
}

// With a peak rate: 12 packets 6 ms apart as long as the big bucket lasts, one
// that waits for both, then one each 12 ms.
func TestPeakRateSpacesTheBurst(t *testing.T) {
	ctx := newContext(t, 20)
	q := build(t, values("rate", 125_000, "burst", 10_000, "limit", 40_000, "peakrate", 250_000, "minburst", 1500))
	for range 16 {
		put(t, ctx, q, 1500)
	}
	want := ms(0, 6, 12, 18, 24, 30, 36, 42, 48, 54, 60, 66, 76, 88, 100, 112)
	if diff := cmp.Diff(want, departures(t, ctx, q, 16)); diff != "" {
		t.Error(diff)
	}
}

// The peak bucket earns for no longer than the other one takes to fill, however
// long nothing was sent (the kernel caps the elapsed time once, for both).
func TestIdleTimeCountsUpToTheBurst(t *testing.T) {
	ctx := newContext(t, 20)
	q := build(t, values("rate", 125_000, "burst", 1500, "limit", 40_000, "peakrate", 250_000, "minburst", 9000))
	put(t, ctx, q, 1500)
	departures(t, ctx, q, 1)
	ctx.Now = time.Minute
	put(t, ctx, q, 1500, 1500)
	if diff := cmp.Diff([]time.Duration{time.Minute, time.Minute + 12*time.Millisecond}, departures(t, ctx, q, 2)); diff != "" {
		t.Error(diff)
	}
}

// From the first departure after the burst to the last, over many packets
// and more than one size, each leaves exactly when its last byte was earned.
func TestScheduleIsExact(t *testing.T) {
	for _, c := range []struct {
		name string
		rate uint64 // bytes a second
	}{
		{"10 Mbit", 1_250_000}, {"100 Mbit", 12_500_000}, {"1000 Mbit", 125_000_000},
		{"10 Gbit", 1_250_000_000}, {"100 Gbit", 12_500_000_000}, {"an odd rate", 99_999_989},
	} {
		for _, sizes := range [][]int{{1500}, {64}, {64, 1514, 577}} {
			t.Run(c.name, func(t *testing.T) {
				const burst = 15_000
				ctx := newContext(t, 64)
				q := build(t, values("rate", int(c.rate), "burst", burst, "limit", 1<<20))
				total, i := int64(0), 0
				for range 32 {
					put(t, ctx, q, sizes[i%len(sizes)])
					i++
				}
				for left := range 5_000 {
					total += int64(sizes[left%len(sizes)])
					at := departures(t, ctx, q, 1)[0]
					put(t, ctx, q, sizes[i%len(sizes)])
					i++
					exact := time.Duration(0)
					if total > burst {
						n := new(big.Int).Mul(big.NewInt(total-burst), big.NewInt(1e9))
						n.Add(n, new(big.Int).SetUint64(c.rate-1))
						exact = time.Duration(n.Quo(n, new(big.Int).SetUint64(c.rate)).Int64())
					}
					if at != exact {
						t.Fatalf("packet %d leaves at %v, want %v", left, at, exact)
					}
				}
			})
		}
	}
}

// A packet that the bucket can never hold is refused on arrival, and only such.
func TestTooBigForTheBucket(t *testing.T) {
	for _, c := range []struct {
		name string
		v    qdisc.Values
	}{
		{"burst", values("rate", 100, "burst", 1000, "limit", 20_000)},
		{"minburst", values("rate", 100, "burst", 2000, "limit", 20_000, "peakrate", 200, "minburst", 1000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := newContext(t, 8)
			q := build(t, c.v)
			got := put(t, ctx, q, 400, 1001, 500, 1514, 1000)
			want := []qdisc.Verdict{qdisc.Success, qdisc.Dropped, qdisc.Success, qdisc.Dropped, qdisc.Success}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if ctx.Drops[qdisc.TooBig] != 2 || q.Self().Drops != 2 {
				t.Errorf("%d dropped as too big, %d in all; want 2", ctx.Drops[qdisc.TooBig], q.Self().Drops)
			}
			departures(t, ctx, q, 3)
		})
	}
}

// A change to a smaller bucket must not leave a packet at the head that no
// amount of waiting lets pass.
func TestQueuedPacketTooBigAfterChange(t *testing.T) {
	ctx := newContext(t, 8)
	q := build(t, values("rate", 125_000, "burst", 3000, "limit", 20_000))
	put(t, ctx, q, 1500, 1500, 1500, 500)
	departures(t, ctx, q, 2)
	if err := q.(qdisc.Changer).Change(ctx, values("rate", 125_000, "burst", 1000)); err != nil {
		t.Fatal(err)
	}
	departures(t, ctx, q, 1)
	s := q.Self()
	if q.Len() != 0 || s.Packets != 3 || s.Bytes != 3500 || s.Drops != 1 || ctx.Drops[qdisc.TooBig] != 1 {
		t.Errorf("len %d, sent %d packets of %d bytes, %d dropped; want 0, 3, 3500, 1", q.Len(), s.Packets, s.Bytes, s.Drops)
	}
}

// A change keeps the queued packets, and starts with full buckets.
func TestChangeFillsTheBucket(t *testing.T) {
	ctx := newContext(t, 8)
	q := build(t, values("rate", 125_000, "burst", 3000, "limit", 20_000))
	put(t, ctx, q, 1500, 1500, 1500, 1500, 1500, 1500)
	departures(t, ctx, q, 2)
	if err := q.(qdisc.Changer).Change(ctx, values("rate", 250_000, "burst", 3000, "limit", 20_000)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ms(0, 0, 6, 12), departures(t, ctx, q, 4)); diff != "" {
		t.Error(diff)
	}
}

// limitOf returns the limit of the child.
func limitOf(q qdisc.Qdisc) (limit uint64) {
	q.(qdisc.Classful).Walk(func(c qdisc.Class) bool {
		limit = c.Leaf.(qdisc.Dumper).Dump().N("limit", 0)
		return true
	})
	return limit
}

// The child's limit follows limit as long as the child is the default one.
func TestLimitIsTheChilds(t *testing.T) {
	ctx := newContext(t, 8)
	q := build(t, values("rate", 125_000, "burst", 3000, "limit", 4000))
	if got := limitOf(q); got != 4000 {
		t.Errorf("the child holds %d bytes, want 4000", got)
	}
	change := func(n int) {
		if err := q.(qdisc.Changer).Change(ctx, values("rate", 125_000, "burst", 3000, "limit", n)); err != nil {
			t.Fatal(err)
		}
	}
	graft := func(child qdisc.Qdisc) {
		if _, err := q.(qdisc.Classful).Graft(ctx, qdisc.MakeID(1, 1), child); err != nil {
			t.Fatal(err)
		}
	}
	if change(5000); limitOf(q) != 5000 {
		t.Errorf("after the change the child holds %d bytes, want 5000", limitOf(q))
	}
	graft(fifo.NewBfifo(7000))
	if change(6000); limitOf(q) != 7000 {
		t.Errorf("the change set the administrator's child to %d bytes, want 7000", limitOf(q))
	}
	if graft(nil); limitOf(q) != 6000 {
		t.Errorf("the new default child holds %d bytes, want 6000", limitOf(q))
	}
}

// With limit 0 nothing may wait, and so nothing gets through.
func TestLimitZeroDropsEverything(t *testing.T) {
	ctx := newContext(t, 8)
	q := build(t, values("rate", 125_000, "burst", 3000))
	if v := put(t, ctx, q, 100); v[0] != qdisc.Dropped || q.Len() != 0 || q.Self().Drops != 1 {
		t.Errorf("verdict %v, len %d, %d drops", v[0], q.Len(), q.Self().Drops)
	}
}

func TestTheKernelRefuses(t *testing.T) {
	good := func() qdisc.Values { return values("rate", 1000, "burst", 3000, "limit", 1) }
	for name, v := range map[string]qdisc.Values{
		"nothing":                 {},
		"no rate":                 values("burst", 3000, "limit", 1),
		"no burst":                values("rate", 1000, "limit", 1),
		"peak not above rate":     good().Set("peakrate", 1000).Set("minburst", 1500),
		"peak without mtu":        good().Set("peakrate", 2000),
		"burst above 32 bits":     good().Set("burst", 1<<32),
		"overhead above 16 bits":  good().Set("overhead", 1<<16),
		"overhead below zero":     good().Set("overhead", math.MaxUint64),
		"minimum above 16 bits":   good().Set("mpu", 1<<16),
		"limit above 32 bits":     good().Set("limit", 1<<32),
		"mtu of nothing, peaking": good().Set("peakrate", 2000).Set("minburst", 0),
	} {
		if _, err := tbf.Kind.New(qdisctest.Env(1), v); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v, want %v", name, err, syscall.EINVAL)
		}
	}
}

func TestCheckSpeaksAsTc(t *testing.T) {
	for _, c := range []struct {
		v    qdisc.Values
		want string
		use  bool // tc adds the usage
	}{
		{values("rate", 125_000), "tbf: the \"burst\" parameter is mandatory.\ntbf: either \"limit\" or \"latency\" is required.", true},
		{values("rate", 0, "burst", 2048, "limit", 5120), `tbf: the "rate" parameter is mandatory.`, true},
		{values("rate", 125_000, "burst", 2048), `tbf: either "limit" or "latency" is required.`, true},
		{values("rate", 125_000, "burst", 2048, "limit", 5120, "peakrate", 250_000),
			`tbf: when "peakrate" is specified, "mtu" must also be specified.`, true},
		{values("rate", 125_000, "burst", 2048, "latency", 1_000_000, "limit", 5120),
			`tbf: specifying both "latency" and "limit" is not allowed`, false},
		{values("rate", 1, "burst", 20_480, "limit", 5120), "tbf: burst out of range", false},
		{values("rate", 125_000, "burst", 2048, "limit", 5120, "linklayer", "zz"), `tbf: illegal value for "linklayer": "zz"`, false},
	} {
		err := tbf.Kind.Check(c.v)
		if err == nil || err.Error() != c.want {
			t.Errorf("%v: %v\nwant %s", c.v, err, c.want)
		}
		if m := qdisc.Misuse(""); errors.As(err, &m) != c.use {
			t.Errorf("%v: usage printed %v, want %v", c.v, !c.use, c.use)
		}
	}
}

// What a real tc showed for what a real kernel had stored.
func TestDumpIsWhatTcPrints(t *testing.T) {
	for _, c := range []struct{ in, want qdisc.Values }{
		{values("rate", 1_000_000, "burst", 10_240, "limit", 102_400),
			values("rate", 1_000_000, "burst/brief", 10_240, "lat", 92_160_000)},
		{values("rate", 1_000_000, "burst", 10_240, "latency", 50_000_000),
			values("rate", 1_000_000, "burst/brief", 10_240, "lat", 50_000_000)},
		{values("rate", 125_000, "burst", 10_240, "limit", 1024),
			values("rate", 125_000, "burst/brief", 10_240, "limit/shown", 1024)},
		{values("rate", 250_000, "burst", 10_240, "limit", 30_720),
			values("rate", 250_000, "burst/brief", 10_240, "lat", 81_920_000)},
		{values("rate", 125_000_000, "burst", 1000, "latency", 1_000_000),
			values("rate", 125_000_000, "burst/brief", 1000, "lat", 1_000_000)},
		{values("rate", 1_250_000_000, "burst", 1<<20, "limit", 1<<20),
			values("rate", 1_250_000_000, "burst/brief", 1_048_560, "lat", 0)},
		{values("rate", 100, "burst", 1600, "limit", 4000),
			values("rate", 100, "burst/brief", 1600, "lat", 24_000_000_000)},
		{values("rate", 250_000, "burst", 15_000, "limit", 100_000, "peakrate", 1_000_000, "minburst", 1540),
			values("rate", 250_000, "burst/brief", 15_000, "peakrate", 1_000_000, "minburst/brief", 1539, "lat", 340_000_000)},
		{values("rate", 1_000_000, "burst", 10_240, "latency", 50_000_000, "peakrate", 2_000_000, "minburst", 1540,
			"overhead", 24, "linklayer", "adsl", "mpu", 64),
			values("rate", 1_000_000, "burst/brief", 11_341, "peakrate", 2_000_000, "minburst/brief", 1748, "lat", 48_898_000,
				"overhead", 24, "linklayer", "atm", "mpu", 64)},
	} {
		if err := tbf.Kind.Check(c.in); err != nil {
			t.Errorf("%v: %v", c.in, err)
			continue
		}
		got := build(t, c.in).(qdisc.Dumper).Dump()
		for name, want := range c.want {
			if diff := cmp.Diff(want, got[name]); diff != "" {
				t.Errorf("%v, %s:\n%s", c.in, name, diff)
			}
		}
		if got.Has("lat") == got.Has("limit/shown") {
			t.Errorf("%v: one of lat and limit is shown, not %v", c.in, got)
		}
		// What Dump says beside what tc prints makes the same tbf again.
		if err := tbf.Kind.Check(got); err != nil {
			t.Errorf("%v: %v", got, err)
		}
		if diff := cmp.Diff(got, build(t, got).(qdisc.Dumper).Dump()); diff != "" {
			t.Errorf("%v, made again:\n%s", c.in, diff)
		}
	}
}

// The obvious model, in fractions of unlimited width.
type model struct {
	rate, peak     *big.Rat // bytes a nanosecond
	depth, mtu     *big.Rat
	tokens, ptoken *big.Rat
	last           time.Duration
}

func (m *model) tryAt(now time.Duration, n int) bool {
	earn := func(have, rate, depth *big.Rat) *big.Rat {
		x := new(big.Rat).Mul(rate, big.NewRat(int64(now-m.last), 1))
		x.Add(x, have)
		if over := new(big.Rat).Sub(x, depth); over.Cmp(rate) >= 0 {
			x.Set(depth) // full for a nanosecond at least: it spilled
		}
		return x.Sub(x, big.NewRat(int64(n), 1))
	}
	a, b := earn(m.tokens, m.rate, m.depth), earn(m.ptoken, m.peak, m.mtu)
	if a.Sign() < 0 || b.Sign() < 0 {
		return false
	}
	m.tokens, m.ptoken, m.last = a, b, now
	return true
}

// A packet leaves in the first whole nanosecond in which exact arithmetic
// allows it: not earlier, not later.
func TestAgainstExactArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.SampledFrom([]int{1_000_000, 12_500_000, 125_000_000, 99_999_989, 1_250_000_000}).Draw(t, "rate")
		peak := rate * rapid.IntRange(2, 5).Draw(t, "times")
		burst := rapid.IntRange(1600, 20_000).Draw(t, "burst")
		mtu := rapid.IntRange(1514, 1600).Draw(t, "mtu")
		q, err := tbf.Kind.New(qdisctest.Env(1), values("rate", rate, "burst", burst, "limit", 1<<20,
			"peakrate", peak, "minburst", mtu))
		if err != nil {
			t.Fatal(err)
		}
		m := model{rate: big.NewRat(int64(rate), 1e9), peak: big.NewRat(int64(peak), 1e9),
			depth: big.NewRat(int64(burst), 1), mtu: big.NewRat(int64(mtu), 1)}
		m.tokens, m.ptoken = m.depth, m.mtu

		pool, _ := qdisc.NewPool(qdisc.PoolConfig{Packets: 8})
		ctx := qdisc.NewContext(pool, 1)
		for range rapid.IntRange(1, 60).Draw(t, "packets") {
			ctx.Now += time.Duration(rapid.IntRange(0, 1<<rapid.IntRange(0, 25).Draw(t, "scale")).Draw(t, "gap"))
			p := pool.Get()
			n := rapid.IntRange(60, 1514).Draw(t, "len")
			p.SetLen(n)
			q.Enqueue(ctx, p)
			for {
				p := q.Dequeue(ctx)
				if p != nil {
					if !m.tryAt(ctx.Now, n) {
						t.Fatalf("%d bytes leave too early, at %v", n, ctx.Now)
					}
					p.Free()
					break
				}
				ctx.Now = q.NextAt()
				if m.tryAt(ctx.Now-1, n) {
					t.Fatalf("%d bytes could leave before %v", n, ctx.Now)
				}
			}
		}
	})
}

func BenchmarkConforming(b *testing.B) {
	ctx := newContext(b, 8)
	q := build(b, values("rate", 125_000_000, "burst", 15_000, "limit", 1<<20, "peakrate", 250_000_000, "minburst", 1514))
	put(b, ctx, q, 1500)
	b.ReportAllocs()
	for b.Loop() {
		ctx.Now += 12 * time.Microsecond
		q.Enqueue(ctx, q.Dequeue(ctx))
	}
}

func BenchmarkThrottled(b *testing.B) {
	ctx := newContext(b, 8)
	q := build(b, values("rate", 125_000, "burst", 1500, "limit", 1<<20))
	put(b, ctx, q, 1500, 1500)
	q.Dequeue(ctx).Free()
	b.ReportAllocs()
	for b.Loop() {
		if q.Dequeue(ctx) != nil {
			b.Fatal("a packet leaves")
		}
	}
}
