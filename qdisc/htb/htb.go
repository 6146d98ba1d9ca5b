// Packet path, except New.

// Package htb is the hierarchical token bucket: classes with a guaranteed rate
// each, that lend each other what they do not use (net/sched/sch_htb.c, after
// Martin Devera).
//
// Classes form a tree; packets wait in the leaves. Every class has two buckets.
// The first fills at its rate: while it holds tokens the class may send on its
// own account. The second fills at its ceil, and while it is in debt the class
// may not send at all. Between the two, the class may borrow: it sends when an
// ancestor can, who pays for it too. A packet is charged to its leaf and to all
// ancestors. A bucket may go into debt by one packet, and the next one waits until
// the debt is paid.
//
// Who may send is found without looking at who may not. Each lender, and each
// level of the tree, keeps rings of those who want to send and can, one for each
// of eight priorities. Leaves that send on their own account go first, then those
// that borrow from a parent, then from a grandparent, and so on up; on one level
// the lower prio goes first, and equal ones take turns in the order of their ids,
// by deficit round robin: a turn lasts until the class has sent a quantum.
// Classes in debt wait in a timing wheel.
//
// Parameters of the qdisc:
//
//	default      minor number of the class of packets that nobody claims, in
//	             hexadecimal; 0, or no such leaf: the direct queue
//	r2q          quantum = rate / r2q where none is given; default 10
//	direct_qlen  packets that the direct queue holds; default tx_queue_len
//	hysteresis   classes change their mode less often, and send in bursts (the
//	             kernel has it as a parameter of the module)
//
// of a class:
//
//	rate       bytes a second that the class has for itself; mandatory
//	ceil       bytes a second that it may send at most; default rate
//	burst      depth of the bucket of rate, bytes; default 1600 and a nanosecond's
//	           worth
//	cburst     the same of ceil
//	prio       0 to 7; lower goes first
//	quantum    bytes a turn; default rate/r2q, between 1000 and 200000
//	mtu        in place of the 1600 of the bursts' defaults
//	overhead   bytes added to every packet, for the link's framing
//	mpu        bytes that a packet counts at least
//	linklayer  "atm" counts in cells of 48 bytes that take 53
//
// The direct queue stands outside the tree: what is in it goes before everything
// else, unlimited. A packet gets there by a priority or a filter that names the
// qdisc itself.
//
// Differences from the kernel:
//
//   - Costs keep their fractions of a nanosecond, where the kernel cuts them off:
//     at 10 Gbit/s that is 0.1 % of the rate. Where costs are whole nanoseconds
//     departures are the same.
//   - The tree may be deeper than eight levels, and ids have 32 bits.
//   - Filters that send a packet round in a circle end in the default class.
//   - A Reset fills the buckets.
//   - Events are never too many for one call (the kernel stops after two jiffies).
package htb

import (
	"math/bits"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/internal/wheel"
)

const (
	none = -1 // no class
	root = -1 // as a parent: the qdisc itself

	prios = 8

	// memory is how long a class remembers what it did not use, or owes, at most
	// (mbuffer).
	memory = time.Minute
)

// mode says what a class may do (enum htb_cmode).
type mode uint8

const (
	canSend   mode = iota // on its own account
	mayBorrow             // when an ancestor lends
	cantSend              // not at all: it is above its ceil
)

// htb is the qdisc. Classes are named by their slot.
type htb struct {
	qdisc.Base
	direct  qdisc.List
	classes []class
	order   []int32 // slots in the order of the ids; a class's place is its rank
	table   qdisc.ClassTable
	leaves  tier
	inner   []*tier // by depth; the deepest lend first
	links   wheel.Links

	handle     uint32
	defaultID  qdisc.ClassID // 0: the direct queue
	directQlen int
	directPkts uint32
	hysteresis bool
	filter     qdisc.Classifier // nil: none

	free     []int32 // slots without a class
	r2q      uint32
	newChild func() qdisc.Qdisc
	warning  string // see Warning
}

// class is one class. The first cache line is what an arrival touches, the first
// three what a departure does.
type class struct {
	child   qdisc.Child // of a leaf
	lender  *lender     // of an inner class, nil of a leaf
	parent  int32       // root: none
	rank    int32       // place in htb.order
	sibling int32       // place in the parent's children
	depth   int32       // 0: hangs off the qdisc
	quantum int32
	active  uint8 // prios for which it wants to send: its own, or those of its feeds
	mode    mode
	prio    uint8
	shape   uint8    // what is done to lengths; see wire
	deficit [4]int32 // of its turns, by how many levels up the lender is

	tokens, ctokens int64         // of rate and of ceil, at the instant settled
	settled         time.Duration // t_c
	buffer, cbuffer int64         // depths
	cost, ccost     cost

	packets, bytes    uint64
	lends, borrows    uint64
	drops, overlimits uint64
	overhead, mpu     uint16
	filter            qdisc.Classifier // nil: none
	deeper            []int32          // deficits of lenders still further up

	id     qdisc.ClassID
	params *params
}

