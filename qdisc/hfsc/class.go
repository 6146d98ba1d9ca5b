// Admin path.

package hfsc

import (
	"fmt"
	"math"
	"syscall"
	"time"

	"sluice/qdisc"
)

// service reads one curve from v. It may be given as two slopes or for a packet;
// one without any slope is no curve. Errors are what tc says.
func service(v qdisc.Values, name string) (curve, error) {
	n := func(key string) uint64 { return v.N(name+"."+key, 0) }
	given := func(keys ...string) bool {
		for _, key := range keys {
			if v.Has(name + "." + key) {
				return true
			}
		}
		return false
	}
	m1, d, m2 := n("m1"), n("d"), n("m2")
	switch slopes, packet := given("m1", "d", "m2"), given("umax", "dmax", "rate"); {
	case !slopes && !packet:
		return curve{}, nil
	case slopes && packet, slopes && !given("m2"), packet && !given("rate"), given("m1") != given("d"):
		return curve{}, qdisc.Misuse(fmt.Sprintf("HFSC: Illegal %q", name))
	case packet:
		umax, dmax := n("umax"), n("dmax")
		if umax > 0 && dmax == 0 {
			return curve{}, said("HFSC: umax given but dmax is zero.")
		}
		m1, d, m2 = 0, dmax, n("rate")
		if dmax > 0 {
			if slope := math.Ceil(float64(umax) * 1e9 / float64(dmax)); slope > float64(m2) {
				m1 = uint64(slope) // concave: the packet within dmax
			} else if m2 > 0 { // convex: nothing until the rate alone is enough
				d = dmax - uint64(float64(umax)*1e9/float64(m2))
			}
		}
	}
	if m1 > math.MaxUint32 || m2 > math.MaxUint32 {
		// The kernel has 32 bits of bytes a second here; a link may be faster.
		m1, m2 = min(m1, math.MaxInt64>>8), min(m2, math.MaxInt64>>8)
	}
	return newCurve(m1, time.Duration(min(d, uint64(far))), m2), nil
}

// said is what tc says, word for word.
type said string

func (s said) Error() string { return string(s) }

// curves reads all curves of a class.
func curves(v qdisc.Values) (rsc, fsc, usc curve, err error) {
	both, e1 := service(v, "sc")
	rsc, e2 := service(v, "rt")
	fsc, e3 := service(v, "ls")
	usc, e4 := service(v, "ul")
	for _, e := range []error{e1, e2, e3, e4} {
		if e != nil {
			return curve{}, curve{}, curve{}, e
		}
	}
	if !both.none() {
		rsc, fsc = both, both
	}
	return rsc, fsc, usc, nil
}

// checkClass is what tc refuses by itself.
func checkClass(v qdisc.Values) error {
	_, _, _, err := curves(v)
	return err
}

// given reads the curves for the kernel's side, which has an errno for what tc
// would not have sent.
func given(v qdisc.Values) (rsc, fsc, usc curve, err error) {
	if rsc, fsc, usc, err = curves(v); err != nil {
		err = &qdisc.Error{Errno: syscall.EINVAL, Ext: err.Error()}
	}
	return rsc, fsc, usc, err
}

// find returns a class by id, also the root, or the kernel's refusal.
func (q *hfsc) find(id qdisc.ClassID) (int32, error) {
	if id == 0 || id == qdisc.MakeID(q.handle, 0) {
		return root, nil
	}
	i := q.table.Find(id)
	if i == none {
		return none, &qdisc.Error{Errno: syscall.ENOENT}
	}
	return i, nil
}

// AddClass makes a class below parent, 0 for the qdisc itself. A parent that was
// a leaf drops its packets; one that had only a real-time curve shares by it from
// now on.
func (q *hfsc) AddClass(ctx *qdisc.Context, parent, id qdisc.ClassID, v qdisc.Values) error {
	if id.Major() != q.handle || id.Minor() == 0 {
		return &qdisc.Error{Errno: syscall.EINVAL}
	}
	if q.table.Find(id) != none {
		return &qdisc.Error{Errno: syscall.EEXIST}
	}
	above, err := q.find(parent)
	if err != nil {
		return err
	}
	rsc, fsc, usc, err := given(v)
	if err != nil {
		return err
	}
	if rsc.none() && fsc.none() {
		return &qdisc.Error{Errno: syscall.EINVAL}
	}
	i := q.slot()
	c := &q.classes[i]
	*c = class{id: id, parent: above, rsc: rsc, fsc: fsc, usc: usc, child: qdisc.NewChild(q.newChild())}
	c.forget()
	p := &q.classes[above]
	if above != root && p.children == 0 {
		p.child.Purge(ctx, &q.Base)
		q.deactivate(above)
		if p.fsc.none() {
			p.fsc = p.rsc
			p.virtual = p.fsc.start(p.vt, p.total)
		}
	}
	p.children++
	q.table.Insert(id, i)
	q.level(above)
	return nil
}

