// Admin path.

package qfq

import (
	"math"
	"math/bits"
	"syscall"

	"sluice/qdisc"
)

const (
	maxWeight = 1 << 10
	maxSum    = 64 * maxWeight
	minLmax   = 512
	maxLmax   = 1 << lenShift
)

// params are a class's parameters with the kernel's checks. What is not given is
// the default's, by change too.
func (q *qfq) params(v qdisc.Values) (weight, lmax uint32, err error) {
	w := v.N("weight", 1)
	n := v.N("maxpkt", uint64(q.frame))
	switch {
	case w < 1 || w > maxWeight, v.Has("maxpkt") && (n < minLmax || n > maxLmax):
		return 0, 0, qdisc.Refuse(syscall.ERANGE, "integer out of range")
	case n < minLmax || n > maxLmax:
		return 0, 0, qdisc.Refuse(syscall.EINVAL, "MTU size out of bounds for qfq")
	}
	return uint32(one / (one / w)), uint32(n), nil // as the arithmetic has it
}

func (q *qfq) tooHeavy(weight, instead uint32) error {
	if q.wsum-instead+weight > maxSum {
		return qdisc.Refuse(syscall.EINVAL, "total weight out of range (%d + %d)", int(weight)-int(instead), q.wsum)
	}
	return nil
}

// AddClass makes a class. What is given as its parent does not matter: all classes
// hang off the qdisc.
func (q *qfq) AddClass(ctx *qdisc.Context, _, id qdisc.ClassID, v qdisc.Values) error {
	if id.Major() != q.handle || id.Minor() == 0 {
		return &qdisc.Error{Errno: syscall.EINVAL}
	}
	if q.table.Find(id) != none {
		return &qdisc.Error{Errno: syscall.EEXIST}
	}
	weight, lmax, err := q.params(v)
	if err == nil {
		err = q.tooHeavy(weight, 0)
	}
	if err != nil {
		return err
	}
	i := q.place()
	q.classes[i] = class{Child: qdisc.NewChild(q.newChild()), id: id, weight: weight, lmax: lmax}
	q.table.Insert(id, i)
	q.group(i, q.aggregateFor(weight, lmax))
	return nil
}

// place returns a free place for a class, and sees that there is room for its
// aggregate, whatever becomes of it later.
func (q *qfq) place() int32 {
	for i := range q.classes {
		if q.classes[i].id == 0 {
			return int32(i)
		}
	}
	q.classes = append(q.classes, class{})
	for len(q.aggs) < len(q.classes)+1 {
		q.aggs = append(q.aggs, aggregate{})
	}
	if cap(q.nonfull) < len(q.aggs) {
		q.nonfull = append(make([]int32, 0, cap(q.aggs)), q.nonfull...)
	}
	q.waiting.Grow(len(q.classes))
	return int32(len(q.classes) - 1)
}

// find returns a class by id, or the kernel's refusal.
func (q *qfq) find(id qdisc.ClassID) (int32, error) {
	i := q.table.Find(id)
	if i == none {
		return none, &qdisc.Error{Errno: syscall.ENOENT}
	}
	return i, nil
}

// ChangeClass sets weight and maxpkt, from the class's next turn on.
func (q *qfq) ChangeClass(ctx *qdisc.Context, id qdisc.ClassID, v qdisc.Values) error {
	i, err := q.find(id)
	if err != nil {
		return err
	}
	weight, lmax, err := q.params(v)
	if err != nil {
		return err
	}
	c := &q.classes[i]
	a := &q.aggs[c.agg]
	if err := q.tooHeavy(weight, a.weight); err != nil {
		return err
	}
	c.weight, c.lmax = weight, lmax
	if weight != a.weight || lmax != a.lmax {
		q.regroup(i, weight, lmax)
	}
	return nil
}

// DeleteClass drops what the class holds and removes it.
func (q *qfq) DeleteClass(ctx *qdisc.Context, id qdisc.ClassID) error {
	i, err := q.find(id)
	if err != nil {
		return err
	}
	q.purge(ctx, i)
	q.ungroup(i)
	q.table.Delete(id)
	q.classes[i] = class{}
	return nil
}

// purge empties a class that is about to lose its child.
func (q *qfq) purge(ctx *qdisc.Context, i int32) {
	q.classes[i].Purge(ctx, &q.Base)
	q.leave(i)
}

// SetClassifier attaches filters to the qdisc; classes take none.
func (q *qfq) SetClassifier(id qdisc.ClassID, c qdisc.Classifier) error {
	if id != 0 {
		return &qdisc.Error{Errno: syscall.EINVAL}
	}
	q.filter = c
	return nil
}

// Graft makes child the qdisc of a class.
func (q *qfq) Graft(ctx *qdisc.Context, id qdisc.ClassID, child qdisc.Qdisc) (qdisc.Qdisc, error) {
	i, err := q.find(id)
	if err != nil {
		return nil, err
	}
	if child == nil {
		child = q.newChild()
	}
	old := q.classes[i].Qdisc()
	q.purge(ctx, i)
	q.classes[i].Child = qdisc.NewChild(child)
	return old, nil
}

// Find finds a class without a look at the others.
func (q *qfq) Find(id qdisc.ClassID) (leaf qdisc.Qdisc, ok bool) {
	i := q.table.Find(id)
	if i == none {
		return nil, false
	}
	return q.classes[i].Qdisc(), true
}

// Walk shows the classes. Bytes and packets are what came in, the rest their
// qdisc's.
func (q *qfq) Walk(f func(qdisc.Class) bool) {
	for i := range q.classes {
		c := &q.classes[i]
		if c.id == 0 {
			continue
		}
		child := c.Qdisc()
		stats := child.Self().Stats
		stats.Bytes, stats.Packets = c.bytes, c.packets
		a := &q.aggs[c.agg]
		if !f(qdisc.Class{
			ID:     c.id,
			Leaf:   child,
			Params: qdisc.Values{}.Set("weight", uint64(a.weight)).Set("maxpkt", uint64(a.lmax)),
			Stats:  stats,
			Len:    c.Len(),
			Bytes:  c.Backlog(),
		}) {
			return
		}
	}
}

var (
	_ qdisc.ClassEditor  = (*qfq)(nil)
	_ qdisc.Filtered     = (*qfq)(nil)
	_ qdisc.QlenNotifier = (*qfq)(nil)
)

// Kind is the table of qfq.
var Kind = qdisc.Kind{
	Name:  "qfq",
	Doc:   "classes share by weight, packet by packet",
	Usage: "Usage: ... qfq",
	ClassParams: []qdisc.Param{
		{Name: "weight", Unit: qdisc.Number, Default: "1", Doc: "share, 1 to 1024"},
		{Name: "maxpkt", Unit: qdisc.Number, Default: "a full frame", Doc: "bytes of the largest packet, 512 to 65536"},
	},
	Flags: qdisc.IsClassful | qdisc.HasClasses | qdisc.NoChange,
	New: func(env qdisc.Env, _ qdisc.Values) (qdisc.Qdisc, error) {
		q := &qfq{
			handle: env.Handle, frame: uint32(env.MTU + env.HeaderLen),
			newChild: func() qdisc.Qdisc { return env.Pfifo(env.TxQueueLen) },
		}
		// No more classes together than the port's queue would hold packets.
		together := min(maxPerAgg, uint64(min(env.TxQueueLen, math.MaxInt32-1))+1)
		q.sched.reset(1 << (bits.Len64(together) - 1))
		return q, nil
	},
}
