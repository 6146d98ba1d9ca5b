package ets_test

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/qdisc"
	"sluice/qdisc/ets"
	"sluice/qdisc/fifo"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
	"sluice/qdisc/tbf"
)

func numbers(ns ...uint64) qdisc.Value { return qdisc.Value{List: ns} }

func id(minor uint32) qdisc.ClassID { return qdisc.MakeID(1, minor) }

type scheduler interface {
	qdisc.Qdisc
	qdisc.ClassEditor
	qdisc.Changer
	qdisc.Dumper
}

func build(t testing.TB, env qdisc.Env, v qdisc.Values) scheduler {
	t.Helper()
	q, err := ets.Kind.New(env, v)
	if err != nil {
		t.Fatal(err)
	}
	return q.(scheduler)
}

// identity maps priority i to band i, as far as there are bands.
func identity(bands uint64) qdisc.Value {
	var ns []uint64
	for i := range bands {
		ns = append(ns, i)
	}
	return numbers(ns...)
}

func newContext(t testing.TB) *qdisc.Context {
	t.Helper()
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 1024, FrameSize: 1600, Headroom: 64})
	if err != nil {
		t.Fatal(err)
	}
	return qdisc.NewContext(pool, 1)
}

func put(ctx *qdisc.Context, q qdisc.Qdisc, band uint32, n int) {
	p := ctx.Pool.Get()
	p.SetLen(n)
	p.Priority, p.Mark = 1<<16|band+1, band
	q.Enqueue(ctx, p)
}

func TestConformance(t *testing.T) {
	mix := qdisc.Values{
		"bands": {N: 5}, "strict": {N: 2}, "quanta": numbers(300, 1514, 5000), "priomap": identity(5),
	}
	qdisctest.Run(t, qdisctest.Config{
		Name:  "ets",
		New:   func(env qdisc.Env) qdisc.Qdisc { return build(t, env, mix) },
		Order: func(p *qdisc.Packet) uint64 { return uint64(p.Priority)<<32 | uint64(p.Mark) },
		// Bands come, go, and change sides, and some of it is refused.
		Changes: []qdisc.Values{
			mix,
			{"bands": {N: 1}},
			{"bands": {N: 16}, "strict": {N: 8}, "priomap": identity(16)},
			{"bands": {N: 5}, "strict": {N: 5}, "priomap": identity(5)},
			{"bands": {N: 5}, "quanta": numbers(100, 100, 100), "priomap": identity(5)},
			{"bands": {N: 3}, "strict": {N: 1}, "quanta": numbers(9000), "priomap": identity(3)},
			{"bands": {N: 3}, "strict": {N: 4}},
			{"bands": {N: 3}, "quanta": numbers(1, 0)},
			{},
		},
		ClassValues: []qdisc.Values{{}, qdisc.Values{}.Set("quantum", 700), qdisc.Values{}.Set("quantum", 0)},
	})
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &ets.Kind, &fifo.Pfifo, &prio.Kind, &tbf.Kind)
}

func TestTheKernelRefuses(t *testing.T) {
	for _, c := range []struct {
		v    qdisc.Values
		want string
	}{
		{qdisc.Values{}, "sch_ets: Number of bands is a required argument"},
		{qdisc.Values{"bands": {}}, "sch_ets: Invalid number of bands"},
		{qdisc.Values{"bands": {N: 17}}, "sch_ets: Invalid number of bands"},
		{qdisc.Values{"bands": {N: 3}, "strict": {N: 4}}, "sch_ets: Invalid number of strict bands"},
		{qdisc.Values{"bands": {N: 3}, "priomap": numbers(0, 3)}, "sch_ets: Invalid band number in ETS priomap"},
		{qdisc.Values{"bands": {N: 3}, "priomap": {List: make([]uint64, 17)}}, "sch_ets: Too many priorities in ETS priomap"},
		{qdisc.Values{"bands": {N: 3}, "strict": {N: 1}, "quanta": numbers(1, 2, 3)}, "sch_ets: ETS quanta has more values than bands"},
		{qdisc.Values{"bands": {N: 3}, "quanta": numbers(1, 0)}, "ETS quantum cannot be zero"},
		{qdisc.Values{"bands": {N: 3}, "quanta": numbers(1 << 32)}, "invalid argument"},
	} {
		_, err := ets.Kind.New(qdisctest.Env(1), c.v)
		if !errors.Is(err, syscall.EINVAL) || err.Error() != c.want {
			t.Errorf("%v: %v, want %q", c.v, err, c.want)
		}
		// A refused change leaves everything as it was.
		q := build(t, qdisctest.Env(1), qdisc.Values{"bands": {N: 2}})
		before := fmt.Sprint(q.Dump())
		if err := q.Change(newContext(t), c.v); err == nil || err.Error() != c.want {
			t.Errorf("change to %v: %v, want %q", c.v, err, c.want)
		}
		if after := fmt.Sprint(q.Dump()); after != before {
			t.Errorf("a refused change left %s, was %s", after, before)
		}
	}
}

