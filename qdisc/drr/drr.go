// Packet path, except what changes classes, and Kind.

// Package drr is deficit round robin between classes (net/sched/sch_drr.c): each
// class in turn may send a quantum of bytes, and what it could not use for a
// packet too large it keeps for its next turn. Over time the classes share the
// link in the ratio of their quanta, whatever the sizes of their packets, at a
// constant cost per packet. The round itself is qdisc/internal/round.
//
// Classes are made by the administrator; each has a qdisc of its own, by default
// a pfifo.
//
//	quantum   bytes a class may send per round; default a full frame. Not 0;
//	          less than 256 is 256, which bounds the rounds that one packet
//	          takes
//
// A packet's class is the one that its class or priority names, else what the
// filters say. There is no default class: a packet without one is dropped.
//
// A class takes part from its first packet on, at the tail of the round and with
// a fresh quantum, until its last packet left; what it had saved is lost then.
//
// Differences from the kernel:
//
//   - A class whose qdisc holds packets back (a tbf, say) lets the others pass,
//     and keeps its deficit. The kernel's drr gives nothing until that qdisc is
//     ready again, and warns. With qdiscs that always give a packet when they
//     have one the order is the kernel's.
//   - A class whose qdisc turns out to be empty after all leaves the round.
package drr

import (
	"math"
	"slices"
	"syscall"

	"sluice/qdisc"
	"sluice/qdisc/internal/round"
)

// minQuantum is the smallest quantum in force.
const minQuantum = 256

// none is the slot of no class.
const none = -1

type drr struct {
	qdisc.Base
	round  round.Round     // a member for each class
	ids    []qdisc.ClassID // of each member; 0: none, the slot is free
	table  qdisc.ClassTable
	handle uint32
	filter qdisc.Classifier // nil: none

	frame    uint32 // a full frame, the default quantum
	newChild func() qdisc.Qdisc
}

// Enqueue gives p to its class.
func (q *drr) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	i, v := q.table.Classify(ctx, p, q.handle, q.filter)
	if i != none {
		return q.round.Enqueue(ctx, &q.Base, i, p)
	}
	if v == qdisc.FilterStolen || v == qdisc.FilterDrop {
		return q.Dispose(ctx, p, v)
	}
	q.Refuse(ctx, p, qdisc.NoClass)
	return qdisc.Dropped
}

// Dequeue gives the packet that Peek parked, else the next of the round.
func (q *drr) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Unpark(); p != nil {
		return p
	}
	return q.next(ctx)
}

func (q *drr) next(ctx *qdisc.Context) *qdisc.Packet {
	p, at := q.round.Dequeue(ctx, &q.Base)
	if p == nil {
		q.SetNextAt(at)
	}
	return p
}

// Peek parks what Dequeue gives (qdisc_peek_dequeued).
func (q *drr) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Parked(); p != nil {
		return p
	}
	return q.Park(q.next(ctx))
}

// QlenNotify takes a class out of the round whose qdisc became empty.
func (q *drr) QlenNotify(id qdisc.ClassID) {
	if i := q.table.Find(id); i != none {
		q.round.Leave(i)
	}
}

// Shed takes from the class with the most bytes.
func (q *drr) Shed(ctx *qdisc.Context, n int) int { return q.round.Shed(ctx, &q.Base, n) }

// Reset empties every class.
func (q *drr) Reset(ctx *qdisc.Context) {
	q.round.Reset(ctx, &q.Base)
	q.ResetBase(ctx)
}

// quantum returns the quantum that v asks for, def when it does not.
func quantum(v qdisc.Values, def uint32) (uint32, error) {
	n := v.N("quantum", uint64(def))
	switch {
	case n == 0:
		return 0, qdisc.Refuse(syscall.EINVAL, "Specified DRR quantum cannot be zero")
	case n > math.MaxUint32:
		return 0, &qdisc.Error{Errno: syscall.EINVAL}
	}
	return max(uint32(n), minQuantum), nil
}

