// Packet path, except what is about parameters, and Kind.

// Package fqcodel is Flow Queue CoDel (net/sched/sch_fq_codel.c, RFC 8290): each
// flow has a queue of its own, all take turns by deficit round robin, and CoDel
// keeps each of them short. A flow that sends little never waits for those that
// send much: a flow with nothing queued joins the new flows, which go before the
// old ones for as long as their first quantum lasts.
//
//	limit         packets that may wait in all; default 10240
//	flows         queues that flows are hashed to, 1 to 65536; fixed when it is
//	              made; default 1024
//	target        delay that a standing queue may cause; default 5 ms
//	interval      time that it may be exceeded; default 100 ms
//	quantum       bytes a flow may send per round; default a full frame. Less
//	              than 256 is 256
//	ecn           mark rather than drop, the default; noecn does not
//	ce_threshold  delay above which every packet that can be is marked; default
//	              none. With ce_threshold_selector VALUE/MASK only those whose
//	              DS field matches
//	memory_limit  bytes of memory that may wait; default 32 MiB
//	drop_batch    packets that are dropped at once when a limit is reached;
//	              default 64
//
// At a limit the flow with the most bytes gives up its oldest packets: half of
// them, or drop_batch. The packet that came is rarely the one that goes.
//
// A packet's flow is the one that its class or its priority names (handle:1 to
// handle:flows), else the one that the filters say, where no answer means that
// the packet is dropped; without filters its flow hash decides. Flows that are
// in a round show as classes.
//
// Memory is counted as the kernel would (see aqm.TrueSize), so that a
// memory_limit that was chosen there admits as many packets here. The queues
// themselves, 64 bytes each, are made for the first packet: that is the one
// allocation, and an idle fq_codel costs nothing of it.
package fqcodel

import (
	"math"
	"syscall"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/internal/aqm"
)

type fqCodel struct {
	qdisc.Base
	flows    []flow // nil until the first packet
	fat      fattest
	fresh    list // new_flows
	old      list // old_flows
	law      aqm.CoDel
	quantum  int32
	limit    int
	memory   int // bytes of memory that is used
	memLimit int
	batch    int
	now      aqm.Ticks // of the last decision, for XStats

	handle  uint32
	nflows  uint32
	filter  qdisc.Classifier // nil: none
	newFlow uint64           // flows that became new
	// packets dropped because a limit was reached, and because it was memory's
	overlimit, overmemory uint64

	params aqm.CoDelParams
	frame  int
}

