package mem_test

import (
	"encoding/binary"
	"testing"
	"time"

	"sluice/dequeue"
	"sluice/qdisc"
	"sluice/shaper/nic/mem"
)

func pool(t testing.TB, n int) *qdisc.Pool {
	t.Helper()
	p, err := qdisc.NewPool(qdisc.PoolConfig{Packets: n})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// frame returns a packet of n bytes that begins with its number.
func frame(t testing.TB, pool *qdisc.Pool, number uint32, n int) *qdisc.Packet {
	p := pool.Get()
	if p == nil {
		t.Fatal("the test's pool has run out")
	}
	p.SetLen(n)
	binary.BigEndian.PutUint32(p.Bytes(), number)
	return p
}

func number(p *qdisc.Packet) uint32 { return binary.BigEndian.Uint32(p.Bytes()) }

type departure struct {
	number     uint32
	start, end time.Duration
}

// record makes the port's departures readable.
func record(p *mem.Port) *[]departure {
	var d []departure
	p.Sink(func(pkt *qdisc.Packet, start, end time.Duration) {
		d = append(d, departure{number(pkt), start, end})
	})
	return &d
}

func wantDepartures(t *testing.T, got []departure, want ...departure) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("departures %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("departure %d is %v, want %v", i, got[i], want[i])
		}
	}
}

func TestFrameStartsAtItsDoorbellOrBehindTheOneBefore(t *testing.T) {
	a, _ := mem.Pair("a", "b", mem.Config{Rate: 8_000_000, Overhead: 24}) // a byte a microsecond
	pool := pool(t, 8)
	got := record(a)
	tx := a.TxQueue(0)

	tx.Post(frame(t, pool, 0, 100))
	tx.Post(frame(t, pool, 1, 76))
	if tx.Reap(5 * time.Microsecond); len(*got) != 0 {
		t.Fatal("a frame left before its doorbell")
	}
	tx.Kick(10 * time.Microsecond)
	tx.Post(frame(t, pool, 2, 176))
	tx.Kick(200 * time.Microsecond) // while the second is under way
	tx.Reap(400 * time.Microsecond)
	tx.Post(frame(t, pool, 3, 76))
	tx.Kick(1000 * time.Microsecond) // the wire has been idle since 434 µs

	const us = time.Microsecond
	wantDepartures(t, *got,
		departure{0, 10 * us, 134 * us},
		departure{1, 134 * us, 234 * us},
		departure{2, 234 * us, 434 * us},
		departure{3, 1000 * us, 1100 * us})
}

func TestFractionsOfANanosecondAreNotLost(t *testing.T) {
	// 100 bytes at 3 Gbit/s take 266.67 ns; 3 million of them 0.8 s.
	a, _ := mem.Pair("a", "b", mem.Config{Rate: 3_000_000_000})
	pool := pool(t, 64)
	var end time.Duration
	a.Sink(func(_ *qdisc.Packet, _, e time.Duration) { end = e })
	tx := a.TxQueue(0)
	const total = 3_000_000
	for sent := 0; sent < total; {
		for i := 0; i < 32 && sent < total; i++ {
			tx.Post(frame(t, pool, 0, 100))
			sent++
		}
		tx.Kick(end)
		tx.Reap(tx.NextAt())
		for at := tx.NextAt(); at != qdisc.Never; at = tx.NextAt() {
			tx.Reap(at)
		}
	}
	if want := 800 * time.Millisecond; end != want {
		t.Errorf("the last frame ends at %v, want %v", end, want)
	}
}

// An idle wire starts anew: a frame's fraction goes into the one right behind
// it, and no further.
func TestFractionEndsWithTheBusyPeriod(t *testing.T) {
	a, _ := mem.Pair("a", "b", mem.Config{Rate: 3_000_000_000})
	pool := pool(t, 2)
	got := record(a)
	for i, at := range []time.Duration{0, 1000} {
		a.TxQueue(0).Post(frame(t, pool, uint32(i), 100))
		a.TxQueue(0).Kick(at)
	}
	wantDepartures(t, *got, departure{0, 0, 266}, departure{1, 1000, 1266})
}

func TestInfinitelyFastLinkSendsWithinTheKick(t *testing.T) {
	a, b := mem.Pair("a", "b", mem.Config{})
	pool := pool(t, 8)
	ctx := qdisc.NewContext(pool, 1)
	tx := a.TxQueue(0)
	for i := range uint32(3) {
		tx.Post(frame(t, pool, i, 60))
	}
	if got := tx.Kick(7); got != dequeue.KickAll {
		t.Fatalf("Kick says %v", got)
	}
	if n, bytes := tx.Reap(7); n != 3 || bytes != 180 {
		t.Errorf("Reap says %d packets, %d bytes, want 3 and 180", n, bytes)
	}
	ctx.Now = 7
	var l qdisc.List
	if n := b.RxQueue(0).Receive(ctx, &l, 64); n != 3 {
		t.Fatalf("received %d, want 3", n)
	}
	for want := range uint32(3) {
		if got := number(l.Pop()); got != want {
			t.Errorf("frame %d at place %d", got, want)
		}
	}
}

