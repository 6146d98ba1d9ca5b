// Packet path, except Walk and SetClassifier.

// Package sfq is stochastic fairness queueing (net/sched/sch_sfq.c; McKenney,
// INFOCOM 1990): flows are told apart by a hash and take turns, each sending a
// quantum of bytes. It needs no configuration, keeps no rate, and takes from the
// flow that has most packets when the queue is full.
//
//	limit     packets that may wait; default 127, at most depth × flows
//	depth     packets that may wait in one flow, at most 127, the default
//	flows     flows that may be active at a time; default 128, at most 65408
//	divisor   places of the hash table, a power of two up to 65536; default 1024
//	quantum   bytes a flow may send per turn; default a full frame
//	perturb   seconds after which the hash is another one, so that flows that
//	          share a place do not do so for ever; default 0, never
//	headdrop  a flow that is full gives its oldest packet instead of the new one
//
//	redflowlimit, min, max, avpkt, burst, probability, ecn, harddrop
//	          random early detection within each flow; see tc-red
//
// A packet's place is the minor number of its class or priority, when the major
// one is the handle of this qdisc; else, when there are filters, what they say,
// and without an answer the packet is dropped; else its hash. A flow takes its
// turn at the end of the round when it becomes active, and forgets what it owed
// when it has sent everything.
//
// Differences from the kernel:
//
//   - The new hash of perturb is taken with the first packet that comes or goes
//     after its time, there being no timer.
//   - What a flow's early detection learned is forgotten when the flow ends; a
//     rehash in the kernel hands it to whichever flow gets the place.
package sfq

import (
	"time"

	"sluice/qdisc"
	"sluice/qdisc/internal/aqm"
	"sluice/qdisc/internal/back"
)

const (
	maxDepth   = 127   // SFQ_MAX_DEPTH
	maxFlows   = 65408 // SFQ_MAX_FLOWS
	maxDivisor = 65536
)

// none is no slot.
const none = -1

type sfq struct {
	qdisc.Base
	params
	handle uint32
	filter qdisc.Classifier // nil: none

	table  []int32             // a slot for each place of the hash, or none; nil until the first packet
	slots  []slot              // of the active flows
	tail   int32               // last of the round, whose next one is the first; or none
	byLen  [maxDepth + 1]int32 // slots by their number of packets, the last one to get there first; 0: the free ones
	most   int                 // packets of the longest flow
	key    [2]uint32           // of the hash
	back   back.Links
	rehash time.Duration // when the key is to be another one

	stats redStats
}

// slot is an active flow (struct sfq_slot).
type slot struct {
	qdisc.List
	place  int32 // of the hash
	next   int32 // in the round
	allot  int32 // bytes it may still send in its turn
	before int32 // of the slots with as many packets; none: byLen
	after  int32
	red    aqm.REDState
}

// classify returns the place of p's flow; none, and what became of p, when it
// belongs nowhere.
func (q *sfq) classify(ctx *qdisc.Context, p *qdisc.Packet) (int32, qdisc.FilterVerdict) {
	var minor uint32
	v := qdisc.Match
	switch {
	case p.Class.Major() == q.handle && q.isPlace(p.Class.Minor()):
		minor = p.Class.Minor()
	case p.Priority>>16 == q.handle && q.isPlace(p.Priority&0xffff):
		minor = p.Priority & 0xffff
	case q.filter == nil:
		return q.hash(ctx, p), v
	default:
		var class qdisc.ClassID
		v, class = q.filter.Classify(ctx, p)
		if v == qdisc.Match && q.isPlace(class.Minor()) {
			minor = class.Minor()
		}
	}
	return int32(minor) - 1, v
}

func (q *sfq) isPlace(minor uint32) bool { return minor-1 < q.divisor } // 0 wraps

// hash multiplies by a random odd number and takes the upper bits, so that
// another key parts most flows that were together.
func (q *sfq) hash(ctx *qdisc.Context, p *qdisc.Packet) int32 {
	h := (ctx.FlowHash(p) ^ q.key[0]) * q.key[1]
	h ^= h >> 15
	return int32((h * q.key[1]) >> 16 & (q.divisor - 1))
}

// begin makes the tables when they are first needed, and the first key.
func (q *sfq) begin(ctx *qdisc.Context) {
	if q.table == nil {
		q.table = make([]int32, q.divisor)
		q.slots = make([]slot, q.flows)
	}
	for i := range q.table {
		q.table[i] = none
	}
	for i := range q.byLen {
		q.byLen[i] = none
	}
	for i := len(q.slots) - 1; i >= 0; i-- {
		q.slots[i] = slot{}
		q.link(int32(i))
	}
	q.tail, q.most = none, 0
	q.newKey(ctx)
}

