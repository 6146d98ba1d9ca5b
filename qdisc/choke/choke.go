// Packet path, except Change, Dump and what is below them.

// Package choke is CHOKe (net/sched/sch_choke.c; Pan, Prabhakar and Psounis,
// "CHOKe, a stateless active queue management scheme for approximating fair
// bandwidth allocation", INFOCOM 2000): RED that takes from whom there is most of,
// without keeping a state for anybody.
//
// As long as the average queue is longer than min, each packet that arrives is
// compared with one drawn from the queue. If both are of one flow both are
// dropped: a flow that fills the queue meets itself often. Otherwise RED decides
// (see qdisc/internal/aqm), counting packets.
//
//	limit        packets that may wait, at most 131072; mandatory
//	bandwidth    rate at which the average falls while nothing waits; mandatory
//	min, max     average lengths between which RED marks; default limit / 4 for
//	             max, and max / 3
//	avpkt        size of an average packet; default 1000
//	burst        packets that may come at once; default (2 min + max) / 3
//	probability  of a mark just below max; default 0.02
//	ecn          mark packets of senders that take part in ECN, drop others
//
// Two packets are of one flow when their flow hashes are the same; the kernel
// compares the keys.
package choke

import (
	"math"
	"math/bits"
	"syscall"

	"sluice/qdisc"
	"sluice/qdisc/internal/aqm"
)

type choke struct {
	qdisc.Base
	// A ring with holes where packets were taken out of the middle. What is
	// before head and from tail on is empty.
	ring       []*qdisc.Packet // a power of two of them
	head, tail uint32          // counted up and never wrapped to the ring
	law        aqm.RED
	state      aqm.REDState

	early, overflow, marked, matched uint64

	params params
}

// maxLimit is the largest limit (CHOKE_MAX_QUEUE).
const maxLimit = 128 * 1024

func (q *choke) at(i uint32) **qdisc.Packet { return &q.ring[i&uint32(len(q.ring)-1)] }

// Enqueue queues p unless it meets its own flow or RED speaks against it.
func (q *choke) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	before := q.state
	a := q.law.Arrives(ctx, &q.state, q.Len())
	if q.law.Above(&q.state) {
		if i, ok := q.pick(ctx); ok && ctx.FlowHash(*q.at(i)) == ctx.FlowHash(p) {
			q.state.Undecide(before)
			q.matched++
			q.Discard(ctx, q.take(i), qdisc.FloodProtection)
			q.Refuse(ctx, p, qdisc.FloodProtection)
			return qdisc.CN
		}
		if a != aqm.Pass {
			q.Overlimits++
			if !q.params.ecn || !qdisc.SetCE(p) {
				q.early++
				q.Refuse(ctx, p, qdisc.Congested)
				return qdisc.CN
			}
			q.marked++
		}
	}
	if q.Len() >= int(q.params.limit) || q.tail-q.head >= uint32(len(q.ring)) {
		q.overflow++
		q.Refuse(ctx, p, qdisc.Overlimit)
		return qdisc.Dropped
	}
	q.Enqueued(p)
	*q.at(q.tail) = p
	q.tail++
	return qdisc.Success
}

// pick draws a packet from the queue. It gives up when it meets three holes, and
// takes the oldest then (choke_peek_random).
func (q *choke) pick(ctx *qdisc.Context) (i uint32, ok bool) {
	n := q.tail - q.head
	if n == 0 {
		return 0, false
	}
	for range 3 {
		i = q.head + uint32((ctx.Rand.Uint64()>>32)*uint64(n)>>32)
		if *q.at(i) != nil {
			return i, true
		}
	}
	return q.head, true
}

// take takes the packet at i out and moves the ends past holes.
func (q *choke) take(i uint32) *qdisc.Packet {
	p := *q.at(i)
	*q.at(i) = nil
	for q.head != q.tail && *q.at(q.head) == nil {
		q.head++
	}
	for q.head != q.tail && *q.at(q.tail - 1) == nil {
		q.tail--
	}
	return p
}

// Dequeue gives the oldest.
func (q *choke) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if q.head == q.tail {
		return nil
	}
	p := q.take(q.head)
	q.Dequeued(p)
	q.rest(ctx)
	return p
}

// rest begins the idle time when the last packet went.
func (q *choke) rest(ctx *qdisc.Context) {
	if q.head == q.tail {
		q.state.Idle(ctx.Now)
	}
}

// Peek shows the oldest.
func (q *choke) Peek(*qdisc.Context) *qdisc.Packet {
	if q.head == q.tail {
		return nil
	}
	return *q.at(q.head)
}

