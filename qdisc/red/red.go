// Packet path, except Change, Dump and what is about classes.

// Package red is Random Early Detection (net/sched/sch_red.c): packets are marked
// or dropped as they arrive, with a probability that grows with the average
// backlog, before the queue is full. Senders slow down one after the other, not
// all at once.
//
//	limit        bytes that may wait; mandatory
//	avpkt        size of an average packet; mandatory
//	min, max     average backlogs at which marking begins, and at which all
//	             packets are marked; default max = 3 × min, or limit / 4, and
//	             min = max / 3
//	probability  of a mark just below max; default 0.02
//	burst        packets that may come at once; sets how slowly the average
//	             follows; default (2 min + max) / (3 avpkt)
//	bandwidth    rate at which the average falls while nothing waits; default
//	             10 Mbit
//	ecn          mark packets of senders that take part in ECN, drop others
//	harddrop     with ecn: drop, not mark, at max
//	nodrop       with ecn: queue the packets of others
//	adaptive     move probability so that the average stays about half way
//
// Packets wait in a child qdisc, class 1:1, by default a bfifo of limit bytes.
//
// Differences from the kernel:
//
//   - A change keeps the child and what is in it, and sets the limit of a default
//     one; the kernel makes a new bfifo and loses the packets, whatever the child
//     was.
//   - The queue is idle from when its last packet leaves. The kernel notices with
//     the next attempt to take one, below htb never.
//   - There is no timer for adaptive: what is due is made up for with the next
//     packet, which gives the same.
//   - tc's remark that it assumes a bandwidth of 10Mbit is not printed.
package red

import (
	"math"
	"syscall"

	"sluice/qdisc"
	"sluice/qdisc/internal/aqm"
)

type red struct {
	qdisc.Base
	child                           qdisc.Child
	law                             aqm.RED
	state                           aqm.REDState
	ecn, harddrop, nodrop, ownChild bool // ownChild: the child is the default one, whose limit follows ours

	// statistics
	early, overflow, marked uint64

	params   params
	handle   uint32
	newChild func(limit int) qdisc.Qdisc
}

// Enqueue gives p to the child, unless the average backlog speaks against it.
func (q *red) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	if a := q.law.Arrives(ctx, &q.state, q.child.Backlog()); a != aqm.Pass && !q.spare(a, p) {
		q.early++
		q.Refuse(ctx, p, qdisc.Congested)
		return qdisc.CN
	}
	v := q.child.Enqueue(ctx, &q.Base, p)
	if v == qdisc.Dropped || v == qdisc.CN {
		q.overflow++
	}
	return v
}

// spare says whether p, which is to signal congestion, may stay.
func (q *red) spare(a aqm.Action, p *qdisc.Packet) bool {
	q.Overlimits++
	if !q.ecn || a == aqm.Hard && q.harddrop {
		return false
	}
	if qdisc.SetCE(p) {
		q.marked++
		return true
	}
	return q.nodrop
}

// Dequeue takes from the child.
func (q *red) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	p := q.child.Dequeue(ctx, &q.Base)
	if p == nil {
		q.SetNextAt(q.child.NextAt())
	}
	if q.child.Len() == 0 {
		q.state.Idle(ctx.Now)
	}
	return p
}

// Peek shows what the child shows.
func (q *red) Peek(ctx *qdisc.Context) *qdisc.Packet {
	p := q.child.Peek(ctx, &q.Base)
	if p == nil {
		q.SetNextAt(q.child.NextAt())
	}
	return p
}

// Shed takes from the child.
func (q *red) Shed(ctx *qdisc.Context, n int) int { return q.child.Shed(ctx, &q.Base, n) }

// Reset empties the child and forgets the average.
func (q *red) Reset(ctx *qdisc.Context) {
	q.child.Reset(ctx, &q.Base)
	q.ResetBase(ctx)
	q.state.Start()
	q.law.MaxProb = q.params.maxProb()
	q.law.Set()
}

// set makes p the parameters in force; the average starts anew.
func (q *red) set(p params) error {
	law, err := p.law()
	if err != nil {
		return err
	}
	q.params, q.law = p, law
	q.ecn, q.harddrop, q.nodrop = p.ecn, p.harddrop, p.nodrop
	q.state.Start()
	return nil
}

// Change replaces the parameters. The child and what is in it stay.
func (q *red) Change(ctx *qdisc.Context, v qdisc.Values) error {
	p, err := with(v)
	if err != nil {
		return err
	}
	old := q.params.limit
	if err := q.set(p); err != nil {
		return err
	}
	if q.child.Len() == 0 {
		q.state.Idle(ctx.Now)
	}
	child, ok := q.child.Qdisc().(qdisc.Changer)
	if !q.ownChild || !ok || old == p.limit {
		return nil
	}
	path := []qdisc.Step{{Qdisc: q, Class: q.class()}, {Qdisc: q.child.Qdisc()}}
	return qdisc.Edit(path, func() error {
		return child.Change(ctx, qdisc.Values{}.Set("limit", uint64(p.limit)))
	})
}

func (q *red) class() qdisc.ClassID { return qdisc.MakeID(q.handle, 1) }

