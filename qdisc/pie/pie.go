// Packet path, except New, Change, Dump, XStats and the parameters.

// Package pie is Proportional Integral controller Enhanced on one FIFO
// (net/sched/sch_pie.c, RFC 8033): packets are dropped as they arrive, at random,
// with a probability that is set every tupdate from how far the delay is from its
// target and from whether it rises or falls. A queue that was quiet may burst for
// 150 ms first.
//
//	limit              packets that may wait; default 1000
//	target             delay to hold the queue at; default 15 ms
//	tupdate            how often the probability is set; default 15 ms; 0 is never
//	alpha, beta        weights of the distance to the target and of its change, in
//	                   sixteenths; 0 to 32; default 2 and 20
//	ecn                mark instead of dropping, while the probability is at most
//	                   10 %; default noecn
//	bytemode           drop small packets less; default nobytemode
//	dq_rate_estimator  derive the delay from the rate of departures; the default,
//	                   no_dq_rate_estimator, takes it from timestamps
//
// Differences from the kernel: there is no timer. Updates that are due are made
// up for with the next packet, which gives the same, as nothing else changes the
// state; the first is due 500 ms after the first packet. A tupdate is rounded to
// milliseconds, the kernel's jiffy at 1000 Hz. The law is in qdisc/internal/aqm.
package pie

import (
	"math"
	"slices"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/internal/aqm"
)

type pie struct {
	qdisc.Base
	list    qdisc.List
	limit   int
	law     aqm.PIE
	state   aqm.PIEState
	started time.Duration // when the clock of the updates did
	running bool          // it did
	ecn     bool

	// statistics
	in, overlimit, dropped, marked uint64
	longest                        uint64 // the queue, in packets

	params aqm.PIEParams
	frame  int
}

// Enqueue takes p, unless the queue is full or chance is against it.
func (q *pie) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	if !q.running {
		q.running, q.started = true, ctx.Now
	}
	q.law.Advance(&q.state, q.started, ctx.Now, q.Backlog())
	if q.Len() >= q.limit {
		q.overlimit++
		return q.refuse(ctx, p, qdisc.Overlimit)
	}
	if q.law.Drops(ctx, &q.state, p, q.Backlog()) {
		if !q.ecn || q.state.Prob > aqm.MaxProb/10 || !qdisc.SetCE(p) {
			return q.refuse(ctx, p, qdisc.Congested)
		}
		q.marked++
	}
	q.in++
	q.longest = max(q.longest, uint64(q.Len()))
	q.law.Enqueued(p, ctx.Now)
	q.list.Push(p)
	q.Enqueued(p)
	return qdisc.Success
}

func (q *pie) refuse(ctx *qdisc.Context, p *qdisc.Packet, r qdisc.Reason) qdisc.Verdict {
	q.dropped++
	q.state.Dropped()
	q.Refuse(ctx, p, r)
	return qdisc.Dropped
}

// Dequeue gives the oldest packet.
func (q *pie) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	p := q.list.Pop()
	if p == nil {
		return nil
	}
	q.law.Advance(&q.state, q.started, ctx.Now, q.Backlog())
	q.Dequeued(p)
	q.law.Dequeued(&q.state, p, ctx.Now, q.Backlog())
	return p
}

// Peek shows the oldest packet.
func (q *pie) Peek(*qdisc.Context) *qdisc.Packet { return q.list.Front() }

// Shed drops from the front.
func (q *pie) Shed(ctx *qdisc.Context, n int) int {
	got := 0
	for ; got < n; got++ {
		p := q.list.Pop()
		if p == nil {
			break
		}
		q.Discard(ctx, p, qdisc.Shed)
	}
	return got
}

// Reset drops everything, and the clock starts anew.
func (q *pie) Reset(ctx *qdisc.Context) {
	for p := q.list.Pop(); p != nil; p = q.list.Pop() {
		ctx.Drop(p, qdisc.Purged)
	}
	q.ResetBase(ctx)
	q.state, q.running, q.started = aqm.PIEState{}, false, 0
	q.state.Init()
}