// flow is one queue, in a cache line.
type flow struct {
	queue   qdisc.List
	state   aqm.CoDelState
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
func (q *fqCodel) append(l *list, i int32) {
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
func (q *fqCodel) pop(l *list) {
	f := &q.flows[l.head]
	l.head = f.next
	l.n--
	f.next = idle
}

// start makes the flows.
func (q *fqCodel) start() {
	q.flows = make([]flow, q.nflows)
	for i := range q.flows {
		q.flows[i].next = idle
	}
	q.fat.grow(int(q.nflows))
}

// classify finds p's flow, counted from 1; 0 is none (fq_codel_classify).
func (q *fqCodel) classify(ctx *qdisc.Context, p *qdisc.Packet) (uint32, qdisc.FilterVerdict) {
	if p.Class != 0 && p.Class.Major() == q.handle {
		if n := p.Class.Minor(); n-1 < q.nflows {
			return n, qdisc.Match
		}
	}
	if p.Priority>>16 == q.handle {
		if n := p.Priority & 0xffff; n-1 < q.nflows {
			return n, qdisc.Match
		}
	}
	if q.filter == nil {
		return uint32(uint64(ctx.FlowHash(p))*uint64(q.nflows)>>32) + 1, qdisc.Match
	}
	v, id := q.filter.Classify(ctx, p)
	if n := id.Minor(); v == qdisc.Match && n <= q.nflows {
		return n, v
	}
	return 0, v
}

// Enqueue gives p to its flow, and makes room when that went over a limit.
func (q *fqCodel) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	n, v := q.classify(ctx, p)
	if n == 0 {
		return q.unclassified(ctx, p, v)
	}
	if q.flows == nil {
		q.start()
	}
	i := int32(n - 1)
	f := &q.flows[i]
	aqm.Stamp(p, ctx.Now)
	f.queue.Push(p)
	q.fat.changed(i)
	q.Enqueued(p)
	q.memory += aqm.TrueSize(p.Len())
	if f.next == idle {
		q.append(&q.fresh, i)
		q.newFlow++
		f.deficit = q.quantum
	}
	if q.Len() <= q.limit && q.memory <= q.memLimit {
		return qdisc.Success
	}
	return q.makeRoom(ctx, i)
}

// unclassified disposes of p, for which there is no flow.
func (q *fqCodel) unclassified(ctx *qdisc.Context, p *qdisc.Packet, v qdisc.FilterVerdict) qdisc.Verdict {
	if v == qdisc.FilterStolen || v == qdisc.FilterDrop {
		return q.Dispose(ctx, p, v)
	}
	q.Refuse(ctx, p, qdisc.NoClass)
	return qdisc.Dropped
}

// makeRoom drops from the fattest flow after a packet joined flow i, and says
// whether it was that one (fq_codel_drop). Dropping half of it at once keeps the
// search rare; its law is told, so that it drops more by itself.
func (q *fqCodel) makeRoom(ctx *qdisc.Context, i int32) qdisc.Verdict {
	memory := q.memory > q.memLimit
	victim := q.fat.find(q.flows)
	f := &q.flows[victim]
	half, dropped, n := f.queue.Bytes()>>1, 0, 0
	for {
		p := q.take(victim, f)
		if p == nil {
			break // what is counted above the limit stands outside
		}
		dropped += int(p.PktLen)
		q.Discard(ctx, p, qdisc.Overlimit)
		if n++; n >= q.batch || dropped >= half {
			break
		}
	}
	f.state.Aggravate(n)
	q.overlimit += uint64(n)
	if memory {
		q.overmemory += uint64(n)
	}
	if victim == i && n > 0 {
		return qdisc.CN
	}
	return qdisc.Success
}

// take takes the oldest packet of flow i; it is counted in still.
func (q *fqCodel) take(i int32, f *flow) *qdisc.Packet {
	p := f.queue.Pop()
	if p != nil {
		q.fat.changed(i)
		q.memory -= aqm.TrueSize(p.Len())
	}
	return p
}

// Dequeue gives the packet that Peek parked, else the next of the round.
func (q *fqCodel) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Unpark(); p != nil {
		return p
	}
	return q.next(ctx)
}

