//go:build linux

package afpacket_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"

	"sluice/dequeue"
	"sluice/qdisc"
	"sluice/shaper/nic"
	"sluice/shaper/nic/afpacket"
	"sluice/tests/lab"
)

// slowPeer makes the peer's end a veth whose receive ring is emptied by a kernel
// thread, and puts that thread and the caller on one processor: during a doorbell
// nothing is emptied, and the ring of 256 frames is full.
func slowPeer(b *bench) {
	t := b.t
	t.Helper()
	check(t, b.peer.Rename("eth0", "slow0"))
	check(t, b.peer.Do(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		return e.Change("slow0", map[string]bool{"rx-gro": true}) // a veth has NAPI with GRO only
	}))
	check(t, b.peer.Up("slow0"))
	cmd := b.peer.Command(t.Context(), "unshare", "--mount", "sh", "-c",
		"mount -t sysfs none /sys && echo 1 > /sys/class/net/slow0/threaded")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("no threaded NAPI here: %v: %s", err, out)
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	var cpu unix.CPUSet
	var before unix.CPUSet
	check(t, unix.SchedGetaffinity(0, &before))
	cpu.Set(0)
	check(t, unix.SchedSetaffinity(0, &cpu))
	t.Cleanup(func() { check(t, unix.SchedSetaffinity(0, &before)) })
	comms, _ := filepath.Glob("/proc/[0-9]*/comm")
	found := false
	for _, path := range comms {
		comm, _ := os.ReadFile(path)
		if strings.HasPrefix(string(comm), "napi/slow0") {
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
			found = unix.SchedSetaffinity(pid, &cpu) == nil
		}
	}
	if !found {
		t.Skip("the NAPI thread is not to be found")
	}
}

func TestIntegrationAFullPeerStopsTheQueueAndNothingIsLost(t *testing.T) {
	b := setup(t, lab.Wire{}, afpacket.Options{})
	frame := b.flow().Frame(64)
	slowPeer(b)
	const n = 20_000
	next, wrong := uint64(0), 0
	r := must(b.peer.Listen("slow0", lab.Listen{Each: func(f lab.Frame) {
		if binary.BigEndian.Uint64(f.Data[42:]) != next {
			wrong++
		}
		next++
	}}))(t)
	defer r.Close()
	q := b.port.Tx()[0]
	posted, reaped, unsent := 0, 0, false
	kicks := map[dequeue.Kick]int{}
	for start := time.Now(); reaped < n; {
		for posted < n && q.Room() > 0 {
			binary.BigEndian.PutUint64(frame[42:], uint64(posted))
			q.Post(b.packet(frame))
			posted++
			unsent = true
		}
		if unsent {
			k := q.Kick(b.now())
			kicks[k]++
			unsent = k != dequeue.KickAll
			if k == dequeue.KickStopped {
				time.Sleep(20 * time.Microsecond)
			}
		}
		p, _ := q.Reap(b.now())
		reaped += p
		if time.Since(start) > 20*time.Second {
			t.Fatalf("%d of %d came back; doorbells %v", reaped, n, kicks)
		}
	}
	b.wait(r, n)
	got, _ := r.Count()
	dropped := must(b.dut.Netlink().LinkByName("eth0"))(t).Attrs().Statistics.TxDropped
	t.Logf("doorbells: %d took all, %d a part, %d stopped; tx_dropped %d",
		kicks[dequeue.KickAll], kicks[dequeue.KickAgain], kicks[dequeue.KickStopped], dropped)
	if got != n || wrong != 0 || q.Lost() != 0 {
		t.Errorf("%d of %d arrived, %d not in order, %d lost", got, n, wrong, q.Lost())
	}
	if dropped != 0 {
		t.Errorf("the device dropped %d frames, although it has a qdisc", dropped)
	}
	if kicks[dequeue.KickAgain]+kicks[dequeue.KickStopped] == 0 {
		t.Error("the peer was never full: this run says nothing")
	}
	if kicks[dequeue.KickDown] != 0 {
		t.Errorf("a full peer was taken for a device that is down, %d times", kicks[dequeue.KickDown])
	}
}

