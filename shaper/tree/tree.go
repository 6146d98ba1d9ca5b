// Package tree keeps the qdiscs of one port by handle and edits them by tc's
// rules: what net/sched/sch_api.c is to the kernel. It says who may take whose
// place, which handles are free, and in which words a request is refused; what a
// discipline does is none of its business.
//
// All of it is admin path. A Tree belongs to the transmit side of one port, and
// its methods run where the worker of that port does not: before it starts, or
// between two of its turns.
package tree

import (
	"errors"
	"fmt"

	"sluice/qdisc"
)

// Parents that are no class.
var (
	Root    = qdisc.MakeID(0xffff, 0xffff) // TC_H_ROOT
	Ingress = qdisc.MakeID(0xffff, 0xfff1) // TC_H_INGRESS
)

// maxDepth is how many qdiscs may stand above another. The packet path recurses
// once for each; the kernel has the same bound in check_loop.
const maxDepth = 7

// Config says where a tree stands.
type Config struct {
	Name     string // of the port, for snapshots
	TxQueues int    // transmit queues the root serves; default 1

	// Env describes the port to a constructor. The tree fills in Handle.
	Env func(handle uint32) qdisc.Env

	// Lookup finds a kind by its name, nil when there is none.
	Lookup func(kind string) *qdisc.Kind

	// Install puts a new root on the runner, and returns the one it replaced,
	// purged. New calls it for the first root, with no context: there is nothing
	// to purge then, and perhaps no runner yet.
	Install func(ctx *qdisc.Context, root qdisc.Qdisc) (old qdisc.Qdisc)

	// Default makes the root of a port for which nobody asked for any.
	Default func() (qdisc.Qdisc, *qdisc.Kind)

	// Changed is called after a change of parameters, which may have changed
	// what the runner remembers of its root. Optional.
	Changed func()

	// NextHandle gives the next major number for a qdisc that comes without
	// one: 0x8001 and up, one counter for all trees. Default: a counter of this
	// tree.
	NextHandle func() uint32
}

func (c *Config) validate() error {
	switch {
	case c.Env == nil:
		return errors.New("tree without Env")
	case c.Lookup == nil:
		return errors.New("tree without Lookup")
	case c.Install == nil:
		return errors.New("tree without Install")
	case c.Default == nil:
		return errors.New("tree without Default")
	case c.TxQueues < 0:
		return fmt.Errorf("tree for %d transmit queues; at least 1 is needed", c.TxQueues)
	}
	if c.TxQueues == 0 {
		c.TxQueues = 1
	}
	if c.Changed == nil {
		c.Changed = func() {}
	}
	if c.NextHandle == nil {
		last := uint32(0x8000)
		c.NextHandle = func() uint32 {
			if last++; last > 0xfffe {
				last = 0x8001
			}
			return last
		}
	}
	return nil
}

// Tree is the qdiscs of one port.
type Tree struct {
	cfg  Config
	root qdisc.Qdisc

	// nodes is what a qdisc does not know of itself. Default children are in it
	// too, with handle 0: their constructors pass through here. Some have left the
	// tree and are still in it, until forget sweeps.
	nodes   map[qdisc.Qdisc]node
	handles map[uint32]qdisc.Qdisc // the last one with each handle
	swept   int                    // nodes after the last sweep
}

type node struct {
	kind   *qdisc.Kind
	handle uint32
	parent qdisc.Qdisc   // of one with a handle: what it is the child of, nil at the root,
	class  qdisc.ClassID // and by which class
}

// New makes a tree with the default root, and installs it.
func New(cfg Config) (*Tree, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	t := &Tree{cfg: cfg, nodes: map[qdisc.Qdisc]node{}, handles: map[uint32]qdisc.Qdisc{}}
	t.installDefault(nil)
	return t, nil
}

// Name returns the port's name.
func (t *Tree) Name() string { return t.cfg.Name }

// Root returns the qdisc at the root.
func (t *Tree) Root() qdisc.Qdisc { return t.root }

// Lookup finds a qdisc by the major number of its handle.
func (t *Tree) Lookup(handle qdisc.ClassID) (qdisc.Qdisc, *qdisc.Kind, bool) {
	if at := t.find(handle.Major()); at != nil {
		return at.q, t.nodes[at.q].kind, true
	}
	return nil, nil, false
}

