package fifo_test

import (
	"testing"

	"sluice/qdisc"
	"sluice/qdisc/fifo"
	"sluice/qdisc/qdisctest"
)

func make1(t *testing.T, k *qdisc.Kind, v qdisc.Values) func(qdisc.Env) qdisc.Qdisc {
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
			cfg := qdisctest.Config{Name: c.kind.Name, New: make1(t, c.kind, c.v), Order: oneOrder}
			for _, n := range c.changes {
				cfg.Changes = append(cfg.Changes, qdisc.Values{}.Set("limit", n))
			}
			qdisctest.Run(t, cfg)
		})
	}
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &fifo.Pfifo, &fifo.Bfifo, &fifo.HeadDrop)
}
