package tree

import (
	"fmt"
	"syscall"

	"sluice/qdisc"
)

// Op is what a request asks for. Each stands for the flags that tc sends with
// its command of the same name.
type Op uint8

const (
	Add     Op = iota + 1 // create, and nothing may be there (NLM_F_CREATE|NLM_F_EXCL)
	Change                // alter what is there (no flag)
	Replace               // alter what is there, or create (NLM_F_CREATE|NLM_F_REPLACE)
	Link                  // put an existing handle there (NLM_F_REPLACE)
	Delete                // remove what is there
)

var opNames = [...]string{Add: "add", Change: "change", Replace: "replace", Link: "link", Delete: "del"}

func (o Op) String() string {
	if o == 0 || int(o) >= len(opNames) {
		return fmt.Sprintf("op(%d)", uint8(o))
	}
	return opNames[o]
}

// MarshalText makes an Op travel as tc's word for it.
func (o Op) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads tc's word.
func (o *Op) UnmarshalText(b []byte) error {
	for op, name := range opNames {
		if name != "" && name == string(b) {
			*o = Op(op)
			return nil
		}
	}
	return fmt.Errorf("unknown operation %q", b)
}

// creates says whether the operation may make what is not there.
func (o Op) creates() bool { return o == Add || o == Replace }

// overrides says whether the operation may take the place of another handle.
func (o Op) overrides() bool { return o == Replace || o == Link }

// Request is one edit of a qdisc or a class.
type Request struct {
	Op      Op            `json:"op"`
	Parent  qdisc.ClassID `json:"parent,omitempty"`  // class, qdisc or Root; 0 = not given
	Handle  qdisc.ClassID `json:"handle,omitempty"`  // of the qdisc; 0 = not given
	ClassID qdisc.ClassID `json:"classid,omitempty"` // of the class; requests for Class only
	Kind    string        `json:"kind,omitempty"`    // empty = not given
	Values  qdisc.Values  `json:"values,omitempty"`  // parameters
}

// Qdisc adds, changes, replaces or deletes a qdisc. Refusals are [*qdisc.Error]
// in the kernel's words; nothing has changed then.
func (t *Tree) Qdisc(ctx *qdisc.Context, r Request) error {
	if r.Op == Delete {
		return t.delete(ctx, r)
	}
	if r.Parent == 0 {
		if r.Handle.Major() == 0 {
			return qdisc.Refuse(syscall.EINVAL, "Handle cannot be zero")
		}
		return t.change(ctx, t.find(r.Handle.Major()), r)
	}
	s, err := t.slot(r.Parent, "Failed to find specified qdisc")
	if err != nil {
		return err
	}
	there := s.occupant(t)
	major := r.Handle.Major()
	switch {
	case there != nil && (major == t.nodes[there.q].handle || major == 0 && !t.makesWay(there, r)):
		return t.change(ctx, there, r)
	case major == 0:
		return t.create(ctx, s, r, there == nil)
	case there != nil && !r.Op.overrides():
		return qdisc.Refuse(syscall.EEXIST, "NLM_F_REPLACE needed to override")
	case r.Handle.Minor() != 0:
		return qdisc.Refuse(syscall.EINVAL, "Invalid minor handle")
	case t.find(major) != nil: // it stands elsewhere, or it would be there
		return qdisc.Refuse(syscall.EINVAL, "Cannot move an existing qdisc to a different parent")
	}
	return t.create(ctx, s, r, true)
}

// makesWay says whether a request without a handle replaces the qdisc that is
// there: when it names another kind. Even Add and Change do so, a hole in the API
// that the kernel keeps.
func (t *Tree) makesWay(there *place, r Request) bool {
	return r.Op != Link && r.Kind != "" && r.Kind != t.nodes[there.q].kind.Name
}

// slot is a position that a qdisc can take: the root, or a class.
type slot struct {
	parent *place        // nil at the root
	class  qdisc.ClassID // of parent, or Root
	child  place         // what is there now
}

// slot finds a position by its parent id.
func (t *Tree) slot(parent qdisc.ClassID, noParent string) (*slot, error) {
	if parent == Root {
		return &slot{class: Root, child: place{t.root, Root, []qdisc.Step{{Qdisc: t.root}}}}, nil
	}
	p := t.find(parent.Major())
	if p == nil {
		return nil, qdisc.Refuse(syscall.ENOENT, "%s", noParent)
	}
	if _, ok := p.q.(qdisc.Classful); !ok {
		return nil, qdisc.Refuse(syscall.EOPNOTSUPP, "Parent qdisc is not classful")
	}
	leaf, ok := classOf(p.q, parent)
	if !ok {
		return nil, qdisc.Refuse(syscall.ENOENT, "Specified class not found")
	}
	s := &slot{parent: p, class: parent}
	if leaf != nil {
		s.child = place{leaf, parent, extend(p.path, parent, leaf)}
	}
	return s, nil
}

