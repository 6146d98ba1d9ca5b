// Admin path.

package htb

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"syscall"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/internal/wheel"
)

// params are a class's parameters as the kernel gets them.
type params struct {
	rate, ceil     uint64 // bytes a second
	burst, cburst  uint64 // bytes, as they were given
	buffer, cbuffr uint32 // the same in ticks of 64 ns
	quantum        uint64 // 0: not given
	prio           uint8
	overhead, mpu  uint16
	atm            bool
}

// parse reads a class's parameters. All of them travel in one structure: what is
// not in v has its default, also in a change. The kernel gives no text for these
// refusals.
func parse(v qdisc.Values) (*params, error) {
	invalid := &qdisc.Error{Errno: syscall.EINVAL}
	p := &params{rate: v.N("rate", 0), quantum: v.N("quantum", 0)}
	p.ceil = v.N("ceil", p.rate)
	if p.rate == 0 || p.ceil == 0 || p.quantum > math.MaxUint32 || v.N("overhead", 0) > math.MaxUint16 || v.N("mpu", 0) > math.MaxUint16 {
		return nil, invalid
	}
	mtu := v.N("mtu", 1600)
	p.burst = v.N("burst", p.rate/uint64(time.Second)+mtu)
	p.cburst = v.N("cburst", p.ceil/uint64(time.Second)+mtu)
	p.buffer, p.cbuffr = ticks(p.burst, p.rate), ticks(p.cburst, p.ceil)
	p.prio = uint8(min(v.N("prio", 0), prios-1))
	p.overhead, p.mpu = uint16(v.N("overhead", 0)), uint16(v.N("mpu", 0))
	p.atm = isATM(v["linklayer"].Word)
	return p, nil
}

func isATM(word string) bool { return word == "atm" || word == "adsl" }

// tick is the kernel's unit of time for parameters and statistics.
const tick = 64 // ns

// ticks returns how long n bytes take at a rate, rounded up; 32 bits of it.
func ticks(n, rate uint64) uint32 {
	hi, lo := bits.Mul64(n, uint64(time.Second))
	den := rate * tick
	if rate > math.MaxUint64/tick || hi >= den {
		return math.MaxUint32
	}
	t, rest := bits.Div64(hi, lo, den)
	if rest > 0 {
		t++
	}
	return uint32(min(t, math.MaxUint32))
}

// bytesIn returns what a rate carries in a time, as tc shows a burst.
func bytesIn(t uint32, rate uint64) uint64 {
	hi, lo := bits.Mul64(uint64(t)*tick, rate)
	if hi >= uint64(time.Second) {
		return math.MaxUint64
	}
	n, _ := bits.Div64(hi, lo, uint64(time.Second))
	return n
}

// set makes p a class's parameters. Its tokens and its mode stay. An inner class
// keeps the prio and quantum that it had as a leaf, which a new prio becomes the
// next time it has something to send.
func (q *htb) set(c *class, p *params) {
	c.params = p
	c.cost, c.ccost = costOf(p.rate), costOf(p.ceil)
	c.buffer, c.cbuffer = depth(p.buffer), depth(p.cbuffr)
	c.overhead, c.mpu, c.shape = p.overhead, p.mpu, 0
	if p.overhead != 0 || p.mpu != 0 {
		c.shape |= framed
	}
	if p.atm {
		c.shape |= cells
	}
	if c.lender != nil {
		return
	}
	c.prio = p.prio
	c.quantum = int32(min(p.quantum, math.MaxInt32))
	if p.quantum != 0 {
		return
	}
	const least, most = 1000, 200_000
	word, raw := "", p.rate/uint64(q.r2q)
	switch {
	case raw < least:
		word = "small"
	case raw > most:
		word = "big"
	}
	c.quantum = int32(min(max(raw, least), most))
	if word != "" {
		q.warning = fmt.Sprintf("sch_htb: quantum of class %s is %s. Consider r2q change", warned(c.id), word)
	}
}

