package mem_test

import (
	"encoding/binary"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/bql"
	"sluice/qdisc"
	"sluice/shaper/nic/mem"
)

// Whatever the order of calls: no frame is made, lost or swapped within its
// queue, descriptors return with exactly the bytes posted, and the wire never
// carries two frames at a time.
func TestConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		queues := rapid.IntRange(1, 3).Draw(t, "queues")
		c := mem.Config{
			Rate:               rapid.SampledFrom([]uint64{0, 1_000_000, 999_999_937}).Draw(t, "rate"),
			Latency:            time.Duration(rapid.IntRange(0, 5000).Draw(t, "latency")) * time.Microsecond,
			CompletionDelay:    time.Duration(rapid.IntRange(0, 100).Draw(t, "delay")) * time.Microsecond,
			CompletionInterval: time.Duration(rapid.IntRange(0, 1000).Draw(t, "interval")) * time.Microsecond,
			Ring:               8, RxRing: 1000, Queues: queues,
		}
		a, b := mem.Pair("a", "b", c)
		const slots = 64
		pool, _ := qdisc.NewPool(qdisc.PoolConfig{Packets: slots, FrameSize: 512})
		ctx := qdisc.NewContext(pool, 1)

		var now time.Duration
		sent, got := make([][]uint32, queues), make([][]uint32, queues)
		posted, reaped := make([]int, queues), make([]int, queues)
		next := uint32(0)
		receive := func(q int) {
			ctx.Now = now
			var l qdisc.List
			b.RxQueue(q).Receive(ctx, &l, 8)
			for p := l.Pop(); p != nil; p = l.Pop() {
				got[q] = append(got[q], number(p))
				p.Free()
			}
		}
		reap := func(q int) {
			_, bytes := a.TxQueue(q).Reap(now)
			reaped[q] += bytes
		}
		queue := func(t *rapid.T) int { return rapid.IntRange(0, queues-1).Draw(t, "queue") }
		t.Repeat(map[string]func(*rapid.T){
			"post": func(t *rapid.T) {
				q := queue(t)
				p := pool.Get()
				if p == nil {
					return
				}
				p.SetLen(rapid.IntRange(4, 200).Draw(t, "length"))
				binary.BigEndian.PutUint32(p.Bytes(), next)
				room := a.TxQueue(q).Room()
				n := p.Len()
				if ok := a.TxQueue(q).Post(p); ok != (room > 0) {
					t.Fatalf("Post says %v with room %d", ok, room)
				} else if !ok {
					p.Free()
					return
				}
				posted[q] += n
				sent[q] = append(sent[q], next)
				next++
			},
			"kick":    func(t *rapid.T) { a.TxQueue(queue(t)).Kick(now) },
			"reap":    func(t *rapid.T) { reap(queue(t)) },
			"receive": func(t *rapid.T) { receive(queue(t)) },
			"time":    func(t *rapid.T) { now += time.Duration(rapid.IntRange(0, 2_000_000).Draw(t, "ns")) },
		})
		for q := range queues {
			a.TxQueue(q).Kick(now)
		}
		for at := min(a.NextAt(), b.NextAt()); at != qdisc.Never; at = min(a.NextAt(), b.NextAt()) {
			now = max(now, at)
			for q := range queues {
				receive(q)
				reap(q)
			}
		}
		for q := range queues {
			if len(sent[q]) != len(got[q]) {
				t.Fatalf("queue %d: sent %v, got %v", q, sent[q], got[q])
			}
			for i := range sent[q] {
				if sent[q][i] != got[q][i] {
					t.Fatalf("queue %d: sent %v, got %v", q, sent[q], got[q])
				}
			}
			if posted[q] != reaped[q] {
				t.Errorf("queue %d: %d bytes posted, %d completed", q, posted[q], reaped[q])
			}
		}
		if pool.Available() != slots {
			t.Errorf("%d of %d slots are free at the end", pool.Available(), slots)
		}
	})
}

