// Packet path, except Change, SetClassifier, Walk, Graft, Dump and Kind.

// Package prio is strict priority between bands: a band is served only while
// all bands before it have nothing to send (net/sched/sch_prio.c).
//
// Each band is a class, 1:1 the first, with a qdisc of its own. Nothing keeps a
// busy band from starving those behind it; where that must not happen, bound
// the early bands (a tbf below them) or use ets.
//
//	bands     how many, 2 to 16; default 3
//	priomap   the band, counted from 0, of each of the 16 priorities; default
//	          1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1, as pfifo_fast
//
// A packet's band is found in this order:
//
//   - the class that the packet was given, or else its priority, when its major
//     number (of the priority the upper half) is the handle of this qdisc;
//   - else the filters, of whose answer only the minor number counts;
//   - else priomap of the priority's lower four bits, or of priority 0 when it
//     names a class of somebody else.
//
// A class that does not exist means the band of priority 0.
//
// When bands are removed the packets in them are dropped. A new priomap applies
// to later packets; those queued stay where they are.
package prio

import (
	"syscall"

	"sluice/qdisc"
	"sluice/qdisc/internal/bands"
)

const (
	minBands = 2  // TCQ_MIN_PRIO_BANDS
	maxBands = 16 // TCQ_PRIO_BANDS
)

// defaultMap is prio2band of net/sched/sch_generic.c.
var defaultMap = [bands.Priorities]uint8{1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}

type prio struct {
	qdisc.Base
	bands bands.Map
	band  [maxBands]qdisc.Child
	owes  uint32 // bands that gave packets since they were last asked while empty

	newChild func() qdisc.Qdisc // the default child
}

// Enqueue gives p to its band.
func (q *prio) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	band, v := q.bands.Find(ctx, p)
	if v != qdisc.Match {
		return q.Dispose(ctx, p, v)
	}
	return q.band[band].Enqueue(ctx, &q.Base, p)
}

// Dequeue gives the packet of the first band that yields one.
func (q *prio) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	for i := range q.bands.Bands {
		c := &q.band[i]
		if c.Len() == 0 {
			q.askEmpty(ctx, i)
			continue
		}
		if p := c.Dequeue(ctx, &q.Base); p != nil {
			q.owes |= 1 << i
			return p
		}
	}
	q.throttled()
	return nil
}

// Peek shows the packet of the first band that shows one.
func (q *prio) Peek(ctx *qdisc.Context) *qdisc.Packet {
	for i := range q.bands.Bands {
		c := &q.band[i]
		if c.Len() == 0 {
			q.askEmpty(ctx, i)
			continue
		}
		if p := c.Peek(ctx, &q.Base); p != nil {
			return p
		}
	}
	q.throttled()
	return nil
}

// askEmpty asks a band that became empty for one more packet. The kernel asks all
// bands each time; some disciplines take it as the sign that a flow has ended.
func (q *prio) askEmpty(ctx *qdisc.Context, band int) {
	if q.owes&(1<<band) != 0 {
		q.owes &^= 1 << band
		q.band[band].Dequeue(ctx, &q.Base)
	}
}

// throttled stores when the first of the bands will be ready.
func (q *prio) throttled() {
	next := qdisc.Never
	for i := range q.bands.Bands {
		next = min(next, q.band[i].NextAt())
	}
	q.SetNextAt(next)
}

// Shed takes from the band with the most bytes; from the next one when that
// has none to give, because they are parked.
func (q *prio) Shed(ctx *qdisc.Context, n int) int {
	fattest := 0
	for i := range q.bands.Bands {
		if q.band[i].Backlog() > q.band[fattest].Backlog() {
			fattest = i
		}
	}
	got := q.band[fattest].Shed(ctx, &q.Base, n)
	for i := 0; i < q.bands.Bands && got == 0; i++ {
		got = q.band[i].Shed(ctx, &q.Base, n)
	}
	return got
}

// Reset empties every band.
func (q *prio) Reset(ctx *qdisc.Context) {
	for i := range q.bands.Bands {
		q.band[i].Reset(ctx, &q.Base)
	}
	q.owes = 0
	q.ResetBase(ctx)
}

// params are bands and priomap, checked together.
type params struct {
	bands   int
	priomap [bands.Priorities]uint8
}