// slot returns a free slot, and sees that nothing has to grow later.
func (q *hfsc) slot() int32 {
	if n := len(q.free); n > 0 {
		i := q.free[n-1]
		q.free = q.free[:n-1]
		return i
	}
	q.classes = append(q.classes, class{})
	q.future.Grow(len(q.classes))
	q.ready.Grow(len(q.classes))
	q.asleep.Grow(len(q.classes))
	return int32(len(q.classes) - 1)
}

// level computes the heights of a class and those above it (hfsc_adjust_levels).
func (q *hfsc) level(i int32) {
	for {
		c := &q.classes[i]
		height := int32(0)
		for j := range q.classes {
			if k := &q.classes[j]; j != root && k.id != 0 && k.parent == i {
				height = max(height, k.level+1)
			}
		}
		if height == c.level && height > 0 {
			return
		}
		c.level = height
		if i == root {
			return
		}
		i = c.parent
	}
}

// ChangeClass replaces the curves that are given, from now on; what was promised
// or served before does not count.
func (q *hfsc) ChangeClass(ctx *qdisc.Context, id qdisc.ClassID, v qdisc.Values) error {
	i, err := q.find(id)
	if err == nil && i == root {
		err = &qdisc.Error{Errno: syscall.EINVAL}
	}
	if err != nil {
		return err
	}
	rsc, fsc, usc, err := given(v)
	if err != nil {
		return err
	}
	c := &q.classes[i]
	if !rsc.none() {
		c.rsc = rsc
		c.deadline = rsc.start(ctx.Now, c.cumul)
	}
	if !fsc.none() {
		c.fsc = fsc
		c.virtual = fsc.start(c.vt, c.total)
	}
	if !usc.none() {
		c.usc = usc
		c.ulimit = usc.start(ctx.Now, c.total)
	}
	if c.nactive > 0 { // a leaf, or an inner class with work to do
		q.updateVF(i, 0, false)
	}
	switch {
	case c.children > 0 || c.child.Len() == 0 || q.asleep.Has(i):
	case q.future.Has(i) || q.ready.Has(i):
		q.follow(ctx, i, true)
		if !fsc.none() && q.active(i) && c.nactive == 0 {
			q.initVF(i, ctx.Now)
		}
	default:
		q.activate(ctx, i)
	}
	return nil
}

// DeleteClass drops what a leaf holds and removes it.
func (q *hfsc) DeleteClass(ctx *qdisc.Context, id qdisc.ClassID) error {
	i, err := q.find(id)
	if err != nil {
		return err
	}
	c := &q.classes[i]
	if i == root || c.children > 0 {
		return qdisc.Refuse(syscall.EBUSY, "HFSC class in use")
	}
	c.child.Purge(ctx, &q.Base)
	q.deactivate(i)
	above := c.parent
	q.table.Delete(id)
	*c = class{}
	q.free = append(q.free, i)
	q.classes[above].children--
	q.level(above)
	return nil
}

// SetClassifier attaches filters to the qdisc or to a class.
func (q *hfsc) SetClassifier(id qdisc.ClassID, c qdisc.Classifier) error {
	i, err := q.find(id)
	if err == nil {
		q.classes[i].filter = c
	}
	return err
}

// Graft makes child the qdisc of a leaf.
func (q *hfsc) Graft(ctx *qdisc.Context, id qdisc.ClassID, child qdisc.Qdisc) (qdisc.Qdisc, error) {
	i, err := q.find(id)
	if err != nil {
		return nil, err
	}
	c := &q.classes[i]
	if i == root || c.children > 0 {
		return nil, &qdisc.Error{Errno: syscall.EINVAL}
	}
	if child == nil {
		child = q.newChild()
	}
	old := c.child.Qdisc()
	c.child.Purge(ctx, &q.Base)
	q.deactivate(i)
	c.child = qdisc.NewChild(child)
	return old, nil
}

// Find finds a class without a look at the others.
func (q *hfsc) Find(id qdisc.ClassID) (leaf qdisc.Qdisc, ok bool) {
	i := q.table.Find(id)
	if i == none {
		return nil, false
	}
	if c := &q.classes[i]; i != root && c.children == 0 {
		leaf = c.child.Qdisc()
	}
	return leaf, true
}

// Walk shows the classes, first the root.
func (q *hfsc) Walk(f func(qdisc.Class) bool) {
	for i := range q.classes {
		if c := &q.classes[i]; c.id != 0 && !f(q.show(int32(i))) {
			return
		}
	}
}

