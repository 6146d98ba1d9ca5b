package htb_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/qdisc"
	"sluice/qdisc/fifo"
	"sluice/qdisc/htb"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
	"sluice/qdisc/tbf"
)

// values makes parameters of pairs of names and numbers or words.
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

func id(minor uint32) qdisc.ClassID { return qdisc.MakeID(1, minor) }

// scheduler is what a htb is to its tests.
type scheduler interface {
	qdisc.Qdisc
	qdisc.ClassEditor
	qdisc.Filtered
	qdisc.QlenNotifier
	qdisc.Dumper
	qdisc.Warner
}

// fataler is what building needs of a test.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func build(t fataler, v qdisc.Values) scheduler {
	t.Helper()
	q, err := htb.Kind.New(qdisctest.Env(1), v)
	if err != nil {
		t.Fatal(err)
	}
	return q.(scheduler)
}

func add(t fataler, ctx *qdisc.Context, q qdisc.Qdisc, parent, minor uint32, kv ...any) {
	t.Helper()
	up := id(parent)
	if parent == 0 {
		up = 0
	}
	if err := q.(qdisc.ClassEditor).AddClass(ctx, up, id(minor), values(kv...)); err != nil {
		t.Fatal(err)
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

// put enqueues one packet for a class.
func put(t testing.TB, ctx *qdisc.Context, q qdisc.Qdisc, minor uint32, n int) {
	t.Helper()
	p := ctx.Pool.Get()
	p.SetLen(n)
	p.Class = id(minor)
	if v := q.Enqueue(ctx, p); v != qdisc.Success {
		t.Fatalf("a packet for %v: verdict %d", id(minor), v)
	}
}

func class(q qdisc.Qdisc, minor uint32) (c qdisc.Class) {
	q.(qdisc.Classful).Walk(func(x qdisc.Class) bool {
		if x.ID == id(minor) {
			c = x
		}
		return c.ID == 0
	})
	return c
}

func tokens(q qdisc.Qdisc, minor uint32) int64 { return int64(class(q, minor).XStats["tokens"].N) }

// drive runs q as a worker does, sleeping until NextAt, up to an instant. sent
// sees every departure.
func drive(t testing.TB, ctx *qdisc.Context, q qdisc.Qdisc, until time.Duration, sent func(p *qdisc.Packet)) {
	t.Helper()
	for {
		if p := q.Dequeue(ctx); p != nil {
			sent(p)
			continue
		}
		next := q.NextAt()
		if next > until {
			ctx.Now = until
			return
		}
		if next <= ctx.Now {
			t.Fatalf("nothing comes at %v, and NextAt is %v", ctx.Now, next)
		}
		ctx.Now = next
	}
}

func TestConformance(t *testing.T) {
	ctx := newContext(t, 1)
	flat := func(env qdisc.Env, v qdisc.Values) qdisc.Qdisc {
		q, err := htb.Kind.New(env, v)
		if err != nil {
			t.Fatal(err)
		}
		e := q.(scheduler)
		ctx.Now = 0
		major := func(minor uint32) qdisc.ClassID { return qdisc.MakeID(env.Handle, minor) }
		for _, c := range []struct {
			parent, minor uint32
			v             qdisc.Values
		}{
			{0, 10, values("rate", 1_000_000, "ceil", 2_000_000, "burst", 3000, "cburst", 3000, "quantum", 1514)},
			{10, 11, values("rate", 300_000, "ceil", 2_000_000, "quantum", 1514, "overhead", 24)},
			{11, 1, values("rate", 100_000, "ceil", 1_500_000, "quantum", 1000)},
			{11, 2, values("rate", 50_000, "ceil", 900_000, "quantum", 3000, "prio", 1)},
			{10, 3, values("rate", 400_000, "ceil", 400_000, "quantum", 1514, "prio", 1, "linklayer", "atm")},
			{0, 4, values("rate", 200_000, "quantum", 1514)},
		} {
			parent := major(c.parent)
			if c.parent == 0 {
				parent = 0
			}
			if err := e.AddClass(ctx, parent, major(c.minor), c.v); err != nil {
				t.Fatal(err)
			}
		}
		return q
	}
	for name, v := range map[string]qdisc.Values{
		"default":    values("default", 2, "direct_qlen", 4),
		"hysteresis": values("default", 2, "hysteresis", 1),
	} {
		t.Run(name, func(t *testing.T) {
			qdisctest.Run(t, qdisctest.Config{
				Name:      "htb",
				New:       func(env qdisc.Env) qdisc.Qdisc { return flat(env, v) },
				Throttles: true,
				Order:     func(p *qdisc.Packet) uint64 { return uint64(p.Priority)<<32 | uint64(p.Mark) },
				ClassValues: []qdisc.Values{
					{}, values("rate", 10_000), values("rate", 1_000_000, "ceil", 500_000, "prio", 9),
					values("rate", 50_000, "ceil", 5_000_000, "burst", 1, "cburst", 1, "quantum", 1),
					values("rate", 1, "ceil", 1_000_000), values("rate", 1_000_000, "overhead", 1<<16),
				},
			})
		})
	}
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &htb.Kind, &fifo.Pfifo, &fifo.Bfifo, &prio.Kind, &tbf.Kind)
}

func TestErrorsAreTheKernels(t *testing.T) {
	ctx := newContext(t, 8)
	q := build(t, nil)
	add(t, ctx, q, 0, 1, "rate", 1000)
	add(t, ctx, q, 1, 2, "rate", 1000)
	_, graft := q.Graft(ctx, id(1), nil)
	_, graftNone := q.Graft(ctx, id(9), nil)
	_, offload := htb.Kind.New(qdisctest.Env(1), values("offload", 1))
	for _, c := range []struct {
		what string
		err  error
		want syscall.Errno
		text string
	}{
		{"add twice", q.AddClass(ctx, 0, id(1), values("rate", 1)), syscall.EEXIST, "file exists"},
		{"add of another major", q.AddClass(ctx, 0, qdisc.MakeID(2, 1), values("rate", 1)), syscall.EINVAL, "invalid argument"},
		{"add of the qdisc", q.AddClass(ctx, 0, id(0), values("rate", 1)), syscall.EINVAL, "invalid argument"},
		{"no rate", q.AddClass(ctx, 0, id(3), values("ceil", 1)), syscall.EINVAL, "invalid argument"},
		{"no ceil", q.ChangeClass(ctx, id(1), values("rate", 1, "ceil", 0)), syscall.EINVAL, "invalid argument"},
		{"delete of one in use", q.DeleteClass(ctx, id(1)), syscall.EBUSY, "HTB class in use"},
		{"delete of nothing", q.DeleteClass(ctx, id(7)), syscall.ENOENT, "no such file or directory"},
		{"change of nothing", q.ChangeClass(ctx, id(7), values("rate", 1)), syscall.ENOENT, "no such file or directory"},
		{"graft on an inner class", graft, syscall.EINVAL, "invalid argument"},
		{"graft on nothing", graftNone, syscall.ENOENT, "no such file or directory"},
		{"filters of nothing", q.SetClassifier(id(7), nil), syscall.ENOENT, "no such file or directory"},
		{"offload", offload, syscall.EOPNOTSUPP, "operation not supported"},
	} {
		if !errors.Is(c.err, c.want) || c.text != "operation not supported" && c.err.Error() != c.text {
			t.Errorf("%s: %v, want %q", c.what, c.err, c.text)
		}
	}
}

// A class is found with its child, an inner one without.
func TestFind(t *testing.T) {
	ctx := newContext(t, 1)
	q := build(t, nil)
	add(t, ctx, q, 0, 1, "rate", 1000)
	add(t, ctx, q, 1, 2, "rate", 1000)
	for minor, want := range map[uint32]struct{ there, leaf bool }{1: {true, false}, 2: {true, true}, 3: {}} {
		leaf, ok := q.(qdisc.Finder).Find(id(minor))
		if ok != want.there || (leaf != nil) != want.leaf || leaf != class(q, minor).Leaf {
			t.Errorf("class %d: %v, %v", minor, leaf, ok)
		}
	}
}

// The quantum is the rate over r2q, and a warning says when that is not what it
// will be.
func TestQuantumFromRate(t *testing.T) {
	ctx := newContext(t, 8)
	for _, c := range []struct {
		rate, r2q, quantum, want int
		warning                  string
	}{
		{12_500, 10, 0, 1250, ""},
		{12_500_000, 10, 0, 200_000, "sch_htb: quantum of class 10001 is big. Consider r2q change"},
		{125, 10, 0, 1000, "sch_htb: quantum of class 10001 is small. Consider r2q change"},
		{12_500, 0, 0, 12_500, ""},
		{125, 10, 100, 100, ""},
		{125, 10, 1 << 20, 1 << 20, ""},
	} {
		q := build(t, values("r2q", c.r2q))
		add(t, ctx, q, 0, 1, "rate", c.rate, "quantum", c.quantum)
		if got, w := class(q, 1).Params.N("quantum", 0), q.Warning(); got != uint64(c.want) || w != c.warning {
			t.Errorf("rate %d, r2q %d: quantum %d, warning %q; want %d, %q", c.rate, c.r2q, got, w, c.want, c.warning)
		}
		if w := q.Warning(); w != "" {
			t.Errorf("it warns again: %q", w)
		}
	}
}

// The worked trace of two leaves that want all of 1 Mbit/s, and then 20 seconds of
// it: who sent on whose account, and when.
func TestWorkedTrace(t *testing.T) {
	for _, c := range []struct {
		what               string
		prioB              int
		quantumA, quantumB int
		lentA, borrowedA   uint64
		lentB, borrowedB   uint64
		slack              uint64
	}{
		{"A first", 1, 2500, 1250, 335, 1165, 168, 0, 1},
		{"equal prio, turns of a packet or two", 0, 2500, 1250, 335, 728, 168, 437, 3},
		{"equal prio, 4 to 1", 0, 6000, 1500, 335, 932, 168, 233, 3},
	} {
		t.Run(c.what, func(t *testing.T) {
			ctx := newContext(t, 8)
			q := build(t, nil)
			add(t, ctx, q, 0, 1, "rate", 125_000, "burst", 1600, "cburst", 1600)
			add(t, ctx, q, 1, 2, "rate", 25_000, "ceil", 125_000, "burst", 1600, "cburst", 1600, "quantum", c.quantumA)
			add(t, ctx, q, 1, 3, "rate", 12_500, "ceil", 125_000, "burst", 1600, "cburst", 1600, "quantum", c.quantumB, "prio", c.prioB)
			for range 2 {
				put(t, ctx, q, 2, 1500)
				put(t, ctx, q, 3, 1500)
			}
			type row struct {
				At         time.Duration
				Class      uint32
				A, B, Root int64 // tokens, ns
			}
			var rows []row
			drive(t, ctx, q, 20*time.Second, func(p *qdisc.Packet) {
				minor := p.Class.Minor()
				rows = append(rows, row{ctx.Now, minor, 64 * tokens(q, 2), 64 * tokens(q, 3), 64 * tokens(q, 1)})
				p.Free()
				put(t, ctx, q, minor, 1500)
			})
			if c.prioB == 1 {
				// The kernel shows its times in ticks of 64 ns; so do we.
				want := []row{
					{0, 2, 4_000_000, 128_000_000, 800_000},
					{0, 2, -56_000_000, 128_000_000, -11_200_000},
					{0, 3, -56_000_000, 8_000_000, -23_200_000},
					{0, 3, -56_000_000, -112_000_000, -35_200_000},
					{35_200_000, 2, -20_800_000, -112_000_000, -12_000_000},
					{47_200_000, 2, -8_800_000, -112_000_000, -12_000_000},
					{56_000_000, 2, -60_000_000, -112_000_000, -15_200_000},
					{71_200_000, 2, -44_800_000, -112_000_000, -12_000_000},
				}
				if diff := cmp.Diff(want, rows[:8]); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
				for _, r := range rows {
					if r.Class == 3 && r.At > 0 {
						if want := (row{112_000_000, 3, r.A, -120_000_000, r.Root}); r != want || r.Root != -19_200_000 {
							t.Errorf("B's third packet: %v, want %v", r, want)
						}
						break
					}
				}
			}
			for _, x := range []struct {
				minor          uint32
				lent, borrowed uint64
			}{{2, c.lentA, c.borrowedA}, {3, c.lentB, c.borrowedB}} {
				s := class(q, x.minor).XStats
				if !near(s["lended"].N, x.lent, c.slack) || !near(s["borrowed"].N, x.borrowed, c.slack) {
					t.Errorf("class %d: %d on its own, %d borrowed; want %d, %d", x.minor, s["lended"].N, s["borrowed"].N, x.lent, x.borrowed)
				}
			}
		})
	}
}

func near(a, b, slack uint64) bool { return a+slack >= b && b+slack >= a }

// What leaves follows the rate, whatever the rate: no fraction of a nanosecond is
// lost, and nothing comes late.
func TestRateIsExact(t *testing.T) {
	for _, c := range []struct {
		rate     uint64 // bit/s
		duration time.Duration
	}{
		{1e6, 10 * time.Second}, {100e6, 10 * time.Second}, {1e9, 10 * time.Second},
		{10e9, 10 * time.Second}, {100e9, time.Second},
	} {
		for _, burst := range []int{1, 1600, 100_000} {
			t.Run(fmt.Sprintf("%d bit/s burst %d", c.rate, burst), func(t *testing.T) {
				if testing.Short() || burst != 1600 {
					c.duration /= 10
				}
				ctx := newContext(t, 4)
				q := build(t, nil)
				add(t, ctx, q, 0, 1, "rate", int(c.rate/8), "burst", burst, "cburst", burst)
				add(t, ctx, q, 1, 2, "rate", int(c.rate/80), "ceil", int(c.rate/8), "burst", burst, "cburst", burst, "quantum", 1514)
				put(t, ctx, q, 2, 1514)
				put(t, ctx, q, 2, 1514)
				var first, last time.Duration
				bytes := uint64(0)
				drive(t, ctx, q, c.duration, func(p *qdisc.Packet) {
					if ctx.Now > 0 { // the burst has gone
						if first == 0 {
							first = ctx.Now
						} else {
							bytes += 1514
						}
						last = ctx.Now
					}
					p.Class = id(2)
					q.Enqueue(ctx, p)
				})
				want := float64(c.rate) / 8 * (last - first).Seconds()
				if off := float64(bytes) - want; off > max(1514, want/1000) || -off > max(1514, want/1000) {
					t.Errorf("%d bytes between %v and %v, want %.0f", bytes, first, last, want)
				}
			})
		}
	}
}

// Excess is shared in the ratio of the quanta.
func TestExcessFollowsQuantum(t *testing.T) {
	ctx := newContext(t, 64)
	q := build(t, nil)
	add(t, ctx, q, 0, 1, "rate", 125_000_000, "quantum", 1514)
	quanta := []int{15140, 30280, 45420, 151400}
	sent := make([]int, len(quanta))
	sum, total := 0, 0
	for i, quantum := range quanta {
		add(t, ctx, q, 1, uint32(10+i), "rate", 1000, "ceil", 125_000_000, "quantum", quantum, "burst", 1)
		for range 3 {
			put(t, ctx, q, uint32(10+i), 1514)
		}
		sum += quantum
	}
	drive(t, ctx, q, 10*time.Second, func(p *qdisc.Packet) {
		sent[p.Class.Minor()-10] += 1514
		total += 1514
		q.Enqueue(ctx, p)
	})
	for i, quantum := range quanta {
		share, want := float64(sent[i])/float64(total), float64(quantum)/float64(sum)
		if share < 0.99*want || share > 1.01*want {
			t.Errorf("quantum %d: share %.4f, want %.4f", quantum, share, want)
		}
	}
}