func TestClassesCannotBeMade(t *testing.T) {
	ctx := newContext(t)
	q := build(t, qdisctest.Env(1), qdisc.Values{"bands": {N: 3}, "strict": {N: 1}})
	n := func(n uint64) qdisc.Values { return qdisc.Values{}.Set("quantum", n) }
	for _, c := range []struct {
		what string
		err  error
		want syscall.Errno
		text string
	}{
		{"add", q.AddClass(ctx, 0, id(4), nil), syscall.EOPNOTSUPP, "Fine-grained class addition and removal is not supported"},
		{"add of a band", q.AddClass(ctx, 0, id(3), nil), syscall.EEXIST, "file exists"},
		{"delete", q.DeleteClass(ctx, id(3)), syscall.EOPNOTSUPP, "operation not supported"},
		{"delete of nothing", q.DeleteClass(ctx, id(4)), syscall.ENOENT, "no such file or directory"},
		{"quantum of a strict band", q.ChangeClass(ctx, id(1), n(1)), syscall.EINVAL, "Strict bands do not have a configurable quantum"},
		{"quantum 0", q.ChangeClass(ctx, id(2), n(0)), syscall.EINVAL, "ETS quantum cannot be zero"},
		{"change of nothing", q.ChangeClass(ctx, id(4), n(1)), syscall.ENOENT, "no such file or directory"},
	} {
		if !errors.Is(c.err, c.want) || c.err.Error() != c.text {
			t.Errorf("%s: %v, want %q", c.what, c.err, c.text)
		}
	}
}

func TestCheckSpeaksAsTc(t *testing.T) {
	for _, c := range []struct {
		v    qdisc.Values
		want string
		use  bool // tc adds the usage
	}{
		{qdisc.Values{}, `One of "bands", "quanta" or "strict" needs to be specified`, true},
		{qdisc.Values{"bands": {N: 17}}, `The number of "bands" must be <= 16`, false},
		{qdisc.Values{"strict": {N: 17}}, `The number of "strict" must be <= 16`, false},
		{qdisc.Values{"quanta": numbers(5, 0)}, `"quanta" must be > 0`, false},
		{qdisc.Values{"bands": {N: 3}, "strict": {N: 2}, "quanta": numbers(1, 2)},
			"Not enough total bands to cover all the strict bands and quanta", true},
		{qdisc.Values{"bands": {N: 3}, "priomap": numbers(0, 3)}, `"priomap" element is out of bounds`, false},
		{qdisc.Values{"bands": {N: 3}, "priomap": {List: make([]uint64, 17)}}, `"priomap" index cannot be higher than 15`, false},
	} {
		err := ets.Kind.Check(c.v)
		if err == nil || err.Error() != c.want {
			t.Errorf("%v: %v\nwant %s", c.v, err, c.want)
		}
		if m := qdisc.Misuse(""); errors.As(err, &m) != c.use {
			t.Errorf("%v: usage printed %v, want %v", c.v, !c.use, c.use)
		}
	}
}