func (q *sfq) newKey(ctx *qdisc.Context) {
	r := ctx.Rand.Uint64()
	q.key = [2]uint32{uint32(r), uint32(r>>32) | 1}
	q.rehash = qdisc.Never
	if q.perturb != 0 {
		q.rehash = ctx.Now + q.perturb
	}
}

// link puts a slot among those with as many packets, unlink takes it away.
func (q *sfq) link(i int32) {
	s := &q.slots[i]
	head := &q.byLen[s.Len()]
	s.before, s.after = none, *head
	if *head != none {
		q.slots[*head].before = i
	}
	*head = i
}

func (q *sfq) unlink(i int32) {
	s := &q.slots[i]
	if s.before == none {
		q.byLen[s.Len()] = s.after
	} else {
		q.slots[s.before].after = s.after
	}
	if s.after != none {
		q.slots[s.after].before = s.before
	}
}

// put adds p to a slot, take takes the first packet out, takeLast the last one.
func (q *sfq) put(i int32, p *qdisc.Packet) {
	q.unlink(i)
	q.back.Push(&q.slots[i].List, p)
	q.link(i)
	q.most = max(q.most, q.slots[i].Len())
}

func (q *sfq) take(i int32) *qdisc.Packet {
	q.unlink(i)
	p := q.slots[i].Pop()
	q.shorter(i)
	return p
}

func (q *sfq) takeLast(i int32) *qdisc.Packet {
	q.unlink(i)
	p := q.back.PopBack(&q.slots[i].List)
	q.shorter(i)
	return p
}

func (q *sfq) shorter(i int32) {
	n := q.slots[i].Len() + 1
	if n == q.most && q.byLen[n] == none {
		q.most--
	}
	q.link(i)
}

// open finds the slot of a place, or takes a free one; none when there is none.
func (q *sfq) open(place int32) int32 {
	i := q.table[place]
	if i == none {
		if i = q.byLen[0]; i != none {
			q.table[place] = i
			s := &q.slots[i]
			s.place = place
			s.red.Start()
		}
	}
	return i
}

// join puts a slot with its first packet at the end of the round. A new flow
// waits for its turn: were it served first, a stream of new ones would starve the
// rest.
func (q *sfq) join(i int32) {
	s := &q.slots[i]
	if q.tail == none {
		s.next = i
	} else {
		s.next = q.slots[q.tail].next
		q.slots[q.tail].next = i
	}
	q.tail = i
	s.allot = int32(q.quantum)
}

// leave takes the first slot out of the round, and its place from it.
func (q *sfq) leave() {
	i := q.slots[q.tail].next
	s := &q.slots[i]
	q.table[s.place] = none
	if s.next == i {
		q.tail = none
	} else {
		q.slots[q.tail].next = s.next
	}
}

// Enqueue adds p to its flow, and makes the longest flow give a packet when there
// are too many.
func (q *sfq) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	if q.table == nil || q.key[1] == 0 {
		q.begin(ctx)
	}
	q.perturbed(ctx)
	place, v := q.classify(ctx, p)
	if place == none {
		if v == qdisc.FilterStolen || v == qdisc.FilterDrop {
			return q.Dispose(ctx, p, v)
		}
		q.Refuse(ctx, p, qdisc.NoClass)
		return qdisc.Dropped
	}
	i := q.open(place)
	if i == none {
		q.Refuse(ctx, p, qdisc.MaxFlows)
		return qdisc.Dropped
	}
	s := &q.slots[i]
	reason := qdisc.FlowLimit
	full := s.Len() >= q.depth
	if q.early.on && q.congested(ctx, s, p) {
		full, reason = true, qdisc.Congested
	}
	if full && (!q.headdrop || s.Len() == 0) {
		q.Refuse(ctx, p, reason)
		if s.Len() == 0 {
			q.table[place] = none
		}
		return qdisc.Dropped
	}
	if full {
		q.Discard(ctx, s.Pop(), reason)
		q.back.Push(&s.List, p)
		q.Enqueued(p)
		return qdisc.CN
	}

	q.put(i, p)
	q.Enqueued(p)
	if s.Len() == 1 {
		q.join(i)
	}
	if q.Len() <= q.limit {
		return qdisc.Success
	}
	n := s.Len()
	q.drop(ctx, qdisc.Overlimit)
	if s.Len() != n {
		return qdisc.CN
	}
	return qdisc.Success
}