// settle turns until the queue says down or not down, and returns what came back
// meanwhile. Like Txq, it doesn't ring while the queue is down.
func settle(b *bench, q dequeue.Driver, down bool) (packets, size int) {
	b.t.Helper()
	for deadline := time.Now().Add(2 * time.Second); q.Down() != down; time.Sleep(time.Millisecond) {
		if !q.Down() {
			q.Kick(b.now())
		}
		p, s := q.Reap(b.now())
		packets, size = packets+p, size+s
		if time.Now().After(deadline) {
			b.t.Fatalf("Down() is still %v", !down)
		}
	}
	return packets, size
}

func TestIntegrationADeviceGoesDownAndComesBack(t *testing.T) {
	for _, c := range []struct {
		name     string
		down, up func(b *bench) error
	}{
		{"set down",
			func(b *bench) error { return b.dut.Down("eth0") },
			func(b *bench) error { return b.dut.Up("eth0") }},
		{"no carrier",
			func(b *bench) error { return b.peer.Down("eth0") },
			func(b *bench) error { return b.peer.Up("eth0") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := setup(t, lab.Wire{}, afpacket.Options{})
			r := b.listen(lab.Listen{})
			q := b.port.Tx()[0]
			frame := b.flow().Frame(64)
			if q.Down() {
				t.Fatal("down from the start")
			}
			check(t, c.down(b))
			for range 10 {
				if !q.Post(b.packet(frame)) {
					t.Fatal("Post refused")
				}
			}
			if packets, _ := settle(b, q, true); packets != 0 {
				t.Errorf("%d packets were sent by a dead device", packets)
			}
			if k := q.Kick(b.now()); k == dequeue.KickAll {
				t.Errorf("a doorbell at a dead device says KickAll")
			}
			check(t, c.up(b))
			packets, size := settle(b, q, false)
			p, s := b.drain(q, 10-packets)
			packets, size = packets+p, size+s
			if packets != 10 || size != 640 || q.Lost() != 0 {
				t.Errorf("%d packets, %d bytes completed, %d lost; want 10, 640, 0", packets, size, q.Lost())
			}
			// The receiver's socket died with the peer's interface, where that
			// was set down.
			if c.name == "set down" {
				b.wait(r, 10)
			}
			// And receives again.
			must(b.peer.Send(t.Context(), "eth0", lab.Send{Frames: [][]byte{frame}, N: 5}))(t)
			b.receive(b.port.Rx()[0], 5, func(*qdisc.Packet) {})
		})
	}
}

func TestIntegrationADeviceIsDeletedWhileOpen(t *testing.T) {
	b := setup(t, lab.Wire{}, afpacket.Options{})
	q, rx := b.port.Tx()[0], b.port.Rx()[0]
	check(t, b.dut.Delete("eth0"))
	frame := make([]byte, 64)
	q.Post(b.packet(frame))
	if k := q.Kick(b.now()); k != dequeue.KickDown || !q.Down() {
		t.Errorf("the doorbell says %d, Down %v; want KickDown, true", k, q.Down())
	}
	// The socket's error must not keep poll awake.
	fds := []unix.PollFd{{Fd: int32(rx.FD()), Events: unix.POLLIN}}
	must(unix.Poll(fds, 1000))(t)
	var l qdisc.List
	b.ctx.Now = b.now()
	rx.Receive(b.ctx, &l, 64)
	if n := must(unix.Poll(fds, 0))(t); n != 0 {
		t.Errorf("poll still returns %#x", fds[0].Revents)
	}
	if b.pool.Available() != b.pool.Size() {
		t.Error("a packet is not back in the pool")
	}
	check(t, b.port.Close())
	check(t, b.port.Close())
}

func TestIntegrationARenamedDeviceGoesOn(t *testing.T) {
	b := setup(t, lab.Wire{}, afpacket.Options{})
	check(t, b.dut.Rename("eth0", "wan"))
	q := b.port.Tx()[0]
	check(t, b.peer.Down("eth0"))
	q.Post(b.packet(make([]byte, 64)))
	settle(b, q, true)
	check(t, b.peer.Up("eth0"))
	packets, _ := settle(b, q, false)
	b.drain(q, 1-packets)
}

