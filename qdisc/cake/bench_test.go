package cake_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"sluice/qdisc"
	"sluice/qdisc/cake"
	"sluice/qdisc/qdisctest"
)

// What one packet in and one out cost above a standing backlog, one flow.
func BenchmarkOneFlow(b *testing.B) {
	qdisctest.Bench(b, func(env qdisc.Env) qdisc.Qdisc {
		q, err := cake.Kind.New(env, given())
		if err != nil {
			b.Fatal(err)
		}
		return q
	})
}

// Many flows with a standing backlog of 16 packets each, four of each host: arrivals
// in runs of 16 of a flow, or one of each flow in random order.
func BenchmarkFlows(b *testing.B) {
	for _, c := range []struct {
		name string
		v    qdisc.Values
	}{
		{"unlimited", given("besteffort", "dual-srchost", "memlimit", 64<<20)},
		{"shaped", given("bandwidth", 12_500_000_000, "dual-srchost", "memlimit", 64<<20)},
		{"ack-filter", given("besteffort", "dual-srchost", "ack-filter", "memlimit", 64<<20)},
	} {
		for _, flows := range []int{32, 1024} {
			for _, run := range []int{16, 1} {
				b.Run(fmt.Sprintf("%s/flows=%d/run=%d", c.name, flows, run), func(b *testing.B) {
					benchFlows(b, c.v, flows, run)
				})
			}
		}
	}
}

func benchFlows(b *testing.B, v qdisc.Values, flows, run int) {
	const standing, perHost = 16, 4
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: flows*standing + run})
	if err != nil {
		b.Fatal(err)
	}
	ctx := qdisc.NewContext(pool, 1)
	q, err := cake.Kind.New(qdisctest.Env(1), v)
	if err != nil {
		b.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	order := make([]uint32, 4096)
	for i := range order {
		order[i] = rnd.Uint32N(uint32(flows))
	}
	put := func(p *qdisc.Packet, flow uint32) {
		p.SetLen(64)
		p.L3, p.EtherType = 14, 0x0800
		binary.BigEndian.PutUint32(p.Bytes()[26:], flow/perHost)
		p.Hash = flow * 0x9e3779b1
		p.Flags |= qdisc.HashSet
		q.Enqueue(ctx, p)
	}
	for i := range flows * standing {
		put(pool.Get(), uint32(i%flows))
	}
	n := 0
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N/run + 1 {
		flow := order[n%len(order)]
		n++
		for range run {
			put(pool.Get(), flow)
		}
		for range run {
			p := q.Dequeue(ctx)
			for ; p == nil; p = q.Dequeue(ctx) {
				ctx.Now = q.NextAt()
			}
			p.Free()
		}
	}
}
