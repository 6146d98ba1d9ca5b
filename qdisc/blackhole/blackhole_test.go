package blackhole_test

import (
	"testing"

	"sluice/qdisc"
	"sluice/qdisc/blackhole"
	"sluice/qdisc/qdisctest"
)

func TestConformance(t *testing.T) {
	qdisctest.Run(t, qdisctest.Config{
		Name: "blackhole",
		New: func(env qdisc.Env) qdisc.Qdisc {
			q, err := blackhole.Kind.New(env, nil)
			if err != nil {
				t.Fatal(err)
			}
			return q
		},
	})
}

func TestScripts(t *testing.T) { qdisctest.Script(t, "testdata", &blackhole.Kind) }