func TestArrivalIsLatencyBehindTheEnd(t *testing.T) {
	a, b := mem.Pair("a", "b", mem.Config{Rate: 8_000_000, Latency: 3 * time.Millisecond})
	pool := pool(t, 8)
	ctx := qdisc.NewContext(pool, 1)
	a.TxQueue(0).Post(frame(t, pool, 0, 1000))
	a.TxQueue(0).Post(frame(t, pool, 1, 500))
	a.TxQueue(0).Kick(0)

	rx := b.RxQueue(0)
	for i, want := range []time.Duration{4 * time.Millisecond, 4500 * time.Microsecond} {
		if at := rx.NextAt(); at != want {
			t.Fatalf("frame %d announced for %v, want %v", i, at, want)
		}
		var l qdisc.List
		if ctx.Now = want - 1; rx.Receive(ctx, &l, 64) != 0 {
			t.Fatalf("frame %d is there before %v", i, want)
		}
		if ctx.Now = want; rx.Receive(ctx, &l, 64) != 1 {
			t.Fatalf("frame %d is not there at %v", i, want)
		}
		if p := l.Pop(); p.Arrival != want {
			t.Errorf("Arrival %v, want %v", p.Arrival, want)
		}
	}
	if at := rx.NextAt(); at != qdisc.Never {
		t.Errorf("something announced for %v after the last frame", at)
	}
}

func TestCompletionsShowInBatches(t *testing.T) {
	a, _ := mem.Pair("a", "b", mem.Config{Rate: 8_000_000, CompletionDelay: 10 * time.Microsecond,
		CompletionInterval: 250 * time.Microsecond})
	pool := pool(t, 8)
	record(a)
	tx := a.TxQueue(0)
	for i := range uint32(5) {
		tx.Post(frame(t, pool, i, 100+int(i))) // ends at 100, 201, 303, 406, 510 µs
	}
	tx.Kick(0)
	for _, step := range []struct {
		at             time.Duration
		packets, bytes int
	}{
		{249 * time.Microsecond, 0, 0},
		{250 * time.Microsecond, 2, 201},
		{499 * time.Microsecond, 0, 0},
		{500 * time.Microsecond, 2, 205},
		{750 * time.Microsecond, 1, 104},
		{time.Second, 0, 0},
	} {
		if step.packets > 0 {
			if at := tx.NextAt(); at != step.at {
				t.Errorf("completions announced for %v, want %v", at, step.at)
			}
		}
		if n, bytes := tx.Reap(step.at); n != step.packets || bytes != step.bytes {
			t.Errorf("at %v Reap says %d, %d; want %d, %d", step.at, n, bytes, step.packets, step.bytes)
		}
	}
}

func TestFullRingRefusesUntilReap(t *testing.T) {
	a, _ := mem.Pair("a", "b", mem.Config{Ring: 4})
	pool := pool(t, 8)
	tx := a.TxQueue(0)
	for i := range uint32(4) {
		if !tx.Post(frame(t, pool, i, 60)) {
			t.Fatalf("refused frame %d of 4", i)
		}
	}
	p := frame(t, pool, 4, 60)
	if tx.Room() != 0 || tx.Post(p) {
		t.Fatal("a ring of 4 took 5")
	}
	tx.Kick(0)
	if tx.Post(p) {
		t.Fatal("descriptors came back without Reap")
	}
	tx.Reap(0)
	if tx.Room() != 4 || !tx.Post(p) {
		t.Fatalf("room %d after all completed, want 4", tx.Room())
	}
}

func TestQueuesShareTheWireFrameByFrame(t *testing.T) {
	a, b := mem.Pair("a", "b", mem.Config{Rate: 8_000_000, Queues: 3})
	pool := pool(t, 16)
	for i := range uint32(3) {
		a.TxQueue(0).Post(frame(t, pool, i, 100))
	}
	a.TxQueue(0).Kick(0)
	for i := range uint32(2) {
		a.TxQueue(2).Post(frame(t, pool, 20+i, 100))
	}
	a.TxQueue(2).Kick(150 * time.Microsecond) // frames 0 and 1 have started
	// Queue 2's turn comes at 200 µs, then queue 0, then queue 2 again.
	if at, want := b.RxQueue(2).NextAt(), 300*time.Microsecond; at != want {
		t.Errorf("queue 2's first frame announced for %v, want %v", at, want)
	}
	if at, want := a.TxQueue(2).NextAt(), 300*time.Microsecond; at != want {
		t.Errorf("its completion announced for %v, want %v", at, want)
	}
	got := record(a) // of what has not started yet
	a.TxQueue(1).Reap(time.Second)
	const us = time.Microsecond
	wantDepartures(t, *got,
		departure{20, 200 * us, 300 * us},
		departure{2, 300 * us, 400 * us},
		departure{21, 400 * us, 500 * us})
}

