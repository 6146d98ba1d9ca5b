package tree

import (
	"syscall"

	"sluice/qdisc"
)

func errno(e syscall.Errno) error { return &qdisc.Error{Errno: e} }

// Class adds, changes, replaces or deletes a class. Refusals are
// [*qdisc.Error]; tc knows most of them by their errno alone. A warning, of which
// [qdisc.IsWarning] tells, means that it was done.
func (t *Tree) Class(ctx *qdisc.Context, r Request) error {
	at, id, err := t.classPlace(r)
	if err != nil {
		return err
	}
	if _, ok := at.q.(qdisc.Classful); !ok {
		return errno(syscall.EINVAL)
	}
	if r.Kind != "" && r.Kind != t.nodes[at.q].kind.Name {
		return errno(syscall.EINVAL)
	}
	_, exists := classOf(at.q, id)
	switch {
	case !exists && !r.Op.creates():
		return errno(syscall.ENOENT)
	case exists && r.Op == Add:
		return errno(syscall.EEXIST)
	case id == Root:
		return qdisc.Refuse(syscall.EINVAL, "Cannot create traffic class with classid TC_H_ROOT")
	}
	q, ok := at.q.(qdisc.ClassEditor)
	if !ok {
		return errno(syscall.EOPNOTSUPP)
	}
	if !exists && id.Minor() == 0 { // the qdisc itself, to every kind that makes classes
		return errno(syscall.EINVAL)
	}
	parent := r.Parent
	if parent == Root || parent.Minor() == 0 {
		parent = 0
	} else {
		parent = qdisc.MakeID(id.Major(), parent.Minor())
	}
	err = qdisc.Edit(at.path, func() error {
		switch {
		case r.Op == Delete:
			return q.DeleteClass(ctx, id)
		case exists:
			return q.ChangeClass(ctx, id, r.Values)
		}
		return q.AddClass(ctx, parent, id, r.Values)
	})
	t.forget()
	t.cfg.Changed()
	if w, ok := at.q.(qdisc.Warner); ok && err == nil {
		if text := w.Warning(); text != "" {
			return &qdisc.Error{Ext: text}
		}
	}
	return err
}

// classPlace finds the qdisc that a class request means, and the full id of the
// class: the major number comes from the class id, else from the parent, else it
// is the root's.
func (t *Tree) classPlace(r Request) (*place, qdisc.ClassID, error) {
	major := r.ClassID.Major()
	if p := r.Parent.Major(); r.Parent != Root && p != 0 {
		if major != 0 && major != p {
			return nil, 0, errno(syscall.EINVAL)
		}
		major = p
	}
	if major == 0 {
		major = t.nodes[t.root].handle
	}
	at := t.find(major)
	if at == nil {
		return nil, 0, errno(syscall.ENOENT)
	}
	return at, qdisc.MakeID(major, r.ClassID.Minor()), nil
}

// Attach makes c the classifier of a qdisc (its handle, or Root) or of a class;
// nil detaches.
func (t *Tree) Attach(parent qdisc.ClassID, c qdisc.Classifier) error {
	at, class := t.find(parent.Major()), parent
	if parent == Root {
		at = &place{q: t.root}
	}
	if at == nil {
		return qdisc.Refuse(syscall.EINVAL, "Parent Qdisc doesn't exists")
	}
	if parent == Root || parent.Minor() == 0 {
		class = 0
	}
	if _, ok := at.q.(qdisc.Walker); !ok {
		return qdisc.Refuse(syscall.EINVAL, "Qdisc not classful")
	}
	f, ok := at.q.(qdisc.Filtered)
	if !ok {
		return qdisc.Refuse(syscall.EOPNOTSUPP, "Class doesn't support blocks")
	}
	if class != 0 {
		if _, exists := classOf(at.q, class); !exists {
			return qdisc.Refuse(syscall.ENOENT, "Specified class doesn't exist")
		}
	}
	return f.SetClassifier(class, c)
}
