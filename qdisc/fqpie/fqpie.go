// Packet path, except what is about parameters, and Kind.

// Package fqpie is Flow Queue PIE (net/sched/sch_fq_pie.c): each flow has a queue
// of its own, all take turns as in fq_codel, and each drops at random on arrival
// by a PIE of its own.
//
//	limit         packets that may wait in all; default 10240
//	flows         queues that flows are hashed to, 1 to 65536; fixed when it is
//	              made; default 1024
//	memory_limit  bytes of memory that may wait; default 32 MiB
//	quantum       bytes a flow may send per round; default a full frame
//	ecn_prob      mark instead of dropping up to this probability, in percent;
//	              default 10; in force with ecn
//	target, tupdate, alpha, beta, ecn, bytemode, dq_rate_estimator as in pie
//
// A packet's flow is the one that its class or its priority names (handle:1 to
// handle:flows), else its flow hash decides.
//
// Differences from the kernel: a packet above memory_limit is dropped, where the
// kernel only counts it. Memory is counted as there (see aqm.TrueSize). There is
// no timer that goes through all flows: each makes up for its updates with its
// next packet, so that idle flows cost nothing. The queues are made for the first
// packet: the one allocation.
package fqpie

import (
	"math"
	"slices"
	"syscall"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/internal/aqm"
)

type fqPie struct {
	qdisc.Base
	flows    []flow // nil until the first packet
	fresh    list   // new_flows
	old      list   // old_flows
	law      aqm.PIE
	quantum  int32
	limit    int
	memory   int // bytes of memory that is used
	memLimit int
	started  time.Duration // when the clock of the updates did
	ecn      bool
	ecnProb  uint64 // of MaxProb

	// statistics
	in, overlimit, overmemory, dropped, marked, newFlow uint64

	handle  uint32
	nflows  uint32
	params  aqm.PIEParams
	percent uint32 // ecn_prob
	frame   int
}

// flow is one queue.
type flow struct {
	queue   qdisc.List
	state   aqm.PIEState
	deficit int32 // bytes it may still send in this round
	next    int32 // the flow behind it in its list; last, or idle when it is in none
}

const (
	last int32 = -1
	idle int32 = -2
)

// list is a list of flows, linked through them.
type list struct {
	head, tail int32 // valid when n > 0
	n          int
}

// append puts flow i, which is in no list, at the tail.
func (q *fqPie) append(l *list, i int32) {
	q.flows[i].next = last
	if l.n == 0 {
		l.head = i
	} else {
		q.flows[l.tail].next = i
	}
	l.tail = i
	l.n++
}

// pop takes the head, which is in no list then.
func (q *fqPie) pop(l *list) {
	f := &q.flows[l.head]
	l.head = f.next
	l.n--
	f.next = idle
}

// start makes the flows.
func (q *fqPie) start(now time.Duration) {
	q.started = now
	if q.flows == nil {
		q.flows = make([]flow, q.nflows)
	}
	for i := range q.flows {
		q.flows[i].next = idle
		q.flows[i].state.Init()
	}
}

const notStarted = time.Duration(-1)

// classify finds p's flow.
func (q *fqPie) classify(ctx *qdisc.Context, p *qdisc.Packet) int32 {
	if p.Class != 0 && p.Class.Major() == q.handle {
		if n := p.Class.Minor() - 1; n < q.nflows {
			return int32(n)
		}
	}
	if p.Priority>>16 == q.handle {
		if n := p.Priority&0xffff - 1; n < q.nflows {
			return int32(n)
		}
	}
	return int32(uint64(ctx.FlowHash(p)) * uint64(q.nflows) >> 32)
}

// Enqueue gives p to its flow, unless a limit is reached or chance is against it.
func (q *fqPie) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	i := q.classify(ctx, p)
	if q.started == notStarted {
		q.start(ctx.Now)
	}
	f := &q.flows[i]
	q.law.Advance(&f.state, q.started, ctx.Now, f.queue.Bytes())
	size := aqm.TrueSize(p.Len())
	switch {
	case q.Len() >= q.limit:
		q.overlimit++
		return q.refuse(ctx, f, p, qdisc.Overlimit)
	case q.memory+size > q.memLimit:
		q.overmemory++
		return q.refuse(ctx, f, p, qdisc.Overlimit)
	case q.law.Drops(ctx, &f.state, p, f.queue.Bytes()):
		if !q.ecn || f.state.Prob > q.ecnProb || !qdisc.SetCE(p) {
			return q.refuse(ctx, f, p, qdisc.Congested)
		}
		q.marked++
	}
	q.law.Enqueued(p, ctx.Now)
	q.in++
	q.memory += size
	q.Enqueued(p)
	f.queue.Push(p)
	if f.next == idle {
		q.append(&q.fresh, i)
		q.newFlow++
		f.deficit = q.quantum
	}
	return qdisc.Success
}

