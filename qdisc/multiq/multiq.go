// Packet path, except Walk, Graft, Change, Dump and Kind.

// Package multiq has a band for each transmit queue of a port, and serves them in
// turn (net/sched/sch_multiq.c). A packet's band is its queue mapping, which the
// worker chooses or a filter's action sets (skbedit queue_mapping); a band whose
// queue is stopped is passed over, so that one full queue does not hold up the
// others.
//
// It has no parameters: as many bands as the port has queues, each a class with a
// qdisc of its own, by default a pfifo. A mapping beyond the last band is the
// first's. Filters are asked for what they do to a packet; the class they answer
// does not matter.
package multiq

import (
	"syscall"

	"sluice/qdisc"
)

type multiq struct {
	qdisc.Base
	band    []qdisc.Child
	turn    int // the band that was served last
	handle  uint32
	filter  qdisc.Classifier // nil: none
	stopped func(queue int) bool

	newChild func() qdisc.Qdisc
}

// Enqueue gives p to the band of its queue.
func (q *multiq) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	if q.filter != nil {
		v, _ := q.filter.Classify(ctx, p)
		if v == qdisc.FilterStolen || v == qdisc.FilterDrop {
			return q.Dispose(ctx, p, v)
		}
	}
	band := int(p.Queue)
	if band >= len(q.band) {
		band = 0
	}
	return q.band[band].Enqueue(ctx, &q.Base, p)
}

// after returns the band behind i.
func (q *multiq) after(i int) int {
	if i++; i == len(q.band) {
		return 0
	}
	return i
}

// ready says whether a band has packets that its queue would take.
func (q *multiq) ready(i int) bool {
	return q.band[i].Len() > 0 && (q.stopped == nil || !q.stopped(i))
}

// Dequeue gives a packet of the next band that yields one.
func (q *multiq) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	for range q.band {
		q.turn = q.after(q.turn)
		if q.ready(q.turn) {
			if p := q.band[q.turn].Dequeue(ctx, &q.Base); p != nil {
				return p
			}
		}
	}
	q.wait()
	return nil
}

// Peek shows it, and leaves the turn where it is.
func (q *multiq) Peek(ctx *qdisc.Context) *qdisc.Packet {
	i := q.turn
	for range q.band {
		i = q.after(i)
		if q.ready(i) {
			if p := q.band[i].Peek(ctx, &q.Base); p != nil {
				return p
			}
		}
	}
	q.wait()
	return nil
}

// wait stores when the first band will be ready. One whose queue is stopped needs
// no instant: its waking has the runner run.
func (q *multiq) wait() {
	next := qdisc.Never
	for i := range q.band {
		if q.ready(i) {
			next = min(next, q.band[i].NextAt())
		}
	}
	q.SetNextAt(next)
}

// Shed takes from the band with the most bytes; from the next one when that has
// none to give, because they are parked.
func (q *multiq) Shed(ctx *qdisc.Context, n int) int {
	fattest := 0
	for i := range q.band {
		if q.band[i].Backlog() > q.band[fattest].Backlog() {
			fattest = i
		}
	}
	got := q.band[fattest].Shed(ctx, &q.Base, n)
	for i := 0; i < len(q.band) && got == 0; i++ {
		got = q.band[i].Shed(ctx, &q.Base, n)
	}
	return got
}

// Reset empties every band and begins with the first.
func (q *multiq) Reset(ctx *qdisc.Context) {
	for i := range q.band {
		q.band[i].Reset(ctx, &q.Base)
	}
	q.turn = 0
	q.ResetBase(ctx)
}

// Change counts the port's queues again, which here never change.
func (q *multiq) Change(*qdisc.Context, qdisc.Values) error { return nil }

// SetClassifier attaches filters to the qdisc. A band takes none.
func (q *multiq) SetClassifier(class qdisc.ClassID, c qdisc.Classifier) error {
	if class != 0 {
		return &qdisc.Error{Errno: syscall.EINVAL}
	}
	q.filter = c
	return nil
}

// Walk shows the bands in order.
func (q *multiq) Walk(f func(qdisc.Class) bool) {
	for i := range q.band {
		child := q.band[i].Qdisc()
		if !f(qdisc.Class{
			ID:     qdisc.MakeID(q.handle, uint32(i+1)),
			Parent: qdisc.MakeID(q.handle, 0),
			Leaf:   child,
			Stats:  child.Self().Stats,
			Len:    child.Len(),
			Bytes:  child.Backlog(),
		}) {
			return
		}
	}
}

// Graft makes child the qdisc of a band.
func (q *multiq) Graft(ctx *qdisc.Context, class qdisc.ClassID, child qdisc.Qdisc) (qdisc.Qdisc, error) {
	i := int(class.Minor()) - 1
	if class.Major() != q.handle || i < 0 || i >= len(q.band) {
		return nil, &qdisc.Error{Errno: syscall.ENOENT}
	}
	if child == nil {
		child = q.newChild()
	}
	old := q.band[i].Qdisc()
	q.band[i].Purge(ctx, &q.Base)
	q.band[i] = qdisc.NewChild(child)
	return old, nil
}

// Dump shows how many bands there are, and could be.
func (q *multiq) Dump() qdisc.Values {
	return qdisc.Values{}.Set("bands", uint64(len(q.band))).Set("max_bands", uint64(len(q.band)))
}

var (
	_ qdisc.Changer  = (*multiq)(nil)
	_ qdisc.Classful = (*multiq)(nil)
	_ qdisc.Dumper   = (*multiq)(nil)
	_ qdisc.Filtered = (*multiq)(nil)
)

// Kind is the table of multiq.
var Kind = qdisc.Kind{
	Name:  "multiq",
	Doc:   "a band for each transmit queue of the port, in turn",
	Usage: "Usage: ... multiq [help]",
	Params: []qdisc.Param{
		{Name: "bands", Unit: qdisc.Number, Show: qdisc.Output, Text: "bands %s"},
		{Name: "max_bands", Unit: qdisc.Number, Show: qdisc.Output, Text: "/%s "},
	},
	Flags: qdisc.IsClassful,
	New: func(env qdisc.Env, _ qdisc.Values) (qdisc.Qdisc, error) {
		if env.TxQueues <= 1 {
			return nil, &qdisc.Error{Errno: syscall.EOPNOTSUPP}
		}
		q := &multiq{
			handle: env.Handle, stopped: env.Stopped,
			newChild: func() qdisc.Qdisc { return env.Pfifo(env.TxQueueLen) },
		}
		for range env.TxQueues {
			q.band = append(q.band, qdisc.NewChild(q.newChild()))
		}
		return q, nil
	},
}
