package fifo_test

import (
	"testing"

	"sluice/qdisc"
	"sluice/qdisc/fifo"
	"sluice/qdisc/qdisctest"
)

func build(t *testing.T, k *qdisc.Kind, v qdisc.Values) func(qdisc.Env) qdisc.Qdisc {
	return func(env qdisc.Env) qdisc.Qdisc {
		q, err := k.New(env, v)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
}

// All three are one queue: no packet overtakes another.
func oneOrder(*qdisc.Packet) uint64 { return 0 }

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		kind    *qdisc.Kind
		v       qdisc.Values
		changes []uint64
	}{
		{&fifo.Pfifo, qdisc.Values{}, []uint64{0, 1, 7, 1000}},
		{&fifo.Bfifo, qdisc.Values{}.Set("limit", 9000), []uint64{0, 59, 1514, 1 << 20}},
		{&fifo.HeadDrop, qdisc.Values{}.Set("limit", 5), []uint64{0, 1, 7, 1000}},
	} {
		t.Run(c.kind.Name, func(t *testing.T) {
			cfg := qdisctest.Config{Name: c.kind.Name, New: build(t, c.kind, c.v), Order: oneOrder}
			for _, n := range c.changes {
				cfg.Changes = append(cfg.Changes, qdisc.Values{}.Set("limit", n))
			}
			qdisctest.Run(t, cfg)
		})
	}
}

func TestLikeASlice(t *testing.T) {
	for _, c := range []struct {
		kind     *qdisc.Kind
		headDrop bool
	}{
		{&fifo.Pfifo, false},
		{&fifo.HeadDrop, true},
	} {
		t.Run(c.kind.Name, func(t *testing.T) {
			qdisctest.Like(t,
				qdisctest.Config{New: build(t, c.kind, qdisc.Values{}.Set("limit", 7))},
				func(qdisc.Env) qdisc.Qdisc { return &qdisctest.Fifo{Limit: 7, HeadDrop: c.headDrop} })
		})
	}
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &fifo.Pfifo, &fifo.Bfifo, &fifo.HeadDrop)
}

func TestBypassOnlyWhatTheQueueWouldTake(t *testing.T) {
	for _, c := range []struct {
		kind  *qdisc.Kind
		limit uint64
		want  bool
	}{
		{&fifo.Pfifo, 0, false},
		{&fifo.Pfifo, 1, true},
		{&fifo.HeadDrop, 0, false},
		{&fifo.HeadDrop, 1, true},
		{&fifo.Bfifo, 1513, false},
		{&fifo.Bfifo, 1514, true},
	} {
		q := build(t, c.kind, qdisc.Values{}.Set("limit", c.limit))(qdisctest.Env(1))
		if got := q.(qdisc.Bypasser).CanBypass(); got != c.want {
			t.Errorf("%s limit %d: CanBypass is %v", c.kind.Name, c.limit, got)
		}
	}

	// Asked again after a change.
	q := fifo.NewPfifo(0)
	if err := q.(qdisc.Changer).Change(nil, qdisc.Values{}.Set("limit", 1)); err != nil {
		t.Fatal(err)
	}
	if !q.(qdisc.Bypasser).CanBypass() {
		t.Error("pfifo whose limit was raised from 0 to 1 still forbids the bypass")
	}
}

func Benchmark(b *testing.B) {
	b.Run("pfifo", func(b *testing.B) {
		qdisctest.Bench(b, func(qdisc.Env) qdisc.Qdisc { return fifo.NewPfifo(1000) })
	})
	b.Run("bfifo", func(b *testing.B) {
		qdisctest.Bench(b, func(qdisc.Env) qdisc.Qdisc { return fifo.NewBfifo(1 << 20) })
	})
}