// place is where a qdisc stands.
type place struct {
	q      qdisc.Qdisc
	parent qdisc.ClassID // the class it is the child of, or Root
	path   []qdisc.Step  // from the root to q itself
}

// walk visits every qdisc, parents first, until f returns false.
func (t *Tree) walk(f func(place) bool) {
	t.descend(place{t.root, Root, []qdisc.Step{{Qdisc: t.root}}}, f)
}

func (t *Tree) descend(at place, f func(place) bool) bool {
	if !f(at) {
		return false
	}
	more := true
	for _, c := range classes(at.q) {
		if c.Leaf != nil && more {
			more = t.descend(place{c.Leaf, c.ID, extend(at.path, c.ID, c.Leaf)}, f)
		}
	}
	return more
}

// extend returns path continued through a class to its child.
func extend(path []qdisc.Step, class qdisc.ClassID, leaf qdisc.Qdisc) []qdisc.Step {
	longer := append(make([]qdisc.Step, 0, len(path)+1), path...)
	longer[len(path)-1].Class = class
	return append(longer, qdisc.Step{Qdisc: leaf})
}

// classes lists the classes of q.
func classes(q qdisc.Qdisc) []qdisc.Class {
	parent, ok := q.(qdisc.Walker)
	if !ok {
		return nil
	}
	var all []qdisc.Class
	parent.Walk(func(c qdisc.Class) bool {
		all = append(all, c)
		return true
	})
	return all
}

// classOf finds a class of q and its child.
func classOf(q qdisc.Qdisc, id qdisc.ClassID) (leaf qdisc.Qdisc, ok bool) {
	if f, finds := q.(qdisc.Finder); finds {
		return f.Find(id)
	}
	if parent, walks := q.(qdisc.Walker); walks {
		parent.Walk(func(c qdisc.Class) bool {
			leaf, ok = c.Leaf, c.ID == id
			return !ok
		})
	}
	return leaf, ok
}

// find returns the place of the qdisc with a handle, nil when there is none.
// Handle 0 names nothing.
func (t *Tree) find(major uint32) *place {
	if q, known := t.handles[major]; known {
		return t.place(q)
	}
	return nil
}

// place returns where a qdisc with a handle stands, nil when it has left the
// tree. It asks upwards, so that an edit costs the same in a tree of any width.
func (t *Tree) place(q qdisc.Qdisc) *place {
	if q == t.root {
		return &place{q, Root, []qdisc.Step{{Qdisc: q}}}
	}
	n := t.nodes[q]
	if n.parent == nil {
		return nil
	}
	up := t.place(n.parent)
	if up == nil {
		return nil
	}
	if leaf, ok := classOf(n.parent, n.class); !ok || leaf != q {
		return nil
	}
	return &place{q, n.class, extend(up.path, n.class, q)}
}

// env is the port as a constructor sees it, with default children that the tree
// gets to know.
func (t *Tree) env(handle uint32) qdisc.Env {
	e := t.cfg.Env(handle)
	e.Handle = handle
	e.Pfifo = t.noted("pfifo", e.Pfifo)
	e.Bfifo = t.noted("bfifo", e.Bfifo)
	return e
}

func (t *Tree) noted(kind string, make func(int) qdisc.Qdisc) func(int) qdisc.Qdisc {
	if make == nil {
		return nil
	}
	return func(limit int) qdisc.Qdisc {
		q := make(limit)
		t.nodes[q] = node{kind: t.cfg.Lookup(kind)}
		return q
	}
}

// forget sweeps when half of the nodes may be of qdiscs that have left the tree.
func (t *Tree) forget() {
	if len(t.nodes) > 2*t.swept+16 {
		t.sweep()
	}
}

// sweep drops the nodes of qdiscs that are no longer in the tree.
func (t *Tree) sweep() {
	kept := make(map[qdisc.Qdisc]node, len(t.nodes))
	clear(t.handles)
	t.walk(func(at place) bool {
		n := t.nodes[at.q]
		kept[at.q] = n
		if n.handle != 0 {
			t.handles[n.handle] = at.q
		}
		return true
	})
	t.nodes, t.swept = kept, len(kept)
}

func (t *Tree) installDefault(ctx *qdisc.Context) {
	q, kind := t.cfg.Default()
	t.nodes[q] = node{kind: kind}
	t.install(ctx, q)
}

func (t *Tree) install(ctx *qdisc.Context, q qdisc.Qdisc) {
	t.cfg.Install(ctx, q)
	t.root = q
	t.sweep()
}