func TestIntegrationWithoutPacketsFramesStayInTheRing(t *testing.T) {
	b := setup(t, lab.Wire{}, afpacket.Options{})
	frame := b.flow().Frame(64)
	must(b.peer.Send(t.Context(), "eth0", lab.Send{Frames: [][]byte{frame}, N: 10,
		Edit: func(i int, f []byte) { f[50] = byte(i) }}))(t)
	b.pool = must(qdisc.NewPool(qdisc.PoolConfig{Packets: 4}))(t)
	b.ctx.Pool = b.pool
	var held, l qdisc.List
	for deadline := time.Now().Add(time.Second); held.Len() < 4 && time.Now().Before(deadline); {
		b.port.Rx()[0].Receive(b.ctx, &held, 64)
	}
	if n := b.port.Rx()[0].Receive(b.ctx, &l, 64); n != 0 || held.Len() != 4 {
		t.Fatalf("a pool of 4 gave %d and %d packets", held.Len(), n)
	}
	for i := range 10 {
		if p := held.Pop(); p != nil {
			if p.Bytes()[50] != byte(i) {
				t.Errorf("frame %d is number %d", i, p.Bytes()[50])
			}
			p.Free()
		}
		b.port.Rx()[0].Receive(b.ctx, &held, 1)
	}
	if s := b.port.Rx()[0].RxStats(); s != (nic.RxStats{Packets: 10, Bytes: 640}) {
		t.Errorf("%+v; want 10 packets and nothing lost", s)
	}
}

func TestIntegrationWhatTheRingCannotHoldIsCounted(t *testing.T) {
	b := setup(t, lab.Wire{}, afpacket.Options{RxFrames: 32})
	const n = 1000
	must(b.peer.Send(t.Context(), "eth0", lab.Send{Frames: [][]byte{b.flow().Frame(64)}, N: n}))(t)
	time.Sleep(20 * time.Millisecond)
	rx := b.port.Rx()[0]
	b.receive(rx, 32, func(*qdisc.Packet) {})
	if s := rx.RxStats(); s.Packets+s.Drops != n || s.Packets != 32 || s.Errors != 0 {
		t.Errorf("%+v, want 32 packets and %d drops", s, n-32)
	}
}

func TestIntegrationLongFramesAreErrors(t *testing.T) {
	b := setup(t, lab.Wire{MTU: 3000}, afpacket.Options{})
	rx, tx := b.port.Rx()[0], b.port.Tx()[0]
	small, long := b.flow().Frame(1514), b.flow().Frame(3000)
	must(b.peer.Send(t.Context(), "eth0", lab.Send{Frames: [][]byte{small, long, small}, N: 3}))(t)
	// The pool's packets hold 1792 bytes.
	b.receive(rx, 2, func(p *qdisc.Packet) { same(t, 0, p.Bytes(), small) })
	if s := rx.RxStats(); s.Errors != 1 || s.Packets != 2 {
		t.Errorf("%+v, want 2 packets and 1 error", s)
	}
	// Longer than the device's MTU, and no Ethernet frame at all.
	b.pool = must(qdisc.NewPool(qdisc.PoolConfig{Packets: 16, FrameSize: 4096}))(t)
	r := b.listen(lab.Listen{Keep: 1})
	for _, size := range []int{3023, 13, 3018} {
		if !tx.Post(b.packet(append(long, make([]byte, 100)...)[:size])) {
			t.Errorf("Post refused a frame of %d bytes, for ever", size)
		}
	}
	if packets, size := b.drain(tx, 3); packets != 3 || size != 3023+13+3018 || tx.Lost() != 2 {
		t.Errorf("%d packets, %d bytes completed, %d lost; want 3, %d, 2", packets, size, tx.Lost(), 3023+13+3018)
	}
	if b.pool.Available() != b.pool.Size() {
		t.Error("a packet is not back in the pool")
	}
	_ = r
}