// What NextAt says of a queue whose frames wait counts those of the other
// queues that go before.
func TestAnnouncementsCountTheOtherQueues(t *testing.T) {
	a, b := mem.Pair("a", "b", mem.Config{Rate: 8_000_000, Queues: 3})
	pool := pool(t, 16)
	for _, f := range []struct{ queue, length int }{{1, 1000}, {0, 10}, {0, 10}, {1, 100}, {2, 300}} {
		a.TxQueue(f.queue).Post(frame(t, pool, 0, f.length))
		a.TxQueue(f.queue).Kick(0)
	}
	for q, want := range []time.Duration{1310 * time.Microsecond, 1000 * time.Microsecond, 1300 * time.Microsecond} {
		if at := b.RxQueue(q).NextAt(); at != want {
			t.Errorf("queue %d: arrival announced for %v, want %v", q, at, want)
		}
		if at := a.TxQueue(q).NextAt(); at != want {
			t.Errorf("queue %d: completion announced for %v, want %v", q, at, want)
		}
	}
	if at := a.NextAt(); at != time.Millisecond {
		t.Errorf("port: %v, want the earliest", at)
	}
}

func TestReceiverDropsWhatFindsItsRingFull(t *testing.T) {
	a, b := mem.Pair("a", "b", mem.Config{RxRing: 2})
	pool := pool(t, 8)
	ctx := qdisc.NewContext(pool, 1)
	for i := range uint32(3) {
		a.TxQueue(0).Post(frame(t, pool, i, 60))
	}
	a.TxQueue(0).Kick(0)
	var l qdisc.List
	if n := b.RxQueue(0).Receive(ctx, &l, 64); n != 2 {
		t.Errorf("received %d, want the 2 that fit", n)
	}
	if s := b.RxQueue(0).RxStats(); s.Drops != 1 || s.Packets != 2 || s.Bytes != 120 {
		t.Errorf("stats %+v", s)
	}
	if free := pool.Available(); free != 8-l.Len() {
		t.Errorf("%d slots free with %d packets held, of 8", free, l.Len())
	}
}

func TestOtherPoolsFramesAreCopiedAndWaitWhenThereIsNoSlot(t *testing.T) {
	a, b := mem.Pair("a", "b", mem.Config{})
	from, to := pool(t, 2), pool(t, 1)
	ctx := qdisc.NewContext(to, 1)
	a.TxQueue(0).Post(frame(t, from, 11, 60))
	a.TxQueue(0).Post(frame(t, from, 12, 61))
	a.TxQueue(0).Kick(0)
	for _, want := range []uint32{11, 12} {
		var l qdisc.List
		if n := b.RxQueue(0).Receive(ctx, &l, 64); n != 1 {
			t.Fatalf("received %d with one slot in the pool", n)
		}
		p := l.Pop()
		if p.Pool() != to || number(p) != want {
			t.Errorf("frame %d, want %d in the worker's pool", number(p), want)
		}
		p.Free()
	}
	if from.Available() != 2 {
		t.Errorf("%d of 2 senders' slots came back", from.Available())
	}
}

func TestTheWireCarriesNothingButTheFrame(t *testing.T) {
	a, b := mem.Pair("a", "b", mem.Config{})
	pool := pool(t, 1)
	ctx := qdisc.NewContext(pool, 1)
	p := frame(t, pool, 1, 60)
	p.PktLen, p.Mark, p.Priority, p.Class, p.Flags = 84, 5, 6, 7, qdisc.Parsed|qdisc.HashSet
	a.TxQueue(0).Post(p)
	a.TxQueue(0).Kick(0)
	if _, bytes := a.TxQueue(0).Reap(0); bytes != 60 {
		t.Errorf("Reap says %d bytes; 60 were posted", bytes)
	}
	var l qdisc.List
	b.RxQueue(0).Receive(ctx, &l, 1)
	if p := l.Pop(); p.PktLen != 60 || p.Mark != 0 || p.Priority != 0 || p.Class != 0 || p.Flags != 0 {
		t.Errorf("the sender's notes came across: %+v", p)
	}
}

