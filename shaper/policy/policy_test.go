package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/shaper/config"
	"sluice/shaper/policy"
)

const head = "version = 1\n[link.l]\ninside = \"in\"\noutside = \"out\"\ndriver = \"mem\"\n"

// steps plans from one file's body to another's, for port out.
func steps(t *testing.T, was, is string) []string {
	t.Helper()
	parse := func(body string) *policy.Port {
		c, err := config.Parse("test.toml", []byte(head+body))
		if err != nil {
			t.Fatal(err)
		}
		return policy.Compile(c)["out"]
	}
	var old *policy.Port
	if was != "none" {
		old = parse(was)
	}
	var out []string
	for _, s := range policy.Plan(old, parse(is)) {
		out = append(out, fmt.Sprintf("%s (%s)", s, s.Effect))
	}
	return out
}

func table(name string, keys ...string) string {
	return "[[" + name + "]]\ndev = \"out\"\n" + strings.Join(keys, "\n") + "\n"
}

var (
	tbf    = table("qdisc", `root = true`, `handle = "1:"`, `kind = "tbf"`, `rate = "50 Mbit/s"`, `burst = "16 KiB"`, `limit = "64 KiB"`)
	faster = strings.Replace(tbf, "50 Mbit/s", "60 Mbit/s", 1)
	prio   = table("qdisc", `parent = "1:1"`, `handle = "10:"`, `kind = "prio"`, `bands = 3`)
	drr    = table("qdisc", `root = true`, `handle = "1:"`, `kind = "drr"`)
	a      = table("class", `parent = "1:"`, `classid = "1:a"`, `kind = "drr"`, `quantum = "1500 B"`)
	b      = table("class", `parent = "1:"`, `classid = "1:b"`, `kind = "drr"`, `quantum = "1500 B"`)
	under  = table("qdisc", `parent = "1:a"`, `handle = "a:"`, `kind = "pfifo"`, `limit = "10 packets"`)
)

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name, was, is string
		want          []string
	}{
		{"equal policies change nothing", tbf + prio, tbf + prio, nil},
		{"a first policy is built from the root down", "none", prio + tbf,
			[]string{"add qdisc tbf 1: (the default queue there is dropped)", "add qdisc prio 10: (queues kept)"}},
		{"a qdisc in a class that stays takes the default child's place", tbf, tbf + prio,
			[]string{"add qdisc prio 10: (the default queue there is dropped)"}},
		{"a qdisc in a new class displaces nothing", drr + a, drr + a + b + strings.ReplaceAll(under, "1:a", "1:b"),
			[]string{"add class drr 1:b (queues kept)", "add qdisc pfifo a: (queues kept)"}},
		{"a qdisc without a handle is named by its place", drr + a, drr + a + strings.Replace(under, `handle = "a:"`, "", 1),
			[]string{"add qdisc pfifo parent 1:a (the default queue there is dropped)"}},
		{"a new rate changes in place, and what is below stays", tbf + prio, faster + prio,
			[]string{"change qdisc tbf 1: (queues kept within the new limits)"}},
		{"another kind takes the place with all below it", tbf + prio, drr + a + under,
			[]string{"del qdisc tbf 1: (queued packets below it are dropped)",
				"add qdisc drr 1: (queues kept)", "add class drr 1:a (queues kept)", "add qdisc pfifo a: (queues kept)"}},
		{"without qdiscs the default comes back", tbf, "",
			[]string{"del qdisc tbf 1: (queued packets below it are dropped)"}},
		{"a class more", drr + a + under, drr + a + b + under, []string{"add class drr 1:b (queues kept)"}},
		{"a class less", drr + a + b + under, drr + b,
			[]string{"del class drr 1:a (queued packets below it are dropped)"}},
		{"a class's quantum", drr + a + under, drr + strings.Replace(a, "1500", "3000", 1) + under,
			[]string{"change class drr 1:a (queues kept)"}},
		{"a parameter taken back to its default means building anew", drr + a + under, drr + strings.Replace(a, `quantum = "1500 B"`, "", 1) + under,
			[]string{"del class drr 1:a (queued packets below it are dropped)",
				"add class drr 1:a (queues kept)", "add qdisc pfifo a: (queues kept)"}},
		{"a child taken away", tbf + prio, tbf,
			[]string{"del qdisc prio 10: (queued packets below it are dropped)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, steps(t, c.was, c.is)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestFiltersAreSortedByAttachPoint(t *testing.T) {
	c, err := config.Parse("test.toml", []byte(head+tbf+prio+
		table("filter", `parent = "10:"`, `match = "udp"`, `class = "10:2"`)+
		table("filter", `parent = "10:"`, `match = "dscp ef"`, `class = "10:1"`, `prio = 1`)))
	if err != nil {
		t.Fatal(err)
	}
	p := policy.Compile(c)["out"]
	if len(p.Rules) != 1 {
		t.Fatalf("%d attach points", len(p.Rules))
	}
	for at, rules := range p.Rules {
		var got []string
		for _, r := range rules.Rules() {
			got = append(got, fmt.Sprintf("%s: %s to %s", at, r.Match, r.Class))
		}
		if !slices.Equal(got, []string{"10:: dscp ef to 10:1", "10:: udp to 10:2"}) {
			t.Errorf("rules %q", got)
		}
	}
}