// A veth refuses what its peer's MTU doesn't allow. Such a frame must not stand
// in the way of the others for ever.
func TestIntegrationAFrameTheDeviceNeverTakesIsGivenUp(t *testing.T) {
	b := setup(t, lab.Wire{}, afpacket.Options{})
	r := b.listen(lab.Listen{Keep: 100})
	check(t, b.peer.SetMTU("eth0", 1000))
	q := b.port.Tx()[0]
	small, long, longer := b.flow().Frame(64), b.flow().Frame(1200), b.flow().Frame(1300)
	post := func(frames ...[]byte) (size int) {
		for _, f := range frames {
			if !q.Post(b.packet(f)) {
				t.Fatal("Post refused")
			}
			size += len(f)
		}
		return size
	}
	turn := func(n, size int) time.Duration {
		start := time.Now()
		if packets, got := b.drain(q, n); packets != n || got != size {
			t.Errorf("%d packets and %d bytes came back, want %d and %d", packets, got, n, size)
		}
		return time.Since(start)
	}
	turn(4, post(small, long, small, small))
	if q.Lost() != 1 {
		t.Errorf("%d lost, want 1", q.Lost())
	}
	// The next of that length is not tried, shorter ones are.
	turn(3, post(longer, small, small))
	if q.Lost() != 2 {
		t.Errorf("%d lost, want 2", q.Lost())
	}
	b.wait(r, 5)
	for i, f := range r.Frames() {
		same(t, i, f.Data, small)
	}
	// When the peer takes them, they are sent, after a second.
	check(t, b.peer.SetMTU("eth0", 1500))
	time.Sleep(time.Second)
	q.Reap(b.now())
	turn(1, post(long))
	b.wait(r, 6)
	if q.Lost() != 2 {
		t.Errorf("%d lost, want 2 as before", q.Lost())
	}
}

// A stack whose device promised to finish checksums sends them unfinished.
func TestIntegrationUnfinishedChecksumsAreFinished(t *testing.T) {
	b := setup(t, lab.Wire{KeepOffloads: true}, afpacket.Options{})
	check(t, b.peer.Addr("eth0", "10.0.0.2/24"))
	check(t, b.peer.Addr6("eth0", "fd00::2/64"))
	mac := must(b.dut.MAC("eth0"))(t)
	for _, ip := range []string{"10.0.0.1", "fd00::1"} {
		check(t, b.peer.Neighbor("eth0", ip, mac))
	}
	for _, to := range []string{"10.0.0.1:1000", "[fd00::1]:1000"} {
		dst := netip.MustParseAddrPort(to)
		check(t, b.peer.Do(func() error {
			family, sa := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: 1000, Addr: [4]byte{10, 0, 0, 1}})
			if dst.Addr().Is6() {
				family, sa = unix.AF_INET6, &unix.SockaddrInet6{Port: 1000, Addr: dst.Addr().As16()}
			}
			fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Sendto(fd, []byte("a payload of odd length"), 0, sa)
		}))
		seen := false
		for !seen {
			b.receive(b.port.Rx()[0], 1, func(p *qdisc.Packet) {
				f := p.Bytes()
				udp := 14 + 20
				if dst.Addr().Is6() {
					udp = 14 + 40
				}
				if len(f) < udp+8 || binary.BigEndian.Uint16(f[udp+2:]) != 1000 {
					return // IPv6 multicast reports
				}
				seen = true
				want := lab.Flow{
					SrcMAC: f[6:12], DstMAC: f[0:6], Dst: dst,
					Src: netip.AddrPortFrom(source(f), binary.BigEndian.Uint16(f[udp:])),
				}.Payload([]byte("a payload of odd length"))
				if got, want := f[udp+6:udp+8], want[udp+6:udp+8]; string(got) != string(want) {
					t.Errorf("to %v: checksum %x, want %x", dst, got, want)
				}
			})
		}
	}
}

// source returns the source address of an IPv4 or IPv6 frame.
func source(f []byte) netip.Addr {
	if f[14]>>4 == 4 {
		return netip.AddrFrom4([4]byte(f[26:30]))
	}
	return netip.AddrFrom16([16]byte(f[22:38]))
}

