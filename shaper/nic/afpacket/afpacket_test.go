//go:build linux

package afpacket_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"sluice/dequeue"
	"sluice/qdisc"
	"sluice/shaper/nic"
	"sluice/shaper/nic/afpacket"
	"sluice/tests/lab"
)

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T { t.Helper(); check(t, err); return v }
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bench is a port on eth0 of a host "dut", wired to eth0 of a host "peer". The
// hosts have no addresses, so that their stacks are silent.
type bench struct {
	t         testing.TB
	dut, peer *lab.Host
	port      *afpacket.Port
	ctx       *qdisc.Context
	pool      *qdisc.Pool
	epoch     time.Time
}

func setup(t testing.TB, w lab.Wire, o afpacket.Options) *bench {
	t.Helper()
	l := lab.ForTest(t)
	b := &bench{t: t, dut: must(l.Host("dut"))(t), peer: must(l.Host("peer"))(t), epoch: time.Now()}
	check(t, l.Wire(b.dut, "eth0", b.peer, "eth0", w))
	o.Interface = "eth0"
	b.port = b.open(o)
	b.pool = must(qdisc.NewPool(qdisc.PoolConfig{Packets: 4096}))(t)
	b.ctx = qdisc.NewContext(b.pool, 1)
	return b
}

func (b *bench) open(o afpacket.Options) *afpacket.Port {
	b.t.Helper()
	var p *afpacket.Port
	check(b.t, b.dut.Do(func() (err error) { p, err = afpacket.Open(o); return err }))
	b.t.Cleanup(func() { check(b.t, p.Close()) })
	return p
}

// now is the time since the epoch, for Kick and Reap.
func (b *bench) now() time.Duration { return time.Since(b.epoch) }

// packet returns a packet with the given frame.
func (b *bench) packet(frame []byte) *qdisc.Packet {
	p := b.pool.Get()
	if p == nil {
		b.t.Fatal("the pool has run out")
	}
	p.SetLen(copy(p.Room(), frame))
	return p
}

// drain rings until all that was posted has left and came back.
func (b *bench) drain(q dequeue.Driver, packets int) (reaped, size int) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); reaped < packets; {
		k := q.Kick(b.now())
		n, s := q.Reap(b.now())
		reaped, size = reaped+n, size+s
		if time.Now().After(deadline) {
			b.t.Fatalf("%d of %d packets came back; last doorbell: %d", reaped, packets, k)
		}
	}
	return reaped, size
}

// receive takes n frames from a queue, in bursts of at most 64, and hands each
// to see, which must not keep it.
func (b *bench) receive(q nic.RxQueue, n int, see func(*qdisc.Packet)) {
	b.t.Helper()
	var l qdisc.List
	for deadline := time.Now().Add(10 * time.Second); n > 0; {
		b.ctx.Now = b.now()
		got := q.Receive(b.ctx, &l, min(n, 64))
		if got != l.Len() {
			b.t.Fatalf("Receive said %d and gave %d", got, l.Len())
		}
		n -= got
		for p := l.Pop(); p != nil; p = l.Pop() {
			see(p)
			p.Free()
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%d frames are missing; %+v", n, q.RxStats())
		}
	}
}

func (b *bench) listen(o lab.Listen) *lab.Receiver {
	b.t.Helper()
	r := must(b.peer.Listen("eth0", o))(b.t)
	b.t.Cleanup(func() { check(b.t, r.Close()) })
	return r
}

func (b *bench) wait(r *lab.Receiver, n uint64) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	check(b.t, r.Wait(ctx, n))
}

// flow is UDP from the peer to the dut.
func (b *bench) flow() lab.Flow {
	return lab.Flow{
		SrcMAC: must(b.peer.MAC("eth0"))(b.t), DstMAC: must(b.dut.MAC("eth0"))(b.t),
		Src: netip.MustParseAddrPort("10.0.0.2:2000"), Dst: netip.MustParseAddrPort("10.0.0.1:1000"),
	}
}

// allKinds are frames of every length from 60 to 1514, every third of them
// tagged, every fifth IPv6; and one with two tags.
func (b *bench) allKinds() (frames [][]byte) {
	for size := 60; size <= 1514; size++ {
		f := b.flow()
		if size%3 == 0 {
			tci := uint16(size)
			f.VLAN = &tci
		}
		if size%5 == 0 && size > 80 {
			f.Src, f.Dst = netip.MustParseAddrPort("[fd00::2]:2000"), netip.MustParseAddrPort("[fd00::1]:1000")
		}
		frame := f.Frame(size)
		for i := 60; i < size; i++ {
			frame[i] = byte(i * size)
		}
		frames = append(frames, frame)
	}
	tci := uint16(7)
	f := b.flow()
	f.VLAN = &tci
	double := f.Frame(200)
	double = append(double[:12:12], append([]byte{0x88, 0xa8, 0x00, 0x05}, double[12:]...)...)
	return append(frames, double)
}

func same(t testing.TB, i int, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("frame %d: got %d bytes % .40x, want %d bytes % .40x", i, len(got), got, len(want), want)
	}
}