func TestInjectedFramesArriveAmongTheOthers(t *testing.T) {
	a, b := mem.Pair("a", "b", mem.Config{Rate: 8_000_000, RxRing: 4})
	pool := pool(t, 8)
	ctx := qdisc.NewContext(pool, 1)
	a.TxQueue(0).Post(frame(t, pool, 1, 100))
	a.TxQueue(0).Kick(0)
	rx := b.RxQueue(0)
	b.Inject(0, 50*time.Microsecond, []byte{0, 0, 0, 0, 9})
	b.InjectPacket(0, 150*time.Microsecond, frame(t, pool, 2, 60))
	var got []uint32
	for at := rx.NextAt(); at != qdisc.Never; at = rx.NextAt() {
		ctx.Now = at
		var l qdisc.List
		if rx.Receive(ctx, &l, 64) != 1 {
			t.Fatalf("no single frame at %v, as announced", at)
		}
		p := l.Pop()
		got = append(got, number(p))
		p.Free()
	}
	if len(got) != 3 || got[0] != 0 || got[1] != 1 || got[2] != 2 {
		t.Errorf("arrived: %v, want 0 1 2", got)
	}
	for i := range 4 {
		if !b.Inject(0, time.Second, []byte{1, 2, 3, 4}) {
			t.Fatalf("refused injected frame %d of 4", i)
		}
	}
	if b.Inject(0, time.Second, []byte{1, 2, 3, 4}) {
		t.Error("memory for 4 injected frames took a fifth")
	}
	if b.Close(); b.NextAt() != qdisc.Never {
		t.Error("frames are left behind Close")
	}
}

func TestStoppedQueueSendsWhatItHas(t *testing.T) {
	a, _ := mem.Pair("a", "b", mem.Config{})
	pool := pool(t, 4)
	got := record(a)
	tx := a.TxQueue(0)
	tx.Post(frame(t, pool, 0, 60))
	tx.Stop()
	if tx.Room() != 0 || tx.Post(frame(t, pool, 1, 60)) {
		t.Error("a stopped queue took a frame")
	}
	if k := tx.Kick(0); k != dequeue.KickStopped {
		t.Errorf("Kick says %v, want KickStopped", k)
	}
	wantDepartures(t, *got, departure{0, 0, 0})
	if tx.Start(); tx.Room() == 0 {
		t.Error("no room after Start")
	}
}

func TestCreditsReleaseExactlySoMany(t *testing.T) {
	a, _ := mem.Pair("a", "b", mem.Config{})
	pool := pool(t, 16)
	got := record(a)
	tx := a.TxQueue(0)
	tx.Credits(0)
	next := uint32(0)
	for i, n := range []int{0, 3, 1} {
		tx.Credits(n)
		if tx.Room() != n {
			t.Errorf("room %d with %d credits", tx.Room(), n)
		}
		for p := frame(t, pool, next, 60); ; p = frame(t, pool, next, 60) {
			if !tx.Post(p) {
				p.Free()
				break
			}
			next++
		}
		tx.Kick(time.Duration(i))
		tx.Reap(time.Duration(i))
	}
	if len(*got) != 4 {
		t.Errorf("%d left, want 4", len(*got))
	}
	if tx.Credits(-1); tx.Room() != 256 {
		t.Errorf("room %d without credits, want 256", tx.Room())
	}
}

func TestLostCarrierCompletesWhatHadNotStartedAsLost(t *testing.T) {
	a, b := mem.Pair("a", "b", mem.Config{Rate: 8_000_000})
	pool := pool(t, 4)
	ctx := qdisc.NewContext(pool, 1)
	tx := a.TxQueue(0)
	for i := range uint32(3) {
		tx.Post(frame(t, pool, i, 100))
	}
	tx.Kick(0)
	b.SetDown(true)
	if !tx.Down() || tx.Room() != 0 || tx.Kick(0) != dequeue.KickDown {
		t.Error("the sender does not notice")
	}
	if n, bytes := tx.Reap(time.Second); n != 3 || bytes != 300 || tx.Lost() != 2 {
		t.Errorf("Reap says %d, %d, lost %d; want 3, 300, 2", n, bytes, tx.Lost())
	}
	ctx.Now = time.Second
	var l qdisc.List
	if n := b.RxQueue(0).Receive(ctx, &l, 4); n != 1 {
		t.Errorf("%d arrived, want the one under way", n)
	}
	if a.SetDown(false); tx.Down() || tx.Room() != 256 {
		t.Error("carrier does not come back")
	}
}

func TestImpossibleLinksAreRefused(t *testing.T) {
	for _, c := range []mem.Config{
		{Ring: 3}, {Ring: -4}, {RxRing: -1}, {Queues: -1}, {MTU: 10}, {MTU: 70000}, {Overhead: -1}, {Latency: -1},
	} {
		if _, _, err := mem.NewPair("a", "b", c); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
}
