// Packet path; from SetRoot on, administration between two turns.

package dequeue

import (
	"time"

	"sluice/qdisc"
)

// The life of a packet here:
//
//  1. Submit enqueues it on the root qdisc and schedules the runner. A packet
//     that comes alone and finds an empty qdisc and a live queue goes to 4.
//  2. The scheduler's pass gives the runner one Run, which restarts until the
//     qdisc is empty or throttled, the queue is stopped, or the quota is spent.
//  3. A restart dequeues it with others into one list for one txq: as many as
//     BQL's bytes and the ring's room allow. If the queue is stopped, nothing is
//     dequeued: a more urgent packet may still come and win.
//  4. The txq posts the list. What the driver refused comes back and is put in
//     front of everything, still counted in the root.
//  5. The txq rings, now or at the end of the turn, and the driver owns it.

// Runner moves packets from a root qdisc to the transmit queues it feeds:
// __qdisc_run and what belongs to it, gso_skb and skb_bad_txq included. One
// worker owns it and makes all calls.
type Runner struct {
	// Read mostly.
	root    qdisc.Qdisc
	base    *qdisc.Base // root's counters, without a dynamic call
	txq     *Txq        // the only one (ONETXQUEUE), or nil when there are several
	txqs    []*Txq
	sched   *Scheduler
	mode    QuotaMode
	quota   int
	bypass  bool // TCQ_F_CAN_BYPASS
	noqueue bool // the root stands for the absence of a queue

	// Written by Run.
	list     qdisc.List    // the list under way
	requeued qdisc.List    // refused by a driver, goes first (gso_skb)
	stranger *qdisc.Packet // belongs to another txq than the list it ended (skb_bad_txq)
	nextAt   time.Duration // when a throttled root can yield again
	running  bool
	owes     bool // the root gave packets since it was last asked while empty
	stats    RunnerStats

	// Written by the Scheduler.
	next      *Runner
	scheduled bool
}

// QuotaMode says what a run's quota counts, and how sharp its boundary is.
type QuotaMode uint8

const (
	// QuotaPackets subtracts what a restart sent after its whole bulk: the last
	// bulk may exceed the quota.
	QuotaPackets QuotaMode = iota
	// QuotaBudget also caps the bulk by what is left of the quota, as kernels
	// since 6.19 do: a run sends at most one packet more than its quota.
	QuotaBudget
	// QuotaRestarts counts restarts, whatever they carried, as kernels before
	// 3.18 did. Together with bulks it starves the siblings.
	QuotaRestarts
	// QuotaUnlimited has no quota.
	QuotaUnlimited
)

const (
	// maxList bounds a list in packets, in every mode and however large the BQL
	// limit: nothing can be undone once a list is built, neither for a more
	// urgent packet nor for another runner.
	maxList = 512

	// maxSlowList bounds a list when the root feeds several queues: the first
	// packet and eight more, with no regard for BQL.
	maxSlowList = 9
)

// RunnerConfig describes a [Runner].
type RunnerConfig struct {
	Root qdisc.Qdisc

	// Txqs are the queues that the root feeds, chosen by a packet's Queue. With
	// exactly one, Queue is not looked at.
	Txqs []*Txq

	Scheduler *Scheduler
	Quota     int // dev_tx_weight; default 64
	Mode      QuotaMode
}

// NewRunner makes a runner for a root that may hold packets already.
func NewRunner(c RunnerConfig) *Runner {
	r := &Runner{sched: c.Scheduler, quota: c.Quota, mode: c.Mode, nextAt: qdisc.Never}
	if r.quota <= 0 {
		r.quota = 64
	}
	r.setTxqs(c.Txqs)
	r.root, r.base = c.Root, c.Root.Self()
	r.Refresh()
	return r
}

