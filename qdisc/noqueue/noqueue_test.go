package noqueue_test

import (
	"testing"

	"sluice/qdisc/noqueue"
	"sluice/qdisc/qdisctest"
)

func TestScripts(t *testing.T) { qdisctest.Script(t, "testdata", &noqueue.Kind) }