func (q *fqCodel) next(ctx *qdisc.Context) *qdisc.Packet {
	now := aqm.TicksAt(ctx.Now)
	q.now = now
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
		if p := q.head(ctx, now, i, f); p != nil {
			q.Dequeued(p)
			f.deficit -= int32(p.PktLen)
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

// head gives the oldest packet of flow i that CoDel does not drop.
func (q *fqCodel) head(ctx *qdisc.Context, now aqm.Ticks, i int32, f *flow) *qdisc.Packet {
	p := q.take(i, f)
	for q.law.Drops(&f.state, now, p, q.left(p)) {
		q.Discard(ctx, p, qdisc.Congested)
		p = q.take(i, f)
	}
	return p
}

// left is the backlog of all flows without p, which is still counted in.
func (q *fqCodel) left(p *qdisc.Packet) int {
	if p == nil {
		return q.Backlog()
	}
	return q.Backlog() - int(p.PktLen)
}

// Peek parks what Dequeue gives (qdisc_peek_dequeued).
func (q *fqCodel) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Parked(); p != nil {
		return p
	}
	return q.Park(q.next(ctx))
}

// Shed drops from the head of the flow with the most bytes.
func (q *fqCodel) Shed(ctx *qdisc.Context, n int) int {
	if q.flows == nil {
		return 0
	}
	got := 0
	for ; got < n; got++ {
		i := q.fat.find(q.flows)
		p := q.take(i, &q.flows[i])
		if p == nil {
			break
		}
		q.Discard(ctx, p, qdisc.Shed)
	}
	return got
}

// Reset drops everything; each flow is in no list then, and its law knows
// nothing.
func (q *fqCodel) Reset(ctx *qdisc.Context) {
	for i := range q.flows {
		f := &q.flows[i]
		for p := f.queue.Pop(); p != nil; p = f.queue.Pop() {
			ctx.Drop(p, qdisc.Purged)
		}
		*f = flow{next: idle}
		q.fat.changed(int32(i))
	}
	q.fresh, q.old, q.memory = list{}, list{}, 0
	q.ResetBase(ctx)
}

const (
	minQuantum = 256
	maxQuantum = 1 << 20
	maxFlows   = 65536
	maxMemory  = 1 << 31
)

// Change sets what is given, except flows. What is above the limits then is
// dropped in the order of departure, the parked packet first.
func (q *fqCodel) Change(ctx *qdisc.Context, v qdisc.Values) error {
	if v.Has("flows") {
		return &qdisc.Error{Errno: syscall.EINVAL}
	}
	if err := q.set(v); err != nil {
		return err
	}
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

// set puts v on top of the parameters, or refuses and changes nothing.
func (q *fqCodel) set(v qdisc.Values) error {
	n := v.N("quantum", uint64(q.quantum))
	if n > maxQuantum {
		return qdisc.Refuse(syscall.EINVAL, "Invalid quantum")
	}
	q.quantum = int32(max(n, minQuantum))
	q.limit = int(min(v.N("limit", uint64(q.limit)), math.MaxInt32))
	q.memLimit = int(min(v.N("memory_limit", uint64(q.memLimit)), maxMemory))
	q.batch = int(max(v.N("drop_batch", uint64(q.batch)), 1))
	q.params = q.params.With(v)
	q.params.Set(&q.law, q.frame)
	return nil
}

// Dump shows the parameters.
func (q *fqCodel) Dump() qdisc.Values {
	v := qdisc.Values{}.Set("limit", uint64(q.limit)).Set("flows", uint64(q.nflows)).
		Set("quantum", uint64(q.quantum)).Set("memory_limit", uint64(q.memLimit)).Set("drop_batch", uint64(q.batch))
	q.params.Dump(v)
	return v
}

// XStats shows what all flows have in common.
func (q *fqCodel) XStats() qdisc.Values {
	v := qdisc.Values{}.Set("maxpacket", uint64(q.law.MaxPacket)).Set("drop_overlimit", q.overlimit).
		Set("new_flow_count", q.newFlow).Set("ecn_mark", q.law.Marked).
		Set("new_flows_len", uint64(q.fresh.n)).Set("old_flows_len", uint64(q.old.n))
	for name, n := range map[string]uint64{
		"ce_mark": q.law.CEMarked, "memory_used": uint64(q.memory), "drop_overmemory": q.overmemory,
	} {
		if n > 0 {
			v.Set(name, n)
		}
	}
	return v
}

// Walk shows the flows that are in a round.
func (q *fqCodel) Walk(show func(qdisc.Class) bool) {
	for i := range q.flows {
		f := &q.flows[i]
		if f.next == idle {
			continue
		}
		v := qdisc.Values{}.Set("deficit", uint64(int64(f.deficit)))
		f.state.XStats(v, q.now)
		if !show(qdisc.Class{
			ID: qdisc.MakeID(q.handle, uint32(i)+1), Parent: qdisc.MakeID(q.handle, 0),
			Len: f.queue.Len(), Bytes: f.queue.Bytes(), XStats: v,
		}) {
			return
		}
	}
}

// SetClassifier attaches filters to the qdisc; flows take none.
func (q *fqCodel) SetClassifier(id qdisc.ClassID, c qdisc.Classifier) error {
	if id != 0 {
		return &qdisc.Error{Errno: syscall.EOPNOTSUPP}
	}
	q.filter = c
	return nil
}

// CanBypass forbids the bypass for a queue that would refuse the packet.
func (q *fqCodel) CanBypass() bool { return q.limit >= 1 }

func newFqCodel(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
	q := &fqCodel{
		handle: env.Handle, frame: env.MTU + env.HeaderLen,
		limit: 10240, memLimit: 32 << 20, batch: 64, nflows: 1024,
		quantum: int32(env.MTU + env.HeaderLen),
		params:  aqm.CoDelParams{Target: 5 * time.Millisecond, Interval: 100 * time.Millisecond, ECN: true},
	}
	n := v.N("flows", uint64(q.nflows))
	if n < 1 || n > maxFlows {
		return nil, &qdisc.Error{Errno: syscall.EINVAL}
	}
	q.nflows = uint32(n)
	if err := q.set(v); err != nil {
		return nil, err
	}
	return q, nil
}

var (
	_ qdisc.Changer  = (*fqCodel)(nil)
	_ qdisc.Dumper   = (*fqCodel)(nil)
	_ qdisc.XStatser = (*fqCodel)(nil)
	_ qdisc.Bypasser = (*fqCodel)(nil)
	_ qdisc.Filtered = (*fqCodel)(nil)
	_ qdisc.Walker   = (*fqCodel)(nil)
)

// Kind is the table of fq_codel.
var Kind = qdisc.Kind{
	Name: "fq_codel",
	Doc:  "fair queueing of flows, each kept short by CoDel",
	Usage: "Usage: ... fq_codel\t[ limit PACKETS ] [ flows NUMBER ]\n" +
		"\t\t\t[ memory_limit BYTES ]\n" +
		"\t\t\t[ target TIME ] [ interval TIME ]\n" +
		"\t\t\t[ quantum BYTES ] [ [no]ecn ]\n" +
		"\t\t\t[ ce_threshold TIME ]\n" +
		"\t\t\t[ ce_threshold_selector VALUE/MASK ]\n" +
		"\t\t\t[ drop_batch SIZE ]",
	Params: []qdisc.Param{
		{Name: "limit", Unit: qdisc.Number, Text: "limit %sp ", Default: "10240", Doc: "packets that may wait in all"},
		{Name: "flows", Unit: qdisc.Number, Default: "1024", Doc: "queues that flows are hashed to, 1 to 65536; fixed when it is made"},
		{Name: "quantum", Unit: qdisc.Number, Default: "a full frame", Doc: "bytes a flow may send per round, at least 256"},
		aqm.TargetParam, aqm.TargetShown,
		aqm.CEThresholdParam, aqm.CEThresholdShown,
		aqm.SelectorParam, aqm.SelectorValue, aqm.SelectorMask,
		aqm.IntervalParam, aqm.IntervalShown,
		{Name: "memory_limit", Unit: qdisc.Size, Default: "32Mb", Doc: "bytes of memory that may wait"},
		{Name: "ecn", Unit: qdisc.Flag, Default: "ecn", Doc: "mark rather than drop"},
		aqm.NoECNParam,
		{Name: "drop_batch", Unit: qdisc.Number, Default: "64", Doc: "packets dropped at once when a limit is reached"},
	},
	XStats: []qdisc.Param{
		{Name: "maxpacket", Unit: qdisc.Number, Text: "  maxpacket %s", Doc: "largest packet"},
		{Name: "drop_overlimit", Unit: qdisc.Number, Text: " drop_overlimit %s", Doc: "packets dropped because a limit was reached"},
		{Name: "new_flow_count", Unit: qdisc.Number, Text: " new_flow_count %s", Doc: "flows that became new"},
		{Name: "ecn_mark", Unit: qdisc.Number, Text: " ecn_mark %s", Doc: "packets marked instead of dropped"},
		{Name: "ce_mark", Unit: qdisc.Number, Text: " ce_mark %s", Doc: "packets marked for ce_threshold"},
		{Name: "memory_used", Unit: qdisc.Number, Text: " memory_used %s", Doc: "bytes of memory that wait"},
		{Name: "drop_overmemory", Unit: qdisc.Number, Text: " drop_overmemory %s", Doc: "packets dropped because memory_limit was reached"},
		{Name: "new_flows_len", Unit: qdisc.Number, Text: "\n  new_flows_len %s", Doc: "flows that are new"},
		{Name: "old_flows_len", Unit: qdisc.Number, Text: " old_flows_len %s", Doc: "flows that take turns"},
	},
	ClassXStats: []qdisc.Param{
		{Name: "deficit", Unit: qdisc.Signed, Text: "  deficit %s", Doc: "bytes it may still send in this round"},
		{Name: "count", Unit: qdisc.Number, Text: " count %s", Doc: "drops since it began to drop"},
		{Name: "lastcount", Unit: qdisc.Number, Text: " lastcount %s", Doc: "count when it last began to"},
		{Name: "ldelay", Unit: qdisc.Time, Text: " ldelay %s", Doc: "delay of the last packet"},
		{Name: "dropping", Unit: qdisc.Flag, Text: " dropping", Doc: "it is dropping"},
		{Name: "drop_next", Unit: qdisc.Time, Text: " drop_next %s", Doc: "time to the next drop"},
	},
	Flags: qdisc.NoClassSent,
	Check: aqm.CheckCoDel,
	New:   newFqCodel,
}