// Submit takes a burst of packets that leave this way; the list is empty
// afterwards (__dev_xmit_skb). They are enqueued and sent by the next pass,
// except that a packet which comes alone may skip a qdisc that is empty and
// allows it. Of several, none may: the discipline has to see what competes.
func (r *Runner) Submit(ctx *qdisc.Context, burst *qdisc.List) {
	if r.noqueue {
		r.sendDirect(ctx, burst)
		return
	}
	if burst.Len() == 1 && r.bypass && r.base.Len() == 0 && !r.running {
		p := burst.Front()
		if t := r.pick(p); t.off == 0 {
			r.list.Push(burst.Pop())
			r.base.Passed(p)
			r.stats.Bypassed++
			r.send(ctx, t)
			return
		}
	}
	if r.owes && r.base.Len() == 0 {
		r.askEmpty(ctx)
	}
	for p := burst.Pop(); p != nil; p = burst.Pop() {
		r.root.Enqueue(ctx, p)
	}
	if r.base.Len() > 0 {
		r.sched.Schedule(r)
	}
}

// sendDirect is Submit without a queue: what cannot be posted at once is
// dropped.
func (r *Runner) sendDirect(ctx *qdisc.Context, burst *qdisc.List) {
	for p := burst.Pop(); p != nil; p = burst.Pop() {
		t := r.pick(p)
		if t.off == 0 {
			bytes := uint64(p.PktLen)
			r.list.Push(p)
			if t.xmit(ctx.Now, &r.list) {
				r.stats.Packets++
				r.stats.Bytes += bytes
				continue
			}
			r.list.Pop()
		}
		reason := qdisc.Overlimit
		if t.Down() {
			reason = qdisc.DeviceDown
		}
		r.stats.Refused++
		r.base.Refuse(ctx, p, reason)
	}
}

// Run sends until the root is empty or throttled, the queue is stopped, or the
// quota is spent (__qdisc_run). Only in the last case does the runner schedule
// itself again; in the others it is NextAt, the queue's wake or a new packet
// that starts it.
func (r *Runner) Run(ctx *qdisc.Context) {
	if r.running {
		return // called from below; the run under way goes on until empty
	}
	r.running = true
	r.nextAt = qdisc.Never
	r.stats.Runs++
	quota := r.quota
	for quota > 0 {
		limit := maxList
		if r.mode == QuotaBudget {
			limit = min(limit, quota+1)
		}
		sent := r.restart(ctx, limit)
		if sent == 0 {
			r.running = false
			return
		}
		switch r.mode {
		case QuotaPackets, QuotaBudget:
			quota -= sent
		case QuotaRestarts:
			quota--
		}
	}
	r.running = false
	if r.base.Len() > 0 {
		r.stats.QuotaExhausted++
		r.sched.Schedule(r)
		return
	}
	r.askEmpty(ctx)
}

// restart sends one list of at most limit packets and returns how many it was,
// or 0 when the run has to end (qdisc_restart).
func (r *Runner) restart(ctx *qdisc.Context, limit int) int {
	t := r.dequeue(ctx, limit)
	if t == nil {
		return 0
	}
	n := r.list.Len()
	if !r.send(ctx, t) {
		return 0
	}
	return n
}

// dequeue fills the list and returns the txq it is for, or nil when nothing can
// be sent now (dequeue_skb).
func (r *Runner) dequeue(ctx *qdisc.Context, limit int) *Txq {
	switch {
	case r.requeued.Len() > 0:
		return r.dequeueRequeued(limit)
	case r.base.Len() == 0:
		r.askEmpty(ctx)
		return nil
	}
	r.owes = true
	if r.txq == nil {
		return r.dequeueSlow(ctx)
	}
	t := r.txq
	if t.off != 0 {
		return nil
	}
	p := r.root.Dequeue(ctx)
	if p == nil {
		r.nextAt = r.root.NextAt()
		return nil
	}
	// try_bulk_dequeue_skb: the budget is looked at before each packet, so the
	// last one may exceed it.
	room, bytes := r.budget(t, limit)
	for {
		r.list.Push(p)
		bytes -= p.Len()
		if bytes <= 0 || r.list.Len() >= room {
			return t
		}
		if p = r.root.Dequeue(ctx); p == nil {
			return t
		}
	}
}

