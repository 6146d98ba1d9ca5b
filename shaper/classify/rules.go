// Packet path, except NewRules.

package classify

import "sluice/qdisc"

// A Rule sends the packets that match to a class, or drops them.
type Rule struct {
	Match *Match
	Class qdisc.ClassID
	Drop  bool
}

// Rules is an ordered list of rules, the first that matches decides. It is
// immutable: a change builds another list and swaps it in whole.
type Rules struct{ rules []Rule }

var _ qdisc.Classifier = (*Rules)(nil)

// NewRules makes a list of rules. It keeps a copy.
func NewRules(rules ...Rule) *Rules { return &Rules{append([]Rule(nil), rules...)} }

// Classify returns the verdict of the first rule that matches. None matches a
// malformed packet.
//
// Preconditions: p is parsed.
func (r *Rules) Classify(_ *qdisc.Context, p *qdisc.Packet) (qdisc.FilterVerdict, qdisc.ClassID) {
	if p.Flags&qdisc.Malformed != 0 {
		return qdisc.NoMatch, 0
	}
	for i := range r.rules {
		if rule := &r.rules[i]; rule.Match.Match(p) {
			return rule.verdict()
		}
	}
	return qdisc.NoMatch, 0
}

func (r *Rule) verdict() (qdisc.FilterVerdict, qdisc.ClassID) {
	if r.Drop {
		return qdisc.FilterDrop, 0
	}
	return qdisc.Match, r.Class
}
