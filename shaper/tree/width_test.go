package tree_test

import (
	"testing"

	"sluice/shaper/tree"
)

// wide is a port with a drr of n classes, each with a pfifo of its own.
func wide(t *testing.T, n uint32) *port {
	p := newPort(t)
	p.must(t, tree.Request{Op: tree.Add, Parent: tree.Root, Handle: id(1, 0), Kind: "drr"})
	for i := uint32(1); i <= n; i++ {
		p.must(t, tree.Request{Op: tree.Add, Parent: id(1, 0), ClassID: id(1, i), Kind: "drr"})
		p.must(t, tree.Request{Op: tree.Add, Parent: id(1, i), Handle: id(i+1, 0), Kind: "pfifo", Values: values("limit", 10)})
	}
	return p
}

// Edits run between two turns of the worker: one that looked at every class
// would make a policy of ten thousand subscribers stop the forwarding for
// minutes. What it allocates tells what it looked at.
func TestAnEditCostsTheSameInATreeOfAnyWidth(t *testing.T) {
	for what, r := range map[string]tree.Request{
		"change a class": {Op: tree.Change, ClassID: id(1, 5), Kind: "drr", Values: values("quantum", 2000)},
		"change a child": {Op: tree.Change, Parent: id(1, 5), Handle: id(6, 0), Kind: "pfifo", Values: values("limit", 20)},
	} {
		cost := func(n uint32) float64 {
			p := wide(t, n)
			return testing.AllocsPerRun(10, func() { p.must(t, r) })
		}
		if narrow, wide := cost(10), cost(1000); wide > narrow {
			t.Errorf("%s: %v allocations among 10 classes, %v among 1000", what, narrow, wide)
		}
	}
}

// A handle is known as long as its qdisc stands in the tree, and free after.
func TestAHandleLeavesWithItsQdisc(t *testing.T) {
	prio := func(bands int, highest uint64) tree.Request {
		v := values("bands", bands)
		m := v["priomap"]
		m.List = make([]uint64, 16)
		m.List[0] = highest
		v["priomap"] = m
		return tree.Request{Op: tree.Change, Parent: id(1, 2), Handle: id(20, 0), Kind: "prio", Values: v}
	}
	for what, leave := range map[string]tree.Request{
		"its class goes":        {Op: tree.Delete, ClassID: id(1, 2), Kind: "drr"},
		"its parent goes":       {Op: tree.Delete, Parent: id(1, 2), Handle: id(20, 0)},
		"another takes over":    {Op: tree.Replace, Parent: id(20, 3), Handle: id(40, 0), Kind: "bfifo"},
		"its parent is another": {Op: tree.Replace, Parent: id(1, 2), Handle: id(40, 0), Kind: "prio"},
		"its band goes":         prio(2, 1),
		"the root goes":         {Op: tree.Delete, Parent: tree.Root, Handle: id(1, 0)},
	} {
		t.Run(what, func(t *testing.T) {
			p := wide(t, 2)
			p.must(t, tree.Request{Op: tree.Delete, Parent: id(1, 2), Handle: id(3, 0)})
			p.must(t, tree.Request{Op: tree.Add, Parent: id(1, 2), Handle: id(20, 0), Kind: "prio"})
			child := tree.Request{Op: tree.Add, Parent: id(20, 3), Handle: id(30, 0), Kind: "pfifo"}
			p.must(t, child)
			if _, _, ok := p.Lookup(id(30, 0)); !ok {
				t.Fatal("30: is not there")
			}
			p.must(t, leave)
			if _, _, ok := p.Lookup(id(30, 0)); ok {
				t.Error("30: is still known")
			}
			if what == "the root goes" {
				return
			}
			child.Parent, child.Op = id(1, 1), tree.Replace
			p.must(t, child)
			if _, _, ok := p.Lookup(id(30, 0)); !ok {
				t.Error("30: is not known in its new place")
			}
			if _, _, ok := p.Lookup(id(2, 0)); ok {
				t.Error("2:, whose place it took, is still known")
			}
		})
	}
}
