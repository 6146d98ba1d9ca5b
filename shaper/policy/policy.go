// Package policy compiles what a configuration file says to the edits that make
// a port's tree of qdiscs, and works out the plan between two policies: the
// fewest edits that turn one tree into the other, and what each does to queued
// packets.
//
// It touches no running tree. Compile and Plan are pure; who carries the steps
// out does so between two turns of the worker.
package policy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"sluice/qdisc"
	"sluice/shaper/classify"
	"sluice/shaper/config"
	"sluice/shaper/tree"
)

// Port is the policy of one port.
type Port struct {
	Dev   string
	root  *node                             // nil: the default qdisc
	Rules map[qdisc.ClassID]*classify.Rules // by attach point: a qdisc's handle or a class
}

// node is one qdisc of the file, with what hangs below it.
type node struct {
	request  tree.Request   // Op is filled in by the plan
	classes  []tree.Request // in the order of the file, parents first
	children map[qdisc.ClassID]*node
}

// Step is one edit of a tree.
type Step struct {
	Class   bool // Request is for Tree.Class, else for Tree.Qdisc
	Request tree.Request
	Effect  Effect
}

// Effect says what a step does to packets that are queued.
type Effect uint8

const (
	Keeps     Effect = iota // queued packets stay where they are
	Limits                  // they stay as far as the new parameters allow
	Drops                   // those below are dropped, and counted as purged
	Displaces               // the default queue whose place it takes is dropped, packets and all
)

func (e Effect) String() string {
	return [...]string{"queues kept", "queues kept within the new limits", "queued packets below it are dropped",
		"the default queue there is dropped"}[e]
}

// String names the step about as tc would: a qdisc by its handle, or by where it
// stands when its handle is left to chance.
func (s Step) String() string {
	r := s.Request
	switch {
	case s.Class:
		return fmt.Sprintf("%s class %s %s", r.Op, r.Kind, r.ClassID)
	case r.Handle != 0:
		return fmt.Sprintf("%s qdisc %s %s", r.Op, r.Kind, r.Handle)
	case r.Parent == tree.Root:
		return fmt.Sprintf("%s qdisc %s root", r.Op, r.Kind)
	}
	return fmt.Sprintf("%s qdisc %s parent %s", r.Op, r.Kind, r.Parent)
}

// Compile sorts what c says by port. Every port of every link has an entry.
//
// Preconditions: c is checked (config.Parse returned it): parents exist and
// there are no loops.
func Compile(c *config.Config) map[string]*Port {
	ports := map[string]*Port{}
	for _, l := range c.Links {
		for _, dev := range []string{l.Inside.Dev, l.Outside.Dev} {
			ports[dev] = &Port{Dev: dev, Rules: map[qdisc.ClassID]*classify.Rules{}}
		}
	}
	type name struct {
		dev   string
		major uint32
	}
	named := map[name]*node{} // those with a handle, which alone can be parents
	nodes := make([]*node, len(c.Qdiscs))
	for i, q := range c.Qdiscs {
		n := &node{children: map[qdisc.ClassID]*node{}}
		n.request = tree.Request{Parent: q.Parent, Handle: q.Handle, Kind: q.Kind, Values: q.Values}
		if q.Root {
			n.request.Parent = tree.Root
			ports[q.Dev].root = n
		}
		nodes[i], named[name{q.Dev, q.Handle.Major()}] = n, n
	}
	for i, q := range c.Qdiscs {
		if !q.Root {
			named[name{q.Dev, q.Parent.Major()}].children[q.Parent] = nodes[i]
		}
	}
	for _, k := range c.Classes {
		n := named[name{k.Dev, k.ID.Major()}]
		n.classes = append(n.classes, tree.Request{Parent: k.Parent, ClassID: k.ID, Kind: k.Kind, Values: k.Values})
	}
	for _, n := range nodes {
		n.classes = parentsFirst(n.classes)
	}
	rules := map[string]map[qdisc.ClassID][]classify.Rule{}
	for _, f := range c.Filters {
		if rules[f.Dev] == nil {
			rules[f.Dev] = map[qdisc.ClassID][]classify.Rule{}
		}
		rules[f.Dev][f.Parent] = append(rules[f.Dev][f.Parent],
			classify.Rule{Match: f.Match, Class: f.Class, Drop: f.Drop})
	}
	for dev, at := range rules {
		for parent, r := range at {
			ports[dev].Rules[parent] = classify.NewRules(r...)
		}
	}
	return ports
}