// A queue that always has more to send ends with a limit that covers one
// completion interval at line rate, and not much more than two: one batch
// being completed, one being filled.
func TestBQLLearnsRateTimesCompletionInterval(t *testing.T) {
	for _, c := range []mem.Config{
		{Rate: 100_000_000, CompletionInterval: 500 * time.Microsecond, Ring: 4096},
		{Rate: 1_000_000_000, CompletionInterval: 200 * time.Microsecond, Ring: 4096},
		{Rate: 1_000_000_000, CompletionInterval: 2 * time.Millisecond, Ring: 4096},
	} {
		a, _ := mem.Pair("a", "b", c)
		pool := pool(t, 4096)
		bits := 0 // on the wire in the last second
		const seconds = 10
		a.Sink(func(p *qdisc.Packet, start, _ time.Duration) {
			if start >= (seconds-1)*time.Second {
				bits += p.Len() * 8
			}
		})
		var l bql.Limit
		l.Init(0)
		tx := a.TxQueue(0)
		for now := time.Duration(0); now < seconds*time.Second; now = tx.NextAt() {
			if n, bytes := tx.Reap(now); n > 0 {
				l.Completed(uint32(bytes), bql.Tick(now/time.Millisecond))
			}
			for l.Avail() >= 0 {
				p := frame(t, pool, 0, 1514)
				l.Queued(uint32(p.Len()), bql.Tick(now/time.Millisecond))
				if !tx.Post(p) {
					t.Fatal("the ring is too small for this test")
				}
			}
			tx.Kick(now)
		}
		tx.Reap(seconds * time.Second)
		batch := int(c.Rate / 8 * uint64(c.CompletionInterval) / uint64(time.Second))
		if got := int(l.Snapshot().Limit); got < batch-1514 || got > 2*batch+2*1514 {
			t.Errorf("%d bit/s, completions every %v (%d bytes): limit %d", c.Rate, c.CompletionInterval, batch, got)
		}
		if float64(bits) < 0.999*float64(c.Rate) {
			t.Errorf("%d bit/s, completions every %v: only %d bit/s left", c.Rate, c.CompletionInterval, bits)
		}
	}
}

// cycle carries a batch across and back to the pool.
func cycle(tx *mem.TxQueue, rx *mem.RxQueue, pool *qdisc.Pool, ctx *qdisc.Context, l *qdisc.List) {
	for range 32 {
		p := pool.Get()
		p.SetLen(1000)
		tx.Post(p)
	}
	tx.Kick(ctx.Now)
	for at := tx.NextAt(); at != qdisc.Never; at = tx.NextAt() {
		ctx.Now = at
		tx.Reap(at)
	}
	rx.Receive(ctx, l, 64)
	for p := l.Pop(); p != nil; p = l.Pop() {
		p.Free()
	}
}

func TestNoAllocation(t *testing.T) {
	a, b := mem.Pair("a", "b", mem.Config{Rate: 1_000_000_000, CompletionInterval: 50 * time.Microsecond})
	pool, other := pool(t, 64), pool(t, 64)
	l := new(qdisc.List)
	for name, ctx := range map[string]*qdisc.Context{
		"same pool": qdisc.NewContext(pool, 1), "copied": qdisc.NewContext(other, 1),
	} {
		if n := testing.AllocsPerRun(100, func() { cycle(a.TxQueue(0), b.RxQueue(0), pool, ctx, l) }); n != 0 {
			t.Errorf("%s: %v allocations in 32 packets", name, n)
		}
	}
}

func BenchmarkCross(bm *testing.B) {
	for name, c := range map[string]mem.Config{
		"infinite": {}, "1Gbit": {Rate: 1_000_000_000, CompletionInterval: 50 * time.Microsecond},
	} {
		bm.Run("rate="+name, func(bm *testing.B) {
			a, b := mem.Pair("a", "b", c)
			pool := pool(bm, 64)
			ctx := qdisc.NewContext(pool, 1)
			l := new(qdisc.List)
			bm.ReportAllocs()
			for range bm.N {
				cycle(a.TxQueue(0), b.RxQueue(0), pool, ctx, l)
			}
			bm.ReportMetric(float64(bm.Elapsed().Nanoseconds())/float64(bm.N)/32, "ns/pkt")
		})
	}
}