// with applies v on top of p. The kernel gives no text for these refusals.
func (p params) with(v qdisc.Values) (params, error) {
	invalid := &qdisc.Error{Errno: syscall.EINVAL}
	bands := v.N("bands", uint64(p.bands))
	if bands < minBands || bands > maxBands || len(v["priomap"].List) > len(p.priomap) {
		return p, invalid
	}
	p.bands = int(bands)
	for i, b := range v["priomap"].List {
		p.priomap[i] = uint8(min(b, 0xff))
	}
	for _, b := range p.priomap {
		if int(b) >= p.bands {
			return p, invalid
		}
	}
	return p, nil
}

// Change sets bands and priomap. Removed bands are purged.
func (q *prio) Change(ctx *qdisc.Context, v qdisc.Values) error {
	p, err := params{q.bands.Bands, q.bands.Priomap}.with(v)
	if err != nil {
		return err
	}
	for i := p.bands; i < q.bands.Bands; i++ {
		q.band[i].Purge(ctx, &q.Base)
		q.band[i] = qdisc.Child{}
	}
	for i := q.bands.Bands; i < p.bands; i++ {
		q.band[i] = qdisc.NewChild(q.newChild())
	}
	q.bands.Bands, q.bands.Priomap = p.bands, p.priomap
	return nil
}

// SetClassifier attaches filters to the qdisc. A band takes none: it has its
// own qdisc for that.
func (q *prio) SetClassifier(class qdisc.ClassID, c qdisc.Classifier) error {
	if class != 0 {
		return &qdisc.Error{Errno: syscall.EINVAL}
	}
	q.bands.Filter = c
	return nil
}

// Walk shows the bands in order.
func (q *prio) Walk(f func(qdisc.Class) bool) {
	for i := range q.bands.Bands {
		child := q.band[i].Qdisc()
		if !f(qdisc.Class{
			ID:     qdisc.MakeID(q.bands.Handle, uint32(i+1)),
			Parent: qdisc.MakeID(q.bands.Handle, 0),
			Leaf:   child,
			Stats:  child.Self().Stats,
			Len:    child.Len(),
			Bytes:  child.Backlog(),
		}) {
			return
		}
	}
}

// Graft makes child the qdisc of a band.
func (q *prio) Graft(ctx *qdisc.Context, class qdisc.ClassID, child qdisc.Qdisc) (qdisc.Qdisc, error) {
	i, ok := q.bands.Class(class)
	if !ok {
		return nil, &qdisc.Error{Errno: syscall.ENOENT}
	}
	if child == nil {
		child = q.newChild()
	}
	old := q.band[i].Qdisc()
	q.band[i].Purge(ctx, &q.Base)
	q.band[i] = qdisc.NewChild(child)
	return old, nil
}

// Dump shows bands and priomap.
func (q *prio) Dump() qdisc.Values {
	return qdisc.Values{
		"bands":      {N: uint64(q.bands.Bands)},
		"priomap":    q.bands.Values(),
		"multiqueue": {N: 0},
	}
}

// Kind is the table of prio.
var Kind = qdisc.Kind{
	Name:  "prio",
	Doc:   "strict priority between bands",
	Usage: "Usage: ... prio bands NUMBER priomap P1 P2...[multiqueue]",
	Params: []qdisc.Param{
		{Name: "bands", Unit: qdisc.Number, Default: "3", Doc: "number of bands, 2 to 16"},
		{Name: "priomap", Unit: qdisc.Numbers, Text: "priomap %s", Default: "1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1",
			Doc: "band of each of the 16 priorities, counted from 0"},
		{Name: "multiqueue", Unit: qdisc.Flag, Show: qdisc.JSONOnly, Doc: "taken and without effect"},
	},
	Flags: qdisc.IsClassful,
	Check: check,
	New: func(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
		p, err := params{3, defaultMap}.with(v)
		if err != nil {
			return nil, err
		}
		q := &prio{
			bands:    bands.Map{Handle: env.Handle, Bands: p.bands, Priomap: p.priomap},
			newChild: func() qdisc.Qdisc { return env.Pfifo(env.TxQueueLen) },
		}
		for i := range q.bands.Bands {
			q.band[i] = qdisc.NewChild(q.newChild())
		}
		return q, nil
	},
}
