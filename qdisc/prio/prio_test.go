package prio_test

import (
	"testing"

	"sluice/qdisc"
	"sluice/qdisc/fifo"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
)

func TestConformance(t *testing.T) {
	qdisctest.Run(t, qdisctest.Config{
		Name: "prio",
		New: func(env qdisc.Env) qdisc.Qdisc {
			q, err := prio.Kind.New(env, qdisc.Values{})
			if err != nil {
				t.Fatal(err)
			}
			return q
		},
		Order: func(p *qdisc.Packet) uint64 { return uint64(p.Priority)<<32 | uint64(p.Mark) },
		Changes: []qdisc.Values{
			qdisc.Values{}.Set("bands", 3),
			qdisc.Values{}.Set("bands", 16),
			qdisc.Values{}.Set("bands", 17),
			qdisc.Values{}.Set("bands", 1),
			qdisc.Values{"bands": {N: 2}, "priomap": {List: make([]uint64, 16)}},
			qdisc.Values{"bands": {N: 5}, "priomap": {List: []uint64{4, 3, 2, 1, 0, 0, 1, 2, 3, 4, 4, 3, 2, 1, 0, 2}}},
			{"priomap": {List: []uint64{2, 0, 1}}},
		},
	})
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &prio.Kind, &fifo.Pfifo, &fifo.Bfifo)
}
