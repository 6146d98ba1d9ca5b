package worker_test

import (
	"fmt"
	"testing"
	"time"

	"sluice/dequeue"
	"sluice/qdisc"
	"sluice/qdisc/kinds"
	"sluice/shaper/nic/mem"
)

// The whole engine under a virtual clock that jumps from deadline to deadline:
// once the bucket is empty, every departure is where the rate puts it.
func TestTbfDepartsOnScheduleThroughTheEngine(t *testing.T) {
	for _, mbit := range []uint64{10, 100, 1000} {
		t.Run(fmt.Sprintf("%dMbit", mbit), func(t *testing.T) {
			const size, burstBytes, packets = 1514, 15140, 6000
			b := newBench(t, "tbf", qdisc.Values{
				"rate": {N: mbit * 1e6 / 8}, "burst": {N: burstBytes}, "limit": {N: 64 << 20},
			}, mem.Config{Ring: 4096}, dequeue.TxqConfig{})
			var at []time.Duration
			b.outside.Sink(func(_ *qdisc.Packet, start, _ time.Duration) { at = append(at, start) })
			f := frame(size, 0, 0)
			for range packets {
				b.inside.Inject(0, 0, f)
			}
			b.settle(t)
			if len(at) != packets {
				t.Fatalf("%d of %d packets left", len(at), packets)
			}
			first := burstBytes/size + 1 // the first that had to wait
			var worst time.Duration
			for i := first; i < packets; i++ {
				want := at[first] + time.Duration(uint64(i-first)*size*8*1000/mbit)
				worst = max(worst, (at[i] - want).Abs())
			}
			t.Logf("%d departures after the burst: at most %v off", packets-first, worst)
			if worst > time.Microsecond {
				t.Errorf("a departure is %v off its schedule", worst)
			}
		})
	}
}

// stamper notes when a packet is handed over: the time from then to its start
// on the wire is what it waits behind packets that can no longer be overtaken.
type stamper struct{ qdisc.Qdisc }

func (s stamper) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	p := s.Qdisc.Dequeue(ctx)
	if p != nil {
		p.Arrival = ctx.Now
	}
	return p
}

// Three bands kept full: a strict one that a tbf holds to 30 Mbit/s, and two
// that share the rest of 100 Mbit/s 3:1. The device completes every 100 µs, and
// BQL finds out how much it must hold.
func TestBandsShareAsTheirQuantaSay(t *testing.T) {
	const (
		link   = 100e6 / 8 // bytes a second
		strict = 30e6 / 8
		size   = 1514
		burst  = 2 * size
	)
	for _, mode := range []dequeue.QuotaMode{dequeue.QuotaPackets, dequeue.QuotaBudget, dequeue.QuotaRestarts} {
		t.Run([]string{"packets", "budget", "restarts"}[mode], func(t *testing.T) {
			b := newBench(t, "pfifo", nil, // exchanged below
				mem.Config{Rate: 100e6, CompletionInterval: 100 * time.Microsecond}, dequeue.TxqConfig{})
			ets, err := kinds.ByName("ets").New(kinds.Env(1000, 1500, 1), qdisc.Values{
				"bands": {N: 3}, "strict": {N: 1}, "quanta": {List: []uint64{3 * size, size}},
				"priomap": {List: []uint64{1, 1, 2, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
			})
			if err != nil {
				t.Fatal(err)
			}
			tbf, err := kinds.ByName("tbf").New(kinds.Env(1000, 1500, 2), qdisc.Values{
				"rate": {N: strict}, "burst": {N: burst}, "limit": {N: 1 << 20}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ets.(qdisc.Classful).Graft(b.Context(), qdisc.MakeID(1, 1), tbf); err != nil {
				t.Fatal(err)
			}
			b.egress.Runner.SetRoot(b.Context(), stamper{ets})

			var sent [3]int
			var wait, longest [3]time.Duration
			var lastLow, gap time.Duration
			band := map[byte]int{0x10: 0, 0x00: 1, 0x08: 2}
			const warm = 500 * time.Millisecond // BQL is learning
			b.outside.Sink(func(p *qdisc.Packet, start, _ time.Duration) {
				i := band[p.TOS]
				if start < warm {
					return
				}
				sent[i]++
				wait[i] += start - p.Arrival
				longest[i] = max(longest[i], start-p.Arrival)
				if i == 2 {
					if lastLow > 0 {
						gap = max(gap, start-lastLow)
					}
					lastLow = start
				}
			})
			frames := [3][]byte{frame(size, 0x10, 0), frame(size, 0x00, 0), frame(size, 0x08, 0)}
			var class [3]qdisc.Class
			for b.clock.T < 10*time.Second {
				n := 0
				ets.(qdisc.Classful).Walk(func(c qdisc.Class) bool { class[n] = c; n++; return true })
				for i, c := range class {
					for have := c.Len; have < 40; have++ {
						b.inside.Inject(0, b.clock.T, frames[i])
					}
				}
				at := b.Turn()
				b.clock.T = max(b.clock.T+10*time.Microsecond, min(at, b.clock.T+200*time.Microsecond))
			}

			total := sent[0] + sent[1] + sent[2]
			weighted := float64(sent[1] + sent[2])
			shares := [3]float64{float64(sent[0]) / float64(total), float64(sent[1]) / weighted, float64(sent[2]) / weighted}
			for i, want := range []float64{0.30, 0.75, 0.25} {
				t.Logf("band %d: share %.4f (%.2f expected), waits behind what was handed over: mean %v, longest %v",
					i, shares[i], want, (wait[i] / time.Duration(sent[i])).Round(time.Microsecond), longest[i])
				if d := shares[i] - want; d < -0.01 || d > 0.01 {
					t.Errorf("band %d has a share of %.4f", i, shares[i])
				}
			}
			if busy := float64(total) * size / link / (b.clock.T - warm).Seconds(); busy < 0.99 {
				t.Errorf("the link was used to %.3f", busy)
			}
			// Between two packets of the lowest band the strict one can send its
			// burst and what its rate gives meanwhile, the middle one its quantum
			// and what its deficit left over, and the packet itself goes.
			n := float64(burst + 3*size + size + size)
			bound := time.Duration(n / (link - strict) * 1e9)
			t.Logf("lowest band: at most %v without service, %v computed; BQL limit %d", gap, bound, b.egress.Txqs[0].Stats().BQL.Limit)
			if gap > bound {
				t.Errorf("the lowest band waited %v, %v is its bound", gap, bound)
			}
		})
	}
}