// Change sets what is given; packets that no longer fit are dropped from the
// front.
func (q *pie) Change(ctx *qdisc.Context, v qdisc.Values) error {
	if q.running {
		q.law.Advance(&q.state, q.started, ctx.Now, q.Backlog())
	}
	q.set(v)
	for q.Len() > q.limit {
		p := q.list.Pop()
		if p == nil {
			break // the rest is the runner's
		}
		q.Discard(ctx, p, qdisc.Overlimit)
	}
	return nil
}

func (q *pie) set(v qdisc.Values) {
	q.limit = int(min(v.N("limit", uint64(q.limit)), math.MaxInt32))
	q.params = q.params.With(v)
	q.params.Set(&q.law, q.frame)
	q.ecn = q.params.ECN
}

// Dump shows the parameters.
func (q *pie) Dump() qdisc.Values {
	v := qdisc.Values{}.Set("limit", uint64(q.limit))
	q.params.Dump(v)
	return v
}

// XStats shows the law's state and what it did.
func (q *pie) XStats() qdisc.Values {
	v := qdisc.Values{}.Set("prob", math.Float64bits(float64(q.state.Prob)/aqm.MaxProb)).
		Set("delay", uint64(q.state.DelayTime())).
		Set("pkts_in", q.in).Set("overlimit", q.overlimit).Set("dropped", q.dropped).
		Set("maxq", q.longest).Set("ecn_mark", q.marked)
	if q.params.Estimate {
		v.Set("avg_dq_rate", q.state.BytesPerSecond())
	}
	return v
}

var (
	_ qdisc.Changer  = (*pie)(nil)
	_ qdisc.Dumper   = (*pie)(nil)
	_ qdisc.XStatser = (*pie)(nil)
)

// Kind is the table of pie.
var Kind = qdisc.Kind{
	Name: "pie",
	Doc:  "drops at random, to hold the queue's delay at a target",
	Usage: "Usage: ... pie\t[ limit PACKETS ] [ target TIME ]\n" +
		"\t\t[ tupdate TIME ] [ alpha ALPHA ] [ beta BETA ]\n" +
		"\t\t[ bytemode | nobytemode ] [ ecn | noecn ]\n" +
		"\t\t[ dq_rate_estimator | no_dq_rate_estimator ]",
	Params: slices.Concat([]qdisc.Param{
		{Name: "limit", Unit: qdisc.Number, Text: "limit %sp ", Default: "1000", Doc: "packets that may wait"},
	}, aqm.PIEParamTable, aqm.PIESwitchTable),
	XStats: []qdisc.Param{
		{Name: "prob", Unit: qdisc.Float, Text: "  prob %s", Doc: "drop probability, 0 to 1"},
		{Name: "delay", Unit: qdisc.Time, Text: " delay %s", Doc: "delay of the queue"},
		{Name: "avg_dq_rate", Unit: qdisc.Number, Text: " avg_dq_rate %s", Doc: "rate of departures, bytes a second"},
		{Name: "pkts_in", Unit: qdisc.Number, Text: "\n  pkts_in %s", Doc: "packets queued"},
		{Name: "overlimit", Unit: qdisc.Number, Text: " overlimit %s", Doc: "packets dropped because the queue was full"},
		{Name: "dropped", Unit: qdisc.Number, Text: " dropped %s", Doc: "packets dropped"},
		{Name: "maxq", Unit: qdisc.Number, Text: " maxq %s", Doc: "longest queue that a packet met"},
		{Name: "ecn_mark", Unit: qdisc.Number, Text: " ecn_mark %s", Doc: "packets marked instead of dropped"},
	},
	Check: aqm.CheckPIE,
	New: func(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
		q := &pie{limit: 1000, frame: env.MTU + env.HeaderLen, params: aqm.DefaultPIE}
		q.state.Init()
		q.set(v)
		return q, nil
	},
}
