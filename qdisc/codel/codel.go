// Packet path, except New, Change, Dump, XStats and the parameters.

// Package codel is Controlled Delay on one FIFO (net/sched/sch_codel.c, RFC
// 8289): a queue may be long for a moment, to absorb a burst, but not stand. Each
// packet's delay is measured as it leaves. When it has been above target for a
// whole interval the next packets are dropped, or marked, one at a time and
// closer and closer together, until the senders slow down and the delay is below
// target again.
//
//	limit         packets that may wait; what comes then is dropped; default 1000
//	target        delay that a standing queue may cause; default 5 ms
//	interval      time that it may be exceeded, about the slowest round trip;
//	              default 100 ms
//	ecn           mark packets of senders that take part in ECN instead of
//	              dropping them; noecn, the default, does not
//	ce_threshold  mark every such packet that waited longer than this; default
//	              none. For senders like DCTCP
//
// Time is counted in ticks of 1024 ns, as in the kernel, whence the 4999 µs that
// tc shows in JSON for a target of 5 ms. The law itself is in qdisc/internal/aqm.
package codel

import (
	"time"

	"sluice/qdisc"
	"sluice/qdisc/internal/aqm"
)

type codel struct {
	qdisc.Base
	list      qdisc.List
	limit     int
	law       aqm.CoDel
	state     aqm.CoDelState
	now       aqm.Ticks // of the last decision, for XStats
	overlimit uint64    // packets refused because the queue was full

	params aqm.CoDelParams
	frame  int
}

// Enqueue takes p unless limit packets are queued already.
func (q *codel) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	if q.Len() >= q.limit {
		q.overlimit++
		q.Refuse(ctx, p, qdisc.Overlimit)
		return qdisc.Dropped
	}
	aqm.Stamp(p, ctx.Now)
	q.list.Push(p)
	q.Enqueued(p)
	return qdisc.Success
}

// Dequeue gives the packet that Peek parked, else the oldest that need not be
// dropped.
func (q *codel) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Unpark(); p != nil {
		return p
	}
	return q.next(ctx)
}

func (q *codel) next(ctx *qdisc.Context) *qdisc.Packet {
	now := aqm.TicksAt(ctx.Now)
	q.now = now
	p := q.list.Pop()
	for q.law.Drops(&q.state, now, p, q.left(p)) {
		q.Discard(ctx, p, qdisc.Congested)
		p = q.list.Pop()
	}
	if p != nil {
		q.Dequeued(p)
	}
	return p
}

// left is the backlog without p, which is still counted in.
func (q *codel) left(p *qdisc.Packet) int {
	if p == nil {
		return q.Backlog()
	}
	return q.Backlog() - int(p.PktLen)
}

// Peek parks what Dequeue gives: to know it means to drop what is before it
// (qdisc_peek_dequeued).
func (q *codel) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Parked(); p != nil {
		return p
	}
	return q.Park(q.next(ctx))
}

// Shed drops from the front.
func (q *codel) Shed(ctx *qdisc.Context, n int) int {
	got := 0
	for got < n {
		p := q.list.Pop()
		if p == nil {
			break
		}
		q.Discard(ctx, p, qdisc.Shed)
		got++
	}
	return got
}

// Reset drops everything and forgets what the law knew.
func (q *codel) Reset(ctx *qdisc.Context) {
	for p := q.list.Pop(); p != nil; p = q.list.Pop() {
		ctx.Drop(p, qdisc.Purged)
	}
	q.state = aqm.CoDelState{}
	q.ResetBase(ctx)
}

// Change sets what is given. What no longer fits is dropped from the front, the
// parked packet first: it is the oldest, and was forgotten once
// (qdisc_dequeue_internal).
func (q *codel) Change(ctx *qdisc.Context, v qdisc.Values) error {
	q.set(v)
	for q.Len() > q.limit {
		if p := q.Unpark(); p != nil {
			q.Refuse(ctx, p, qdisc.Overlimit)
			continue
		}
		p := q.list.Pop()
		if p == nil {
			break // the rest is the runner's
		}
		q.Discard(ctx, p, qdisc.Overlimit)
	}
	return nil
}

