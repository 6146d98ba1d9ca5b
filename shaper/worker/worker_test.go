package worker_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sluice/dequeue"
	"sluice/qdisc"
	"sluice/qdisc/kinds"
	"sluice/shaper/nic/mem"
	"sluice/shaper/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a worker between two wires: frames injected at inside leave at
// outside, through a root qdisc of the given kind.
type bench struct {
	*worker.Worker
	clock   *worker.ManualClock
	pool    *qdisc.Pool
	inside  *mem.Port
	outside *mem.Port
	egress  *worker.Egress
}

func newBench(t testing.TB, kind string, v qdisc.Values, wire mem.Config, txq dequeue.TxqConfig) *bench {
	t.Helper()
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 8192})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{clock: &worker.ManualClock{}, pool: pool}
	if b.Worker, err = worker.New(worker.Config{Pool: pool, Clock: b.clock, CPU: -1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Worker.Close() })
	_, b.inside = mem.Pair("host", "inside", mem.Config{Ring: 4096, RxRing: 8192})
	b.outside, _ = mem.Pair("outside", "net", wire)
	root, err := kinds.ByName(kind).New(kinds.Env(1000, 1500, 1), v)
	if err != nil {
		t.Fatal(err)
	}
	b.egress = &worker.Egress{}
	for _, d := range b.outside.Tx() {
		txq.Driver = d
		b.egress.Txqs = append(b.egress.Txqs, dequeue.NewTxq(txq))
	}
	b.egress.Runner = dequeue.NewRunner(dequeue.RunnerConfig{
		Root: root, Txqs: b.egress.Txqs, Scheduler: b.Scheduler()})
	b.AddEgress(b.egress)
	for i, rx := range b.inside.Rx() {
		b.AddIngress(rx, 0, i, b.egress)
	}
	return b
}

// settle turns until nothing moves any more, jumping from deadline to deadline.
func (b *bench) settle(t testing.TB) {
	t.Helper()
	for range 1_000_000 {
		at := b.Turn()
		if at == qdisc.Never {
			return
		}
		b.clock.T = max(b.clock.T, at)
	}
	t.Fatal("the worker never comes to rest")
}

// frame is an Ethernet, IPv4 and UDP frame of n bytes that carries a number.
func frame(n int, tos byte, number uint32) []byte {
	f := make([]byte, n)
	copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, tos})
	binary.BigEndian.PutUint16(f[16:], uint16(n-14))
	copy(f[22:], []byte{64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 9})
	binary.BigEndian.PutUint16(f[38:], uint16(n-34))
	binary.BigEndian.PutUint32(f[42:], number)
	return f
}

func number(p *qdisc.Packet) uint32 { return binary.BigEndian.Uint32(p.Bytes()[42:]) }

func TestFramesArriveUnchangedAndInOrder(t *testing.T) {
	b := newBench(t, "pfifo", nil, mem.Config{Rate: 1e9, CompletionDelay: 20 * time.Microsecond}, dequeue.TxqConfig{})
	var want [][]byte
	for n := 64; n <= 1514; n++ {
		want = append(want, frame(n, byte(n), uint32(n)))
	}
	got := 0
	b.outside.Sink(func(p *qdisc.Packet, _, _ time.Duration) {
		if got < len(want) && !bytes.Equal(p.Bytes(), want[got]) {
			t.Fatalf("frame %d arrived changed or out of place", got)
		}
		got++
	})
	for i, f := range want {
		b.inside.Inject(0, time.Duration(i)*20*time.Microsecond, f)
	}
	b.settle(t)
	if got != len(want) {
		t.Fatalf("%d frames arrived, %d were sent", got, len(want))
	}
}