// refuse drops p with the verdict of congestion, as the kernel's does.
func (q *fqPie) refuse(ctx *qdisc.Context, f *flow, p *qdisc.Packet, r qdisc.Reason) qdisc.Verdict {
	q.dropped++
	f.state.Dropped()
	q.Refuse(ctx, p, r)
	return qdisc.CN
}

// take takes the oldest packet of f; it is counted in still.
func (q *fqPie) take(f *flow) *qdisc.Packet {
	p := f.queue.Pop()
	if p != nil {
		q.memory -= aqm.TrueSize(p.Len())
	}
	return p
}

// Dequeue gives the packet that Peek parked, else the next of the round.
func (q *fqPie) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Unpark(); p != nil {
		return p
	}
	return q.next(ctx)
}

func (q *fqPie) next(ctx *qdisc.Context) *qdisc.Packet {
	for {
		l := &q.fresh
		if l.n == 0 {
			if l = &q.old; l.n == 0 {
				return nil
			}
		}
		i := l.head
		f := &q.flows[i]
		if f.deficit <= 0 {
			f.deficit += q.quantum
			q.pop(l)
			q.append(&q.old, i)
			continue
		}
		if f.queue.Len() > 0 {
			q.law.Advance(&f.state, q.started, ctx.Now, f.queue.Bytes())
			p := q.take(f)
			q.Dequeued(p)
			f.deficit -= int32(p.PktLen)
			q.law.Dequeued(&f.state, p, ctx.Now, f.queue.Bytes())
			return p
		}
		// A flow that is empty at once would be new again with its next packet:
		// it has to wait for all the old ones once.
		q.pop(l)
		if l == &q.fresh && q.old.n > 0 {
			q.append(&q.old, i)
		}
	}
}

// Peek parks what Dequeue gives (qdisc_peek_dequeued).
func (q *fqPie) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Parked(); p != nil {
		return p
	}
	return q.Park(q.next(ctx))
}

// Shed drops from the head of the flow with the most bytes.
func (q *fqPie) Shed(ctx *qdisc.Context, n int) int {
	got := 0
	for got < n {
		var fat *flow
		for i := range q.flows {
			if f := &q.flows[i]; fat == nil || f.queue.Bytes() > fat.queue.Bytes() {
				fat = f
			}
		}
		if fat == nil || fat.queue.Len() == 0 {
			break
		}
		for half := fat.queue.Bytes() / 2; got < n && fat.queue.Len() > 0; got++ {
			if got > 0 && fat.queue.Bytes() < half {
				break
			}
			q.Discard(ctx, q.take(fat), qdisc.Shed)
		}
	}
	return got
}

// Reset drops everything, and the clock starts anew with the next packet.
func (q *fqPie) Reset(ctx *qdisc.Context) {
	for i := range q.flows {
		f := &q.flows[i]
		for p := f.queue.Pop(); p != nil; p = f.queue.Pop() {
			ctx.Drop(p, qdisc.Purged)
		}
		*f = flow{}
	}
	q.fresh, q.old, q.memory, q.started = list{}, list{}, 0, notStarted
	q.ResetBase(ctx)
}

const maxFlows = 65536

// Change sets what is given, except flows. What is above the limits then is
// dropped in the order of departure, the parked packet first.
func (q *fqPie) Change(ctx *qdisc.Context, v qdisc.Values) error {
	if v.Has("flows") {
		return qdisc.Refuse(syscall.EINVAL, "Number of flows cannot be changed")
	}
	if q.started != notStarted { // what is due is due by the old parameters
		for i := range q.flows {
			f := &q.flows[i]
			q.law.Advance(&f.state, q.started, ctx.Now, f.queue.Bytes())
		}
	}
	q.set(v)
	for q.Len() > q.limit || q.memory > q.memLimit {
		parked := q.Parked() != nil
		p := q.Dequeue(ctx)
		if p == nil {
			break // the rest is the runner's
		}
		if !parked { // it was not sent after all; what Peek showed counts as sent
			q.Packets--
			q.Bytes -= uint64(p.PktLen)
		}
		q.Refuse(ctx, p, qdisc.Overlimit)
	}
	return nil
}

func (q *fqPie) set(v qdisc.Values) {
	q.quantum = int32(min(max(v.N("quantum", uint64(q.quantum)), 1), math.MaxInt32))
	q.limit = int(min(v.N("limit", uint64(q.limit)), math.MaxInt32))
	q.memLimit = int(v.N("memory_limit", uint64(q.memLimit)))
	q.percent = uint32(v.N("ecn_prob", uint64(q.percent)))
	q.ecnProb = aqm.MaxProb / 100 * uint64(min(q.percent, 100))
	q.params = q.params.With(v)
	q.params.Set(&q.law, q.frame)
	q.ecn = q.params.ECN
}