// Shed drops the oldest n.
func (q *choke) Shed(ctx *qdisc.Context, n int) (got int) {
	for ; got < n && q.head != q.tail; got++ {
		q.Discard(ctx, q.take(q.head), qdisc.Shed)
	}
	q.rest(ctx)
	return got
}

// Reset drops everything and forgets the average.
func (q *choke) Reset(ctx *qdisc.Context) {
	for q.head != q.tail {
		ctx.Drop(q.take(q.head), qdisc.Purged)
	}
	q.head, q.tail = 0, 0
	q.ResetBase(ctx)
	q.state.Start()
	q.state.Idle(0)
}

// params are the parameters as they are given.
type params struct {
	limit, min, max, avpkt, burst uint32
	bandwidth                     uint64
	probability                   float64
	ecn                           bool
}

var invalid = &qdisc.Error{Errno: syscall.EINVAL}

// with reads v; what is not in it is at its default.
func with(v qdisc.Values) (p params, err error) {
	fits := true
	u32 := func(name string, def uint32) uint32 {
		n := v.N(name, 0)
		fits = fits && n <= math.MaxUint32
		if n == 0 {
			return def
		}
		return uint32(n)
	}
	p.limit = u32("limit", 0)
	p.max = u32("max", p.limit/4)
	p.min = u32("min", p.max/3)
	p.avpkt = u32("avpkt", 1000)
	p.burst = u32("burst", uint32((2*uint64(p.min)+uint64(p.max))/3))
	p.bandwidth = v.N("bandwidth", 0)
	p.probability = math.Float64frombits(v.N("probability", math.Float64bits(0.02)))
	p.ecn = v.N("ecn", 0) != 0
	if !fits || p.limit == 0 || p.bandwidth == 0 {
		return p, invalid
	}
	return p, nil
}

// law computes what tc does for the kernel, whose words for a refusal it returns.
func (p *params) law() (c aqm.RED, refusal string) {
	c = aqm.RED{Min: p.min, Max: p.max, MaxProb: uint32(min(max(p.probability, 0)*(1<<32), math.MaxUint32))}
	ok := false
	switch {
	case p.max > p.limit:
		return c, `"max" is larger than "limit"`
	case p.min >= p.max:
		return c, `"min" is not smaller than "max"`
	}
	least := uint32(min(uint64(p.min)*uint64(p.avpkt), math.MaxUint32))
	if c.Wlog, ok = aqm.REDWeight(least, p.burst, p.avpkt); !ok {
		return c, "CHOKE: failed to calculate EWMA constant."
	}
	if c.Wlog >= 10 {
		// tc only warns; nothing here overflows before 32 bits do.
		if bits.Len32(p.max)+int(c.Wlog) >= 32 {
			return c, "CHOKE: failed to calculate probability."
		}
	}
	if !c.Damp(p.avpkt, p.bandwidth) {
		return c, "CHOKE: failed to calculate idle damping table."
	}
	c.MaxProb = max(c.MaxProb, 1)
	c.Set()
	return c, ""
}

// said is what tc says, word for word.
type said string

func (s said) Error() string { return string(s) }

// check is what tc refuses by itself.
func check(v qdisc.Values) error {
	if v.N("limit", 0) == 0 || v.N("bandwidth", 0) == 0 {
		return said("Required parameter (bandwidth, limit) is missing")
	}
	if p := math.Float64frombits(v.N("probability", 0)); !(p >= 0 && p <= 1) {
		return said(`Illegal "probability"`)
	}
	p, err := with(v)
	if err != nil {
		return nil // the kernel's to say
	}
	if _, refusal := p.law(); refusal != "" {
		return said(refusal)
	}
	return nil
}

// set makes p the parameters in force. The ring gets its size, and keeps what is
// in it.
func (q *choke) set(v qdisc.Values) error {
	p, err := with(v)
	if err != nil {
		return err
	}
	law, refusal := p.law()
	if refusal != "" || p.limit > maxLimit {
		return invalid
	}
	q.params, q.law = p, law
	q.state.Start()
	// With holes the ring holds less than it has places: give it as many again.
	size := uint32(1) << bits.Len32(2*p.limit)
	ring := make([]*qdisc.Packet, size)
	n := uint32(0)
	for q.head != q.tail {
		ring[n] = q.take(q.head)
		n++
	}
	q.ring, q.head, q.tail = ring, 0, n
	return nil
}

// Change replaces the parameters. The newest packets that no longer fit are
// dropped.
func (q *choke) Change(ctx *qdisc.Context, v qdisc.Values) error {
	p, err := with(v)
	if err != nil {
		return err
	}
	if _, refusal := p.law(); refusal != "" || p.limit > maxLimit {
		return invalid
	}
	for q.tail != q.head && q.Len() > int(p.limit) {
		q.Discard(ctx, q.take(q.tail-1), qdisc.Overlimit)
	}
	err = q.set(v)
	q.rest(ctx)
	return err
}

