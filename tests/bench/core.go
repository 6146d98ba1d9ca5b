package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/kinds"
	"sluice/shaper/classify"
)

const (
	frame    = 64  // bytes
	standing = 16  // packets of backlog a class
	perRun   = 16  // arrivals of one class in a row
	atLeast  = 0.2 // seconds a run lasts
)

// figures are the costs of the disciplines alone: enqueue and dequeue, no ports.
func figures() []*measurement {
	var all []*measurement
	core := func(name, kind string, classes int, build func(classes int) *bed) {
		if kinds.ByName(kind) == nil {
			return
		}
		var b *bed // made by the first run, kept for the others
		get := func() *bed {
			if b == nil {
				b = build(classes)
				b.fill()
			}
			return b
		}
		ring := newRing(classes)
		all = append(all,
			&measurement{name: name, unit: "ns", run: func() float64 { return get().runs(perRun) }, baseline: func() float64 { return ring.runs(perRun) }},
			&measurement{name: name + ".random_order", unit: "ns", run: func() float64 { return get().runs(1) }, baseline: func() float64 { return ring.runs(1) }})
	}
	core("core.pfifo_fast.ns", "pfifo_fast", 3, pfifoFast)
	for _, n := range []int{256, 4096, 100000} {
		core(fmt.Sprintf("core.htb.%d.ns", n), "htb", n, htb("pfifo"))
	}
	core("core.fq_codel.1024.ns", "fq_codel", 1024, hashed("fq_codel", qdisc.Values{"limit": {N: 1 << 20}, "flows": {N: 1 << 16}}, true))
	core("core.cake.ns", "cake", 256, hashed("cake", nil, true))
	core("core.cake.one_host.ns", "cake", 256, hashed("cake", nil, false)) // a turn of the host goes round its 256 flows
	if kinds.ByName("htb") != nil && kinds.ByName("fq_codel") != nil {
		all = append(all, &measurement{name: "core.htb.idle_class.bytes", unit: "B", run: idleClass})
	}
	return all
}

// bed is a root qdisc with a standing backlog in every class.
type bed struct {
	ctx     *qdisc.Context
	root    qdisc.Qdisc
	classes int
	mark    func(p *qdisc.Packet, class int) // makes p one of the class
	order   []int
	at      int
}

func newBed(classes int, root qdisc.Qdisc, mark func(*qdisc.Packet, int)) *bed {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: classes*standing + 64, FrameSize: 128, Headroom: 2})
	if err != nil {
		panic(err)
	}
	b := &bed{ctx: qdisc.NewContext(pool, 1), root: root, classes: classes, mark: mark}
	b.ctx.Hasher = func(p *qdisc.Packet) uint32 { return classify.FlowHash(p, 1) }
	b.order = rand.New(rand.NewPCG(1, 2)).Perm(classes)
	return b
}

// fill enqueues the standing backlog.
func (b *bed) fill() {
	for range standing {
		for class := range b.classes {
			p := b.ctx.Pool.Get()
			p.SetLen(frame)
			b.mark(p, class)
			if v := b.root.Enqueue(b.ctx, p); v != qdisc.Success {
				panic(fmt.Sprintf("packet of class %d: verdict %d", class, v))
			}
		}
	}
}

// runs returns the nanoseconds that a packet costs when n arrive for a class in
// a row, as many leave, and the next class is the next of a random order.
func (b *bed) runs(n int) float64 {
	var list [perRun]*qdisc.Packet
	count := 0
	begin := time.Now()
	for time.Since(begin).Seconds() < atLeast {
		for range 64 {
			class := b.order[b.at]
			if b.at++; b.at == len(b.order) {
				b.at = 0
			}
			b.ctx.Now += time.Duration(n) * 50
			for i := range n {
				if list[i] = b.root.Dequeue(b.ctx); list[i] == nil {
					panic("nothing to dequeue from a standing backlog")
				}
			}
			for _, p := range list[:n] {
				b.mark(p, class)
				b.root.Enqueue(b.ctx, p)
			}
			count += n
		}
	}
	return float64(time.Since(begin).Nanoseconds()) / float64(count)
}

// ring is the baseline: the same packets through one plain ring.
type ring struct {
	slots []*qdisc.Packet
	head  int
	order []int
	at    int
}

