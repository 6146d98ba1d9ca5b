// Admin path.

package classify

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// A Match is a condition on a packet. It is immutable; packets are tested with
// [Match.Match].
type Match struct {
	root *node
	text string
	prog []instr
	nets []network
}

// String returns the match in its canonical form; [ParseMatch] of it gives an
// equal match.
func (m *Match) String() string { return m.text }

// Equal says whether two matches are the same condition written in the same
// order.
func (m *Match) Equal(o *Match) bool {
	if m == nil || o == nil {
		return m == o
	}
	return m.text == o.text
}

// node is an expression. and, or have two kids or more, none of their own kind;
// not has one.
type node struct {
	op    nodeOp
	kids  []*node
	field field          // of a test
	spans []span         // of a test: any of them
	dir   direction      // of a net
	nets  []netip.Prefix // of a net: any of them
}

type nodeOp uint8

const (
	opAny nodeOp = iota // true
	opAnd
	opOr
	opNot
	opTest // a field is in one of the spans
	opNet  // an address is in one of the nets
)

type direction uint8

const (
	eitherWay direction = iota
	source
	destination
)

// span is a range of numbers, both ends included.
type span struct{ lo, hi uint32 }

func join(op nodeOp, kids []*node) *node {
	if len(kids) == 1 {
		return kids[0]
	}
	n := &node{op: op}
	for _, k := range kids {
		if k.op == op {
			n.kids = append(n.kids, k.kids...)
		} else {
			n.kids = append(n.kids, k)
		}
	}
	return n
}

func negate(n *node) *node {
	if n.op == opNot {
		return n.kids[0]
	}
	return &node{op: opNot, kids: []*node{n}}
}

func (n *node) print(b *strings.Builder) {
	switch n.op {
	case opAny:
		b.WriteString("any")
	case opNot:
		b.WriteString("not ")
		n.kids[0].printBelow(b, opNot)
	case opAnd, opOr:
		for i, k := range n.kids {
			if i > 0 {
				b.WriteString([]string{opAnd: " and ", opOr: " or "}[n.op])
			}
			k.printBelow(b, n.op)
		}
	case opNet:
		n.printNet(b)
	case opTest:
		n.printTest(b)
	}
}

// printBelow puts n in parentheses where it binds weaker than what is above.
func (n *node) printBelow(b *strings.Builder, above nodeOp) {
	if n.op == opOr || n.op == opAnd && above == opNot {
		b.WriteByte('(')
		n.print(b)
		b.WriteByte(')')
		return
	}
	n.print(b)
}

func (n *node) printNet(b *strings.Builder) {
	hosts := !slices.ContainsFunc(n.nets, func(p netip.Prefix) bool { return !p.IsSingleIP() })
	switch {
	case n.dir == source:
		b.WriteString("src ")
	case n.dir == destination:
		b.WriteString("dst ")
	case hosts:
		b.WriteString("host ")
	default:
		b.WriteString("net ")
	}
	for i, p := range n.nets {
		if i > 0 {
			b.WriteByte(',')
		}
		if p.IsSingleIP() {
			b.WriteString(p.Addr().String())
		} else {
			b.WriteString(p.String())
		}
	}
}

func (n *node) printTest(b *strings.Builder) {
	if len(n.spans) == 1 && n.spans[0].lo == n.spans[0].hi {
		for _, w := range bare {
			if w.field == n.field && w.n == n.spans[0].lo {
				b.WriteString(w.word)
				return
			}
		}
	}
	f := &fields[n.field]
	b.WriteString(f.word)
	if n.field == fieldVLAN && len(n.spans) == 1 && n.spans[0] == (span{0, f.max}) {
		return
	}
	for i, s := range n.spans {
		b.WriteByte(" ,"[min(i, 1)])
		switch {
		case s.lo == s.hi:
			b.WriteString(f.text(s.lo))
		case s.lo == 0 && s.hi < f.max:
			fmt.Fprintf(b, "< %d", s.hi+1)
		case s.lo > 0 && s.hi == f.max:
			fmt.Fprintf(b, ">= %d", s.lo)
		default:
			fmt.Fprintf(b, "%d-%d", s.lo, s.hi)
		}
	}
}