// lender is what an inner class has and a leaf has not.
type lender struct {
	children []int32     // in the order of the ids
	feeds    [prios]ring // of children that want to borrow, by their place in children
}

// tier is a level of the tree: the leaves, or the inner classes of one depth.
// The kernel counts levels up from the leaves, of which there are then eight.
type tier struct {
	rows  [prios]ring // classes that want to send and can, by rank
	busy  uint8       // rows that have some (row_mask)
	stale bool        // who was due at near has left
	near  time.Duration
	wait  *wheel.Wheel // classes in debt

	classes int // inner ones there are
}

// tierOf returns the level that a class is on.
func (q *htb) tierOf(c *class) *tier {
	if c.lender == nil {
		return &q.leaves
	}
	return q.inner[c.depth]
}

// classify finds p's leaf (htb_classify). none with Match is the direct queue.
func (q *htb) classify(ctx *qdisc.Context, p *qdisc.Packet) (int32, qdisc.FilterVerdict) {
	filter := q.filter
	if p.Class != 0 && p.Class.Major() == q.handle {
		if p.Class.Minor() == 0 {
			return none, qdisc.Match
		}
		if i := q.table.Find(p.Class); i != none {
			if q.classes[i].lender == nil {
				return i, qdisc.Match
			}
			filter = q.classes[i].filter
		}
	} else if p.Priority>>16 == q.handle && p.Priority != 0 {
		if p.Priority&0xffff == 0 {
			return none, qdisc.Match
		}
		if i := q.table.Find(qdisc.FromTC(p.Priority)); i != none {
			if q.classes[i].lender == nil {
				return i, qdisc.Match
			}
			filter = q.classes[i].filter
		}
	}
	// An inner class may have filters of its own, which go on from there. Each
	// step of a sensible set goes down; one that goes round ends here.
	for steps := len(q.inner) + 1; filter != nil && steps > 0; steps-- {
		v, id := filter.Classify(ctx, p)
		switch {
		case v == qdisc.NoMatch:
			return q.unclaimed(), qdisc.Match
		case v != qdisc.Match:
			return none, v
		case id == qdisc.MakeID(q.handle, 0):
			return none, qdisc.Match
		}
		i := q.table.Find(id)
		if i == none {
			break
		}
		if q.classes[i].lender == nil {
			return i, qdisc.Match
		}
		filter = q.classes[i].filter
	}
	return q.unclaimed(), qdisc.Match
}

// unclaimed returns the default class, none when that is the direct queue.
func (q *htb) unclaimed() int32 {
	i := q.table.Find(q.defaultID)
	if i != none && q.classes[i].lender != nil {
		return none
	}
	return i
}

// Enqueue gives p to its class, or to the direct queue.
func (q *htb) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	i, v := q.classify(ctx, p)
	if i == none {
		if v != qdisc.Match {
			return q.Dispose(ctx, p, v)
		}
		return q.enqueueDirect(ctx, p)
	}
	c := &q.classes[i]
	verdict := c.child.Enqueue(ctx, &q.Base, p)
	if verdict == qdisc.Dropped || verdict == qdisc.CN {
		c.drops++
	}
	if c.active == 0 && c.child.Len() != 0 {
		c.active = 1 << c.prio
		q.activate(c)
	}
	return verdict
}

func (q *htb) enqueueDirect(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	if q.direct.Len() >= q.directQlen {
		q.Refuse(ctx, p, qdisc.Overlimit)
		return qdisc.Dropped
	}
	q.direct.Push(p)
	q.directPkts++
	q.Enqueued(p)
	return qdisc.Success
}

// Dequeue gives the packet that Peek parked, else the next.
func (q *htb) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Unpark(); p != nil {
		return p
	}
	return q.next(ctx)
}

// Peek parks what Dequeue gives (qdisc_peek_dequeued): a packet that was shown
// has been paid for.
func (q *htb) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Parked(); p != nil {
		return p
	}
	return q.Park(q.next(ctx))
}

// next is htb_dequeue: level by level from the leaves up, by prio on each.
func (q *htb) next(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.direct.Pop(); p != nil {
		q.Dequeued(p)
		return p
	}
	if held, _ := q.Held(); q.Len() == held {
		q.SetNextAt(qdisc.Never)
		return nil
	}
	at := qdisc.Never
	t := &q.leaves
	for level := len(q.inner); ; {
		if ctx.Now >= t.near {
			q.events(t, ctx.Now)
		}
		for m := t.busy; m != 0; m &= m - 1 {
			p, wait := q.serve(ctx, t, bits.TrailingZeros8(m))
			if p != nil {
				return p
			}
			at = min(at, wait)
		}
		if t.stale {
			t.refresh()
		}
		at = min(at, t.near)
		if level--; level < 0 {
			break
		}
		t = q.inner[level]
	}
	q.SetNextAt(at)
	return nil
}