func TestIntegrationSeveralQueuesShareTheFlows(t *testing.T) {
	b := setup(t, lab.Wire{Queues: 2}, afpacket.Options{Queues: 2})
	const flows, each = 64, 20
	var frames [][]byte
	for i := range flows {
		f := b.flow()
		f.Src = netip.AddrPortFrom(f.Src.Addr(), uint16(3000+i))
		frames = append(frames, f.Frame(64))
	}
	must(b.peer.Send(t.Context(), "eth0", lab.Send{Frames: frames, N: flows * each}))(t)
	queueOf := map[uint16]int{}
	total := 0
	for deadline := time.Now().Add(5 * time.Second); total < flows*each && time.Now().Before(deadline); {
		for i, q := range b.port.Rx() {
			var l qdisc.List
			total += q.Receive(b.ctx, &l, 64)
			for p := l.Pop(); p != nil; p = l.Pop() {
				flow := binary.BigEndian.Uint16(p.Bytes()[34:])
				if was, ok := queueOf[flow]; ok && was != i {
					t.Fatalf("flow %d arrives at queues %d and %d", flow, was, i)
				}
				queueOf[flow] = i
				p.Free()
			}
		}
	}
	a, c := b.port.Rx()[0].RxStats().Packets, b.port.Rx()[1].RxStats().Packets
	if a+c != flows*each || a == 0 || c == 0 {
		t.Errorf("%d and %d frames, want %d in all and some at both", a, c, flows*each)
	}
	// Each transmit queue sends, and the port doesn't receive its own frames.
	r := b.listen(lab.Listen{})
	for _, q := range b.port.Tx() {
		q.Post(b.packet(frames[0]))
		b.drain(q, 1)
	}
	b.wait(r, 2)
	for i, q := range b.port.Rx() {
		var l qdisc.List
		if n := q.Receive(b.ctx, &l, 64); n != 0 {
			t.Errorf("queue %d received %d of the port's own frames", i, n)
		}
	}
}

func TestIntegrationThePacketPathDoesNotAllocate(t *testing.T) {
	b := setup(t, lab.Wire{}, afpacket.Options{})
	tx, rx := b.port.Tx()[0], b.port.Rx()[0]
	frame := b.flow().Frame(64)
	must(b.peer.Send(t.Context(), "eth0", lab.Send{Frames: [][]byte{frame}, N: 1500}))(t)
	now := b.now()
	var l qdisc.List
	got := 0
	if n := testing.AllocsPerRun(100, func() {
		for range 8 {
			tx.Post(b.packet(frame))
		}
		tx.Kick(now)
		tx.Reap(now)
		got += rx.Receive(b.ctx, &l, 8)
		for p := l.Pop(); p != nil; p = l.Pop() {
			p.Free()
		}
		rx.RxStats()
	}); n != 0 {
		t.Errorf("%v allocations a turn", n)
	}
	if got == 0 {
		t.Error("nothing was received: this run says nothing")
	}
}

func TestIntegrationOpenSaysWhatIsWrongAndTheWayOut(t *testing.T) {
	b := setup(t, lab.Wire{MTU: 9000}, afpacket.Options{})
	for _, c := range []struct {
		name string
		o    afpacket.Options
		want []string
	}{
		{"no such interface", afpacket.Options{Interface: "eth7"}, []string{"eth7: no such interface", "`ip link`"}},
		{"no name", afpacket.Options{}, []string{"name of an interface"}},
		{"slot too small", afpacket.Options{Interface: "eth0", FrameSize: 2048},
			[]string{"eth0: frame size 2048", "MTU 9000", "use 16384"}},
		{"pool too small", afpacket.Options{Interface: "eth0", PoolFrame: 1792},
			[]string{"eth0: MTU 9000", "9022 bytes", "lower the MTU to 1770"}},
		{"odd ring", afpacket.Options{Interface: "eth0", RxFrames: 100}, []string{"eth0: receive ring: 100 slots", "power of two"}},
		{"queues", afpacket.Options{Interface: "eth0", Queues: 1000}, []string{"eth0: 1000 queues"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := b.dut.Do(func() error { _, err := afpacket.Open(c.o); return err })
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a sentence: %q", err)
			}
		})
	}
	if b.port.MTU() != 9000 || b.port.Name() != "eth0" || b.port.Driver() != "afpacket" {
		t.Errorf("the port calls itself %s of %s with MTU %d", b.port.Driver(), b.port.Name(), b.port.MTU())
	}
}

func TestIntegrationOpenNeedsCapNetRaw(t *testing.T) {
	b := setup(t, lab.Wire{}, afpacket.Options{})
	errs := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread has lost its capabilities
		if err := unix.Setns(int(b.dut.NS()), unix.CLONE_NEWNET); err != nil {
			errs <- err
			return
		}
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&hdr, &none[0]); err != nil {
			errs <- err
			return
		}
		_, err := afpacket.Open(afpacket.Options{Interface: "eth0"})
		errs <- err
	}()
	err := <-errs
	if !errors.Is(err, unix.EPERM) || !strings.Contains(fmt.Sprint(err), "CAP_NET_RAW") {
		t.Errorf("without capabilities: %v", err)
	}
}
