package fqcodel_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/qdisctest"
)

func Benchmark(b *testing.B) {
	qdisctest.Bench(b, func(env qdisc.Env) qdisc.Qdisc { return build(b, env, nil) })
}

// One packet of 64 bytes in and one out, of 1024 flows that have 16 packets
// queued each: arrivals in runs of 16 of one flow, and one by one in random order.
func BenchmarkFlows(b *testing.B) {
	const flows, standing = 1024, 16
	for _, c := range []struct {
		name string
		run  int
	}{{"runs", 16}, {"random", 1}} {
		b.Run(c.name, func(b *testing.B) {
			pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: flows*standing + 64, FrameSize: 128, Headroom: 2})
			if err != nil {
				b.Fatal(err)
			}
			ctx := qdisc.NewContext(pool, 1)
			q := build(b, qdisctest.Env(1), qdisc.Values{"limit": {N: 1 << 20}, "flows": {N: 65536}})
			order := rand.New(rand.NewPCG(1, 2)).Perm(flows)
			mark := func(p *qdisc.Packet, flow int) {
				p.Hash = uint32(flow) * 0x9e3779b1
				p.Flags |= qdisc.HashSet
			}
			for range standing {
				for flow := range flows {
					p := pool.Get()
					p.SetLen(64)
					mark(p, flow)
					q.Enqueue(ctx, p)
				}
			}
			var list [16]*qdisc.Packet
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				at := i % c.run
				if at == 0 {
					ctx.Now += time.Duration(c.run) * 50
					for j := range c.run {
						list[j] = q.Dequeue(ctx)
					}
				}
				mark(list[at], order[i/c.run%flows])
				q.Enqueue(ctx, list[at])
			}
		})
	}
}
