package tap

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/dequeue"
	"sluice/qdisc"
)

// kernelEnd is the other end of a queue: a datagram socket stands for the kernel's
// side of a TAP, one datagram a frame with its virtio_net_hdr.
type kernelEnd struct{ fd int }

func pair(t testing.TB) (rx *RxQueue, tx *TxQueue, k kernelEnd) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fds[0])
		unix.Close(fds[1])
	})
	return &RxQueue{fd: fds[0], buf: make([]byte, maxSlot+maxSuper)}, &TxQueue{fd: fds[0]}, kernelEnd{fds[1]}
}

func (k kernelEnd) send(t testing.TB, h vnet, frame []byte) {
	t.Helper()
	b := make([]byte, vnetLen, vnetLen+len(frame))
	b[0], b[1] = h.flags, h.gsoType
	binary.NativeEndian.PutUint16(b[4:], uint16(h.gsoSize))
	binary.NativeEndian.PutUint16(b[6:], uint16(h.csumStart))
	binary.NativeEndian.PutUint16(b[8:], uint16(h.csumOffset))
	if _, err := unix.Write(k.fd, append(b, frame...)); err != nil {
		t.Fatal(err)
	}
}

// take returns the next frame written to the device, nil when there is none.
func (k kernelEnd) take(t testing.TB) []byte {
	t.Helper()
	b := make([]byte, vnetLen+maxSuper)
	n, err := unix.Read(k.fd, b)
	if err == unix.EAGAIN {
		return nil
	}
	if err != nil || n < vnetLen || !bytes.Equal(b[:vnetLen], make([]byte, vnetLen)) {
		t.Fatalf("read: %v, %d bytes, header %x", err, n, b[:vnetLen])
	}
	return b[vnetLen:n]
}

func context(t testing.TB, slots int) *qdisc.Context {
	t.Helper()
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: slots})
	if err != nil {
		t.Fatal(err)
	}
	ctx := qdisc.NewContext(pool, 1)
	ctx.Now = 5 * time.Second
	return ctx
}

func drain(l *qdisc.List) (frames [][]byte) {
	for p := l.Pop(); p != nil; p = l.Pop() {
		frames = append(frames, bytes.Clone(p.Bytes()))
		p.Free()
	}
	return frames
}

func TestReceivedFramesAreWhole(t *testing.T) {
	rx, _, k := pair(t)
	ctx := context(t, 16)
	plain := traffic{payload: []byte("plain")}.frame(t, 0, 1, []byte("plain"))
	partial := traffic{payload: []byte("partial"), v6: true, udp: true}
	unsummed, h := partial.super(t)
	h.gsoType, h.gsoSize = gsoNone, 0
	k.send(t, vnet{}, plain)
	k.send(t, h, unsummed)

	var l qdisc.List
	if n := rx.Receive(ctx, &l, 64); n != 2 {
		t.Fatalf("received %d, want 2", n)
	}
	if at := l.Front().Arrival; at != ctx.Now {
		t.Errorf("Arrival %v, want %v", at, ctx.Now)
	}
	got := drain(&l)
	if !bytes.Equal(got[0], plain) {
		t.Errorf("plain frame is\n%x\nwant\n%x", got[0], plain)
	}
	if want := partial.frame(t, 0, 1, partial.payload); !bytes.Equal(got[1], want) {
		t.Errorf("frame without checksum is\n%x\nwant\n%x", got[1], want)
	}
	if ctx.Pool.Available() != 16 {
		t.Errorf("%d of 16 slots are free", ctx.Pool.Available())
	}
}