// askEmpty asks a root that became empty for one more packet, as soon as a queue
// could take it. The kernel knows no other way to learn that a qdisc is empty,
// and some take it as the sign that a flow has ended (fq_codel).
func (r *Runner) askEmpty(ctx *qdisc.Context) {
	if r.owes && (r.txq == nil || r.txq.off == 0) {
		r.owes = false
		r.root.Dequeue(ctx)
	}
}

// dequeueRequeued fills the list with packets that came back. The kernel sends
// them one by one; here they leave under the same budget as others, still before
// anything else and never in one list with it.
func (r *Runner) dequeueRequeued(limit int) *Txq {
	t := r.pick(r.requeued.Front())
	if t.off != 0 {
		return nil
	}
	room, bytes := r.budget(t, limit)
	for {
		p := r.requeued.Pop()
		if p == nil {
			return t
		}
		r.base.Unhold(p)
		r.list.Push(p)
		bytes -= p.Len()
		if bytes <= 0 || r.list.Len() >= room {
			return t
		}
	}
}

// dequeueSlow fills the list when packets may be for different queues
// (try_bulk_dequeue_skb_slow). A list is for one; the first stranger ends it,
// waits, and starts the next. If the stranger's queue is stopped, all wait
// behind it: the order that the root decided is kept.
func (r *Runner) dequeueSlow(ctx *qdisc.Context) *Txq {
	p := r.stranger
	var t *Txq
	if p != nil {
		if t = r.pick(p); t.off != 0 {
			return nil
		}
		r.stranger = nil
		r.base.Unhold(p)
	} else {
		if p = r.root.Dequeue(ctx); p == nil {
			r.nextAt = r.root.NextAt()
			return nil
		}
		if t = r.pick(p); t.off != 0 {
			r.list.Push(p) // requeued by send; no others with it
			return t
		}
	}
	for room := min(maxSlowList, t.room); ; {
		r.list.Push(p)
		if r.list.Len() >= room {
			return t
		}
		if p = r.root.Dequeue(ctx); p == nil {
			return t
		}
		if r.pick(p) != t {
			r.stranger = p
			r.base.Hold(p)
			return t
		}
	}
}

// budget returns the packets and bytes that the next list for t may have.
// Without BQL nothing but the ring bounds it, so the quota does: else a list
// would be as long as the ring.
func (r *Runner) budget(t *Txq, limit int) (packets, bytes int) {
	packets, bytes = t.budget()
	if !t.limited {
		limit = min(limit, r.quota)
	}
	return min(packets, limit), bytes
}

// send hands the list to t (sch_direct_xmit). What is left over is put in front
// of all that waits, in order, and counted as queued again (dev_requeue_skb);
// send returns false then, and the queue is stopped.
func (r *Runner) send(ctx *qdisc.Context, t *Txq) bool {
	n, bytes := r.list.Len(), r.list.Bytes()
	r.stats.Restarts++
	r.stats.PacketsPerList.add(n)
	r.stats.BulkMax = max(r.stats.BulkMax, n)
	done := t.off == 0 && t.xmit(ctx.Now, &r.list)
	r.stats.Packets += uint64(n - r.list.Len())
	r.stats.Bytes += uint64(bytes - r.list.Bytes())
	if !done {
		r.requeue()
	}
	return done
}

func (r *Runner) requeue() {
	n := uint64(r.list.Len())
	r.stats.Requeues += n
	r.base.Requeues += n
	for p := r.list.Front(); p != nil; p = p.Next() {
		r.base.Hold(p)
	}
	r.list.Append(&r.requeued)
	r.requeued, r.list = r.list, qdisc.List{}
	r.sched.Schedule(r)
}

// pick returns the txq that p leaves by. A queue number that does not exist
// means the first, as in netdev_cap_txqueue.
func (r *Runner) pick(p *qdisc.Packet) *Txq {
	if r.txq != nil {
		return r.txq
	}
	if int(p.Queue) < len(r.txqs) {
		return r.txqs[p.Queue]
	}
	return r.txqs[0]
}