func (q *codel) set(v qdisc.Values) {
	q.limit = int(v.N("limit", uint64(q.limit)))
	q.params = q.params.With(v)
	q.params.Set(&q.law, q.frame)
}

// Dump shows the parameters.
func (q *codel) Dump() qdisc.Values {
	v := qdisc.Values{}.Set("limit", uint64(q.limit))
	q.params.Dump(v)
	return v
}

// XStats shows the state of the law as of the last packet it looked at.
func (q *codel) XStats() qdisc.Values {
	v := qdisc.Values{}.Set("drop_next", 0)
	q.state.XStats(v, q.now)
	v.Set("maxpacket", uint64(q.law.MaxPacket)).Set("ecn_mark", q.law.Marked).Set("drop_overlimit", q.overlimit)
	if q.law.CEMarked > 0 {
		v.Set("ce_mark", q.law.CEMarked)
	}
	return v
}

// CanBypass forbids the bypass for a queue that would refuse the packet.
func (q *codel) CanBypass() bool { return q.limit >= 1 }

var (
	_ qdisc.Changer  = (*codel)(nil)
	_ qdisc.Dumper   = (*codel)(nil)
	_ qdisc.XStatser = (*codel)(nil)
	_ qdisc.Bypasser = (*codel)(nil)
)

// Kind is the table of codel.
var Kind = qdisc.Kind{
	Name: "codel",
	Doc:  "drops from a queue that stands",
	Usage: "Usage: ... codel [ limit PACKETS ] [ target TIME ]\n" +
		"\t\t [ interval TIME ] [ ecn | noecn ]\n" +
		"\t\t [ ce_threshold TIME ]",
	Params: []qdisc.Param{
		{Name: "limit", Unit: qdisc.Number, Text: "limit %sp ", Default: "1000", Doc: "packets that may wait"},
		aqm.TargetParam, aqm.TargetShown,
		aqm.CEThresholdParam, aqm.CEThresholdShown,
		aqm.IntervalParam, aqm.IntervalShown,
		{Name: "ecn", Unit: qdisc.Flag, Default: "noecn", Doc: "mark rather than drop"},
		aqm.NoECNParam,
	},
	XStats: []qdisc.Param{
		{Name: "count", Unit: qdisc.Number, Text: "  count %s", Doc: "drops since it began to drop"},
		{Name: "lastcount", Unit: qdisc.Number, Text: " lastcount %s", Doc: "count when it last began to"},
		{Name: "ldelay", Unit: qdisc.Time, Text: " ldelay %s", Doc: "delay of the last packet"},
		{Name: "dropping", Unit: qdisc.Flag, Text: " dropping", Doc: "it is dropping"},
		{Name: "drop_next", Unit: qdisc.Time, Text: " drop_next %s", Doc: "time to the next drop"},
		{Name: "maxpacket", Unit: qdisc.Number, Text: "\n  maxpacket %s", Doc: "largest packet"},
		{Name: "ecn_mark", Unit: qdisc.Number, Text: " ecn_mark %s", Doc: "packets marked instead of dropped"},
		{Name: "drop_overlimit", Unit: qdisc.Number, Text: " drop_overlimit %s", Doc: "packets dropped because the queue was full"},
		{Name: "ce_mark", Unit: qdisc.Number, Text: " ce_mark %s", Doc: "packets marked for ce_threshold"},
	},
	Check: aqm.CheckCoDel,
	New: func(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
		q := &codel{limit: 1000, frame: env.MTU + env.HeaderLen}
		q.params = aqm.CoDelParams{Target: 5 * time.Millisecond, Interval: 100 * time.Millisecond}
		q.set(v)
		return q, nil
	},
}
