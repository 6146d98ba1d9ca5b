package qdisctest

import (
	"time"

	"sluice/qdisc"
	"sluice/qdisc/prio"
)

// fate says where a packet is.
type fate uint8

const (
	queued fate = iota + 1
	sent
	dropped
	stolen
)

// record is what the world knows of the packet in one slot of the pool.
type record struct {
	id   uint64
	fate fate
	len  uint32
	order
}

// order names a sequence of packets that must not overtake each other.
type order struct {
	key   uint64
	epoch int
	other bool // went to the band beside the discipline under test
}

// world is a tree with the discipline under test in it, and the books that are
// kept of it from outside.
type world struct {
	t    fataler
	c    *Config
	pool *qdisc.Pool
	ctx  *qdisc.Context

	root qdisc.Qdisc // enters everything
	q    qdisc.Qdisc // under test: root, or a child of it
	path []qdisc.Step

	began time.Duration
	rec   []record
	next  uint64 // id of the next packet
	trace []event

	queued, bytes int    // alive
	drops         uint64 // that count as drops: not those of a Reset
	sent, sentB   uint64
	lost, lostB   uint64 // parked at the root, hence counted as sent, and then dropped
	resetting     bool
	opDrops       int           // drops of this op
	parked        *qdisc.Packet // root's, when the op began
	peeked        *qdisc.Packet // what the next Dequeue has to give; nil: no promise
	idle          bool          // the last Dequeue or Peek gave nothing, and nothing happened since but time
	nextAt        time.Duration // what NextAt said then
	throttles     bool          // some child may keep us waiting
	filtered      bool
	last          map[order]uint64 // id of the last that left
	epochs        int              // configurations so far
}

const slots = 192 // more than the enqueues of one sequence

// newWorld builds the tree: the discipline alone or under a parent, its leaves
// made by child unless that is nil.
func newWorld(t fataler, c *Config, under bool, child func() qdisc.Qdisc, seed uint64) *world {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: slots, FrameSize: 1792, Headroom: 64, Memory: frames})
	if err != nil {
		t.Fatalf("%v", err)
	}
	w := &world{
		t: t, c: c, pool: pool, ctx: qdisc.NewContext(pool, seed),
		q: c.New(Env(handle)), rec: make([]record, slots),
		throttles: c.Throttles,
		last:      map[order]uint64{},
	}
	w.ctx.OnDrop = w.onDrop
	w.ctx.OnClone = w.onClone
	w.ctx.Hasher = hasher
	w.root = w.q
	w.path = []qdisc.Step{{Qdisc: w.q}}
	if under {
		w.root = w.parent()
		w.path = []qdisc.Step{{Qdisc: w.root, Class: qdisc.MakeID(above, 1)}, {Qdisc: w.q}}
	}
	if child != nil {
		for _, class := range w.leaves() {
			w.graft(class, child())
		}
	}
	w.invariants()
	return w
}

// hasher is the flow hash that the suite's packets are given when they are made;
// without HashSet a discipline must not rely on it.
func hasher(p *qdisc.Packet) uint32 { return p.Hash }

// ipv4 gives p, which is long enough, an IPv4 header with this TOS and nothing
// else in it, so that it can be marked.
func ipv4(p *qdisc.Packet, tos uint8) {
	p.L3, p.EtherType, p.TOS = 14, 0x0800, tos
	p.Flags |= qdisc.Parsed
	h := p.Bytes()[14:34]
	clear(h)
	h[0], h[1] = 0x45, tos
}

// frames is lent to one world after the other: nothing in them lasts.
var frames = make([]byte, slots*1792)

// otherBand is the priority that goes past the discipline under test, into the
// other band of its parent, so that the parent has something to sum up.
const otherBand = 15