// drop takes a packet from the longest flow, of several the one that became so
// long last; when all have only one, from the flow whose turn it is (sfq_drop).
// It says whether there was one.
func (q *sfq) drop(ctx *qdisc.Context, reason qdisc.Reason) bool {
	switch {
	case q.most == 0:
		return false
	case q.most == 1:
		i := q.slots[q.tail].next
		q.leave()
		q.Discard(ctx, q.take(i), reason)
	case q.headdrop || reason == qdisc.Shed:
		q.Discard(ctx, q.take(q.byLen[q.most]), reason)
	default:
		q.Discard(ctx, q.takeLast(q.byLen[q.most]), reason)
	}
	return true
}

// Dequeue gives the packet that Peek parked, else the next of the round.
func (q *sfq) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Unpark(); p != nil {
		return p
	}
	return q.next(ctx)
}

// Peek parks what Dequeue gives (qdisc_peek_dequeued).
func (q *sfq) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Parked(); p != nil {
		return p
	}
	return q.Park(q.next(ctx))
}

func (q *sfq) next(ctx *qdisc.Context) *qdisc.Packet {
	q.perturbed(ctx)
	p := q.pop()
	if p != nil {
		q.Dequeued(p)
	} else {
		q.SetNextAt(qdisc.Never)
	}
	return p
}

// pop takes the next packet of the round, nil when there is none.
func (q *sfq) pop() *qdisc.Packet {
	if q.most == 0 {
		return nil
	}
	for {
		i := q.slots[q.tail].next
		s := &q.slots[i]
		if s.allot <= 0 {
			s.allot += int32(q.quantum)
			q.tail = i
			continue
		}
		p := q.take(i)
		if s.Len() == 0 {
			q.leave()
		} else {
			s.allot -= int32(p.PktLen)
		}
		return p
	}
}

// perturbed takes another key when it is time, and sorts what is queued by the
// new hash, in the order in which it would have left (sfq_rehash). Filters and
// classes do not change, so packets whose place they know stay together.
func (q *sfq) perturbed(ctx *qdisc.Context) {
	if ctx.Now < q.rehash || q.key[1] == 0 {
		return
	}
	q.newKey(ctx)
	if q.filter != nil {
		return
	}
	var all qdisc.List
	for p := q.pop(); p != nil; p = q.pop() {
		all.Push(p)
	}
	for p := all.Pop(); p != nil; p = all.Pop() {
		place, _ := q.classify(ctx, p)
		i := q.open(place)
		switch {
		case i == none:
			q.Discard(ctx, p, qdisc.MaxFlows)
		case q.slots[i].Len() >= q.depth:
			q.Discard(ctx, p, qdisc.FlowLimit)
		default:
			s := &q.slots[i]
			if q.early.on { // for the average; what it says is for arrivals
				q.early.law.Arrives(ctx, &s.red, s.Bytes())
			}
			q.put(i, p)
			if s.Len() == 1 {
				q.join(i)
			}
		}
	}
}

// Shed takes from the flow with most packets, its oldest first.
func (q *sfq) Shed(ctx *qdisc.Context, n int) int {
	for got := range n {
		if !q.drop(ctx, qdisc.Shed) {
			return got
		}
	}
	return n
}

// Reset drops everything.
func (q *sfq) Reset(ctx *qdisc.Context) {
	for p := q.pop(); p != nil; p = q.pop() {
		ctx.Drop(p, qdisc.Purged)
	}
	q.key = [2]uint32{} // the next packet begins anew
	q.rehash = qdisc.Never
	q.ResetBase(ctx)
}

// CanBypass: filters might send a packet elsewhere.
func (q *sfq) CanBypass() bool { return q.filter == nil }

// SetClassifier attaches filters.
func (q *sfq) SetClassifier(class qdisc.ClassID, c qdisc.Classifier) error {
	if class != 0 {
		return invalid
	}
	q.filter = c
	return nil
}

// Walk shows the active flows, by their places.
func (q *sfq) Walk(f func(qdisc.Class) bool) {
	for place, i := range q.table {
		if i == none {
			continue
		}
		s := &q.slots[i]
		if !f(qdisc.Class{
			ID:     qdisc.MakeID(q.handle, uint32(place)+1),
			Parent: qdisc.MakeID(q.handle, 0),
			Len:    s.Len(),
			Bytes:  s.Bytes(),
			XStats: qdisc.Values{}.Set("allot", uint64(int64(s.allot))),
		}) {
			return
		}
	}
}

var (
	_ qdisc.Bypasser = (*sfq)(nil)
	_ qdisc.Dumper   = (*sfq)(nil)
	_ qdisc.Filtered = (*sfq)(nil)
	_ qdisc.Walker   = (*sfq)(nil)
)
