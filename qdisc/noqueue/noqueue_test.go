package noqueue_test

import (
	"testing"

	"sluice/qdisc"
	"sluice/qdisc/noqueue"
	"sluice/qdisc/qdisctest"
)

// The runner asks the discipline itself; everybody else asks its table.
func TestSaysThatItIsNoQueue(t *testing.T) {
	q, err := noqueue.Kind.New(qdisctest.Env(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := q.(interface{ NoQueue() bool }); !ok || !n.NoQueue() {
		t.Error("the runner would take it for a queue")
	}
	if noqueue.Kind.Flags&qdisc.NoQueue == 0 {
		t.Error("its table does not say so")
	}
}

func TestScripts(t *testing.T) { qdisctest.Script(t, "testdata", &noqueue.Kind) }