// serve gives a packet of one row (htb_dequeue_tree). A child that holds its
// packets back lets the others pass; when all do, serve says until when.
func (q *htb) serve(ctx *qdisc.Context, t *tier, prio int) (*qdisc.Packet, time.Duration) {
	at, first := qdisc.Never, int32(none)
	row := &t.rows[prio]
	for !row.empty() {
		var leaf, from int32
		turn := row
		if t == &q.leaves && row.stands() { // a leaf in the middle of its turn
			leaf = q.order[row.cursor]
			from = leaf
		} else {
			leaf, from, turn = q.lookup(row, prio)
		}
		c := &q.classes[leaf]
		if c.child.Len() == 0 { // it became empty unseen
			if leaf == first {
				first = none
			}
			q.rest(c)
			continue
		}
		if leaf == first {
			break
		}
		if first == none {
			first = leaf
		}
		p := c.child.Dequeue(ctx, &q.Base)
		if p == nil {
			at = min(at, c.child.NextAt())
			turn.advance()
			continue
		}
		c.packets++
		c.bytes += uint64(p.PktLen)
		deficit := c.deficitOf(c.depth - q.classes[from].depth)
		if *deficit -= int32(p.PktLen); *deficit < 0 {
			*deficit += c.quantum
			turn.advance()
		}
		if c.child.Len() == 0 {
			q.rest(c)
		}
		q.charge(ctx.Now, leaf, from, p.PktLen)
		return p, 0
	}
	return nil, at
}

// lookup finds whose turn it is in a row (htb_lookup_leaf): from the class that
// the row points to, which lends, down the feeds to a leaf. It returns both, and
// the ring that the leaf stands in. A feed that ends begins anew, and the ring
// above it moves on.
func (q *htb) lookup(row *ring, prio int) (leaf, from int32, turn *ring) {
	turn, leaf = row, none
	for {
		at := turn.cursor
		if !turn.stands() {
			at = turn.next(at)
		}
		if at == end {
			turn.cursor = turn.next(0)
			if leaf == none {
				continue
			}
			if leaf == from {
				leaf, turn = none, row
			} else {
				leaf = q.classes[leaf].parent
				turn = &q.classes[leaf].lender.feeds[prio]
			}
			turn.advance()
			continue
		}
		turn.cursor = at
		if leaf == none {
			leaf = q.order[at]
			from = leaf
		} else {
			leaf = q.classes[leaf].lender.children[at]
		}
		c := &q.classes[leaf]
		if c.lender == nil {
			return leaf, from, turn
		}
		turn = &c.lender.feeds[prio]
	}
}

// deficitOf returns the deficit that a leaf has with the lender so many levels up.
func (c *class) deficitOf(up int32) *int32 {
	if int(up) < len(c.deficit) {
		return &c.deficit[up]
	}
	return &c.deeper[int(up)-len(c.deficit)]
}

// QlenNotify takes a class out of the rings whose qdisc became empty.
func (q *htb) QlenNotify(id qdisc.ClassID) {
	if i := q.table.Find(id); i != none {
		q.rest(&q.classes[i])
	}
}

// Shed takes from the leaf with the most bytes, or from the direct queue.
func (q *htb) Shed(ctx *qdisc.Context, n int) int {
	fattest, most := int32(none), q.direct.Bytes()
	for _, i := range q.order {
		if c := &q.classes[i]; c.lender == nil && c.child.Backlog() > most {
			fattest, most = i, c.child.Backlog()
		}
	}
	got := q.shedFrom(ctx, fattest, n)
	for k := 0; k < len(q.order) && got == 0; k++ { // it had none to give: they are parked
		if i := q.order[k]; q.classes[i].lender == nil {
			got = q.shedFrom(ctx, i, n)
		}
	}
	if got == 0 {
		got = q.shedFrom(ctx, none, n)
	}
	return got
}

// shedFrom takes from a leaf, or from the direct queue.
func (q *htb) shedFrom(ctx *qdisc.Context, i int32, n int) int {
	if i == none {
		got := 0
		for ; got < n && q.direct.Len() > 0; got++ {
			q.Discard(ctx, q.direct.Pop(), qdisc.Shed)
		}
		return got
	}
	c := &q.classes[i]
	got := c.child.Shed(ctx, &q.Base, n)
	if c.child.Len() == 0 {
		q.rest(c)
	}
	return got
}

// Reset empties every class and the direct queue, and fills the buckets.
func (q *htb) Reset(ctx *qdisc.Context) {
	for p := q.direct.Pop(); p != nil; p = q.direct.Pop() {
		ctx.Drop(p, qdisc.Purged)
	}
	for _, i := range q.order {
		c := &q.classes[i]
		if c.lender == nil {
			c.child.Reset(ctx, &q.Base)
		} else {
			for prio := range c.lender.feeds {
				c.lender.feeds[prio].reset()
			}
		}
		c.fill(ctx.Now)
	}
	q.leaves.reset()
	for _, t := range q.inner {
		t.reset()
	}
	q.ResetBase(ctx)
}

func (t *tier) reset() {
	for prio := range t.rows {
		t.rows[prio].reset()
	}
	t.wait.Reset()
	t.busy, t.stale, t.near = 0, false, qdisc.Never
}

// Direct returns the packets and bytes in the direct queue.
func (q *htb) Direct() (packets, bytes int) { return q.direct.Len(), q.direct.Bytes() }