// Dump shows the parameters.
func (q *fqPie) Dump() qdisc.Values {
	v := qdisc.Values{}.Set("limit", uint64(q.limit)).Set("flows", uint64(q.nflows)).
		Set("quantum", uint64(q.quantum)).Set("memory_limit", uint64(q.memLimit)).Set("ecn_prob", uint64(q.percent))
	q.params.Dump(v)
	return v
}

// XStats shows what all flows have in common.
func (q *fqPie) XStats() qdisc.Values {
	return qdisc.Values{}.Set("pkts_in", q.in).Set("overlimit", q.overlimit).Set("overmemory", q.overmemory).
		Set("dropped", q.dropped).Set("ecn_mark", q.marked).Set("new_flow_count", q.newFlow).
		Set("new_flows_len", uint64(q.fresh.n)).Set("old_flows_len", uint64(q.old.n)).
		Set("memory_used", uint64(q.memory))
}

func newFqPie(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
	n := v.N("flows", 1024)
	if n < 1 || n > maxFlows {
		return nil, qdisc.Refuse(syscall.EINVAL, "Number of flows must range in [1..65536]")
	}
	q := &fqPie{
		handle: env.Handle, frame: env.MTU + env.HeaderLen,
		limit: 10240, memLimit: 32 << 20, nflows: uint32(n), percent: 10,
		quantum: int32(env.MTU + env.HeaderLen), started: notStarted,
		params: aqm.DefaultPIE,
	}
	q.set(v)
	return q, nil
}

var (
	_ qdisc.Changer  = (*fqPie)(nil)
	_ qdisc.Dumper   = (*fqPie)(nil)
	_ qdisc.XStatser = (*fqPie)(nil)
)

// Kind is the table of fq_pie.
var Kind = qdisc.Kind{
	Name: "fq_pie",
	Doc:  "fair queueing of flows, each held at a target by PIE",
	Usage: "Usage: ... fq_pie\t[ limit PACKETS ] [ flows NUMBER ]\n" +
		"\t\t\t[ target TIME ] [ tupdate TIME ]\n" +
		"\t\t\t[ alpha NUMBER ] [ beta NUMBER ]\n" +
		"\t\t\t[ quantum BYTES ] [ memory_limit BYTES ]\n" +
		"\t\t\t[ ecn_prob PERCENTAGE ] [ [no]ecn ]\n" +
		"\t\t\t[ [no]bytemode ] [ [no_]dq_rate_estimator ]",
	Params: slices.Concat([]qdisc.Param{
		{Name: "limit", Unit: qdisc.Number, Text: "limit %sp ", Default: "10240", Doc: "packets that may wait in all"},
		{Name: "flows", Unit: qdisc.Number, Default: "1024", Doc: "queues that flows are hashed to, 1 to 65536; fixed when it is made"},
	}, aqm.PIEParamTable, []qdisc.Param{
		{Name: "quantum", Unit: qdisc.Size, Default: "a full frame", Doc: "bytes a flow may send per round"},
		{Name: "memory_limit", Unit: qdisc.Size, Default: "32Mb", Doc: "bytes of memory that may wait"},
		{Name: "ecn_prob", Unit: qdisc.Number, Default: "10", Doc: "mark up to this drop probability, in percent"},
	}, aqm.PIESwitchTable),
	XStats: []qdisc.Param{
		{Name: "pkts_in", Unit: qdisc.Number, Text: "  pkts_in %s", Doc: "packets queued"},
		{Name: "overlimit", Unit: qdisc.Number, Text: " overlimit %s", Doc: "packets dropped because limit was reached"},
		{Name: "overmemory", Unit: qdisc.Number, Text: " overmemory %s", Doc: "packets dropped because memory_limit was"},
		{Name: "dropped", Unit: qdisc.Number, Text: " dropped %s", Doc: "packets dropped"},
		{Name: "ecn_mark", Unit: qdisc.Number, Text: " ecn_mark %s", Doc: "packets marked instead of dropped"},
		{Name: "new_flow_count", Unit: qdisc.Number, Text: "\n  new_flow_count %s", Doc: "flows that became new"},
		{Name: "new_flows_len", Unit: qdisc.Number, Text: " new_flows_len %s", Doc: "flows that are new"},
		{Name: "old_flows_len", Unit: qdisc.Number, Text: " old_flows_len %s", Doc: "flows that take turns"},
		{Name: "memory_used", Unit: qdisc.Number, Text: " memory_used %s", Doc: "bytes of memory that wait"},
	},
	Check: aqm.CheckPIE,
	New:   newFqPie,
}