// blocked returns the stopped queue that keeps everything here waiting, or nil.
func (r *Runner) blocked() *Txq {
	t := r.txq
	if p := r.requeued.Front(); p != nil {
		t = r.pick(p)
	} else if r.stranger != nil {
		t = r.pick(r.stranger)
	}
	if t == nil || t.off == 0 {
		return nil
	}
	return t
}

// NextAt returns the instant at which the runner has to be scheduled because its
// root, throttled until then, can yield again (qdisc_watchdog), or because its
// device, down now, has to be asked again; [qdisc.Never] when it is empty, or
// waits for something else.
func (r *Runner) NextAt() time.Duration {
	if r.base.Len() == 0 {
		return qdisc.Never
	}
	if t := r.blocked(); t != nil && t.off&down != 0 {
		return t.downAt + downPoll
	}
	return r.nextAt
}

// Waiting reports that packets wait for a txq which a completion or its driver
// will start again. No descriptor announces that: the worker looks at least
// every 50 µs.
func (r *Runner) Waiting() bool {
	if r.base.Len() == 0 {
		return false
	}
	t := r.blocked()
	return t != nil && t.off&(down|frozen) == 0
}

// Len returns the packets queued, those that a driver gave back included.
func (r *Runner) Len() int { return r.base.Len() }

// Backlog returns their bytes, by PktLen.
func (r *Runner) Backlog() int { return r.base.Backlog() }

// Root returns the root qdisc.
func (r *Runner) Root() qdisc.Qdisc { return r.root }

// Txqs returns the queues that the root feeds.
func (r *Runner) Txqs() []*Txq { return r.txqs }

// SetRoot exchanges the root qdisc (dev_graft_qdisc) and returns the old one,
// empty: its packets, and those that wait in the runner, are purged. q may hold
// packets; it is scheduled then.
func (r *Runner) SetRoot(ctx *qdisc.Context, q qdisc.Qdisc) (old qdisc.Qdisc) {
	r.Reset(ctx)
	old = r.root
	r.root, r.base = q, q.Self()
	r.Refresh()
	return old
}

// Reset purges the root and what waits in the runner (dev_reset_queue).
func (r *Runner) Reset(ctx *qdisc.Context) {
	for p := r.requeued.Pop(); p != nil; p = r.requeued.Pop() {
		r.base.Unhold(p)
		ctx.Drop(p, qdisc.Purged)
	}
	if p := r.stranger; p != nil {
		r.stranger = nil
		r.base.Unhold(p)
		ctx.Drop(p, qdisc.Purged)
	}
	r.root.Reset(ctx)
}

// Refresh has to be called after every change of the root or below it. It asks
// again what the root allows, and schedules the runner: a change may have ended
// what the root was waiting for.
func (r *Runner) Refresh() {
	b, ok := r.root.(qdisc.Bypasser)
	r.bypass = ok && b.CanBypass()
	n, ok := r.root.(interface{ NoQueue() bool })
	r.noqueue = ok && n.NoQueue()
	r.nextAt = qdisc.Never
	if r.base.Len() > 0 {
		r.sched.Schedule(r)
	}
}

// SetTxqs moves the runner to other queues. The old ones are flushed first, so
// that nothing is left behind in them without a bell.
func (r *Runner) SetTxqs(ctx *qdisc.Context, txqs []*Txq) {
	for _, t := range r.txqs {
		t.FlushNow(ctx)
		t.detach(r)
	}
	r.setTxqs(txqs)
	r.Refresh()
}

func (r *Runner) setTxqs(txqs []*Txq) {
	r.txqs, r.txq = txqs, nil
	if len(txqs) == 1 {
		r.txq = txqs[0]
	}
	for _, t := range txqs {
		t.attach(r)
	}
}

// Close purges the root and lets go of the queues and the scheduler.
func (r *Runner) Close(ctx *qdisc.Context) {
	r.Reset(ctx)
	for _, t := range r.txqs {
		t.FlushNow(ctx)
		t.detach(r)
	}
	r.sched.remove(r)
}