// depth returns the tokens of a bucket. One that holds less than a nanosecond
// could not keep the fraction that a wait is rounded up by.
func depth(t uint32) int64 { return max(int64(t)*tick, 1) << fraction }

// warned writes a class id as the kernel's warnings do.
func warned(id qdisc.ClassID) string {
	if h, ok := id.TC(); ok {
		return fmt.Sprintf("%X", h)
	}
	return id.String()
}

// Warning returns what there is to say about the last change, once.
func (q *htb) Warning() string {
	w := q.warning
	q.warning = ""
	return w
}

// find returns a class by id, or the kernel's refusal.
func (q *htb) find(id qdisc.ClassID) (int32, error) {
	i := q.table.Find(id)
	if i == none {
		return none, &qdisc.Error{Errno: syscall.ENOENT}
	}
	return i, nil
}

// Find returns a leaf's qdisc, nil for an inner class.
func (q *htb) Find(id qdisc.ClassID) (leaf qdisc.Qdisc, ok bool) {
	i := q.table.Find(id)
	if i == none {
		return nil, false
	}
	return q.classes[i].child.Qdisc(), true
}

// AddClass makes a leaf below parent; below the qdisc when there is no such
// class. A parent that was a leaf becomes an inner class, and what waits in it is
// dropped.
func (q *htb) AddClass(ctx *qdisc.Context, parent, id qdisc.ClassID, v qdisc.Values) error {
	q.warning = ""
	if id.Major() != q.handle || id.Minor() == 0 {
		return &qdisc.Error{Errno: syscall.EINVAL}
	}
	if q.table.Find(id) != none {
		return &qdisc.Error{Errno: syscall.EEXIST}
	}
	p, err := parse(v)
	if err != nil {
		return err
	}
	up := q.table.Find(parent)
	if up != none && q.classes[up].lender == nil {
		q.toInner(ctx, up)
	}
	i := q.slot()
	c := &q.classes[i]
	*c = class{id: id, parent: up, child: qdisc.NewChild(q.newChild())}
	if up != none {
		c.depth = q.classes[up].depth + 1
	}
	if deeper := int(c.depth) + 1 - len(c.deficit); deeper > 0 {
		c.deeper = make([]int32, deeper)
	}
	q.set(c, p)
	c.fill(ctx.Now)
	q.table.Insert(id, i)
	q.enlist(i)
	q.reserve(c)
	return nil
}

// slot returns a free slot.
func (q *htb) slot() int32 {
	if n := len(q.free); n > 0 {
		i := q.free[n-1]
		q.free = q.free[:n-1]
		return i
	}
	q.classes = append(q.classes, class{})
	q.links.Grow(len(q.classes))
	return int32(len(q.classes) - 1)
}

// enlist gives class i its place in the order, and among its siblings.
func (q *htb) enlist(i int32) {
	c := &q.classes[i]
	c.rank = q.place(q.order, c.id)
	q.eachRow(func(row *ring) { row.insert(c.rank, int32(len(q.order))) })
	q.order = slices.Insert(q.order, int(c.rank), i)
	for k := int(c.rank) + 1; k < len(q.order); k++ {
		q.classes[q.order[k]].rank = int32(k)
	}
	if c.parent == root {
		return
	}
	l := q.classes[c.parent].lender
	c.sibling = q.place(l.children, c.id)
	for prio := range l.feeds {
		l.feeds[prio].insert(c.sibling, int32(len(l.children)))
	}
	l.children = slices.Insert(l.children, int(c.sibling), i)
	for k := int(c.sibling) + 1; k < len(l.children); k++ {
		q.classes[l.children[k]].sibling = int32(k)
	}
}