func (q *hfsc) show(i int32) qdisc.Class {
	c := &q.classes[i]
	out := qdisc.Class{
		ID:     c.id,
		Params: qdisc.Values{},
		XStats: qdisc.Values{}.Set("period", uint64(c.period)).Set("level", uint64(c.level)),
		Stats:  qdisc.Stats{Bytes: c.bytes, Packets: c.packets, Drops: c.drops},
	}
	if c.total > 0 {
		out.XStats.Set("work", c.total)
	}
	if c.cumul > 0 {
		out.XStats.Set("rtwork", c.cumul)
	}
	if i == root {
		return out
	}
	out.Parent = q.classes[c.parent].id
	if c.children == 0 {
		out.Leaf, out.Len, out.Bytes = c.child.Qdisc(), c.child.Len(), c.child.Backlog()
	}
	if c.rsc == c.fsc {
		dump(out.Params, "sc", &c.rsc)
	} else {
		dump(out.Params, "rt", &c.rsc)
		dump(out.Params, "ls", &c.fsc)
	}
	dump(out.Params, "ul", &c.usc)
	return out
}

func dump(v qdisc.Values, name string, c *curve) {
	if !c.none() {
		v.Set(name+".m1", c.m1).Set(name+".d", uint64(c.dx)).Set(name+".m2", c.m2)
	}
}

// Change sets the default class; not given there is none.
func (q *hfsc) Change(_ *qdisc.Context, v qdisc.Values) error {
	def := v.N("default", 0)
	if def > 0xffff {
		return &qdisc.Error{Errno: syscall.EINVAL}
	}
	q.def = uint32(def)
	return nil
}

// Dump shows the default class.
func (q *hfsc) Dump() qdisc.Values {
	v := qdisc.Values{}
	if q.def != 0 {
		v.Set("default", uint64(q.def))
	}
	return v
}

// params is the table of one curve, which text begins with its name.
func params(name, doc string) []qdisc.Param {
	return []qdisc.Param{
		{Name: name, Unit: qdisc.Group, Doc: doc},
		{Name: name + ".m1", Unit: qdisc.Rate, Text: name + " m1 %s ", Default: "0", Doc: "slope of the first piece"},
		{Name: name + ".d", Unit: qdisc.Time, Text: "d %s ", Default: "0", Doc: "length of the first piece"},
		{Name: name + ".m2", Unit: qdisc.Rate, Text: "m2 %s ", Doc: "slope from there on"},
		{Name: name + ".umax", Unit: qdisc.Size, Show: qdisc.Input, Doc: "size of a packet that has to be out within dmax"},
		{Name: name + ".dmax", Unit: qdisc.Time, Show: qdisc.Input, Doc: "how long a packet of umax may take"},
		{Name: name + ".rate", Unit: qdisc.Rate, Show: qdisc.Input, Doc: "rate in the long run"},
	}
}

func classParams() (all []qdisc.Param) {
	all = append(all, params("sc", "real time and link sharing, by one curve")...)
	all = append(all, params("rt", "real time: what the class gets in any case")...)
	all = append(all, params("ls", "link sharing: its part of what its parent gets")...)
	return append(all, params("ul", "upper limit of what it gets by sharing")...)
}

// Kind is the table of hfsc.
var Kind = qdisc.Kind{
	Name: "hfsc",
	Doc:  "shares a link in a hierarchy, with bandwidth and delay promised by service curves",
	Usage: "Usage: ... hfsc [ default CLASSID ]\n" +
		"       ... hfsc [ [ rt SC ] [ ls SC ] | [ sc SC ] ] [ ul SC ]\n" +
		"SC := [ m1 BPS d SEC ] m2 BPS | [ umax BYTE dmax SEC ] rate BPS",
	Params: []qdisc.Param{
		{Name: "default", Unit: qdisc.Hex, Text: " default %s ", Default: "none",
			Doc: "minor number of the class of packets that no filter knows"},
	},
	ClassParams: classParams(),
	ClassXStats: []qdisc.Param{
		{Name: "period", Unit: qdisc.Number, Text: " period %s "},
		{Name: "work", Unit: qdisc.Size, Text: "work %d bytes "},
		{Name: "rtwork", Unit: qdisc.Size, Text: "rtwork %d bytes "},
		{Name: "level", Unit: qdisc.Number, Text: " level %s \n"},
	},
	Flags:         qdisc.IsClassful | qdisc.HasClasses,
	IllegalFormat: `HFSC: Illegal "%s"`,
	UnknownFormat: `HFSC: What is "%s" ?`,
	Check: func(v qdisc.Values) error {
		if v.N("default", 0) > 0xffff {
			return said(`HFSC: Illegal "default"`)
		}
		return nil
	},
	CheckClass: checkClass,
	New: func(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
		q := &hfsc{handle: env.Handle, newChild: func() qdisc.Qdisc { return env.Pfifo(env.TxQueueLen) }}
		q.classes[q.slot()] = class{id: qdisc.MakeID(env.Handle, 0), parent: none}
		q.classes[root].forget()
		return q, q.Change(nil, v)
	},
}

var (
	_ qdisc.ClassEditor  = (*hfsc)(nil)
	_ qdisc.Changer      = (*hfsc)(nil)
	_ qdisc.Dumper       = (*hfsc)(nil)
	_ qdisc.Filtered     = (*hfsc)(nil)
	_ qdisc.QlenNotifier = (*hfsc)(nil)
)
