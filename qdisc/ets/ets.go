// Packet path, except what changes parameters, and Kind.

// Package ets is enhanced transmission selection (IEEE 802.1Qaz;
// net/sched/sch_ets.c): strict priority between the first bands, deficit round
// robin among the rest.
//
// A strict band is served only while the strict bands before it have nothing to
// send, and a weighted band only while none of them has. The weighted bands
// share what is left in the ratio of their quanta (see qdisc/internal/round), so
// that none of them starves the others: one whose quantum is a full frame or more
// waits for at most the quantum and a full frame of each other. That is the mix
// for a link whose urgent traffic is small by nature, or limited by a tbf below
// its band.
//
//	bands     how many, 1 to 16; tc adds up strict and quanta when not given
//	strict    how many of them, the first ones, are strict; default 0
//	quanta    bytes per round of the weighted bands, in order; not 0; default,
//	          also for bands not listed, a full frame
//	priomap   the band, counted from 0, of each of the 16 priorities; default,
//	          also for priorities not listed, the last band
//
// Each band is a class, 1:1 the first, with a qdisc of its own, by default a
// pfifo. Bands come and go with the parameter only; the quantum of one weighted
// band can be changed by its class.
//
// A packet's band is the one that its class or priority names (its upper half
// is the handle), else the one that the filters say, of whose answer only the
// minor number counts, else priomap of its priority; a priority that names
// somebody else's class counts as 0. A band that does not exist means that of
// priority 0.
//
// A change replaces all parameters. Packets in bands that it removes are
// dropped; a band that becomes weighted joins the round with a fresh quantum.
//
// Difference from the kernel: there a strict band that holds its packets back lets
// the bands behind it send, but a weighted one does not. Here both do.
package ets

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"sluice/qdisc"
	"sluice/qdisc/internal/bands"
	"sluice/qdisc/internal/round"
)

const (
	maxBands   = 16 // TCQ_ETS_MAX_BANDS
	priorities = bands.Priorities
)

type ets struct {
	qdisc.Base
	bands  bands.Map
	round  round.Round // a member for each band; the strict ones never join
	strict int

	frame    uint32 // a full frame, the default quantum
	newChild func() qdisc.Qdisc
}

// Enqueue gives p to its band.
func (q *ets) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	band, v := q.bands.Find(ctx, p)
	switch {
	case v != qdisc.Match:
		return q.Dispose(ctx, p, v)
	case band < q.strict:
		return q.round.Members[band].Child.Enqueue(ctx, &q.Base, p)
	}
	return q.round.Enqueue(ctx, &q.Base, int32(band), p)
}

// Dequeue gives the packet that Peek parked, else the next one.
func (q *ets) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Unpark(); p != nil {
		return p
	}
	return q.next(ctx)
}

// next gives the packet of the first strict band that yields one, else of the
// round. The kernel looks at the strict bands again after each step of the
// round; within one instant they cannot have got anything.
func (q *ets) next(ctx *qdisc.Context) *qdisc.Packet {
	next := qdisc.Never
	for i := range q.strict {
		m := &q.round.Members[i]
		if m.Len() == 0 {
			continue
		}
		if p := m.Child.Dequeue(ctx, &q.Base); p != nil {
			return p
		}
		next = min(next, m.NextAt())
	}
	p, at := q.round.Dequeue(ctx, &q.Base)
	if p == nil {
		q.SetNextAt(min(next, at))
	}
	return p
}

// Peek parks what Dequeue gives (qdisc_peek_dequeued).
func (q *ets) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Parked(); p != nil {
		return p
	}
	return q.Park(q.next(ctx))
}

// QlenNotify takes a weighted band out of the round whose qdisc became empty.
func (q *ets) QlenNotify(id qdisc.ClassID) {
	if i, err := q.band(id); err == nil {
		q.round.Leave(i)
	}
}

// Shed takes from the band with the most bytes.
func (q *ets) Shed(ctx *qdisc.Context, n int) int { return q.round.Shed(ctx, &q.Base, n) }

// Reset empties every band.
func (q *ets) Reset(ctx *qdisc.Context) {
	q.round.Reset(ctx, &q.Base)
	q.ResetBase(ctx)
}

// params are ets's parameters, complete.
type params struct {
	bands, strict int
	quanta        [maxBands]uint32 // of the weighted bands, by band
	priomap       [priorities]uint8
}