// Ten million packets, more than the link can carry: every counter at every
// level has to add up, and every frame has to be back in the pool.
func TestCountersAddUp(t *testing.T) {
	packets := uint64(10_000_000)
	if raceEnabled || testing.Short() {
		packets = 200_000
	}
	for _, kind := range []string{"pfifo_fast", "prio"} {
		t.Run(kind, func(t *testing.T) {
			b := newBench(t, kind, nil,
				mem.Config{Rate: 10e9, CompletionInterval: 30 * time.Microsecond}, dequeue.TxqConfig{})
			var left, leftBytes uint64
			b.outside.Sink(func(p *qdisc.Packet, _, _ time.Duration) {
				left++
				leftBytes += uint64(p.Len())
			})
			frames := [][]byte{frame(64, 0, 0), frame(1514, 0x10, 1), frame(594, 0x08, 2)}
			var sent, sentBytes uint64
			for sent < packets {
				for range 40 {
					f := frames[sent%3]
					if !b.inside.Inject(0, b.clock.T, f) {
						t.Fatal("no room to inject")
					}
					sent++
					sentBytes += uint64(len(f))
				}
				b.Turn()
				b.clock.Advance(20 * time.Microsecond)
			}
			b.settle(t)

			ctx, root, txq := b.Context(), b.egress.Runner.Root().Self(), b.egress.Txqs[0].Stats()
			var dropped uint64
			for _, n := range ctx.Drops {
				dropped += n
			}
			if dropped == 0 {
				t.Error("nothing was dropped: the test did not overload the link")
			}
			for _, c := range []struct {
				what string
				n    uint64
			}{
				{"worker received", b.Received},
				{"sent and dropped", left + dropped},
				{"qdisc sent and dropped", root.Packets + root.Drops},
				{"txq posted, and dropped", txq.Packets + dropped},
				{"txq completed, and dropped", txq.Completed + dropped},
				{"runner sent and dropped", b.egress.Runner.Stats().Packets + dropped},
			} {
				if c.n != sent {
					t.Errorf("%s: %d packets of %d", c.what, c.n, sent)
				}
			}
			if txq.Bytes != leftBytes || root.Bytes != leftBytes || txq.CompletedBytes != leftBytes {
				t.Errorf("left %d bytes; txq counts %d posted, %d completed, qdisc %d",
					leftBytes, txq.Bytes, txq.CompletedBytes, root.Bytes)
			}
			if n := b.egress.Runner.Len(); n != 0 || b.egress.Runner.Backlog() != 0 {
				t.Errorf("%d packets left in the qdisc", n)
			}
			if txq.BQL.Inflight != 0 || txq.InFlight != 0 {
				t.Errorf("%d bytes, %d packets in flight at rest", txq.BQL.Inflight, txq.InFlight)
			}
			if b.pool.Available() != b.pool.Size() {
				t.Errorf("%d frames lost", b.pool.Size()-b.pool.Available())
			}
		})
	}
}

func TestLonePacketLeavesInItsOwnTurn(t *testing.T) {
	b := newBench(t, "pfifo_fast", nil, mem.Config{Rate: 1e9, CompletionInterval: 50 * time.Microsecond}, dequeue.TxqConfig{})
	var at []time.Duration
	b.outside.Sink(func(_ *qdisc.Packet, start, _ time.Duration) { at = append(at, start) })
	for i := range 100 {
		b.clock.T = time.Duration(i) * time.Millisecond
		b.inside.Inject(0, b.clock.T, frame(64, 0, 0))
		b.Turn()
		if len(at) != i+1 || at[i] != b.clock.T {
			t.Fatalf("packet %d arrived at %v and started at %v", i, b.clock.T, at)
		}
	}
	if n := b.egress.Runner.Stats().Bypassed; n != 100 {
		t.Errorf("%d of 100 lone packets took the bypass", n)
	}
}

