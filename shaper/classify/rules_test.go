package classify_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/qdisc"
	"sluice/shaper/classify"
)

var (
	first, second = qdisc.MakeID(1, 1), qdisc.MakeID(1, 2)

	rules = classify.NewRules(
		classify.Rule{Match: classify.MustParseMatch("icmp"), Drop: true},
		classify.Rule{Match: classify.MustParseMatch("dscp ef"), Class: first},
		classify.Rule{Match: classify.MustParseMatch("udp"), Class: second},
	)
)

func TestTheFirstRuleThatMatchesDecides(t *testing.T) {
	for _, tc := range []struct {
		name    string
		frame   []byte
		verdict qdisc.FilterVerdict
		class   qdisc.ClassID
		explain string
	}{
		{"two match", udp4, qdisc.Match, first, "rule 1: icmp: no\nrule 2: dscp ef: yes\nclass 1:1\n"},
		{"the last matches", vlan4, qdisc.Match, second, "rule 1: icmp: no\nrule 2: dscp ef: no\nrule 3: udp: yes\nclass 1:2\n"},
		{"drop", icmp4, qdisc.FilterDrop, 0, "rule 1: icmp: yes\ndrop\n"},
		{"none matches", tcp4, qdisc.NoMatch, 0,
			"rule 1: icmp: no\nrule 2: dscp ef: no\nrule 3: udp: no\nno rule matches, default class\n"},
		{"malformed", udp4[:40], qdisc.NoMatch, 0, "malformed, default class\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := parsed(tc.frame)
			defer p.Free()
			if v, c := rules.Classify(nil, p); v != tc.verdict || c != tc.class {
				t.Errorf("verdict %d, class %s, want %d, %s", v, c, tc.verdict, tc.class)
			}
			e := rules.Explain(p)
			if e.Verdict != tc.verdict || e.Class != tc.class {
				t.Errorf("Explain: verdict %d, class %s, want %d, %s", e.Verdict, e.Class, tc.verdict, tc.class)
			}
			if diff := cmp.Diff(tc.explain, e.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRulesKeepACopy(t *testing.T) {
	list := []classify.Rule{{Match: classify.MustParseMatch("any"), Class: first}}
	r := classify.NewRules(list...)
	list[0].Class = second
	r.Rules()[0].Class = second
	p := parsed(udp4)
	defer p.Free()
	if _, c := r.Classify(nil, p); c != first {
		t.Errorf("class %s, want %s", c, first)
	}
}

func TestClassifyDoesNotAllocate(t *testing.T) {
	p := parsed(vlan4)
	defer p.Free()
	if n := testing.AllocsPerRun(100, func() { rules.Classify(nil, p) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkClassify(b *testing.B) {
	p := parsed(vlan4)
	defer p.Free()
	for b.Loop() {
		rules.Classify(nil, p)
	}
}