// AddClass makes a class. What is given as its parent does not matter: all
// classes hang off the qdisc.
func (q *drr) AddClass(ctx *qdisc.Context, _, id qdisc.ClassID, v qdisc.Values) error {
	if id.Major() != q.handle || id.Minor() == 0 {
		return &qdisc.Error{Errno: syscall.EINVAL}
	}
	if q.table.Find(id) != none {
		return &qdisc.Error{Errno: syscall.EEXIST}
	}
	n, err := quantum(v, q.frame)
	if err != nil {
		return err
	}
	i := slices.Index(q.ids, 0)
	if i < 0 {
		i = len(q.ids)
		q.ids = append(q.ids, 0)
		q.round.Members = append(q.round.Members, round.Member{})
	}
	q.ids[i] = id
	q.round.Members[i] = round.Member{Child: qdisc.NewChild(q.newChild()), Quantum: n}
	q.table.Insert(id, int32(i))
	return nil
}

// find returns a class by id, or the kernel's refusal.
func (q *drr) find(id qdisc.ClassID) (int32, error) {
	i := q.table.Find(id)
	if i == none {
		return none, &qdisc.Error{Errno: syscall.ENOENT}
	}
	return i, nil
}

// ChangeClass sets the quantum, from the next time on that the class gets one.
func (q *drr) ChangeClass(ctx *qdisc.Context, id qdisc.ClassID, v qdisc.Values) error {
	i, err := q.find(id)
	if err != nil {
		return err
	}
	m := &q.round.Members[i]
	n, err := quantum(v, m.Quantum)
	if err == nil {
		m.Quantum = n
	}
	return err
}

// DeleteClass drops what the class holds and removes it.
func (q *drr) DeleteClass(ctx *qdisc.Context, id qdisc.ClassID) error {
	i, err := q.find(id)
	if err != nil {
		return err
	}
	q.round.Graft(ctx, &q.Base, i, nil)
	q.table.Delete(id)
	q.ids[i] = 0
	return nil
}

// SetClassifier attaches filters to the qdisc; classes take none.
func (q *drr) SetClassifier(id qdisc.ClassID, c qdisc.Classifier) error {
	if id != 0 {
		return qdisc.Refuse(syscall.EINVAL, "DRR classid must be zero")
	}
	q.filter = c
	return nil
}

// Graft makes child the qdisc of a class.
func (q *drr) Graft(ctx *qdisc.Context, id qdisc.ClassID, child qdisc.Qdisc) (qdisc.Qdisc, error) {
	i, err := q.find(id)
	if err != nil {
		return nil, err
	}
	if child == nil {
		child = q.newChild()
	}
	return q.round.Graft(ctx, &q.Base, i, child), nil
}

// Find finds a class without a look at the others.
func (q *drr) Find(id qdisc.ClassID) (leaf qdisc.Qdisc, ok bool) {
	i, err := q.find(id)
	if err != nil {
		return nil, false
	}
	return q.round.Members[i].Qdisc(), true
}

// Walk shows the classes. Bytes and packets are their own, the rest their
// qdisc's.
func (q *drr) Walk(f func(qdisc.Class) bool) {
	for i, id := range q.ids {
		if id == 0 {
			continue
		}
		m := &q.round.Members[i]
		child := m.Qdisc()
		stats := child.Self().Stats
		stats.Bytes, stats.Packets = m.Bytes, m.Packets
		if !f(qdisc.Class{
			ID:     id,
			Leaf:   child,
			Params: qdisc.Values{"quantum": {N: uint64(m.Quantum)}},
			Stats:  stats,
			Len:    m.Len(),
			Bytes:  m.Backlog(),
			XStats: qdisc.Values{"deficit": {N: m.Deficit()}},
		}) {
			return
		}
	}
}

// Kind is the table of drr. Neither the quantum nor the deficit is in tc's JSON.
var Kind = qdisc.Kind{
	Name:  "drr",
	Doc:   "deficit round robin between classes",
	Usage: "Usage: ... drr",
	ClassParams: []qdisc.Param{
		{Name: "quantum", Unit: qdisc.Size, Show: qdisc.TextOnly, Default: "a full frame",
			Doc: "bytes the class may send per round, at least 256"},
	},
	ClassXStats: []qdisc.Param{
		{Name: "deficit", Unit: qdisc.Size, Show: qdisc.TextOnly, Text: " deficit %s ",
			Doc: "bytes the class may still send in this round"},
	},
	Flags: qdisc.IsClassful | qdisc.HasClasses | qdisc.NoChange,
	New: func(env qdisc.Env, _ qdisc.Values) (qdisc.Qdisc, error) {
		return &drr{
			handle: env.Handle, frame: uint32(env.MTU + env.HeaderLen),
			newChild: func() qdisc.Qdisc { return env.Pfifo(env.TxQueueLen) },
		}, nil
	},
}
