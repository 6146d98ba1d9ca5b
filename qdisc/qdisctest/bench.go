package qdisctest

import (
	"fmt"
	"testing"

	"sluice/qdisc"
)

// Bench measures one packet of 64 bytes in and one out, through the interface
// as the runner does it, above a standing backlog of several sizes. All packets
// are of the first class, so that the whole backlog moves. Time stands still
// unless a discipline makes it wait.
func Bench(b *testing.B, build func(env qdisc.Env) qdisc.Qdisc) {
	for _, backlog := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("backlog=%d", backlog), func(b *testing.B) {
			pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 1024})
			if err != nil {
				b.Fatal(err)
			}
			ctx := qdisc.NewContext(pool, 1)
			env := Env(handle)
			env.TxQueueLen = 1000
			q := build(env)
			var p *qdisc.Packet
			for i := range uint32(backlog + 1) {
				p = pool.Get()
				p.SetLen(64)
				p.Priority, p.Hash, p.Flags = handle<<16|1, i, qdisc.HashSet
				if i < uint32(backlog) {
					q.Enqueue(ctx, p)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				q.Enqueue(ctx, p)
				for p = q.Dequeue(ctx); p == nil; p = q.Dequeue(ctx) {
					ctx.Now = q.NextAt()
				}
			}
		})
	}
}