func TestBurstSharesDoorbells(t *testing.T) {
	b := newBench(t, "pfifo_fast", nil, mem.Config{Ring: 1024}, dequeue.TxqConfig{NoBQL: true})
	for i := range 64 {
		b.inside.Inject(0, 0, frame(64, 0, uint32(i)))
	}
	b.Turn()
	if s := b.egress.Txqs[0].Stats(); s.Packets != 64 || s.Bells != 1 {
		t.Errorf("64 packets of one burst: %d posted with %d doorbells", s.Packets, s.Bells)
	}
}

func TestNeverSleepsWithWorkLeft(t *testing.T) {
	b := newBench(t, "pfifo_fast", nil, mem.Config{Ring: 1024}, dequeue.TxqConfig{NoBQL: true})
	for i := range 200 {
		b.inside.Inject(0, 0, frame(64, 0, uint32(i)))
	}
	for b.Received < 192 {
		b.Turn()
	}
	// Three bursts of 64, quota 64: the fourth burst's 8 packets are received in
	// the next turn, whatever is left in the qdisc.
	for b.egress.Runner.Len() > 0 {
		if at := b.Turn(); b.egress.Runner.Len() > 0 && at > b.clock.T {
			t.Fatalf("%d packets are queued, nothing stops them, and the worker sleeps until %v", b.egress.Runner.Len(), at)
		}
	}
}

func TestStoppedQueueIsLookedAtAfterFiftyMicroseconds(t *testing.T) {
	b := newBench(t, "pfifo_fast", nil,
		mem.Config{Rate: 1e6, CompletionInterval: time.Second}, dequeue.TxqConfig{})
	for i := range 10 {
		b.inside.Inject(0, 0, frame(1514, 0, uint32(i)))
	}
	at := b.Turn()
	for at == b.clock.T {
		at = b.Turn()
	}
	if !b.egress.Runner.Waiting() {
		t.Fatal("BQL did not stop the queue")
	}
	if at != b.clock.T+50*time.Microsecond {
		t.Errorf("next look at the stopped queue in %v", at-b.clock.T)
	}
}

func TestFramesRunOutAtTheExpenseOfTheFattest(t *testing.T) {
	b := newBench(t, "pfifo", qdisc.Values{"limit": {N: 100000}},
		mem.Config{Rate: 1e6}, dequeue.TxqConfig{})
	host, inside := mem.Pair("host2", "inside2", mem.Config{RxRing: 16384})
	_ = host
	b.AddIngress(inside.Rx()[0], 1, 0, b.egress)
	for range 200 {
		for range 64 {
			inside.Inject(0, b.clock.T, frame(64, 0, 0))
		}
		b.Turn()
		b.clock.Advance(time.Microsecond)
	}
	if b.Shed == 0 || b.Context().Drops[qdisc.Shed] != b.Shed {
		t.Errorf("12,800 packets into 8,192 slots: %d shed, %d counted as such", b.Shed, b.Context().Drops[qdisc.Shed])
	}
	if n := b.egress.Runner.Len(); n == 0 || n > 8192 {
		t.Errorf("%d packets queued", n)
	}
}

func TestTurnDoesNotAllocate(t *testing.T) {
	b := newBench(t, "pfifo_fast", nil,
		mem.Config{Rate: 10e9, CompletionInterval: 10 * time.Microsecond}, dequeue.TxqConfig{})
	f := frame(64, 0, 0)
	turn := func() {
		for range 32 {
			b.inside.Inject(0, b.clock.T, f)
		}
		b.Turn()
		b.clock.Advance(3 * time.Microsecond)
	}
	for range 100 {
		turn()
	}
	if n := testing.AllocsPerRun(1000, turn); n != 0 {
		t.Errorf("%v allocations a turn", n)
	}
}