// parse completes v, with the kernel's checks.
func parse(v qdisc.Values, frame uint32) (p params, err error) {
	refuse := func(format string, args ...any) (params, error) {
		return p, qdisc.Refuse(syscall.EINVAL, format, args...)
	}
	bands, strict := v.N("bands", 0), v.N("strict", 0)
	switch {
	case !v.Has("bands"):
		return refuse("sch_ets: Number of bands is a required argument")
	case bands < 1 || bands > maxBands:
		return refuse("sch_ets: Invalid number of bands")
	case strict > bands:
		return refuse("sch_ets: Invalid number of strict bands")
	}
	p.bands, p.strict = int(bands), int(strict)

	for i := range p.priomap {
		p.priomap[i] = uint8(p.bands - 1)
	}
	for i, band := range v["priomap"].List {
		switch {
		case i >= priorities:
			return refuse("sch_ets: Too many priorities in ETS priomap")
		case band >= bands:
			return refuse("sch_ets: Invalid band number in ETS priomap")
		}
		p.priomap[i] = uint8(band)
	}

	for i := p.strict; i < p.bands; i++ {
		p.quanta[i] = frame
	}
	for i, n := range v["quanta"].List {
		if p.strict+i >= p.bands {
			return refuse("sch_ets: ETS quanta has more values than bands")
		}
		if p.quanta[p.strict+i], err = quantum(n); err != nil {
			return p, err
		}
	}
	return p, nil
}

func quantum(n uint64) (uint32, error) {
	switch {
	case n == 0:
		return 0, qdisc.Refuse(syscall.EINVAL, "ETS quantum cannot be zero")
	case n > math.MaxUint32:
		return 0, &qdisc.Error{Errno: syscall.EINVAL}
	}
	return uint32(n), nil
}

// Change replaces all parameters.
func (q *ets) Change(ctx *qdisc.Context, v qdisc.Values) error {
	p, err := parse(v, q.frame)
	if err != nil {
		return err
	}
	q.set(ctx, p)
	return nil
}

// set makes p the parameters in force. A band leaves the round when it becomes
// strict or is removed, whether it has packets or not, and joins it when it
// becomes weighted and has some.
func (q *ets) set(ctx *qdisc.Context, p params) {
	for i := p.bands; i < q.bands.Bands; i++ {
		q.round.Graft(ctx, &q.Base, int32(i), nil)
	}
	for i := q.bands.Bands; i < p.bands; i++ {
		q.round.Graft(ctx, &q.Base, int32(i), q.newChild())
	}
	for i := range p.bands {
		q.round.Members[i].Quantum = p.quanta[i]
		if i < p.strict {
			q.round.Leave(int32(i))
		} else {
			q.round.Join(int32(i))
		}
	}
	q.bands.Bands, q.strict, q.bands.Priomap = p.bands, p.strict, p.priomap
}

// band returns the index of a class, or the kernel's refusal.
func (q *ets) band(id qdisc.ClassID) (int32, error) {
	i, ok := q.bands.Class(id)
	if !ok {
		return 0, &qdisc.Error{Errno: syscall.ENOENT}
	}
	return int32(i), nil
}

// AddClass refuses: bands are made by the parameter.
func (q *ets) AddClass(_ *qdisc.Context, _, id qdisc.ClassID, _ qdisc.Values) error {
	if _, err := q.band(id); err == nil {
		return &qdisc.Error{Errno: syscall.EEXIST}
	}
	return qdisc.Refuse(syscall.EOPNOTSUPP, "Fine-grained class addition and removal is not supported")
}

// ChangeClass sets the quantum of a weighted band, from the next time on that
// the band gets one.
func (q *ets) ChangeClass(_ *qdisc.Context, id qdisc.ClassID, v qdisc.Values) error {
	i, err := q.band(id)
	if err != nil || !v.Has("quantum") {
		return err
	}
	if int(i) < q.strict {
		return qdisc.Refuse(syscall.EINVAL, "Strict bands do not have a configurable quantum")
	}
	n, err := quantum(v.N("quantum", 0))
	if err == nil {
		q.round.Members[i].Quantum = n
	}
	return err
}

// DeleteClass refuses: bands are removed by the parameter.
func (q *ets) DeleteClass(_ *qdisc.Context, id qdisc.ClassID) error {
	if _, err := q.band(id); err != nil {
		return err
	}
	return &qdisc.Error{Errno: syscall.EOPNOTSUPP}
}

// SetClassifier attaches filters to the qdisc; bands take none.
func (q *ets) SetClassifier(id qdisc.ClassID, c qdisc.Classifier) error {
	if id != 0 {
		return qdisc.Refuse(syscall.EINVAL, "ETS classid must be zero")
	}
	q.bands.Filter = c
	return nil
}