// One strict band that takes half of the link, and two weighted 3:1 that are
// always full: the two share what is left within 1 %, and the lighter one never
// waits longer than it should.
func TestSharesAndStarvation(t *testing.T) {
	for _, c := range []struct {
		name string
		size func(band uint32, i int) int
	}{
		{"full frames", func(uint32, int) int { return 1514 }},
		{"small against large", func(band uint32, _ int) int { return []int{200, 64, 1514}[band] }},
		{"large against small", func(band uint32, _ int) int { return []int{200, 1514, 64}[band] }},
		{"mixed", func(band uint32, i int) int { return 60 + (i*577+int(band)*311)%1455 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			const heavy, light, frame = 4542, 1514, 1514
			q := build(t, qdisctest.Env(1), qdisc.Values{
				"bands": {N: 3}, "strict": {N: 1}, "quanta": numbers(heavy, light), "priomap": identity(3),
			})
			ctx := newContext(t)
			i := 0
			add := func(band uint32) { i++; put(ctx, q, band, c.size(band, i)) }
			for range 10 {
				add(1)
				add(2)
			}
			sent, waited, longest := [3]int{}, 0, 0
			for n := range 200_000 {
				if n%2 == 0 {
					add(0) // every other packet is urgent
				}
				p := q.Dequeue(ctx)
				band, size := p.Mark, int(p.PktLen)
				p.Free()
				sent[band] += size
				switch band {
				case 0:
					if n%2 != 0 {
						t.Fatal("an urgent packet waited for its turn")
					}
				case 1:
					waited += size // what the light band waits for, urgent bytes aside
					add(1)
				case 2:
					longest, waited = max(longest, waited), 0
					add(2)
				}
			}
			share := float64(sent[1]) / float64(sent[1]+sent[2])
			if share < 0.75*0.99 || share > 0.75*1.01 {
				t.Errorf("the heavy band has %.4f of what the weighted ones sent, want 0.75 within 1 %%", share)
			}
			// Each turn of the light band finds it with less than a frame
			// missing, so it may take frame/light more turns until it can pay;
			// in each the other sends its quantum, and once what it had saved,
			// which is less than a frame.
			bound := (frame+light-1)/light*heavy + frame
			if longest > bound {
				t.Errorf("the light band waited while %d bytes of the heavy one passed; the bound is %d", longest, bound)
			}
			t.Logf("share %.5f; longest wait %d bytes of at most %d", share, longest, bound)
		})
	}
}

// Three bands kept full on a link of 100 Mbit/s: a strict one, held to 30 Mbit/s by
// a tbf below it, and two weighted 3:1. All three get their shares within 1 %, and
// the lowest is never without service for longer than the bound.
func TestThreeBandsKeptFull(t *testing.T) {
	const (
		link, strict           = 12_500_000, 3_750_000 // bytes a second
		burst, frame           = 3028, 1514
		heavy, light           = 4542, 1514
		nsPerByte              = time.Second / link
		length                 = 20 * time.Second
		heavyShare, lightShare = 0.75, 0.25
	)
	ctx := newContext(t)
	q := build(t, qdisctest.Env(1), qdisc.Values{
		"bands": {N: 3}, "strict": {N: 1}, "quanta": numbers(heavy, light), "priomap": identity(3),
	})
	limited, err := tbf.Kind.New(qdisctest.Env(0x10), qdisc.Values{}.Set("rate", strict).Set("burst", burst).Set("limit", 20_000))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.(qdisc.Classful).Graft(ctx, id(1), limited); err != nil {
		t.Fatal(err)
	}
	size := func(i int) int { return 60 + i*577%1455 }
	for i := range 36 {
		put(ctx, q, uint32(i%3), size(i))
	}

	sent, last, longest := [3]float64{}, time.Duration(0), time.Duration(0)
	for i := 0; ctx.Now < length; i++ {
		p := q.Dequeue(ctx)
		if p == nil {
			t.Fatal("nothing leaves although two bands are full")
		}
		if p.Mark == 2 {
			longest, last = max(longest, ctx.Now-last), ctx.Now
		}
		sent[p.Mark] += float64(p.PktLen)
		ctx.Now += time.Duration(p.PktLen) * nsPerByte
		band := p.Mark
		p.Free()
		put(ctx, q, band, size(i))
	}

	total := float64(link) * length.Seconds()
	rest := total - strict*length.Seconds()
	for band, want := range []float64{strict * length.Seconds(), rest * heavyShare, rest * lightShare} {
		if sent[band] < want*0.99 || sent[band] > want*1.01 {
			t.Errorf("band %d sent %.4f of the link, want %.4f within 1 %%", band, sent[band]/total, want/total)
		}
	}
	// Between two of its packets pass: its own first one, what the heavy band may
	// send in one turn, and what the strict band may in all of that time.
	bound := time.Duration(float64(frame+heavy+frame+burst) / (link - strict) * float64(time.Second))
	if longest > bound {
		t.Errorf("the lowest band was without service for %v; the bound is %v", longest, bound)
	}
	t.Logf("shares %.4f %.4f %.4f; longest wait %v of at most %v", sent[0]/total, sent[1]/total, sent[2]/total, longest, bound)
}

// The obvious model: slices, and the steps of the algorithm one after the other,
// the strict bands looked at again after each of them.
type model struct {
	strict  int
	quanta  []int
	queues  [][]int
	deficit []int
	list    []int
}

