package tc

import (
	"io"

	"sluice/qdisc"
	"sluice/shaper/tree"
)

// Run carries out a command on the trees of this process, and prints to w what
// it shows. Only the worker that owns a tree may call it, between two turns; a
// client on the other side of the control socket sends the Request instead.
func Run(ctx *qdisc.Context, w io.Writer, c *Command, ports []*tree.Tree, lookup func(kind string) *qdisc.Kind) error {
	var named *tree.Tree
	for _, t := range ports {
		if t.Name() == c.Dev {
			named = t
		}
	}
	if c.Dev != "" && named == nil {
		return NoDevice(c.Dev)
	}
	switch {
	case c.Object == "filter":
		return NotYet(c)
	case c.Verb != "show" && c.Object == "class":
		return named.Class(ctx, c.Request)
	case c.Verb != "show":
		return named.Qdisc(ctx, c.Request)
	case c.Object == "class":
		var all []tree.ClassInfo
		for _, t := range ports {
			all = append(all, t.Classes()...)
		}
		return WriteClasses(w, c, all, lookup)
	}
	var all []tree.QdiscInfo
	for _, t := range ports {
		all = append(all, t.Qdiscs()...)
	}
	return WriteQdiscs(w, c, all, lookup)
}