// Graft makes child the qdisc of a band.
func (q *ets) Graft(ctx *qdisc.Context, id qdisc.ClassID, child qdisc.Qdisc) (qdisc.Qdisc, error) {
	i, err := q.band(id)
	if err != nil {
		return nil, err
	}
	if child == nil {
		child = q.newChild()
	}
	return q.round.Graft(ctx, &q.Base, i, child), nil
}

// Walk shows the bands in order. Their statistics are their qdiscs'.
func (q *ets) Walk(f func(qdisc.Class) bool) {
	for i := range q.bands.Bands {
		m := &q.round.Members[i]
		c := qdisc.Class{
			ID:    qdisc.MakeID(q.bands.Handle, uint32(i+1)),
			Leaf:  m.Qdisc(),
			Stats: m.Qdisc().Self().Stats,
			Len:   m.Len(),
			Bytes: m.Backlog(),
		}
		if i >= q.strict {
			c.Params = qdisc.Values{"quantum": {N: uint64(m.Quantum)}}
		}
		if !f(c) {
			return
		}
	}
}

// Dump shows the parameters, strict and quanta only if there are such bands.
func (q *ets) Dump() qdisc.Values {
	v := qdisc.Values{}.Set("bands", uint64(q.bands.Bands))
	if q.strict > 0 {
		v.Set("strict", uint64(q.strict))
	}
	if q.strict < q.bands.Bands {
		var quanta []uint64
		for i := q.strict; i < q.bands.Bands; i++ {
			quanta = append(quanta, uint64(q.round.Members[i].Quantum))
		}
		v["quanta"] = qdisc.Value{List: quanta}
	}
	v["priomap"] = q.bands.Values()
	return v
}

// check is what tc refuses by itself, and how it gets the number of bands.
func check(v qdisc.Values) error {
	for _, name := range []string{"bands", "strict"} {
		if v.N(name, 0) > maxBands {
			return fmt.Errorf("The number of %q must be <= %d", name, maxBands)
		}
	}
	quanta, priomap := v["quanta"].List, v["priomap"].List
	for _, n := range quanta {
		if n == 0 {
			return errors.New(`"quanta" must be > 0`)
		}
	}
	if len(priomap) > priorities {
		return fmt.Errorf("%q index cannot be higher than %d", "priomap", priorities-1)
	}
	covered := v.N("strict", 0) + uint64(len(quanta))
	bands := v.N("bands", 0)
	if bands == 0 {
		bands = covered
	}
	switch {
	case bands == 0:
		return qdisc.Misuse(`One of "bands", "quanta" or "strict" needs to be specified`)
	case covered > bands:
		return qdisc.Misuse("Not enough total bands to cover all the strict bands and quanta")
	}
	for _, band := range priomap {
		if band >= bands {
			return errors.New(`"priomap" element is out of bounds`)
		}
	}
	v.Set("bands", bands)
	return nil
}

// Kind is the table of ets.
var Kind = qdisc.Kind{
	Name:  "ets",
	Doc:   "strict priority between some bands, weighted sharing between the rest",
	Usage: "Usage: ... ets [bands NUMBER] [strict NUMBER] [quanta Q1 Q2...] [priomap P1 P2...]",
	Params: []qdisc.Param{
		{Name: "bands", Unit: qdisc.Number, Default: "strict and quanta added up", Doc: "number of bands, 1 to 16"},
		{Name: "strict", Unit: qdisc.Number, Default: "0", Doc: "how many bands, the first ones, are strict"},
		{Name: "quanta", Unit: qdisc.Sizes, Default: "a full frame each", Doc: "bytes per round of each weighted band"},
		{Name: "priomap", Unit: qdisc.Numbers, Default: "the last band",
			Doc: "band of each of the 16 priorities, counted from 0"},
	},
	ClassParams: []qdisc.Param{
		{Name: "quantum", Unit: qdisc.Size, Text: "quantum %d ", Doc: "bytes per round of a weighted band"},
	},
	Flags: qdisc.IsClassful,
	Check: check,
	New: func(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
		frame := uint32(env.MTU + env.HeaderLen)
		p, err := parse(v, frame)
		if err != nil {
			return nil, err
		}
		q := &ets{
			bands: bands.Map{Handle: env.Handle}, frame: frame,
			newChild: func() qdisc.Qdisc { return env.Pfifo(env.TxQueueLen) },
		}
		q.round.Members = make([]round.Member, maxBands)
		q.set(nil, p)
		return q, nil
	},
}
