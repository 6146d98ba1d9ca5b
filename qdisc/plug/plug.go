// Packet path, except Change, Dump and Kind.

// Package plug is a queue that gives packets out on command (net/sched/sch_plug.c).
// It was made for checkpointing: what a virtual machine sends in an epoch must not
// be seen before its state at the end of that epoch is safe elsewhere. It also holds
// traffic back while something else is being moved.
//
//	block               ends an epoch and begins another
//	release             lets out what came in the last epoch that ended
//	release_indefinite  lets everything out, until the next block
//	limit               bytes that may wait; default tx_queue_len full frames
//
// A new plug blocks.
//
// Differences from the kernel:
//
//   - A plug that is made with a command and no limit has the default limit. The
//     kernel's has a limit of 0, and drops everything.
//   - A command that is given when it is made is carried out.
package plug

import (
	"errors"
	"math"

	"sluice/qdisc"
)

type plug struct {
	qdisc.Base
	list     qdisc.List
	limit    int  // bytes
	open     bool // until the next block
	epoch    int  // packets that came since the last block
	last     int  // in the epoch before
	released int  // that may leave
}

// Enqueue adds p to the epoch.
func (q *plug) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	if q.Backlog()+int(p.PktLen) > q.limit {
		q.Refuse(ctx, p, qdisc.Overlimit)
		return qdisc.Dropped
	}
	if !q.open {
		q.epoch++
	}
	q.list.Push(p)
	q.Enqueued(p)
	return qdisc.Success
}

// Dequeue gives the next packet that may leave. Nobody knows when the others may.
func (q *plug) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	p := q.Peek(ctx)
	if p == nil {
		return nil
	}
	if !q.open {
		q.released--
	}
	q.list.Pop()
	q.Dequeued(p)
	return p
}

// Peek shows it.
func (q *plug) Peek(*qdisc.Context) *qdisc.Packet {
	if !q.open && q.released == 0 {
		q.SetNextAt(qdisc.Never)
		return nil
	}
	return q.list.Front()
}

// Shed takes the oldest.
func (q *plug) Shed(ctx *qdisc.Context, n int) int {
	got := 0
	for ; got < n; got++ {
		p := q.list.Pop()
		if p == nil {
			break
		}
		q.forget()
		q.Discard(ctx, p, qdisc.Shed)
	}
	return got
}

// forget takes the oldest packet from the epoch that it is of.
func (q *plug) forget() {
	switch {
	case q.released > 0:
		q.released--
	case q.list.Len() >= q.epoch: // it was older than this epoch
		q.last = min(q.last, q.list.Len()-q.epoch)
	case q.epoch > 0:
		q.epoch--
	}
}

// Reset drops everything. An open plug stays open.
func (q *plug) Reset(ctx *qdisc.Context) {
	for p := q.list.Pop(); p != nil; p = q.list.Pop() {
		ctx.Drop(p, qdisc.Purged)
	}
	q.epoch, q.last, q.released = 0, 0, 0
	q.ResetBase(ctx)
}

// Change carries out a command.
func (q *plug) Change(_ *qdisc.Context, v qdisc.Values) error {
	if v.Has("limit") {
		q.limit = int(min(v.N("limit", 0), math.MaxUint32))
	}
	switch {
	case v.Has("block"):
		// Packets of an epoch that was never released stay between the two: they
		// are counted nowhere and leave when everything does, as in the kernel.
		q.last, q.epoch, q.open = q.epoch, 0, false
	case v.Has("release"):
		q.released += q.last
		q.last = 0
	case v.Has("release_indefinite"):
		q.open = true
		q.epoch, q.last, q.released = 0, 0, 0
	}
	return nil
}

// Dump gives what would make a plug like this one; tc shows none of it.
func (q *plug) Dump() qdisc.Values {
	v := qdisc.Values{}.Set("limit", uint64(q.limit))
	if q.open {
		v.Set("release_indefinite", 1)
	}
	return v
}

var (
	_ qdisc.Changer = (*plug)(nil)
	_ qdisc.Dumper  = (*plug)(nil)
)

// check: one command at a time.
func check(v qdisc.Values) error {
	n := 0
	for _, command := range []string{"block", "release", "release_indefinite"} {
		if v.Has(command) {
			n++
		}
	}
	if n > 1 {
		return errors.New(`plug: "block", "release" and "release_indefinite" are commands; give one at a time`)
	}
	return nil
}

// Kind is the table of plug.
var Kind = qdisc.Kind{
	Name:  "plug",
	Doc:   "gives packets out on command",
	Usage: "Usage: ... plug [block | release | release_indefinite | limit NUMBER]",
	Params: []qdisc.Param{
		{Name: "block", Unit: qdisc.Flag, Show: qdisc.Input, Doc: "ends an epoch and begins another"},
		{Name: "release", Unit: qdisc.Flag, Show: qdisc.Input, Doc: "lets out what came in the last epoch"},
		{Name: "release_indefinite", Unit: qdisc.Flag, Show: qdisc.Input, Doc: "lets everything out until the next block"},
		{Name: "limit", Unit: qdisc.Size, Show: qdisc.Input, Default: "tx_queue_len full frames", Doc: "bytes that may wait"},
	},
	Check: check,
	New: func(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
		q := &plug{limit: env.TxQueueLen * (env.MTU + env.HeaderLen)}
		return q, q.Change(nil, v)
	},
}
