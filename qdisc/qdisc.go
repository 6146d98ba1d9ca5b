// Package qdisc is the contract that every queueing discipline keeps, and the
// few types it is written in: Packet, List, Pool, Context, Qdisc, Classifier,
// Kind.
//
// The disciplines themselves are packages below this one, one each; kinds/ has
// the table of them all, and qdisctest/ the suite that each must pass. The rules
// are the kernel's (include/net/sch_generic.h, net/sched/sch_api.c) with three
// differences:
//
//   - Time is handed in. Nothing here or below reads a clock.
//   - Both Enqueue and Dequeue get the sink for dropped packets, in the Context.
//   - A parent follows its child's counters by their difference across each call
//     (see [Child]); a child never reaches upwards.
//
// Nothing changes a child except through its parents. Change, graft and
// shedding enter at the root as Enqueue and Dequeue do; [Edit] does it for
// administrative changes deep in a tree.
package qdisc

import "time"

// Verdict is what became of a packet given to Enqueue (NET_XMIT_*).
type Verdict uint8

const (
	Success Verdict = iota // queued
	Dropped                // this packet was dropped, and counted
	CN                     // congestion: a packet was dropped, and counted: another in its place, or by an AQM this one
	Stolen                 // a filter's action consumed it: neither queued nor a drop
)

// Qdisc is a queueing discipline. One worker owns a tree of them and makes all
// calls; none blocks, allocates or reads a clock.
//
// Every discipline embeds [Base], which gives it Self, Len, Backlog and NextAt.
type Qdisc interface {
	// Enqueue takes p, whatever the verdict.
	Enqueue(ctx *Context, p *Packet) Verdict

	// Dequeue gives the next packet to send, which then belongs to the caller,
	// or nil when the discipline is empty or throttled; NextAt says which.
	Dequeue(ctx *Context) *Packet

	// Peek shows what Dequeue at the same instant would give, with no Enqueue
	// between. A discipline that has to decide or drop to know it takes the
	// packet out and parks it ([Base.Park]).
	Peek(ctx *Context) *Packet

	Len() int              // packets queued here and below
	Backlog() int          // their bytes, by PktLen
	NextAt() time.Duration // see [Base.NextAt]

	// Shed drops up to n packets from the fattest queue below, head first,
	// because frames have run out. It returns how many it dropped: at least one
	// if Len > 0, unless all are held outside.
	Shed(ctx *Context, n int) int

	// Reset drops everything, leaves every active list, and forgets all state
	// but parameters and counters.
	Reset(ctx *Context)

	Self() *Base
}

// Classifier finds the class of a packet: the filters attached to one qdisc or
// class (tcf_classify). At most one is attached to each.
type Classifier interface {
	// Classify returns Match and the class, or what else became of p. It does
	// not take p: on FilterDrop and FilterStolen the discipline disposes of it.
	Classify(ctx *Context, p *Packet) (FilterVerdict, ClassID)
}

// FilterVerdict is the outcome of a classification, as far as a discipline can
// tell outcomes apart (kernel-side: TC_ACT_*).
type FilterVerdict uint8

const (
	NoMatch      FilterVerdict = iota // the discipline's default applies (TC_ACT_UNSPEC)
	Match                             // use the class (TC_ACT_OK and everything else ≥ 0)
	FilterDrop                        // drop and count (TC_ACT_SHOT)
	FilterStolen                      // consumed, not a drop (TC_ACT_STOLEN, QUEUED, TRAP)
)

// The abilities below are small interfaces of their own. They are asserted when
// a tree is built or changed, never per packet.

// Changer is a discipline whose parameters can change in place.
type Changer interface {
	// Change applies v on top of the current parameters. On error nothing has
	// changed. Packets that no longer fit are dropped and counted.
	Change(ctx *Context, v Values) error
}

// Dumper shows a discipline's parameters as they are in force, for printing by
// Kind.Params.
type Dumper interface {
	Dump() Values
}

