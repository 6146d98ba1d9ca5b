// Packet path, except Dump and Kind.

// Package pfifofast is pfifo_fast, what an interface has when nobody asked for
// anything: three bands in strict order, chosen by priority through a fixed map
// (net/sched/sch_generic.c).
//
// It takes no parameters. Each band holds the port's tx_queue_len packets, so
// that a full band cannot keep the others out, and its bands are not classes:
// they have no qdiscs of their own. Use prio for that.
//
// The map, by the lower four bits of the priority (1 is what most traffic
// gets; 0 is for interactive, 2 for bulk):
//
//	priority  0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
//	band      1 2 2 2 1 2 0 0 1 1  1  1  1  1  1  1
package pfifofast

import (
	"errors"
	"syscall"

	"sluice/qdisc"
)

const bands = 3

// priomap is prio2band.
var priomap = [16]uint8{1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}

// pfifoFast has the three bands' heads, tails and lengths next to its counters:
// a packet's way through it touches this struct and the packet.
type pfifoFast struct {
	qdisc.Base
	limit int // packets a band
	band  [bands]qdisc.List
}

// Enqueue takes p unless its band is full.
func (q *pfifoFast) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	b := &q.band[priomap[p.Priority&15]]
	if b.Len() >= q.limit {
		q.Refuse(ctx, p, qdisc.Overlimit)
		return qdisc.Dropped
	}
	b.Push(p)
	q.Enqueued(p)
	return qdisc.Success
}

// Dequeue gives the oldest packet of the first band that has one.
func (q *pfifoFast) Dequeue(*qdisc.Context) *qdisc.Packet {
	for i := range q.band {
		if p := q.band[i].Pop(); p != nil {
			q.Dequeued(p)
			return p
		}
	}
	return nil
}

// Peek shows the oldest packet of the first band that has one.
func (q *pfifoFast) Peek(*qdisc.Context) *qdisc.Packet {
	for i := range q.band {
		if p := q.band[i].Front(); p != nil {
			return p
		}
	}
	return nil
}

// Shed takes from the band with the most bytes, the last of equals.
func (q *pfifoFast) Shed(ctx *qdisc.Context, n int) int {
	fattest := &q.band[0]
	for i := range q.band {
		if b := &q.band[i]; b.Bytes() >= fattest.Bytes() {
			fattest = b
		}
	}
	got := 0
	for got < n {
		p := fattest.Pop()
		if p == nil {
			break
		}
		q.Discard(ctx, p, qdisc.Shed)
		got++
	}
	return got
}

// Reset drops everything.
func (q *pfifoFast) Reset(ctx *qdisc.Context) {
	for i := range q.band {
		for p := q.band[i].Pop(); p != nil; p = q.band[i].Pop() {
			ctx.Drop(p, qdisc.Purged)
		}
	}
	q.ResetBase(ctx)
}

// CanBypass allows the bypass always: an empty band takes any packet.
func (q *pfifoFast) CanBypass() bool { return true }

// Dump shows the bands and the map, which nobody can change.
func (q *pfifoFast) Dump() qdisc.Values {
	list := make([]uint64, len(priomap))
	for i, b := range priomap {
		list[i] = uint64(b)
	}
	return qdisc.Values{"bands": {N: bands}, "priomap": {List: list}, "multiqueue": {N: 0}}
}

// Kind is the table of pfifo_fast.
var Kind = qdisc.Kind{
	Name: "pfifo_fast",
	Doc:  "three bands in strict order, the default of an interface",
	Params: []qdisc.Param{
		{Name: "bands", Unit: qdisc.Number, Show: qdisc.Output, Doc: "always 3"},
		{Name: "priomap", Unit: qdisc.Numbers, Text: "priomap %s", Show: qdisc.Output,
			Doc: "band of each of the 16 priorities"},
		{Name: "multiqueue", Unit: qdisc.Flag, Show: qdisc.JSONOnly, Doc: "always false"},
	},
	Flags:         qdisc.NoChange,
	UnknownFormat: noOptions,
	Check: func(v qdisc.Values) error {
		if len(v) > 0 {
			return errors.New(noOptions)
		}
		return nil
	},
	New: func(env qdisc.Env, _ qdisc.Values) (qdisc.Qdisc, error) {
		if env.TxQueueLen <= 0 {
			return nil, &qdisc.Error{Errno: syscall.EINVAL}
		}
		return &pfifoFast{limit: env.TxQueueLen}, nil
	},
}

const noOptions = "qdisc 'pfifo_fast' does not support option parsing"