// delist takes class i, which is in no ring, out of both orders.
func (q *htb) delist(i int32) {
	c := &q.classes[i]
	q.order = slices.Delete(q.order, int(c.rank), int(c.rank)+1)
	for k := int(c.rank); k < len(q.order); k++ {
		q.classes[q.order[k]].rank = int32(k)
	}
	q.eachRow(func(row *ring) { row.remove(c.rank) })
	if c.parent == root {
		return
	}
	l := q.classes[c.parent].lender
	l.children = slices.Delete(l.children, int(c.sibling), int(c.sibling)+1)
	for k := int(c.sibling); k < len(l.children); k++ {
		q.classes[l.children[k]].sibling = int32(k)
	}
	for prio := range l.feeds {
		l.feeds[prio].remove(c.sibling)
	}
}

// place returns where id belongs in a list of slots.
func (q *htb) place(list []int32, id qdisc.ClassID) int32 {
	if n := len(list); n == 0 || q.classes[list[n-1]].id < id {
		return int32(n)
	}
	at, _ := slices.BinarySearchFunc(list, id, func(i int32, id qdisc.ClassID) int {
		if q.classes[i].id < id {
			return -1
		}
		return 1
	})
	return int32(at)
}

func (q *htb) eachRow(f func(*ring)) {
	for prio := range prios {
		f(&q.leaves.rows[prio])
		for _, t := range q.inner {
			f(&t.rows[prio])
		}
	}
}

// reserve makes room for leaf c in all rings that it, or an ancestor for it, can
// come into, so that the packet path has none to make.
func (q *htb) reserve(c *class) {
	q.leaves.rows[c.prio].grow(len(q.order))
	for prio := c.prio; c.parent != root; {
		c = &q.classes[c.parent]
		c.lender.feeds[prio].grow(len(c.lender.children))
		q.inner[c.depth].rows[prio].grow(len(q.order))
	}
}

// leave takes class i out of all rings and out of the wheel.
func (q *htb) leave(i int32) {
	c := &q.classes[i]
	q.rest(c)
	if c.mode != canSend {
		q.tierOf(c).forget(i)
		c.mode = canSend
	}
}

// toInner turns leaf i into an inner class. Its tokens stay.
func (q *htb) toInner(ctx *qdisc.Context, i int32) {
	c := &q.classes[i]
	c.child.Purge(ctx, &q.Base)
	q.leave(i)
	c.child = qdisc.Child{}
	c.lender = &lender{}
	if int(c.depth) == len(q.inner) {
		q.inner = append(q.inner, q.newTier())
	}
	q.inner[c.depth].classes++
}

// toLeaf turns inner class i, whose last child has gone, back into a leaf
// (htb_parent_to_leaf).
func (q *htb) toLeaf(ctx *qdisc.Context, i int32) {
	q.leave(i)
	c := &q.classes[i]
	c.lender = nil
	c.child = qdisc.NewChild(q.newChild())
	c.fill(ctx.Now)
	q.reserve(c)
	q.inner[c.depth].classes--
	for n := len(q.inner); n > 0 && q.inner[n-1].classes == 0; n-- {
		q.inner = q.inner[:n-1]
	}
}

func (q *htb) newTier() *tier { return &tier{near: qdisc.Never, wait: wheel.New(&q.links)} }

// ChangeClass sets the parameters. A class in debt still waits for as long as it
// had to.
func (q *htb) ChangeClass(_ *qdisc.Context, id qdisc.ClassID, v qdisc.Values) error {
	q.warning = ""
	i, err := q.find(id)
	if err != nil {
		return err
	}
	p, err := parse(v)
	if err != nil {
		return err
	}
	c := &q.classes[i]
	q.set(c, p)
	if c.lender == nil {
		q.reserve(c)
	}
	return nil
}

// DeleteClass drops what a leaf holds and removes it. An inner class is in use.
func (q *htb) DeleteClass(ctx *qdisc.Context, id qdisc.ClassID) error {
	q.warning = ""
	i, err := q.find(id)
	if err != nil {
		return err
	}
	c := &q.classes[i]
	if c.lender != nil {
		return qdisc.Refuse(syscall.EBUSY, "HTB class in use")
	}
	c.child.Purge(ctx, &q.Base)
	q.leave(i)
	q.delist(i)
	q.table.Delete(id)
	up := c.parent
	*c = class{}
	q.free = append(q.free, i)
	if up != root && len(q.classes[up].lender.children) == 0 {
		q.toLeaf(ctx, up)
	}
	return nil
}