// parentsFirst orders classes so that each comes after its parent, and else as
// they were.
func parentsFirst(classes []tree.Request) []tree.Request {
	pending := map[qdisc.ClassID]bool{}
	for _, c := range classes {
		pending[c.ClassID] = true
	}
	var out []tree.Request
	for rest := classes; len(rest) > 0; {
		var later []tree.Request
		for _, c := range rest {
			if pending[c.Parent] {
				later = append(later, c)
				continue
			}
			out = append(out, c)
			delete(pending, c.ClassID)
		}
		if len(later) == len(rest) { // a loop, which the check refuses
			return append(out, later...)
		}
		rest = later
	}
	return out
}

// Plan returns the steps that turn a tree made by old into one made by new, in
// the order to carry them out. A nil old stands for the default qdisc.
func Plan(old, new *Port) []Step {
	var was *node
	if old != nil {
		was = old.root
	}
	var p plan
	p.slot(was, new.root)
	return p.steps
}

type plan struct{ steps []Step }

func (p *plan) qdisc(op tree.Op, n *node, e Effect) {
	r := n.request
	r.Op = op
	p.steps = append(p.steps, Step{Request: r, Effect: e})
}

func (p *plan) class(op tree.Op, r tree.Request, e Effect) {
	r.Op = op
	p.steps = append(p.steps, Step{Class: true, Request: r, Effect: e})
}

// slot plans what stands at one position: the root, or a class's child.
func (p *plan) slot(was, is *node) {
	switch {
	case was == nil && is == nil:
	case was == nil:
		p.build(is, Displaces)
	case is == nil:
		p.qdisc(tree.Delete, was, Drops)
	case !alters(was.request, is.request):
		p.qdisc(tree.Delete, was, Drops)
		p.build(is, Keeps)
	default:
		if !reflect.DeepEqual(was.request.Values, is.request.Values) {
			p.qdisc(tree.Change, is, Limits)
		}
		p.below(was, is)
	}
}

// alters says whether a change in place leads from a to b: same kind, same
// name, and no parameter that would have to be taken back to its default.
func alters(a, b tree.Request) bool {
	if a.Kind != b.Kind || a.Handle != b.Handle || a.ClassID != b.ClassID || a.Parent != b.Parent {
		return false
	}
	for name := range a.Values {
		if !b.Values.Has(name) {
			return false
		}
	}
	return true
}

// below plans the classes and children of a qdisc that stays.
func (p *plan) below(was, is *node) {
	old := map[qdisc.ClassID]tree.Request{}
	for _, c := range was.classes {
		old[c.ClassID] = c
	}
	keep := map[qdisc.ClassID]bool{}
	for _, c := range is.classes {
		_, below := old[c.Parent]
		if o, ok := old[c.ClassID]; ok && alters(o, c) && (!below || keep[c.Parent]) {
			keep[c.ClassID] = true
		}
	}
	// Children go before the classes they hang from, inner classes last.
	for _, c := range slices.Backward(was.classes) {
		if !keep[c.ClassID] {
			p.class(tree.Delete, c, Drops)
		}
	}
	for _, c := range is.classes {
		switch {
		case !keep[c.ClassID]:
			p.class(tree.Add, c, Keeps)
		case !reflect.DeepEqual(old[c.ClassID].Values, c.Values):
			p.class(tree.Change, c, Keeps)
		}
	}
	at := slices.Collect(maps.Keys(was.children))
	for id := range is.children {
		if was.children[id] == nil {
			at = append(at, id)
		}
	}
	slices.Sort(at)
	// A class that does not stay took its child with it, and a new one holds
	// nothing yet.
	fresh := map[qdisc.ClassID]bool{}
	for _, c := range slices.Concat(was.classes, is.classes) {
		fresh[c.ClassID] = !keep[c.ClassID]
	}
	for _, id := range at {
		switch child := is.children[id]; {
		case !fresh[id]:
			p.slot(was.children[id], child)
		case child != nil:
			p.build(child, Keeps)
		}
	}
}

// build plans a qdisc that is new, and all below it. e is what becomes of packets
// that are queued where it goes; below it there are none yet.
func (p *plan) build(n *node, e Effect) {
	p.qdisc(tree.Add, n, e)
	for _, c := range n.classes {
		p.class(tree.Add, c, Keeps)
	}
	for _, id := range slices.Sorted(maps.Keys(n.children)) {
		p.build(n.children[id], Keeps)
	}
}
