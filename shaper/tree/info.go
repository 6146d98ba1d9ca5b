package tree

import "sluice/qdisc"

// QdiscInfo is one qdisc as it was when the snapshot was taken. It travels over
// the control socket.
type QdiscInfo struct {
	Dev     string        `json:"dev"`
	Kind    string        `json:"kind"`
	Handle  qdisc.ClassID `json:"handle"` // 0 for a default
	Parent  qdisc.ClassID `json:"parent"` // Root, or the class it is the child of
	RefCnt  int           `json:"refcnt,omitempty"`
	Hidden  bool          `json:"hidden,omitempty"` // a class's default child: shown only when asked for (TCQ_F_INVISIBLE)
	Options qdisc.Values  `json:"options,omitempty"`
	Stats   qdisc.Stats   `json:"stats"`
	Qlen    int           `json:"qlen"`
	Backlog int           `json:"backlog"`
	XStats  qdisc.Values  `json:"xstats,omitempty"`
}

// ClassInfo is one class as it was when the snapshot was taken.
type ClassInfo struct {
	Dev     string        `json:"dev"`
	Kind    string        `json:"kind"`
	ID      qdisc.ClassID `json:"id"`
	Parent  qdisc.ClassID `json:"parent,omitempty"` // 0: hangs off the qdisc itself, "root" to tc
	Leaf    qdisc.ClassID `json:"leaf,omitempty"`   // handle of its child; 0 for a default child or none
	Options qdisc.Values  `json:"options,omitempty"`
	Stats   qdisc.Stats   `json:"stats"`
	Qlen    int           `json:"qlen"`
	Backlog int           `json:"backlog"`
	XStats  qdisc.Values  `json:"xstats,omitempty"`
}

// Qdiscs returns a snapshot of all qdiscs, parents before children.
func (t *Tree) Qdiscs() []QdiscInfo {
	var all []QdiscInfo
	t.walk(func(at place) bool {
		n, base := t.nodes[at.q], at.q.Self()
		info := QdiscInfo{
			Dev:     t.cfg.Name,
			Kind:    n.name(),
			Handle:  qdisc.MakeID(n.handle, 0),
			Parent:  at.parent,
			Hidden:  at.parent != Root && n.handle == 0,
			Stats:   base.Stats,
			Qlen:    at.q.Len(),
			Backlog: at.q.Backlog(),
		}
		if at.parent == Root {
			info.RefCnt = t.cfg.TxQueues + 1
		}
		if d, ok := at.q.(qdisc.Dumper); ok {
			info.Options = d.Dump()
		}
		if x, ok := at.q.(qdisc.XStatser); ok {
			info.XStats = x.XStats()
		}
		all = append(all, info)
		return true
	})
	return all
}

// Classes returns a snapshot of the classes of all qdiscs.
func (t *Tree) Classes() []ClassInfo {
	var all []ClassInfo
	t.walk(func(at place) bool {
		for _, c := range classes(at.q) {
			if c.Hidden {
				continue
			}
			info := ClassInfo{
				Dev:     t.cfg.Name,
				Kind:    t.nodes[at.q].name(),
				ID:      c.ID,
				Parent:  c.Parent,
				Options: c.Params,
				Stats:   c.Stats,
				Qlen:    c.Len,
				Backlog: c.Bytes,
				XStats:  c.XStats,
			}
			if c.Leaf != nil {
				info.Leaf = qdisc.MakeID(t.nodes[c.Leaf].handle, 0)
			}
			all = append(all, info)
		}
		return true
	})
	return all
}

// name is the kind's, or a word for a child that a kind made by its own means.
func (n node) name() string {
	if n.kind == nil {
		return "unknown"
	}
	return n.kind.Name
}