func (m *model) put(i, n int) {
	m.queues[i] = append(m.queues[i], n)
	m.join(i)
}

func (m *model) join(i int) {
	if i >= m.strict && len(m.queues[i]) > 0 && !slices.Contains(m.list, i) {
		m.list = append(m.list, i)
		m.deficit[i] = m.quanta[i]
	}
}

func (m *model) pop(i int) (int, int) {
	n := m.queues[i][0]
	m.queues[i] = m.queues[i][1:]
	return i, n
}

func (m *model) take() (band, n int) {
	for {
		for i := range m.strict {
			if len(m.queues[i]) > 0 {
				return m.pop(i)
			}
		}
		if len(m.list) == 0 {
			return -1, 0
		}
		i := m.list[0]
		if n := m.queues[i][0]; n > m.deficit[i] {
			m.deficit[i] += m.quanta[i]
			m.list = append(m.list[1:], i)
			continue
		} else {
			m.deficit[i] -= n
		}
		if len(m.queues[i]) == 1 {
			m.list = m.list[1:]
		}
		return m.pop(i)
	}
}

// change is ets_qdisc_change: who is removed or becomes strict leaves the list,
// who becomes weighted with packets goes to its end.
func (m *model) change(strict int, quanta []int) {
	m.list = slices.DeleteFunc(m.list, func(i int) bool { return i >= len(quanta) || i < strict })
	for len(m.queues) < len(quanta) {
		m.queues = append(m.queues, nil)
	}
	m.queues = m.queues[:len(quanta)]
	m.deficit = append(m.deficit, make([]int, len(quanta))...)[:len(quanta)]
	m.strict, m.quanta = strict, quanta
	for i := range quanta {
		m.join(i)
	}
}

func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func() (qdisc.Values, int, []int) {
			bands := rapid.IntRange(1, 6).Draw(t, "bands")
			strict := rapid.IntRange(0, bands).Draw(t, "strict")
			quanta, given := make([]int, bands), []uint64(nil)
			for i := strict; i < bands; i++ {
				quanta[i] = rapid.IntRange(1, 3000).Draw(t, "quantum")
				given = append(given, uint64(quanta[i]))
			}
			return qdisc.Values{"bands": {N: uint64(bands)}, "strict": {N: uint64(strict)},
				"quanta": {List: given}, "priomap": identity(uint64(bands))}, strict, quanta
		}
		var m model
		v, strict, quanta := draw()
		m.change(strict, quanta)
		env := qdisctest.Env(1)
		env.TxQueueLen = 1000
		made, err := ets.Kind.New(env, v)
		if err != nil {
			t.Fatal(err)
		}
		q := made.(scheduler)
		pool, _ := qdisc.NewPool(qdisc.PoolConfig{Packets: 256, FrameSize: 1600, Headroom: 64})
		ctx := qdisc.NewContext(pool, 1)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"put", "put", "put", "put", "take", "take", "take", "change"}).Draw(t, "do") {
			case "put":
				i := rapid.IntRange(0, len(m.quanta)-1).Draw(t, "band")
				n := rapid.IntRange(60, 1514).Draw(t, "len")
				m.put(i, n)
				put(ctx, q, uint32(i), n)
			case "take":
				band, n := m.take()
				p := q.Dequeue(ctx)
				if p == nil {
					if band >= 0 {
						t.Fatalf("nothing, want %d bytes of band %d", n, band)
					}
					continue
				}
				if int(p.Mark) != band || int(p.PktLen) != n {
					t.Fatalf("%d bytes of band %d, want %d of band %d", p.PktLen, p.Mark, n, band)
				}
				p.Free()
			case "change":
				v, strict, quanta := draw()
				m.change(strict, quanta)
				if err := q.Change(ctx, v); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func BenchmarkBands(b *testing.B) {
	for _, c := range []struct{ bands, strict uint64 }{{3, 3}, {3, 1}, {16, 8}} {
		b.Run(fmt.Sprintf("bands=%d,strict=%d", c.bands, c.strict), func(b *testing.B) {
			ctx := newContext(b)
			q := build(b, qdisctest.Env(1), qdisc.Values{
				"bands": {N: c.bands}, "strict": {N: c.strict}, "priomap": identity(c.bands),
			})
			// Only the last band is busy.
			for range 8 {
				put(ctx, q, uint32(c.bands-1), 1500)
			}
			b.ReportAllocs()
			for b.Loop() {
				q.Enqueue(ctx, q.Dequeue(ctx))
			}
		})
	}
}
