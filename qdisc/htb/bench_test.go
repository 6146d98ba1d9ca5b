package htb_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/htb"
	"sluice/qdisc/qdisctest"
)

const standing = 16 // packets of backlog a class

// bed is a htb with a standing backlog in every class.
type bed struct {
	ctx   *qdisc.Context
	q     qdisc.Qdisc
	order []int
	at    int
}

// newBed makes classes of a rate and a ceil, 64 below each inner class, or all
// below the qdisc itself when fanout is 0.
func newBed(b *testing.B, classes, fanout int, rate, ceil uint64) *bed {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: classes*standing + 64, FrameSize: 128, Headroom: 2})
	if err != nil {
		b.Fatal(err)
	}
	q, err := htb.Kind.New(qdisctest.Env(1), nil)
	if err != nil {
		b.Fatal(err)
	}
	bed := &bed{ctx: qdisc.NewContext(pool, 1), q: q, order: rand.New(rand.NewPCG(1, 2)).Perm(classes)}
	e := q.(qdisc.ClassEditor)
	v := qdisc.Values{"rate": {N: rate}, "ceil": {N: ceil}, "burst": {N: 1 << 20}, "cburst": {N: 1 << 20}, "quantum": {N: 1514}}
	if rate < 1e6 {
		v.Set("burst", 1600).Set("cburst", 1600)
	}
	full := qdisc.Values{"rate": {N: 12_500_000_000}, "burst": {N: 1 << 20}, "cburst": {N: 1 << 20}, "quantum": {N: 1514}}
	for class := range classes {
		var parent qdisc.ClassID
		if fanout > 0 {
			parent = id(uint32(1_000_000 + class/fanout))
			if class%fanout == 0 {
				if err := e.AddClass(bed.ctx, 0, parent, full); err != nil {
					b.Fatal(err)
				}
			}
		}
		if err := e.AddClass(bed.ctx, parent, id(uint32(class+1)), v); err != nil {
			b.Fatal(err)
		}
	}
	for range standing {
		for class := range classes {
			p := pool.Get()
			p.SetLen(64)
			p.Class = id(uint32(class + 1))
			if q.Enqueue(bed.ctx, p) != qdisc.Success {
				b.Fatal("no room for the standing backlog")
			}
		}
	}
	return bed
}

// run takes n packets out and puts n in for one class, the next of a random order.
func (b *bed) run(n int) {
	var list [standing]*qdisc.Packet
	class := id(uint32(b.order[b.at] + 1))
	if b.at++; b.at == len(b.order) {
		b.at = 0
	}
	b.ctx.Now += time.Duration(n) * 50
	for i := range n {
		for list[i] = b.q.Dequeue(b.ctx); list[i] == nil; list[i] = b.q.Dequeue(b.ctx) {
			b.ctx.Now = b.q.NextAt()
		}
	}
	for _, p := range list[:n] {
		p.Class = class
		b.q.Enqueue(b.ctx, p)
	}
}

// What a packet of 64 bytes costs, in and out: of classes that never wait; of
// classes that all borrow from parents of 64 children; of classes that all spend
// most of their time in debt.
func Benchmark(b *testing.B) {
	const fast = 12_500_000_000
	for _, c := range []struct {
		what       string
		fanout     int
		rate, ceil uint64
	}{{"own", 0, fast, fast}, {"borrowed", 64, 1, fast}, {"throttled", 0, 100_000, 100_000}} {
		for _, classes := range []int{1, 256, 4096, 100_000} {
			if c.what == "throttled" {
				// All together make 20 million packets a second.
				c.rate = 20_000_000 * 64 / uint64(classes)
				c.ceil = c.rate
			}
			var made *bed
			for _, n := range []int{standing, 1} {
				b.Run(fmt.Sprintf("%s/classes=%d/run=%d", c.what, classes, n), func(b *testing.B) {
					if made == nil {
						made = newBed(b, classes, c.fanout, c.rate, c.ceil)
					}
					b.ReportAllocs()
					for i := 0; i < b.N; i += n {
						made.run(n)
					}
				})
			}
		}
	}
}