func newRing(classes int) *ring {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: classes * standing, FrameSize: 128, Headroom: 2})
	if err != nil {
		panic(err)
	}
	r := &ring{order: rand.New(rand.NewPCG(1, 2)).Perm(classes)}
	for p := pool.Get(); p != nil; p = pool.Get() {
		r.slots = append(r.slots, p)
	}
	return r
}

func (r *ring) runs(n int) float64 {
	count := 0
	begin := time.Now()
	for time.Since(begin).Seconds() < atLeast {
		for range 64 {
			class := r.order[r.at]
			if r.at++; r.at == len(r.order) {
				r.at = 0
			}
			for range n {
				p := r.slots[r.head]
				p.Priority = uint32(class)
				p.PktLen = frame
				r.slots[r.head] = p
				if r.head++; r.head == len(r.slots) {
					r.head = 0
				}
			}
			count += n
		}
	}
	return float64(time.Since(begin).Nanoseconds()) / float64(count)
}

func make1(kind string, v qdisc.Values) qdisc.Qdisc {
	k := kinds.ByName(kind)
	if k.Check != nil {
		if err := k.Check(v); err != nil {
			panic(kind + ": " + err.Error())
		}
	}
	q, err := k.New(kinds.Env(1000, 1500, 1), v)
	if err != nil {
		panic(kind + ": " + err.Error())
	}
	return q
}

func pfifoFast(classes int) *bed {
	return newBed(classes, make1("pfifo_fast", nil), func(p *qdisc.Packet, class int) { p.Priority = [3]uint32{6, 0, 2}[class] })
}

// htb has classes that never wait: what is measured is the choice among them.
func htb(leaf string) func(classes int) *bed {
	return func(classes int) *bed {
		root := make1("htb", qdisc.Values{})
		b := newBed(classes, root, func(p *qdisc.Packet, class int) { p.Class = qdisc.MakeID(1, uint32(class+1)) })
		for class := range classes {
			addClass(b.ctx, root, class, leaf)
		}
		return b
	}
}

func addClass(ctx *qdisc.Context, root qdisc.Qdisc, class int, leaf string) {
	id := qdisc.MakeID(1, uint32(class+1))
	const rate = 100e9 / 8
	v := qdisc.Values{"rate": {N: rate}, "ceil": {N: rate}, "burst": {N: 1 << 20}, "cburst": {N: 1 << 20}, "quantum": {N: 1514}}
	if err := root.(qdisc.ClassEditor).AddClass(ctx, qdisc.MakeID(1, 0), id, v); err != nil {
		panic("htb class: " + err.Error())
	}
	if leaf != "pfifo" {
		if _, err := root.(qdisc.Classful).Graft(ctx, id, make1(leaf, qdisc.Values{})); err != nil {
			panic("htb leaf: " + err.Error())
		}
	}
}

// hashed is a discipline that finds the flow by itself. The flows lie between
// hosts of their own, or all come to one host.
func hashed(kind string, v qdisc.Values, hosts bool) func(classes int) *bed {
	return func(flows int) *bed {
		if v == nil {
			v = qdisc.Values{}
		}
		b := newBed(flows, make1(kind, v), func(p *qdisc.Packet, flow int) {
			f := p.Bytes()
			f[28], f[29], f[35] = byte(flow>>8), byte(flow), byte(flow)
			if hosts {
				f[32], f[33] = byte(flow>>8), byte(flow)
			}
			p.Flags &^= qdisc.HashSet
		})
		head := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0,
			10, 0, 0, 0, 10, 1, 0, 1, 0, 0, 1, 0, 0, 30}
		mark := b.mark
		b.mark = func(p *qdisc.Packet, flow int) {
			if p.Flags&qdisc.Parsed == 0 {
				copy(p.Bytes(), head)
				classify.ParseHeaders(p)
			}
			mark(p, flow)
		}
		return b
	}
}

// idleClass returns the memory that an idle htb class with a fq_codel leaf takes.
func idleClass() float64 {
	const classes = 100000
	var before, after runtime.MemStats
	root := make1("htb", qdisc.Values{})
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 1})
	if err != nil {
		panic(err)
	}
	ctx := qdisc.NewContext(pool, 1)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for class := range classes {
		addClass(ctx, root, class, "fq_codel")
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(root)
	return float64(after.HeapAlloc-before.HeapAlloc) / classes
}
