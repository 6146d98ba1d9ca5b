package config

import (
	"fmt"
	"strconv"

	"sluice/qdisc"
	"sluice/shaper/classify/nearest"
)

// checker looks at what the tables say of each other. What a table got wrong by
// itself has been reported, and is zero here.
type checker struct {
	*decoder
	c       *Config
	devs    []string
	handles map[ref]int // index into Qdiscs
	classes map[ref]int // index into Classes
}

// ref is a qdisc or class of a port.
type ref struct {
	dev string
	id  qdisc.ClassID
}

func (d *decoder) check(c *Config) {
	ch := &checker{decoder: d, c: c, handles: map[ref]int{}, classes: map[ref]int{}}
	ch.links()
	ch.names()
	for i := range c.Qdiscs {
		ch.qdisc(i)
	}
	for i := range c.Classes {
		ch.class(i)
	}
	for i := range c.Filters {
		ch.filter(i)
	}
}

// at notes a mistake in the value of a key of one of the tables.
func (ch *checker) at(tables string, i int, key string, p *problem) {
	path := child(element(tables, i), key)
	ch.fail(ch.valuePos(path), path, "", p)
}

// links checks that no interface is used twice.
func (ch *checker) links() {
	owner := map[string]string{}
	for _, l := range ch.c.Links {
		for i, p := range []Port{l.Inside, l.Outside} {
			if p.Dev == "" {
				continue
			}
			path := child(child("link", l.Name), [...]string{"inside", "outside"}[i])
			other, taken := owner[p.Dev]
			if taken && other != l.Name {
				ch.fail(p.Pos, path, p.Dev, problemf("Each interface belongs to one link.", "%q belongs to link %q already", p.Dev, other))
			}
			if !taken {
				owner[p.Dev] = l.Name
				ch.devs = append(ch.devs, p.Dev)
			}
		}
	}
}

// names notes who has which handle or class id, and refuses the second.
func (ch *checker) names() {
	roots, places := map[string]int{}, map[ref]int{}
	for i, q := range ch.c.Qdiscs {
		if q.Handle != 0 {
			if first, ok := ch.handles[ref{q.Dev, q.Handle}]; ok {
				ch.at("qdisc", i, "handle", problemf("Give it another.", "the handle %q of %s is taken by the qdisc on line %d",
					q.Handle, q.Dev, ch.c.Qdiscs[first].Pos.Line))
			} else {
				ch.handles[ref{q.Dev, q.Handle}] = i
			}
		}
		switch {
		case q.Root:
			if first, ok := roots[q.Dev]; ok {
				ch.at("qdisc", i, "root", problemf(`Remove one, or give this one parent = "1:2".`, "%s has a root qdisc already, on line %d",
					q.Dev, ch.c.Qdiscs[first].Pos.Line))
			} else {
				roots[q.Dev] = i
			}
		case q.Parent != 0:
			if first, ok := places[ref{q.Dev, q.Parent}]; ok {
				ch.at("qdisc", i, "parent", problemf("Remove one of them.", "class %q of %s has a qdisc already, on line %d",
					q.Parent, q.Dev, ch.c.Qdiscs[first].Pos.Line))
			} else {
				places[ref{q.Dev, q.Parent}] = i
			}
		}
	}
	for i, cl := range ch.c.Classes {
		if cl.ID == 0 {
			continue
		}
		if first, ok := ch.classes[ref{cl.Dev, cl.ID}]; ok {
			ch.at("class", i, "classid", problemf("Give it another.", "the class id %q of %s is taken by the class on line %d",
				cl.ID, cl.Dev, ch.c.Classes[first].Pos.Line))
		} else {
			ch.classes[ref{cl.Dev, cl.ID}] = i
		}
	}
}

// dev checks that a port belongs to a link. Without links everything has been
// said by one error.
func (ch *checker) dev(tables string, i int, dev string) bool {
	if dev == "" {
		return false
	}
	if contains(ch.devs, dev) {
		return true
	}
	hint := "Add a [link.NAME] with it as inside or outside."
	if near := nearest.Word(dev, ch.devs); near != "" {
		hint = fmt.Sprintf("Did you mean %q?", near)
	}
	ch.at(tables, i, "dev", problemf(hint, "%q belongs to no link", dev))
	return false
}

// owner finds the qdisc that a handle or class id belongs to; −1, reported, when
// there is none.
func (ch *checker) owner(tables string, i int, key, dev string, id qdisc.ClassID) int {
	handle := qdisc.MakeID(id.Major(), 0)
	if q, ok := ch.handles[ref{dev, handle}]; ok {
		return q
	}
	ch.at(tables, i, key, problemf(fmt.Sprintf("Add handle = %q to the [[qdisc]] that is meant.", handle),
		"%s has no qdisc with the handle %q", dev, handle))
	return -1
}

func (ch *checker) qdisc(i int) {
	q := &ch.c.Qdiscs[i]
	if !ch.dev("qdisc", i, q.Dev) || q.Parent.Minor() == 0 {
		return
	}
	owner := ch.owner("qdisc", i, "parent", q.Dev, q.Parent)
	if owner < 0 {
		return
	}
	if k := ch.kinds[owner]; k != nil && k.Flags&qdisc.IsClassful == 0 {
		ch.at("qdisc", i, "parent", problemf("Choose another parent.", "%q is of kind %s, which has no classes",
			ch.c.Qdiscs[owner].Handle, k.Name))
		return
	}
	if ch.exists("qdisc", i, "parent", owner, q.Parent) {
		ch.rooted(i)
	}
}

// maxAbove is how many qdiscs may stand above another, as in the kernel
// (check_loop) and in the tree that is built of these.
const maxAbove = 7