// A super-packet that neither max nor the pool can take in one piece is
// continued, and meanwhile NextAt keeps the worker from sleeping on the
// descriptor, which knows nothing of it.
func TestSuperPacketIsContinued(t *testing.T) {
	rx, _, k := pair(t)
	tr := traffic{payload: bytes.Repeat([]byte("0123456789"), 1000), mss: 1000, flags: tcpFIN | tcpPSH | tcpACK | tcpCWR}
	super, h := tr.super(t)
	k.send(t, h, super)
	k.send(t, vnet{}, tr.frame(t, 0, 1, []byte("behind")))

	ctx := context(t, 4)
	var got [][]byte
	for _, step := range []struct{ max, want int }{{3, 3}, {64, 4}, {64, 4}, {64, 0}} {
		var l qdisc.List
		if n := rx.Receive(ctx, &l, step.max); n != step.want {
			t.Fatalf("received %d with max %d and 4 slots, want %d", n, step.max, step.want)
		}
		got = append(got, drain(&l)...)
		if at, more := rx.NextAt(), len(got) < 10; (at != qdisc.Never) != more {
			t.Errorf("NextAt %v after %d of 10 frames", at, len(got))
		}
	}
	for i := range 10 {
		if want := tr.frame(t, i, 10, tr.payload[1000*i:1000*(i+1)]); !bytes.Equal(got[i], want) {
			t.Errorf("frame %d is\n%x\nwant\n%x", i, got[i], want)
		}
	}
	if !bytes.HasSuffix(got[10], []byte("behind")) {
		t.Error("the frame behind the super-packet is not the next")
	}
	if s := rx.RxStats(); s.Packets != 11 || s.Errors != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestFramesThatFitNoSlotAreErrors(t *testing.T) {
	rx, _, k := pair(t)
	ctx := context(t, 4)
	k.send(t, vnet{}, make([]byte, 2048-256+1)) // longer than a slot
	k.send(t, vnet{}, make([]byte, 13))         // no link header
	k.send(t, vnet{flags: needsCsum, csumStart: 60, csumOffset: 6}, make([]byte, 60))
	super, h := traffic{payload: make([]byte, 9000), mss: 4000}.super(t) // its parts are longer than a slot
	k.send(t, h, super)
	h.gsoSize = 0
	k.send(t, h, super)
	k.send(t, vnet{}, make([]byte, 2048-256))
	var l qdisc.List
	if n := rx.Receive(ctx, &l, 64); n != 1 || l.Front().Len() != 2048-256 {
		t.Errorf("received %d, want the one that fits", n)
	}
	if s := rx.RxStats(); s.Errors != 5 || s.Packets != 1 {
		t.Errorf("stats %+v, want 5 errors", s)
	}
	if drain(&l); ctx.Pool.Available() != 4 {
		t.Errorf("%d of 4 slots are free", ctx.Pool.Available())
	}
}

func TestNothingIsWrittenBeforeTheDoorbell(t *testing.T) {
	_, tx, k := pair(t)
	ctx := context(t, 8)
	for i := range byte(3) {
		p := ctx.Pool.Get()
		copy(p.Room(), bytes.Repeat([]byte{i}, 60))
		p.SetLen(60 + int(i))
		if !tx.Post(p) {
			t.Fatal("refused")
		}
	}
	if k.take(t) != nil {
		t.Fatal("a frame left before its doorbell")
	}
	if n, _ := tx.Reap(0); n != 0 {
		t.Fatal("a frame completed before its doorbell")
	}
	if got := tx.Kick(0); got != dequeue.KickAll {
		t.Fatalf("Kick says %v", got)
	}
	for i := range byte(3) {
		if got := k.take(t); len(got) != 60+int(i) || got[0] != i {
			t.Errorf("frame %d is %x", i, got)
		}
	}
	if n, n8 := tx.Reap(0); n != 3 || n8 != 183 || ctx.Pool.Available() != 8 {
		t.Errorf("Reap says %d, %d; want 3, 183; %d of 8 slots are free", n, n8, ctx.Pool.Available())
	}
}

// A device that takes no more stops the queue and loses nothing.
func TestFullDeviceStopsTheQueue(t *testing.T) {
	_, tx, k := pair(t)
	ctx := context(t, ring+8)
	posted, written, reaped := 0, 0, 0
	var kick dequeue.Kick
	for kick == dequeue.KickAll {
		p := ctx.Pool.Get()
		if p == nil {
			t.Fatal("the socket is deeper than the ring")
		}
		p.SetLen(60)
		binary.BigEndian.PutUint32(p.Bytes(), uint32(posted))
		if !tx.Post(p) {
			t.Fatal("refused by a device with room")
		}
		posted++
		kick = tx.Kick(0)
	}
	if kick != dequeue.KickStopped {
		t.Fatalf("Kick says %v to a full device, want KickStopped", kick)
	}
	for tx.Room() > 0 {
		p := ctx.Pool.Get()
		p.SetLen(60)
		binary.BigEndian.PutUint32(p.Bytes(), uint32(posted))
		tx.Post(p)
		posted++
	}
	p := ctx.Pool.Get()
	if p.SetLen(60); tx.Post(p) {
		t.Fatal("a full ring took a packet")
	}
	p.Free()
	for kick == dequeue.KickStopped {
		for b := k.take(t); b != nil; b = k.take(t) {
			if got := int(binary.BigEndian.Uint32(b)); got != written {
				t.Fatalf("frame %d in the place of %d", got, written)
			}
			written++
		}
		kick = tx.Kick(0)
		n, _ := tx.Reap(0)
		reaped += n
	}
	for k.take(t) != nil {
		written++
	}
	if written != posted || reaped != posted || tx.Lost() != 0 || ctx.Pool.Available() != ring+8 {
		t.Errorf("posted %d, written %d, reaped %d, lost %d", posted, written, reaped, tx.Lost())
	}
}

func TestNoAllocation(t *testing.T) {
	rx, tx, k := pair(t)
	ctx := context(t, 64)
	l := new(qdisc.List)
	super, h := traffic{payload: make([]byte, 8000), mss: 1000}.super(t)
	msg := make([]byte, vnetLen, vnetLen+len(super))
	msg[0], msg[1] = h.flags, h.gsoType
	binary.NativeEndian.PutUint16(msg[4:], uint16(h.gsoSize))
	binary.NativeEndian.PutUint16(msg[6:], uint16(h.csumStart))
	binary.NativeEndian.PutUint16(msg[8:], uint16(h.csumOffset))
	msg = append(msg, super...)
	buf := make([]byte, 4096)
	got := 0
	n := testing.AllocsPerRun(100, func() {
		if _, err := unix.Write(k.fd, msg); err != nil {
			t.Fatal(err)
		}
		got += rx.Receive(ctx, l, 64) // the last read finds nothing
		for p := l.Pop(); p != nil; p = l.Pop() {
			tx.Post(p)
		}
		tx.Kick(ctx.Now)
		tx.Reap(ctx.Now)
		for range 8 {
			unix.Read(k.fd, buf)
		}
	})
	if n != 0 || got != 8*101 {
		t.Errorf("%v allocations for a super-packet of 8, %d frames, want 0 and %d", n, got, 8*101)
	}
}