// Dump shows the parameters as they were given, and as they follow.
func (q *choke) Dump() qdisc.Values {
	p := &q.params
	v := qdisc.Values{}.Set("limit", uint64(p.limit)).Set("min", uint64(p.min)).Set("max", uint64(p.max)).
		Set("avpkt", uint64(p.avpkt)).Set("burst", uint64(p.burst)).Set("bandwidth", p.bandwidth).
		Set("probability", math.Float64bits(p.probability)).
		Set("ecn", 0).Set("harddrop/shown", 0).Set("adaptive/shown", 0).Set("nodrop/shown", 0).
		Set("ewma/shown", uint64(q.law.Wlog)).Set("Scell_log/shown", uint64(q.law.CellLog)).
		Set("probability/shown", math.Float64bits(float64(q.law.MaxProb)/(1<<32)))
	if p.ecn {
		v.Set("ecn", 1)
	}
	return v
}

// XStats shows why packets were dropped or marked.
func (q *choke) XStats() qdisc.Values {
	return qdisc.Values{}.Set("marked", q.marked).Set("early", q.early).Set("pdrop", q.overflow).
		Set("other", 0).Set("matched", q.matched)
}

var (
	_ qdisc.Changer  = (*choke)(nil)
	_ qdisc.Dumper   = (*choke)(nil)
	_ qdisc.XStatser = (*choke)(nil)
)

// Kind is the table of choke.
var Kind = qdisc.Kind{
	Name: "choke",
	Doc:  "drops from the flow that fills the queue, without keeping flows",
	Usage: "Usage: ... choke limit PACKETS bandwidth KBPS [ecn]\n" +
		"                 [ min PACKETS ] [ max PACKETS ] [ burst PACKETS ]",
	Params: []qdisc.Param{
		{Name: "limit", Unit: qdisc.Packets, Doc: "packets that may wait"},
		{Name: "min", Unit: qdisc.Packets, Default: "max / 3", Doc: "average length at which marking begins"},
		{Name: "max", Unit: qdisc.Packets, Default: "limit / 4", Doc: "average length at which all packets are marked"},
		{Name: "bandwidth", Unit: qdisc.Rate, Show: qdisc.Input, Doc: "rate at which the average falls while nothing waits"},
		{Name: "avpkt", Unit: qdisc.Size, Show: qdisc.Input, Default: "1000", Doc: "size of an average packet"},
		{Name: "burst", Unit: qdisc.Number, Show: qdisc.Input, Default: "(2 min + max) / 3", Doc: "packets that may come at once"},
		{Name: "ecn", Unit: qdisc.Flag, Doc: "mark rather than drop"},
		{Name: "harddrop/shown", JSON: "harddrop", Unit: qdisc.Flag, Show: qdisc.JSONOnly},
		{Name: "adaptive/shown", JSON: "adaptive", Unit: qdisc.Flag, Show: qdisc.JSONOnly},
		{Name: "nodrop/shown", JSON: "nodrop", Unit: qdisc.Flag, Show: qdisc.JSONOnly},
		{Name: "ewma/shown", JSON: "ewma", Unit: qdisc.Number, Show: qdisc.Details, Text: "ewma %s "},
		{Name: "probability", Unit: qdisc.Float, Show: qdisc.Input, Default: "0.02", Doc: "of a mark just below max"},
		{Name: "probability/shown", JSON: "probability", Unit: qdisc.Float, Show: qdisc.Details, Text: "probability %s "},
		{Name: "Scell_log/shown", JSON: "Scell_log", Unit: qdisc.Number, Show: qdisc.Details, Text: "Scell_log %s"},
	},
	XStats: []qdisc.Param{
		{Name: "marked", Unit: qdisc.Number, Text: "  marked %s ", Doc: "packets marked"},
		{Name: "early", Unit: qdisc.Number, Text: "early %s ", Doc: "packets dropped early"},
		{Name: "pdrop", Unit: qdisc.Number, Text: "pdrop %s ", Doc: "packets dropped because the queue was full"},
		{Name: "other", Unit: qdisc.Number, Text: "other %s ", Doc: "always 0"},
		{Name: "matched", Unit: qdisc.Number, Text: "matched %s", Doc: "times that two packets of one flow met"},
	},
	Check: check,
	New: func(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
		q := &choke{}
		if err := q.set(v); err != nil {
			return nil, err
		}
		q.state.Idle(0)
		return q, nil
	},
}
