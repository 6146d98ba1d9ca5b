package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/qdisc"
)

// Groups of parameters are tables, or their first member alone.
func TestGroupsAreTables(t *testing.T) {
	c := parse(t, minimal+`
[link.a]
inside = "eth8"
outside = "eth9"
[[qdisc]]
dev = "eth9"
root = true
handle = "1:"
kind = "hfsc"
default = "0x20"

[[class]]
dev = "eth9"
parent = "1:"
classid = "1:20"
kind = "hfsc"
sc = { m1 = "6 Mbit/s", d = "10 ms", m2 = "1 Mbit/s" }
ul.m2 = "8 Mbit/s"

[[qdisc]]
dev = "eth9"
parent = "1:20"
handle = "2:"
kind = "netem"
delay = { delay = "10 ms", jitter = "1.5 ms", correlation = "25 %" }
loss = "1 %"
rate = { rate = "8 Mbit/s", packetoverhead = -4 }
`)
	want := qdisc.Values{}.Set("sc.m1", 750_000).Set("sc.d", 10_000_000).Set("sc.m2", 125_000).Set("ul.m2", 1_000_000)
	if diff := cmp.Diff(want, c.Classes[0].Values); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(qdisc.Values{}.Set("default", 0x20), c.Qdiscs[0].Values); diff != "" {
		t.Error(diff)
	}
	less := int64(-4)
	want = qdisc.Values{}.Set("delay.delay", 10_000_000).Set("delay.jitter", 1_500_000).Set("delay.correlation", 1<<30).
		Set("loss.loss", 42_949_673).Set("rate.rate", 1_000_000).Set("rate.packetoverhead", uint64(less))
	if diff := cmp.Diff(want, c.Qdiscs[1].Values); diff != "" {
		t.Error(diff)
	}
}