// parent makes a prio whose first band is the discipline under test.
func (w *world) parent() qdisc.Qdisc {
	root, err := prio.Kind.New(Env(above), qdisc.Values{
		"bands":   {N: 2},
		"priomap": {List: []uint64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
	})
	if err == nil {
		_, err = root.(qdisc.Classful).Graft(w.ctx, qdisc.MakeID(above, 1), w.q)
	}
	if err != nil {
		w.t.Fatalf("grafting below a prio: %v", err)
	}
	return root
}

// restart forgets what was seen, so that the traces of two worlds can be
// compared from here.
func (w *world) restart(seed uint64) {
	w.ctx.Rand.Seed(seed, seed)
	w.began, w.next, w.trace = w.ctx.Now, 0, nil
	w.peeked, w.idle = nil, false
	w.newOrder()
}

func (w *world) newOrder() { w.epochs++ }

func (w *world) see(what string, id uint64) {
	w.trace = append(w.trace, event{what, id, w.ctx.Now})
}

func (w *world) run(ops []op) {
	for i, o := range ops {
		if o.do == nothing {
			continue
		}
		w.t.Logf("%d: %v (len %d)", i, o, w.root.Len())
		w.opDrops, w.parked = 0, w.root.Self().Parked()
		w.apply(o)
		w.invariants()
	}
}

func (w *world) apply(o op) {
	switch o.do {
	case enqueue:
		w.enqueue(o)
	case dequeue:
		w.dequeue()
	case peek:
		w.peek()
	case step:
		w.pass(time.Duration(o.n))
	case wait:
		w.wait(o)
	case shed:
		w.shed(int(o.n))
	case reset:
		w.reset()
	case notify:
		w.notify()
	default:
		w.configure(o)
	}
}

func (w *world) onDrop(p *qdisc.Packet, r qdisc.Reason) {
	rec := w.alive(p, "dropped")
	rec.fate = dropped
	w.queued--
	w.bytes -= int(rec.len)
	w.opDrops++
	if p == w.parked {
		w.lost++
		w.lostB += uint64(rec.len)
	}
	if w.resetting {
		if r != qdisc.Purged {
			w.t.Fatalf("Reset dropped packet %d with reason %v; want %v", rec.id, r, qdisc.Purged)
		}
	} else {
		w.drops++
	}
	w.see("drop ("+r.String()+")", rec.id)
}

// onClone takes a copy into the books: a packet of its own, of no order.
func (w *world) onClone(p, copied *qdisc.Packet) {
	rec := w.alive(p, "copied")
	w.next++
	w.rec[copied.Index()] = record{id: w.next, fate: queued, len: rec.len, order: order{key: w.next, epoch: -1}}
	w.queued++
	w.bytes += int(rec.len)
	w.see("copy", w.next)
}

func (w *world) alive(p *qdisc.Packet, what string) *record {
	rec := &w.rec[p.Index()]
	if rec.fate != queued {
		w.t.Fatalf("packet %d was %s although it was not queued (fate %d)", rec.id, what, rec.fate)
	}
	if p.PktLen != rec.len {
		w.t.Fatalf("packet %d came with %d bytes and was %s with %d", rec.id, rec.len, what, p.PktLen)
	}
	return rec
}

func (w *world) enqueue(o op) {
	p := w.pool.Get()
	if p == nil {
		return
	}
	w.next++
	p.SetLen(int(o.n))
	p.Priority, p.Mark = o.class, o.class+8*o.hash
	ipv4(p, uint8(o.hash)<<5|uint8(o.hash&3))
	if p.Hash = o.hash; o.n%2 == 0 {
		p.Flags |= qdisc.HashSet // else the discipline has to ask
	}
	p.Arrival = w.ctx.Now
	p.Scratch = [4]uint64{1 << 63, ^uint64(0), 12345, 1} // left by a discipline that had it before
	rec := &w.rec[p.Index()]
	*rec = record{id: w.next, fate: queued, len: p.PktLen}
	if w.c.Order != nil {
		rec.order = order{w.c.Order(p), w.epochs, w.root != w.q && p.Priority == otherBand}
	}
	w.queued++
	w.bytes += int(rec.len)

	free := w.pool.Available()
	v := w.root.Enqueue(w.ctx, p)
	w.peeked, w.idle = nil, false
	w.see("verdict "+[]string{"success", "dropped", "cn", "stolen"}[v], rec.id)
	switch v {
	case qdisc.Success:
		if rec.fate != queued {
			w.t.Fatalf("packet %d: Success, but it was dropped", rec.id)
		}
	case qdisc.Dropped:
		if rec.fate != dropped {
			w.t.Fatalf("packet %d: Dropped, but OnDrop did not see it", rec.id)
		}
	case qdisc.CN:
		if w.opDrops == 0 {
			w.t.Fatalf("packet %d: CN, but nothing was dropped", rec.id)
		}
	case qdisc.Stolen:
		if rec.fate != queued || w.pool.Available() != free+1+w.opDrops {
			w.t.Fatalf("packet %d: Stolen, but not just freed", rec.id)
		}
		rec.fate = stolen
		w.queued--
		w.bytes -= int(rec.len)
	}
}

func (w *world) dequeue() {
	p := w.root.Dequeue(w.ctx)
	if w.peeked != nil && p != w.peeked {
		w.t.Fatalf("Peek showed packet %d, Dequeue gave %s", w.rec[w.peeked.Index()].id, w.name(p))
	}
	w.peeked = nil
	if p == nil {
		w.nothing("Dequeue")
		return
	}
	w.yielded("Dequeue")
	rec := w.alive(p, "sent")
	rec.fate = sent
	w.queued--
	w.bytes -= int(rec.len)
	w.sent++
	w.sentB += uint64(rec.len)
	w.see("departure", rec.id)
	if w.c.Order != nil {
		if last := w.last[rec.order]; last > rec.id {
			w.t.Fatalf("packet %d left before packet %d of the same order", last, rec.id)
		}
		w.last[rec.order] = rec.id
	}
	p.PktLen = 1 << 20 // whoever looks at it after this shows
	p.Free()
}

func (w *world) peek() {
	p := w.root.Peek(w.ctx)
	if w.peeked != nil && p != w.peeked {
		w.t.Fatalf("Peek showed packet %d, then %s", w.rec[w.peeked.Index()].id, w.name(p))
	}
	if p == nil {
		w.nothing("Peek")
		return
	}
	w.yielded("Peek")
	w.alive(p, "shown")
	w.peeked = p
	w.see("peek", w.rec[p.Index()].id)
}

func (w *world) name(p *qdisc.Packet) any {
	if p == nil {
		return "nothing"
	}
	return event{"packet", w.rec[p.Index()].id, w.ctx.Now}
}

// nothing is called when Dequeue or Peek gave nothing.
func (w *world) nothing(who string) {
	next := w.root.NextAt()
	if w.root.Len() == 0 {
		if next != qdisc.Never {
			w.t.Fatalf("%s: empty, but NextAt is %v", who, next)
		}
		return
	}
	switch {
	case !w.throttles:
		w.t.Fatalf("%s gave nothing although %d packets wait", who, w.root.Len())
	case next == qdisc.Never && w.c.Blocks:
	case next == qdisc.Never:
		w.t.Fatalf("%s gave nothing, %d packets wait, and NextAt is Never", who, w.root.Len())
	case next <= w.ctx.Now:
		w.t.Fatalf("%s gave nothing at %v, and NextAt is %v: it does not lie ahead", who, w.ctx.Now, next)
	}
	w.idle, w.nextAt = true, next
}

// yielded is called when Dequeue or Peek gave a packet.
func (w *world) yielded(who string) {
	if w.idle && w.ctx.Now < w.nextAt {
		w.t.Fatalf("%s yields at %v; NextAt had said %v, which was late", who, w.ctx.Now, w.nextAt)
	}
	w.idle = false
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	if d > 0 {
		w.ctx.Now += d
		w.peeked = nil
	}
}

// wait sleeps as the worker does: until NextAt, where Dequeue yields or names a
// later instant; or only part of the way, where it must not yield.
func (w *world) wait(o op) {
	if !w.idle || w.nextAt <= w.ctx.Now || w.nextAt == qdisc.Never {
		return
	}
	switch o.n {
	case 0:
		w.pass((w.nextAt - w.ctx.Now) * time.Duration(o.fraction) / 100)
		w.dequeue()
	case 1:
		w.pass(w.nextAt - w.ctx.Now - 1)
		w.dequeue()
	default:
		// A discipline whose instants are early gets there in a few attempts.
		for range 1000 {
			w.pass(w.nextAt - w.ctx.Now)
			left := w.queued
			w.dequeue()
			if !w.idle || w.queued < left || w.nextAt == qdisc.Never {
				return
			}
		}
		w.t.Fatalf("1000 sleeps until NextAt, and nothing left")
	}
}

func (w *world) shed(n int) {
	give := w.root.Len() - heldBelow(w.root)
	drops := w.drops
	got := w.root.Shed(w.ctx, n)
	w.peeked, w.idle = nil, false
	switch {
	case uint64(got) != w.drops-drops:
		w.t.Fatalf("Shed says %d, dropped %d", got, w.drops-drops)
	case got > n:
		w.t.Fatalf("Shed(%d) dropped %d", n, got)
	case give > 0 && got == 0:
		w.t.Fatalf("Shed gave nothing although %d packets are queued", give)
	}
	if got := int(w.drops - drops); got > 0 {
		for _, e := range w.trace[len(w.trace)-got:] {
			if e.what != "drop ("+qdisc.Shed.String()+")" {
				w.t.Fatalf("Shed: %v", e)
			}
		}
	}
}

func (w *world) reset() {
	w.resetting, w.parked = true, w.root.Self().Parked()
	w.root.Reset(w.ctx)
	w.resetting = false
	w.peeked, w.idle = nil, false
	if n, b := w.root.Len(), w.root.Backlog(); n != 0 || b != 0 {
		w.t.Fatalf("after Reset: len %d, backlog %d", n, b)
	}
	if w.pool.Available() != w.pool.Size() {
		w.t.Fatalf("after Reset: %d frames are missing", w.pool.Size()-w.pool.Available())
	}
	if p := w.root.Dequeue(w.ctx); p != nil {
		w.t.Fatalf("after Reset: Dequeue gave packet %d", w.rec[p.Index()].id)
	}
	if at := w.root.NextAt(); at != qdisc.Never {
		w.t.Fatalf("after Reset: NextAt is %v", at)
	}
}