// Walk shows the one class. It has no statistics of its own.
func (q *red) Walk(f func(qdisc.Class) bool) {
	f(qdisc.Class{
		ID:     q.class(),
		Parent: qdisc.MakeID(q.handle, 0),
		Leaf:   q.child.Qdisc(),
		Len:    q.child.Len(),
		Bytes:  q.child.Backlog(),
	})
}

// Graft makes child the qdisc that packets wait in.
func (q *red) Graft(ctx *qdisc.Context, class qdisc.ClassID, child qdisc.Qdisc) (qdisc.Qdisc, error) {
	if class != q.class() {
		return nil, &qdisc.Error{Errno: syscall.ENOENT}
	}
	q.ownChild = child == nil
	if child == nil {
		child = q.newChild(int(q.params.limit))
	}
	old := q.child.Qdisc()
	q.child.Purge(ctx, &q.Base)
	q.child = qdisc.NewChild(child)
	return old, nil
}

// QlenNotify hears that the child became empty.
func (q *red) QlenNotify(qdisc.ClassID) {}

// Dump shows the parameters.
func (q *red) Dump() qdisc.Values {
	v := q.params.dump()
	v.Set("ewma/shown", uint64(q.law.Wlog)).Set("Scell_log/shown", uint64(q.law.CellLog))
	v.Set("probability/shown", math.Float64bits(float64(q.law.MaxProb)/(1<<32)))
	return v
}

// XStats shows why packets were dropped or marked.
func (q *red) XStats() qdisc.Values {
	return qdisc.Values{}.Set("marked", q.marked).Set("early", q.early).Set("pdrop", q.overflow).Set("other", 0)
}

var (
	_ qdisc.Changer  = (*red)(nil)
	_ qdisc.Dumper   = (*red)(nil)
	_ qdisc.XStatser = (*red)(nil)
	_ qdisc.Classful = (*red)(nil)
)

// Kind is the table of red.
var Kind = qdisc.Kind{
	Name: "red",
	Doc:  "drops at random before the queue is full",
	Usage: "Usage: ... red limit BYTES [min BYTES] [max BYTES] avpkt BYTES [burst PACKETS]\n" +
		"\t\t  [adaptive] [probability PROBABILITY] [bandwidth KBPS]\n" +
		"\t\t  [ecn] [harddrop] [nodrop]\n" +
		"\t\t  [qevent early_drop block IDX] [qevent mark block IDX]",
	Params: []qdisc.Param{
		{Name: "limit", Unit: qdisc.Size, Doc: "bytes that may wait"},
		{Name: "min", Unit: qdisc.Size, Default: "max / 3", Doc: "average backlog at which marking begins"},
		{Name: "max", Unit: qdisc.Size, Default: "3 × min, or limit / 4", Doc: "average backlog at which all packets are marked"},
		{Name: "avpkt", Unit: qdisc.Size, Show: qdisc.Input, Doc: "size of an average packet"},
		{Name: "burst", Unit: qdisc.Number, Show: qdisc.Input, Default: "(2 min + max) / (3 avpkt)", Doc: "packets that may come at once"},
		{Name: "bandwidth", Unit: qdisc.Rate, Show: qdisc.Input, Default: "10Mbit", Doc: "rate at which the average falls while nothing waits"},
		{Name: "ecn", Unit: qdisc.Flag, Doc: "mark rather than drop"},
		{Name: "harddrop", Unit: qdisc.Flag, Doc: "with ecn: drop at max"},
		{Name: "adaptive", Aliases: []string{"adaptative"}, Unit: qdisc.Flag, Doc: "move probability so that the average stays about half way"},
		{Name: "nodrop", Unit: qdisc.Flag, Doc: "with ecn: queue what cannot be marked"},
		{Name: "ewma/shown", JSON: "ewma", Unit: qdisc.Number, Show: qdisc.Details, Text: "ewma %s "},
		{Name: "probability", Unit: qdisc.Float, Show: qdisc.Input, Default: "0.02", Doc: "of a mark just below max"},
		{Name: "probability/shown", JSON: "probability", Unit: qdisc.Float, Show: qdisc.Details, Text: "probability %s "},
		{Name: "Scell_log/shown", JSON: "Scell_log", Unit: qdisc.Number, Show: qdisc.Details, Text: "Scell_log %s"},
	},
	XStats: []qdisc.Param{
		{Name: "marked", Unit: qdisc.Number, Text: "  marked %s ", Doc: "packets marked"},
		{Name: "early", Unit: qdisc.Number, Text: "early %s ", Doc: "packets dropped early"},
		{Name: "pdrop", Unit: qdisc.Number, Text: "pdrop %s ", Doc: "packets dropped because the queue was full"},
		{Name: "other", Unit: qdisc.Number, Text: "other %s ", Doc: "always 0"},
	},
	Flags: qdisc.IsClassful | qdisc.NoClassStats,
	Check: check,
	New: func(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
		p, err := with(v)
		if err != nil {
			return nil, err
		}
		q := &red{handle: env.Handle, newChild: env.Bfifo, ownChild: true}
		if err := q.set(p); err != nil {
			return nil, err
		}
		q.state.Idle(0)
		q.child = qdisc.NewChild(q.newChild(int(p.limit)))
		return q, nil
	},
}