// XStatser is a discipline with statistics of its own, for printing by
// Kind.XStats (dump_stats).
type XStatser interface {
	XStats() Values
}

// Bypasser is a discipline that a packet may skip while it is empty
// (TCQ_F_CAN_BYPASS).
type Bypasser interface {
	CanBypass() bool // may depend on parameters: asked at build and after Change
}

// Filtered is a discipline that asks filters for the class.
type Filtered interface {
	// SetClassifier attaches c to the discipline itself (class 0) or to one of
	// its classes; nil detaches.
	SetClassifier(class ClassID, c Classifier) error
}

// Walker is a discipline with classes to show. One that is not Classful has flows
// of its own for classes, without children.
type Walker interface {
	// Walk calls f for each class until it returns false, in a fixed order.
	Walk(f func(Class) bool)
}

// Finder is a discipline that finds one of many classes without a look at the
// others (Qdisc_class_ops.find). A Walk does as well for who has a few.
type Finder interface {
	// Find returns the child of a class, nil when it has none of its own.
	Find(id ClassID) (leaf Qdisc, ok bool)
}

// Classful is a discipline with children.
type Classful interface {
	Walker

	// Graft makes q the child of a class and returns the child it replaces,
	// already purged with the accounting of a purge. q nil grafts the kind's
	// default child. Errors: *Error with ENOENT for an unknown class.
	Graft(ctx *Context, class ClassID, q Qdisc) (old Qdisc, err error)
}

// ClassEditor is a discipline whose classes are made by the administrator.
type ClassEditor interface {
	Classful
	AddClass(ctx *Context, parent, id ClassID, v Values) error
	ChangeClass(ctx *Context, id ClassID, v Values) error
	DeleteClass(ctx *Context, id ClassID) error
}

// Warner is a discipline that has something to say about changes that it makes.
type Warner interface {
	// Warning returns what there is to say about the last change, without full
	// stop, and forgets it; empty: nothing.
	Warning() string
}

// QlenNotifier is a classful discipline that keeps active lists. QlenNotify
// tells it that the child of class became empty by an administrative change
// below; it must be idempotent (qlen_notify).
type QlenNotifier interface {
	QlenNotify(class ClassID)
}

// Class is one class as Walk shows it.
type Class struct {
	ID     ClassID
	Hidden bool    // a place for a child that may stay empty (netem's): found, and not shown
	Parent ClassID // 0: hangs off the qdisc itself ("root" in tc's output)
	Leaf   Qdisc   // its child qdisc, nil for an inner class
	Params Values  // in force, for printing by Kind.ClassParams
	Stats  Stats   // as the kind counts them
	Len    int
	Bytes  int    // backlog
	XStats Values // extra statistics, for printing by Kind.ClassXStats
}

// Step is one qdisc on the way from the root to a change, and the class of it
// that the way goes through (0 at its end).
type Step struct {
	Qdisc Qdisc
	Class ClassID
}

// Edit runs an administrative change of the last qdisc of path, and moves the
// counters of all qdiscs above by the difference it made, so that the tree adds
// up as if the change had come down through them. Every qdisc above whose child
// became empty is told (qdisc_tree_reduce_backlog, with its 2025 rule: always
// notify when empty). Admin path; called by the worker between two turns.
func Edit(path []Step, change func() error) error {
	last := len(path) - 1
	b := path[last].Qdisc.Self()
	n, bytes, drops := b.qlen, b.backlog, b.Drops
	err := change()
	n, bytes, drops = b.qlen-n, b.backlog-bytes, b.Drops-drops
	empty := b.qlen == 0
	for i := last - 1; i >= 0; i-- {
		up := path[i].Qdisc.Self()
		if q, ok := path[i].Qdisc.(QlenNotifier); ok && empty {
			q.QlenNotify(path[i].Class)
		}
		up.qlen += n
		up.backlog += bytes
		up.Drops += drops
		empty = up.qlen == 0
	}
	return err
}
