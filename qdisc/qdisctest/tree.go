package qdisctest

import (
	"errors"
	"fmt"
	"syscall"

	"sluice/qdisc"
)

// leaves returns the classes of the discipline under test that have a child.
func (w *world) leaves() []qdisc.ClassID {
	var ids []qdisc.ClassID
	if q, ok := w.q.(qdisc.Classful); ok {
		q.Walk(func(c qdisc.Class) bool {
			if c.Leaf != nil || c.Hidden {
				ids = append(ids, c.ID)
			}
			return true
		})
	}
	return ids
}

// configure runs an administrative change of the discipline under test, which
// comes in through its parents.
func (w *world) configure(o op) {
	w.peeked, w.idle = nil, false
	w.newOrder()
	drops, state := w.drops, w.state()
	var refused error
	err := qdisc.Edit(w.path, func() error {
		switch o.do {
		case change:
			if q, ok := w.q.(qdisc.Changer); ok {
				refused = q.Change(w.ctx, w.c.Changes[int(o.n)%len(w.c.Changes)])
			}
		case filter:
			if q, ok := w.q.(qdisc.Filtered); ok {
				w.filtered = !w.filtered
				if w.filtered {
					return q.SetClassifier(0, stub{})
				}
				return q.SetClassifier(0, nil)
			}
		case graft:
			w.graftOp(o)
		default:
			if q, ok := w.q.(qdisc.ClassEditor); ok {
				refused = w.editClass(q, o)
			}
		}
		return nil
	})
	if err != nil {
		w.t.Fatalf("%v: %v", o, err)
	}
	if refused != nil {
		if w.drops != drops {
			w.t.Fatalf("%v was refused (%v), and dropped %d", o, refused, w.drops-drops)
		}
		if now := w.state(); now != state {
			w.t.Fatalf("%v was refused (%v), and changed\n%s\nto\n%s", o, refused, state, now)
		}
		if e := (*qdisc.Error)(nil); !errors.As(refused, &e) {
			w.t.Fatalf("%v: error %v is not a *qdisc.Error", o, refused)
		}
		w.see("refusal", uint64(o.do))
	}
}

// state returns the parameters of the discipline under test and its classes.
func (w *world) state() string {
	text := ""
	if q, ok := w.q.(qdisc.Dumper); ok {
		text = fmt.Sprint(q.Dump())
	}
	if q, ok := w.q.(qdisc.Classful); ok {
		q.Walk(func(c qdisc.Class) bool {
			text += fmt.Sprintf(" %v under %v: %v, %d packets", c.ID, c.Parent, c.Params, c.Len)
			return true
		})
	}
	return text
}

func (w *world) editClass(q qdisc.ClassEditor, o op) error {
	id := qdisc.MakeID(handle, 1+o.class%6)
	v := w.c.ClassValues[int(o.n)%len(w.c.ClassValues)]
	switch o.do {
	case addClass:
		return q.AddClass(w.ctx, 0, id, v)
	case changeClass:
		return q.ChangeClass(w.ctx, id, v)
	default:
		return q.DeleteClass(w.ctx, id)
	}
}

func (w *world) graftOp(o op) {
	q, ok := w.q.(qdisc.Classful)
	if !ok {
		return
	}
	if _, err := q.Graft(w.ctx, qdisc.MakeID(handle, 0xfff0), &Fifo{}); !errors.Is(err, syscall.ENOENT) {
		w.t.Fatalf("Graft on a class that does not exist: %v; want %v", err, syscall.ENOENT)
	}
	classes := w.leaves()
	if len(classes) == 0 {
		return
	}
	class := classes[int(o.class)%len(classes)]
	if n := int(o.n) % (len(children) + 1); n < len(children) {
		w.graft(class, children[n]())
	} else {
		w.graft(class, nil)
	}
}

// notify tells the discipline, twice, of every class that is empty, and of one
// that does not exist: what it must be able to hear at any time (qlen_notify).
func (w *world) notify() {
	q, ok := w.q.(qdisc.QlenNotifier)
	if !ok {
		return
	}
	for _, class := range w.leaves() {
		if l := leaf(w.q.(qdisc.Classful), class); l != nil && l.Len() == 0 {
			q.QlenNotify(class)
			q.QlenNotify(class)
		}
	}
	q.QlenNotify(qdisc.MakeID(handle, 0xfff0))
}