// SetClassifier attaches filters to the qdisc or to a class.
func (q *htb) SetClassifier(id qdisc.ClassID, f qdisc.Classifier) error {
	if id == 0 {
		q.filter = f
		return nil
	}
	i, err := q.find(id)
	if err != nil {
		return err
	}
	q.classes[i].filter = f
	return nil
}

// Graft makes child the qdisc of a leaf.
func (q *htb) Graft(ctx *qdisc.Context, id qdisc.ClassID, child qdisc.Qdisc) (qdisc.Qdisc, error) {
	i, err := q.find(id)
	if err != nil {
		return nil, err
	}
	c := &q.classes[i]
	if c.lender != nil {
		return nil, &qdisc.Error{Errno: syscall.EINVAL}
	}
	if child == nil {
		child = q.newChild()
	}
	old := c.child.Qdisc()
	c.child.Purge(ctx, &q.Base)
	q.rest(c)
	c.child = qdisc.NewChild(child)
	return old, nil
}

// Walk shows the classes, in the order of their ids.
func (q *htb) Walk(f func(qdisc.Class) bool) {
	for _, i := range q.order {
		c := &q.classes[i]
		k := qdisc.Class{
			ID:     c.id,
			Params: q.show(c),
			Stats:  qdisc.Stats{Bytes: c.bytes, Packets: c.packets, Drops: c.drops, Overlimits: c.overlimits},
			XStats: qdisc.Values{
				"lended": {N: c.lends}, "borrowed": {N: c.borrows}, "giants": {},
				"tokens": shownTokens(c.tokens), "ctokens": shownTokens(c.ctokens),
			},
		}
		if c.parent != root {
			k.Parent = q.classes[c.parent].id
		}
		if c.lender == nil {
			k.Leaf, k.Len, k.Bytes = c.child.Qdisc(), c.child.Len(), c.child.Backlog()
		}
		if !f(k) {
			return
		}
	}
}

// shownTokens returns tokens in ticks, within 32 bits.
func shownTokens(tokens int64) qdisc.Value {
	t := nanoseconds(tokens) / tick
	if nanoseconds(tokens) < 0 {
		t = nanoseconds(tokens) >> 6
	}
	return qdisc.Value{N: uint64(min(max(t, math.MinInt32), math.MaxInt32))}
}

// show returns a class's parameters exactly, and beside them as tc prints them: a
// burst made a round trip through ticks.
func (q *htb) show(c *class) qdisc.Values {
	p := c.params
	burst, cburst := bytesIn(p.buffer, p.rate), bytesIn(p.cbuffr, p.ceil)
	v := qdisc.Values{
		"rate": {N: p.rate}, "ceil": {N: p.ceil}, "burst": {N: p.burst}, "cburst": {N: p.cburst},
		"burst/brief": {N: burst}, "burst/cell": {N: burst}, "burst/cells": {N: 1},
		"cburst/brief": {N: cburst}, "cburst/cell": {N: cburst}, "cburst/cells": {N: 1},
		"mpu": {N: uint64(p.mpu)}, "mpu/rate": {N: uint64(p.mpu)}, "mpu/ceil": {N: uint64(p.mpu)},
		"linklayer/all": {Word: "ethernet"}, "level/all": {},
	}
	if p.overhead != 0 {
		v.Set("overhead", uint64(p.overhead))
	}
	if p.atm {
		v["linklayer"] = qdisc.Value{Word: "atm"}
		v["linklayer/all"] = v["linklayer"]
	}
	if c.lender != nil {
		v.Set("level/all", uint64(max(8, len(q.inner)+1)-1-int(c.depth)))
		return v
	}
	v.Set("prio", uint64(c.prio))
	v.Set("quantum", uint64(c.quantum))
	return v
}
