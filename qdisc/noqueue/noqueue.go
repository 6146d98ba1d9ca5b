// Packet path, except Kind.

// Package noqueue is noqueue: the statement that an interface has no queue
// (net/sched/sch_generic.c).
//
// A packet for such an interface goes to the driver at once, or, when the driver
// cannot take it, is dropped as Overlimit. It takes no parameters. All that is
// done by the runner, which knows the discipline by its NoQueue method and never
// gives it a packet.
//
// It can be the root only: a class without a queue would have nowhere to keep
// what its parent is not ready for.
package noqueue

import "sluice/qdisc"

// noqueue is what a tree shows in the place where there is no queue.
type noqueue struct{ qdisc.Base }

// NoQueue tells the runner to send past this discipline.
func (q *noqueue) NoQueue() bool { return true }

// Enqueue refuses p: there is no place to keep it.
func (q *noqueue) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	q.Refuse(ctx, p, qdisc.Overlimit)
	return qdisc.Dropped
}

// Dequeue has nothing to give.
func (q *noqueue) Dequeue(*qdisc.Context) *qdisc.Packet { return nil }

// Peek has nothing to show.
func (q *noqueue) Peek(*qdisc.Context) *qdisc.Packet { return nil }

// Shed has nothing to give up.
func (q *noqueue) Shed(*qdisc.Context, int) int { return 0 }

// Reset has nothing to drop.
func (q *noqueue) Reset(ctx *qdisc.Context) { q.ResetBase(ctx) }

// Kind is the table of noqueue.
var Kind = qdisc.Kind{
	Name:  "noqueue",
	Doc:   "no queue: a packet goes to the driver or is dropped",
	Flags: qdisc.NoQueue | qdisc.NoChange,
	New:   func(qdisc.Env, qdisc.Values) (qdisc.Qdisc, error) { return &noqueue{}, nil },
}
