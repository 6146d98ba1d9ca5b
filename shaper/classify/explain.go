// Admin path.

package classify

import (
	"fmt"
	"strings"

	"sluice/qdisc"
)

// Explanation is how a packet came to its class.
type Explanation struct {
	Malformed bool   // no rule applies
	Tried     []Rule // in order; with a verdict other than NoMatch the last one matched
	Verdict   qdisc.FilterVerdict
	Class     qdisc.ClassID
}

// Rules returns a copy of the list.
func (r *Rules) Rules() []Rule { return append([]Rule(nil), r.rules...) }

// Explain classifies p as [Rules.Classify] does, and says which rules it tried.
func (r *Rules) Explain(p *qdisc.Packet) Explanation {
	if p.Flags&qdisc.Malformed != 0 {
		return Explanation{Malformed: true}
	}
	var e Explanation
	for _, rule := range r.rules {
		e.Tried = append(e.Tried, rule)
		if rule.Match.Match(p) {
			e.Verdict, e.Class = rule.verdict()
			break
		}
	}
	return e
}

// String prints one line for every rule tried and one for the outcome.
func (e Explanation) String() string {
	var b strings.Builder
	for i, r := range e.Tried {
		result := "no"
		if i == len(e.Tried)-1 && e.Verdict != qdisc.NoMatch {
			result = "yes"
		}
		fmt.Fprintf(&b, "rule %d: %s: %s\n", i+1, r.Match, result)
	}
	switch {
	case e.Malformed:
		b.WriteString("malformed, default class\n")
	case e.Verdict == qdisc.Match:
		fmt.Fprintf(&b, "class %s\n", e.Class)
	case e.Verdict == qdisc.FilterDrop:
		b.WriteString("drop\n")
	default:
		b.WriteString("no rule matches, default class\n")
	}
	return b.String()
}