// graft makes child the qdisc of class.
func (w *world) graft(class qdisc.ClassID, child qdisc.Qdisc) {
	q := w.q.(qdisc.Classful)
	before := leaf(q, class)
	old, err := q.Graft(w.ctx, class, child)
	if err != nil {
		w.t.Fatalf("Graft on %v: %v", class, err)
	}
	after := leaf(q, class)
	switch {
	case old != before:
		w.t.Fatalf("Graft on %v did not return the child that was there", class)
	case after == nil && child == nil: // a class that may be without
	case old != nil && (old.Len() != 0 || old.Backlog() != 0):
		w.t.Fatalf("Graft on %v returned a child with %d packets in it", class, old.Len())
	case old == nil && after == child:
	case old.Len() != 0 || old.Backlog() != 0:
		w.t.Fatalf("Graft on %v returned a child with %d packets in it", class, old.Len())
	case after == nil || after == old, child != nil && after != child:
		w.t.Fatalf("Graft on %v left %v in place", class, after)
	}
	if _, ok := child.(*Slow); ok {
		w.throttles = true
	}
}

func leaf(q qdisc.Classful, class qdisc.ClassID) (leaf qdisc.Qdisc) {
	q.Walk(func(c qdisc.Class) bool {
		if c.ID == class {
			leaf = c.Leaf
		}
		return c.ID != class
	})
	return leaf
}

// heldBelow returns the packets of q's tree that stand outside any queue.
func heldBelow(q qdisc.Qdisc) int {
	n, _ := q.Self().Held()
	if q, ok := q.(qdisc.Classful); ok {
		q.Walk(func(c qdisc.Class) bool {
			if c.Leaf != nil {
				n += heldBelow(c.Leaf)
			}
			return true
		})
	}
	return n
}

// invariants checks the books against the tree.
func (w *world) invariants() {
	root := w.root.Self()
	if w.root.Len() != w.queued || w.root.Backlog() != w.bytes {
		w.t.Fatalf("the tree says %d packets, %d bytes; there are %d, %d",
			w.root.Len(), w.root.Backlog(), w.queued, w.bytes)
	}
	if out := w.pool.Size() - w.pool.Available(); out != w.queued {
		w.t.Fatalf("%d frames are out, for %d queued packets", out, w.queued)
	}
	if root.Drops != w.drops {
		w.t.Fatalf("the root counts %d drops; there were %d", root.Drops, w.drops)
	}
	var all uint64
	for _, n := range w.ctx.Drops {
		all += n
	}
	if all < w.drops {
		w.t.Fatalf("reasons sum up to %d drops; there were %d", all, w.drops)
	}
	held, heldBytes := root.Held()
	if n, b := w.sent+w.lost+uint64(held), w.sentB+w.lostB+uint64(heldBytes); root.Packets != n || root.Bytes != b {
		w.t.Fatalf("the root counts %d packets, %d bytes sent; it was %d, %d", root.Packets, root.Bytes, n, b)
	}
	w.node(w.root, "root")
}

// direct is a htb: it has a queue beside its classes.
type direct interface{ Direct() (packets, bytes int) }

// node checks one qdisc and everything below it.
func (w *world) node(q qdisc.Qdisc, name string) {
	b := q.Self()
	held, heldBytes := b.Held()
	if q.Len() < held || held < 0 || q.Backlog() < heldBytes || (q.Len() == 0) != (q.Backlog() == 0) {
		w.t.Fatalf("%s: len %d, backlog %d, held %d, %d bytes", name, q.Len(), q.Backlog(), held, heldBytes)
	}
	parent, ok := q.(qdisc.Classful)
	if !ok {
		return
	}
	n, bytes, drops := held, heldBytes, uint64(0)
	if q == w.q && w.c.Own != nil {
		own, ownBytes := w.c.Own(q)
		n, bytes = n+own, bytes+ownBytes
	} else if d, ok := q.(direct); ok {
		own, ownBytes := d.Direct()
		n, bytes = n+own, bytes+ownBytes
	}
	parent.Walk(func(c qdisc.Class) bool {
		if c.Leaf == nil {
			return true
		}
		if c.Len != c.Leaf.Len() || c.Bytes != c.Leaf.Backlog() {
			w.t.Fatalf("class %v shows len %d, backlog %d; its child has %d, %d",
				c.ID, c.Len, c.Bytes, c.Leaf.Len(), c.Leaf.Backlog())
		}
		n += c.Leaf.Len()
		bytes += c.Leaf.Backlog()
		drops += c.Leaf.Self().Drops
		w.node(c.Leaf, c.ID.String())
		return true
	})
	if n != q.Len() || bytes != q.Backlog() {
		w.t.Fatalf("%s: len %d, backlog %d; its children and what it holds sum up to %d, %d",
			name, q.Len(), q.Backlog(), n, bytes)
	}
	if drops > b.Drops {
		w.t.Fatalf("%s counts %d drops, its children %d", name, b.Drops, drops)
	}
}
