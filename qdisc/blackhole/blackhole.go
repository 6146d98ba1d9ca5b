// Packet path, except Kind.

// Package blackhole is blackhole: it drops every packet (net/sched/sch_blackhole.c).
//
// It takes no parameters. Below a class it makes the class a sink, and its drop
// counter says what arrived.
package blackhole

import "sluice/qdisc"

type blackhole struct{ qdisc.Base }

// Enqueue drops p.
func (q *blackhole) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	q.Refuse(ctx, p, qdisc.Blackhole)
	return qdisc.Dropped
}

// Dequeue has nothing to give.
func (q *blackhole) Dequeue(*qdisc.Context) *qdisc.Packet { return nil }

// Peek has nothing to show.
func (q *blackhole) Peek(*qdisc.Context) *qdisc.Packet { return nil }

// Shed has nothing to give up.
func (q *blackhole) Shed(*qdisc.Context, int) int { return 0 }

// Reset has nothing to drop.
func (q *blackhole) Reset(ctx *qdisc.Context) { q.ResetBase(ctx) }

// Kind is the table of blackhole.
var Kind = qdisc.Kind{
	Name:  "blackhole",
	Doc:   "drops every packet",
	Flags: qdisc.NoChange,
	New:   func(qdisc.Env, qdisc.Values) (qdisc.Qdisc, error) { return &blackhole{}, nil },
}