// rooted checks that the way up from a qdisc ends at a root, and soon.
func (ch *checker) rooted(i int) {
	q := &ch.c.Qdiscs[i]
	at := i
	for range maxAbove + 1 {
		next, ok := ch.handles[ref{q.Dev, qdisc.MakeID(ch.c.Qdiscs[at].Parent.Major(), 0)}]
		if !ok || ch.c.Qdiscs[at].Root {
			return // at the root, or reported
		}
		if at = next; at == i {
			ch.at("qdisc", i, "parent", problemf("Make one of them the root.", "the qdisc hangs below itself"))
			return
		}
	}
	ch.at("qdisc", i, "parent", problemf("Hang it higher up.", "more than %d qdiscs stand above this one", maxAbove))
}

// exists checks that a class of a qdisc is there, as far as that can be known.
func (ch *checker) exists(tables string, i int, key string, owner int, id qdisc.ClassID) bool {
	q, k := &ch.c.Qdiscs[owner], ch.kinds[owner]
	if k == nil {
		return false
	}
	if k.Flags&qdisc.HasClasses != 0 {
		_, ok := ch.classes[ref{q.Dev, id}]
		if !ok {
			ch.at(tables, i, key, problemf(fmt.Sprintf("Add a [[class]] with classid = %q.", id), "%s has no class %q", q.Dev, id))
		}
		return ok
	}
	if ch.built[owner] == nil {
		return true // what it would have is not known
	}
	n := classCount(k, q.Values)
	if n < 0 || int(id.Minor()) <= n && id.Minor() > 0 {
		return true
	}
	hint := fmt.Sprintf("Its classes are %s to %s.", qdisc.MakeID(id.Major(), 1), qdisc.MakeID(id.Major(), uint32(n)))
	if n == 1 {
		hint = fmt.Sprintf("Its one class is %q.", qdisc.MakeID(id.Major(), 1))
	}
	ch.at(tables, i, key, problemf(hint, "the %s %q has no class %q", k.Name, q.Handle, id))
	return false
}

// classCount is how many classes come with a qdisc, −1 when the port decides.
func classCount(k *qdisc.Kind, v qdisc.Values) int {
	switch {
	case k.Flags&qdisc.IsClassful == 0:
		return 0
	case k.Name == "mq" || k.Name == "mqprio":
		return -1
	}
	p := param(k.Params, "bands")
	if p == nil {
		return 1
	}
	n, _ := strconv.Atoi(p.Default) // ets has none, its Check fills bands in
	return int(v.N("bands", uint64(n)))
}

func (ch *checker) class(i int) {
	cl := &ch.c.Classes[i]
	if !ch.dev("class", i, cl.Dev) || cl.Parent == 0 {
		return
	}
	owner := ch.owner("class", i, "parent", cl.Dev, cl.Parent)
	if owner < 0 {
		return
	}
	q := &ch.c.Qdiscs[owner]
	if cl.ID != 0 && cl.ID.Major() != q.Handle.Major() {
		ch.at("class", i, "classid", problemf(fmt.Sprintf("Write %q.", qdisc.MakeID(q.Handle.Major(), cl.ID.Minor())),
			"class %q is not of the qdisc %q", cl.ID, q.Handle))
	}
	if cl.Kind != "" && q.Kind != "" && cl.Kind != q.Kind {
		ch.at("class", i, "kind", problemf(fmt.Sprintf("Write %q, as the qdisc is.", q.Kind),
			"the class is of kind %q, its qdisc is not", cl.Kind))
		return
	}
	if cl.Parent.Minor() == 0 || !ch.exists("class", i, "parent", owner, cl.Parent) {
		return
	}
	at := cl
	for range ch.c.Classes {
		if at.Parent.Minor() == 0 {
			return
		}
		next, ok := ch.classes[ref{cl.Dev, at.Parent}]
		if !ok {
			return
		}
		at = &ch.c.Classes[next]
	}
	ch.at("class", i, "parent", problemf("Give one of them the qdisc as parent.", "the class hangs below itself"))
}

func (ch *checker) filter(i int) {
	f := &ch.c.Filters[i]
	if !ch.dev("filter", i, f.Dev) || f.Parent == 0 {
		return
	}
	owner := ch.owner("filter", i, "parent", f.Dev, f.Parent)
	if owner < 0 {
		return
	}
	q, k := &ch.c.Qdiscs[owner], ch.kinds[owner]
	switch {
	case k == nil:
		return
	case k.Flags&qdisc.IsClassful == 0:
		ch.at("filter", i, "parent", problemf("Attach the filter to a qdisc that has.", "%q is of kind %s, which has no classes to choose from",
			q.Handle, k.Name))
		return
	case ch.built[owner] != nil && !isFiltered(ch.built[owner]):
		ch.at("filter", i, "parent", problemf("Attach the filter to a qdisc that does.", "%q is of kind %s, which asks no filters",
			q.Handle, k.Name))
		return
	case f.Parent.Minor() != 0 && !ch.exists("filter", i, "parent", owner, f.Parent):
		return
	}
	if f.Class == 0 {
		return
	}
	if f.Class.Major() != q.Handle.Major() {
		ch.at("filter", i, "class", problemf(fmt.Sprintf("Name a class of %q, where the filter is attached.", q.Handle),
			"class %q is not of the qdisc %q", f.Class, q.Handle))
		return
	}
	ch.exists("filter", i, "class", owner, f.Class)
}

func isFiltered(q qdisc.Qdisc) bool {
	_, ok := q.(qdisc.Filtered)
	return ok
}