func TestCommandsRunInOrderBetweenTurns(t *testing.T) {
	pool, _ := qdisc.NewPool(qdisc.PoolConfig{Packets: 64})
	w, err := worker.New(worker.Config{Pool: pool, CPU: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()

	turns := uint64(0)
	for i := range 100 {
		if err := w.Do(func(*qdisc.Context) { turns = w.Turns }); err != nil {
			t.Fatalf("command %d: %v", i, err)
		}
	}
	if turns == 0 {
		t.Error("100 commands, and the worker has not turned")
	}
	if err := w.Do(func(*qdisc.Context) { panic("no such class") }); err == nil {
		t.Error("a failing command was not reported")
	}
	if err := w.Do(func(*qdisc.Context) {}); err != nil {
		t.Errorf("the worker did not survive a failing command: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := w.Do(func(*qdisc.Context) {}); !errors.Is(err, worker.ErrStopped) {
		t.Errorf("command after the end: %v", err)
	}
}

// BenchmarkEngine is the engine's whole cost a packet on memory ports: receive,
// parse, enqueue, dequeue, post, doorbell, completion, with the memory ports'
// own cost in it. BenchmarkBare is that cost alone: the same frames by the same
// calls of the ports, and nothing between them. The difference is the engine.
func BenchmarkEngine(bm *testing.B) {
	for _, kind := range []string{"pfifo_fast", "pfifo", "prio"} {
		for _, burst := range []int{1, 8, 32, 64} {
			bm.Run(fmt.Sprintf("%s/burst=%d", kind, burst), func(bm *testing.B) {
				b := newBench(bm, kind, nil, mem.Config{Ring: 4096}, dequeue.TxqConfig{})
				b.forward(bm, burst, func() { b.Turn() })
				b.settle(bm)
				if b.egress.Txqs[0].Stats().Packets != b.Received {
					bm.Fatalf("%d of %d packets left", b.egress.Txqs[0].Stats().Packets, b.Received)
				}
			})
		}
	}
}

func BenchmarkBare(bm *testing.B) {
	for _, burst := range []int{1, 8, 32, 64} {
		bm.Run(fmt.Sprintf("burst=%d", burst), func(bm *testing.B) {
			b := newBench(bm, "pfifo_fast", nil, mem.Config{Ring: 4096}, dequeue.TxqConfig{})
			ctx, rx, tx := b.Context(), b.inside.Rx()[0], b.outside.Tx()[0]
			var l qdisc.List
			b.forward(bm, burst, func() {
				ctx.Now = b.clock.T
				tx.Reap(ctx.Now)
				rx.Receive(ctx, &l, 64)
				for p := l.Pop(); p != nil; p = l.Pop() {
					tx.Post(p)
				}
				tx.Kick(ctx.Now)
			})
		})
	}
}

// forward injects bursts of frames and calls turn after each.
func (b *bench) forward(bm *testing.B, burst int, turn func()) {
	b.outside.Sink(func(*qdisc.Packet, time.Duration, time.Duration) {})
	f := frame(64, 0, 0)
	bm.ReportAllocs()
	bm.ResetTimer()
	n := 0
	for ; n < bm.N; n += burst {
		for range burst {
			p := b.pool.Get()
			copy(p.Room(), f)
			p.SetLen(len(f))
			b.inside.InjectPacket(0, b.clock.T, p)
		}
		b.clock.Advance(time.Microsecond)
		turn()
	}
	bm.StopTimer()
	bm.ReportMetric(float64(bm.Elapsed().Nanoseconds())/float64(n), "ns/pkt")
	bm.ReportMetric(0, "ns/op")
}

// A stop waits for what is in flight, and for nothing that will never land.
func TestInFlightIsWhatADeviceWillComplete(t *testing.T) {
	b := newBench(t, "pfifo", nil, mem.Config{Rate: 1e6}, dequeue.TxqConfig{})
	b.inside.Inject(0, 0, frame(1000, 0, 0))
	b.Turn()
	if n := b.InFlight(); n != 1 {
		t.Fatalf("%d in flight, 1 was posted", n)
	}
	b.outside.SetDown(true)
	if n := b.InFlight(); n != 0 {
		t.Errorf("%d in flight on a device that is down", n)
	}
}
