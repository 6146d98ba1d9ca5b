package hfsc_test

import (
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/fifo"
	"sluice/qdisc/hfsc"
	"sluice/qdisc/prio"
	"sluice/qdisc/qdisctest"
	"sluice/qdisc/tbf"
)

const (
	mbit = 125_000
	gbit = 125_000_000
	ms   = uint64(time.Millisecond)
)

// line is a curve of one slope, twoPiece one of two.
func line(name string, rate uint64) qdisc.Values { return qdisc.Values{}.Set(name+".m2", rate) }

func twoPiece(name string, m1, d, m2 uint64) qdisc.Values {
	return qdisc.Values{}.Set(name+".m1", m1).Set(name+".d", d).Set(name+".m2", m2)
}

// with joins curves.
func with(all ...qdisc.Values) qdisc.Values {
	v := qdisc.Values{}
	for _, x := range all {
		for name, value := range x {
			v[name] = value
		}
	}
	return v
}

// class is one class of a tree under test.
type class struct {
	parent, minor uint32
	curves        qdisc.Values
}

func build(env qdisc.Env, classes ...class) (qdisc.Qdisc, error) {
	q, err := hfsc.Kind.New(env, nil)
	if err != nil {
		return nil, err
	}
	for _, c := range classes {
		id, parent := qdisc.MakeID(env.Handle, c.minor), qdisc.MakeID(env.Handle, c.parent)
		if err := q.(qdisc.ClassEditor).AddClass(nil, parent, id, c.curves); err != nil {
			return nil, err
		}
	}
	return q, nil
}

func TestConformance(t *testing.T) {
	for name, classes := range map[string][]class{
		"shares": {
			{0, 5, line("ls", gbit)},
			{5, 1, line("ls", 10*mbit)}, {5, 2, line("ls", 30*mbit)}, {0, 3, line("ls", 40*mbit)},
		},
		"real time": {
			{0, 5, line("sc", 8*mbit)},
			{5, 1, twoPiece("sc", 6*mbit, 10*ms, mbit)}, {5, 2, twoPiece("rt", 0, 10*ms, 4*mbit)},
			{0, 3, with(twoPiece("rt", 2*mbit, 5*ms, mbit), line("ls", mbit))},
		},
		"limits": {
			{0, 5, with(line("sc", 8*mbit), line("ul", 8*mbit))},
			{5, 1, with(twoPiece("sc", 6*mbit, 10*ms, mbit), line("ul", 2*mbit))},
			{5, 2, with(line("ls", mbit), twoPiece("ul", 10*mbit, 2*ms, mbit))},
			{0, 3, with(line("ls", mbit), line("ul", 100*mbit))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			qdisctest.Run(t, qdisctest.Config{
				Name: "hfsc",
				New: func(env qdisc.Env) qdisc.Qdisc {
					q, err := build(env, classes...)
					if err != nil {
						t.Fatal(err)
					}
					return q
				},
				Throttles: true,
				Changes: []qdisc.Values{
					qdisc.Values{}.Set("default", 1), qdisc.Values{}.Set("default", 3), {},
					qdisc.Values{}.Set("default", 1<<16),
				},
				ClassValues: []qdisc.Values{
					line("sc", 2*mbit), line("ls", 5*mbit), line("rt", mbit), {}, line("ul", mbit),
					with(twoPiece("sc", 6*mbit, 10*ms, mbit), line("ul", 3*mbit)),
					twoPiece("rt", 0, 5*ms, 10*mbit),
					qdisc.Values{}.Set("rt.umax", 1500).Set("rt.dmax", 0).Set("rt.rate", mbit),
				},
			})
		})
	}
}

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &hfsc.Kind, &fifo.Pfifo, &fifo.Bfifo, &prio.Kind, &tbf.Kind)
}