// occupant is the qdisc in the slot that somebody asked for; defaults don't
// count.
func (s *slot) occupant(t *Tree) *place {
	if s.child.q == nil || t.nodes[s.child.q].handle == 0 {
		return nil
	}
	return &s.child
}

// change alters the parameters of the qdisc at a place, nil when it was not
// found.
func (t *Tree) change(ctx *qdisc.Context, at *place, r Request) error {
	if at == nil {
		return qdisc.Refuse(syscall.ENOENT, "Specified qdisc not found")
	}
	n := t.nodes[at.q]
	switch {
	case r.Op == Add:
		return qdisc.Refuse(syscall.EEXIST, "Exclusivity flag on, cannot modify")
	case r.Kind != "" && r.Kind != n.name():
		return qdisc.Refuse(syscall.EINVAL, "Invalid qdisc name: must match existing qdisc")
	case len(r.Values) == 0:
		return nil
	}
	q, ok := at.q.(qdisc.Changer)
	if !ok || n.kind.Flags&qdisc.NoChange != 0 {
		return qdisc.Refuse(syscall.EINVAL, "Change operation not supported by specified qdisc")
	}
	err := qdisc.Edit(at.path, func() error { return q.Change(ctx, r.Values) })
	t.forget() // fewer bands, fewer children
	t.cfg.Changed()
	return err
}

// create builds a new qdisc and puts it into a slot. empty says that nothing was
// there, in which case the operation must be one that creates.
func (t *Tree) create(ctx *qdisc.Context, s *slot, r Request, empty bool) error {
	if empty && !r.Op.creates() {
		return qdisc.Refuse(syscall.ENOENT, "Qdisc not found. To create specify NLM_F_CREATE flag")
	}
	kind := t.cfg.Lookup(r.Kind)
	if kind == nil {
		return qdisc.Refuse(syscall.ENOENT, "Specified qdisc kind is unknown")
	}
	if s.parent != nil && len(s.parent.path) > maxDepth {
		return qdisc.Refuse(syscall.ELOOP, "Qdiscs nest deeper than %d", maxDepth)
	}
	handle := r.Handle.Major()
	if handle == 0 {
		var err error
		if handle, err = t.freeHandle(); err != nil {
			return err
		}
	}
	q, err := kind.New(t.env(handle), r.Values)
	if err != nil {
		t.forget()
		return err
	}
	if s.parent == nil {
		t.nodes[q] = node{kind: kind, handle: handle}
		t.install(ctx, q)
		return nil
	}
	if kind.Flags&qdisc.NoQueue != 0 {
		t.forget()
		return qdisc.Refuse(syscall.EINVAL, "Cannot assign noqueue to a class")
	}
	return t.graft(ctx, s, q, node{kind, handle, s.parent.q, s.class})
}

// graft makes q, or the default child when q is nil, the child of a class.
func (t *Tree) graft(ctx *qdisc.Context, s *slot, q qdisc.Qdisc, n node) error {
	if q != nil {
		t.nodes[q], t.handles[n.handle] = n, q
	}
	err := qdisc.Edit(s.parent.path, func() error {
		_, err := s.parent.q.(qdisc.Classful).Graft(ctx, s.class, q)
		return err
	})
	t.forget()
	t.cfg.Changed()
	return err
}

// freeHandle takes numbers from the counter until one is free on this port.
func (t *Tree) freeHandle() (uint32, error) {
	for range 0x8000 {
		if h := t.cfg.NextHandle(); t.find(h) == nil {
			return h, nil
		}
	}
	return 0, qdisc.Refuse(syscall.ENOSPC, "Maximum number of qdisc handles was exceeded")
}

// delete removes a qdisc; the default comes back in its place.
func (t *Tree) delete(ctx *qdisc.Context, r Request) error {
	var at *place
	var s *slot
	switch r.Parent {
	case 0:
		if at = t.find(r.Handle.Major()); at == nil {
			return qdisc.Refuse(syscall.ENOENT, "Failed to find qdisc with specified handle")
		}
	case Ingress:
	default:
		var err error
		if s, err = t.slot(r.Parent, "Failed to find qdisc with specified classid"); err != nil {
			return err
		}
		if s.child.q != nil {
			at = &s.child
		}
	}
	if at == nil {
		return qdisc.Refuse(syscall.ENOENT, "Cannot find specified qdisc on specified device")
	}
	n := t.nodes[at.q]
	switch {
	case r.Handle.Major() != 0 && r.Handle.Major() != n.handle:
		return qdisc.Refuse(syscall.EINVAL, "Invalid handle")
	case r.Kind != "" && r.Kind != n.name():
		return qdisc.Refuse(syscall.EINVAL, "Invalid qdisc name: must match existing qdisc")
	case s == nil:
		return qdisc.Refuse(syscall.EINVAL, "Classid cannot be zero")
	case n.handle == 0:
		return qdisc.Refuse(syscall.ENOENT, "Cannot delete qdisc with handle of zero")
	case s.parent == nil:
		t.installDefault(ctx)
		return nil
	}
	return t.graft(ctx, s, nil, node{})
}