func TestIntegrationFramesArriveUnchangedAndInOrder(t *testing.T) {
	b := setup(t, lab.Wire{}, afpacket.Options{})
	frames := b.allKinds()
	must(b.peer.Send(t.Context(), "eth0", lab.Send{Frames: frames, N: len(frames)}))(t)
	i, size := 0, 0
	b.receive(b.port.Rx()[0], len(frames), func(p *qdisc.Packet) {
		same(t, i, p.Bytes(), frames[i])
		if p.Len() != int(p.PktLen) || p.Arrival != b.ctx.Now {
			t.Fatalf("frame %d: PktLen %d, arrival %v; want %d, %v", i, p.PktLen, p.Arrival, p.Len(), b.ctx.Now)
		}
		i++
		size += p.Len()
	})
	want := nic.RxStats{Packets: uint64(len(frames)), Bytes: uint64(size)}
	if got := b.port.Rx()[0].RxStats(); got != want {
		t.Errorf("counters %+v, want %+v", got, want)
	}
}

func TestIntegrationFramesLeaveUnchangedAndInOrder(t *testing.T) {
	b := setup(t, lab.Wire{}, afpacket.Options{})
	frames := b.allKinds()
	r := b.listen(lab.Listen{Keep: len(frames)})
	q := b.port.Tx()[0]
	sum := 0
	for i := 0; i < len(frames); {
		n := 0
		for ; n < 100 && i < len(frames); n++ {
			if !q.Post(b.packet(frames[i])) {
				t.Fatalf("Post refused frame %d with room for %d", i, q.Room())
			}
			sum += len(frames[i])
			i++
		}
		if packets, size := b.drain(q, n); packets != n || size != sum {
			t.Fatalf("%d packets with %d bytes came back, want %d with %d", packets, size, n, sum)
		}
		sum = 0
	}
	b.wait(r, uint64(len(frames)))
	for i, f := range r.Frames() {
		same(t, i, f.Data, frames[i])
	}
	if b.pool.Available() != b.pool.Size() {
		t.Errorf("%d packets are not back in the pool", b.pool.Size()-b.pool.Available())
	}
	// The port must not receive what it sent.
	var l qdisc.List
	if n := b.port.Rx()[0].Receive(b.ctx, &l, 64); n != 0 {
		t.Errorf("the port received %d frames of its own", n)
	}
}

// A receiver behind a veth may look at a frame long after its slot was given
// back and used again.
func TestIntegrationASlowReceiverStillReadsItsOwnFrames(t *testing.T) {
	b := setup(t, lab.Wire{}, afpacket.Options{TxFrames: 32})
	const n = 20_000
	next, wrong := uint64(0), 0
	r := b.listen(lab.Listen{Each: func(f lab.Frame) {
		if next == 0 {
			time.Sleep(100 * time.Millisecond) // meanwhile they pile up in its socket
		}
		if binary.BigEndian.Uint64(f.Data[92:]) != next {
			wrong++
		}
		next++
	}})
	q := b.port.Tx()[0]
	frame := b.flow().Frame(100)
	for i := range n {
		binary.BigEndian.PutUint64(frame[92:], uint64(i))
		if !q.Post(b.packet(frame)) {
			t.Fatal("Post refused")
		}
		b.drain(q, 1)
	}
	b.wait(r, n)
	if wrong != 0 {
		t.Errorf("%d of %d frames were not what was sent", wrong, n)
	}
}

func TestIntegrationAMillionFramesAddUp(t *testing.T) {
	if testing.Short() {
		t.Skip("a million frames")
	}
	b := setup(t, lab.Wire{}, afpacket.Options{})
	const n = 1_000_000
	next, wrong := uint64(0), 0
	r := b.listen(lab.Listen{Each: func(f lab.Frame) {
		if binary.BigEndian.Uint64(f.Data[42:]) != next {
			wrong++
		}
		next++
	}})
	q := b.port.Tx()[0]
	frame := b.flow().Frame(64)
	posted, packets, size, kicks := 0, 0, 0, 0
	start := time.Now()
	for packets < n {
		for i := 0; i < 64 && posted < n && q.Room() > 0; i++ {
			binary.BigEndian.PutUint64(frame[42:], uint64(posted))
			if !q.Post(b.packet(frame)) {
				t.Fatalf("Post refused with room for %d", q.Room())
			}
			posted++
		}
		q.Kick(b.now())
		kicks++
		p, s := q.Reap(b.now())
		packets, size = packets+p, size+s
		if time.Since(start) > time.Minute {
			t.Fatalf("%d of %d packets came back within a minute", packets, n)
		}
	}
	t.Logf("%.0f packets a second, %.1f a doorbell", n/time.Since(start).Seconds(), float64(n)/float64(kicks))
	b.wait(r, n)
	got, gotSize := r.Count()
	if packets != n || size != 64*n || q.Lost() != 0 || got != n || gotSize != 64*n || wrong != 0 {
		t.Errorf("%d packets and %d bytes completed, %d lost; %d and %d arrived, %d not in order; want %d and %d both times",
			packets, size, q.Lost(), got, gotSize, wrong, n, 64*n)
	}
}

func TestIntegrationOneDoorbellForManyFrames(t *testing.T) {
	b := setup(t, lab.Wire{}, afpacket.Options{})
	r := b.listen(lab.Listen{})
	q := b.port.Tx()[0]
	frame := b.flow().Frame(64)
	for range 500 {
		q.Post(b.packet(frame))
	}
	time.Sleep(20 * time.Millisecond)
	if n, _ := r.Count(); n != 0 {
		t.Errorf("%d frames left before the doorbell", n)
	}
	if packets, _ := q.Reap(b.now()); packets != 0 {
		t.Errorf("%d frames came back before the doorbell", packets)
	}
	if k := q.Kick(b.now()); k != dequeue.KickAll {
		t.Errorf("the doorbell says %d, want KickAll", k)
	}
	b.wait(r, 500)
}
