package tap_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/dequeue"
	"sluice/qdisc"
	"sluice/shaper/nic"
	"sluice/shaper/nic/tap"
	"sluice/tests/lab"
)

// bridge is two hosts with a TAP each, and we are the cable between them.
type bridge struct {
	hosts   [2]*lab.Host
	ports   [2]*tap.Port
	mu      sync.Mutex // held while we carry
	longest int        // frame seen
}

const (
	addrA, addrB   = "10.9.0.1", "10.9.0.2"
	addrA6, addrB6 = "fd09::1", "fd09::2"
)

func newBridge(t *testing.T, queues int) *bridge {
	t.Helper()
	l := lab.ForTest(t)
	b := &bridge{}
	for i, name := range []string{"a", "b"} {
		h, err := l.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		b.hosts[i] = h
		if err := h.Do(func() (err error) {
			b.ports[i], err = tap.Open(tap.Config{Name: "tap0", Queues: queues, MTU: 1400})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if b.ports[i].MTU() != 1400 || b.ports[i].Name() != "tap0" {
			t.Errorf("port %s with mtu %d, want tap0 and 1400", b.ports[i].Name(), b.ports[i].MTU())
		}
		must(t, h.Up("tap0"))
		must(t, h.Addr("tap0", []string{addrA, addrB}[i]+"/24"))
		must(t, h.Addr6("tap0", []string{addrA6, addrB6}[i]+"/64"))
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		b.forward(stop)
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
		for _, p := range b.ports {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return b
}

// forward carries what arrives on a queue of one port to the queue of the same
// number of the other.
func (b *bridge) forward(stop chan struct{}) {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 2048})
	if err != nil {
		panic(err)
	}
	ctx, epoch := qdisc.NewContext(pool, 1), time.Now()
	var fds []unix.PollFd
	for _, p := range b.ports {
		for _, rx := range p.Rx() {
			fds = append(fds, unix.PollFd{Fd: int32(rx.FD()), Events: unix.POLLIN})
		}
	}
	for {
		select {
		case <-stop:
			return
		default:
		}
		ctx.Now = time.Since(epoch)
		if !b.carry(ctx) {
			unix.Poll(fds, 10)
		}
	}
}

// carry is one turn of forward; it returns false when there was nothing to do.
func (b *bridge) carry(ctx *qdisc.Context) (busy bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, p := range b.ports {
		for q, rx := range p.Rx() {
			tx := b.ports[1-i].Tx()[q]
			tx.Reap(ctx.Now)
			var l qdisc.List
			if rx.Receive(ctx, &l, min(64, tx.Room())) > 0 || rx.NextAt() != qdisc.Never {
				busy = true
			}
			for pkt := l.Pop(); pkt != nil; pkt = l.Pop() {
				b.longest = max(b.longest, pkt.Len())
				if !tx.Post(pkt) {
					pkt.Free()
				}
			}
			tx.Kick(ctx.Now)
		}
	}
	return busy
}

// received returns what the queues of port i have received, and the longest
// frame on any port.
func (b *bridge) received(i int) (queues []nic.RxStats, sum nic.RxStats, longest int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.ports[i].Rx() {
		s := q.RxStats()
		queues = append(queues, s)
		sum.Packets += s.Packets
		sum.Errors += s.Errors
	}
	return queues, sum, b.longest
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a command in a host and returns what it prints.
func run(t *testing.T, h *lab.Host, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	out, err := h.Command(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// counter reads a value of /proc/net/snmp, such as Tcp InCsumErrors.
func counter(t *testing.T, h *lab.Host, protocol, name string) (value int) {
	t.Helper()
	var names []string
	for line := range strings.Lines(run(t, h, "cat", "/proc/net/snmp")) {
		f := strings.Fields(line)
		if f[0] != protocol+":" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i := range names {
			if names[i] == name {
				fmt.Sscan(f[i], &value)
				return value
			}
		}
	}
	t.Fatalf("no %s %s", protocol, name)
	return 0
}

// kernelSent returns how many packets the kernel says it handed to the TAP, a
// super-packet being one.
func kernelSent(t *testing.T, h *lab.Host) (packets uint64) {
	t.Helper()
	out := run(t, h, "cat", "/proc/net/dev")
	_, rest, _ := strings.Cut(out, "tap0:")
	f := strings.Fields(rest)
	fmt.Sscan(f[9], &packets)
	return packets
}

// transfer sends n random bytes from host a to the address at host b, and
// fails if any other bytes arrive.
func (b *bridge) transfer(address string, n int) error {
	var ln net.Listener
	err := b.hosts[1].Do(func() (err error) {
		ln, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		return err
	}
	defer ln.Close()
	deadline := time.Now().Add(20 * time.Second)
	ln.(*net.TCPListener).SetDeadline(deadline)

	got := make(chan [sha256.Size]byte, 1)
	failed := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			failed <- err
			return
		}
		defer c.Close()
		c.SetDeadline(deadline)
		h := sha256.New()
		if _, err := io.Copy(h, c); err != nil {
			failed <- err
			return
		}
		got <- [sha256.Size]byte(h.Sum(nil))
	}()

	var c net.Conn
	err = b.hosts[0].Do(func() (err error) {
		c, err = net.DialTimeout("tcp", ln.Addr().String(), 5*time.Second)
		return err
	})
	if err != nil {
		return err
	}
	c.SetDeadline(deadline)
	sent, source := sha256.New(), rand.NewChaCha8([32]byte{1})
	_, err = io.CopyN(io.MultiWriter(c, sent), source, int64(n))
	c.Close()
	if err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	case sum := <-got:
		if sum != [sha256.Size]byte(sent.Sum(nil)) {
			return errors.New("other bytes arrived than were sent")
		}
		return nil
	}
}

// addVLANs puts VLAN 5 on either TAP, or says why it cannot.
func (b *bridge) addVLANs(t *testing.T) (missing string) {
	for i, h := range b.hosts {
		out, err := h.Command(t.Context(), "ip", "link", "add", "link", "tap0", "name", "vlan5", "type", "vlan", "id", "5").CombinedOutput()
		if err != nil && strings.Contains(string(out), "Unknown device type") {
			return "this kernel has no VLAN interfaces"
		}
		must(t, err)
		must(t, h.Up("vlan5"))
		must(t, h.Addr("vlan5", fmt.Sprintf("10.9.5.%d/24", i+1)))
	}
	return ""
}

// The kernel's stack sends TCP with segmentation offload through us, over IPv4,
// IPv6 and a VLAN: super-packets arrive as wire frames with right checksums.
func TestIntegrationTCPWithSegmentationOffload(t *testing.T) {
	b := newBridge(t, 1)
	noVLAN := b.addVLANs(t)
	for name, address := range map[string]string{
		"IPv4": addrB + ":0", "IPv6": "[" + addrB6 + "]:0", "VLAN": "10.9.5.2:0",
	} {
		t.Run(name, func(t *testing.T) {
			if name == "VLAN" && noVLAN != "" {
				t.Skip(noVLAN)
			}
			_, before, _ := b.received(0)
			kernel := kernelSent(t, b.hosts[0])
			bad := counter(t, b.hosts[1], "Tcp", "InCsumErrors")
			if err := b.transfer(address, 8<<20); err != nil {
				t.Fatal(err)
			}
			if n := counter(t, b.hosts[1], "Tcp", "InCsumErrors") - bad; n != 0 {
				t.Errorf("%d segments arrived with a wrong checksum", n)
			}
			_, after, _ := b.received(0)
			frames := after.Packets - before.Packets
			kernel = kernelSent(t, b.hosts[0]) - kernel
			if frames < 2*kernel {
				t.Errorf("%d frames of %d packets: there were hardly any super-packets", frames, kernel)
			}
			t.Logf("%d packets of the kernel became %d frames", kernel, frames)
		})
	}
	_, s, longest := b.received(0)
	if longest > 1400+14+4 {
		t.Errorf("a frame of %d bytes left a host with mtu 1400", longest)
	}
	if s.Errors != 0 {
		t.Errorf("%d frames were refused", s.Errors)
	}
}

func TestIntegrationDatagramsWithSegmentationOffload(t *testing.T) {
	b := newBridge(t, 1)
	for _, ip := range []string{addrB, addrB6} {
		var in net.PacketConn
		var out net.Conn
		must(t, b.hosts[1].Do(func() (err error) {
			in, err = net.ListenPacket("udp", net.JoinHostPort(ip, "0"))
			return err
		}))
		must(t, b.hosts[0].Do(func() (err error) {
			out, err = net.Dial("udp", in.LocalAddr().String())
			return err
		}))
		raw, err := out.(*net.UDPConn).SyscallConn()
		must(t, err)
		must(t, errors.Join(raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, 1000)
		}), err))
		_, err = out.Write([]byte("first, so that the address is resolved"))
		must(t, err)
		in.SetReadDeadline(time.Now().Add(5 * time.Second))
		buf := make([]byte, 65536)
		_, _, err = in.ReadFrom(buf)
		must(t, err)

		payload := make([]byte, 30_500)
		rand.NewChaCha8([32]byte{2}).Read(payload)
		_, err = out.Write(payload)
		must(t, err)
		for want := payload; len(want) > 0; {
			n, _, err := in.ReadFrom(buf)
			must(t, err)
			part := want[:min(1000, len(want))]
			if !bytes.Equal(buf[:n], part) {
				t.Fatalf("to %s: a datagram of %d bytes is not the next %d sent", ip, n, len(part))
			}
			want = want[len(part):]
		}
		in.Close()
		out.Close()
	}
	if _, _, n := b.received(0); n > 1400+14 {
		t.Errorf("a frame of %d bytes left a host with mtu 1400", n)
	}
}

func TestIntegrationFlowsSpreadOverQueues(t *testing.T) {
	b := newBridge(t, 2)
	const flows = 16
	done := make(chan error, flows)
	for range flows {
		go func() { done <- b.transfer(addrB+":0", 256<<10) }()
	}
	for range flows {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for i := range b.ports {
		queues, _, _ := b.received(i)
		for q, s := range queues {
			if s.Packets < 100 {
				t.Errorf("queue %d of port %d carried %d packets", q, i, s.Packets)
			}
		}
	}
}

func TestIntegrationDownIsNoticedAndSoIsUp(t *testing.T) {
	l := lab.ForTest(t)
	h, err := l.Host("h")
	must(t, err)
	var p *tap.Port
	must(t, h.Do(func() (err error) {
		p, err = tap.Open(tap.Config{})
		return err
	}))
	defer p.Close()
	if !strings.HasPrefix(p.Name(), "tap") || p.MTU() != 1500 {
		t.Errorf("the kernel's choice is %s with mtu %d", p.Name(), p.MTU())
	}
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 4})
	must(t, err)
	tx := p.Tx()[0]
	if !tx.Down() || tx.Room() != 0 {
		t.Error("a new interface, which nobody has brought up, is not down")
	}
	var now time.Duration
	send := func() dequeue.Kick {
		now += 20 * time.Millisecond
		tx.Reap(now)
		pkt := pool.Get()
		pkt.SetLen(60)
		if !tx.Post(pkt) {
			pkt.Free()
		}
		return tx.Kick(now)
	}
	must(t, h.Up(p.Name()))
	if got := send(); got != dequeue.KickAll || tx.Down() {
		t.Fatalf("after it came up Kick says %v", got)
	}
	must(t, h.Down(p.Name()))
	if got := send(); got != dequeue.KickDown || !tx.Down() || tx.Lost() != 1 {
		t.Errorf("after it went down Kick says %v, lost %d", got, tx.Lost())
	}
	if n, _ := tx.Reap(now); n != 1 {
		t.Errorf("%d completed, want the lost one", n)
	}
	if got := send(); got != dequeue.KickDown || tx.Lost() != 1 {
		t.Errorf("while it is down Kick says %v, lost %d", got, tx.Lost())
	}
	must(t, h.Up(p.Name()))
	if got := send(); got != dequeue.KickAll || tx.Down() {
		t.Errorf("after it came up again Kick says %v", got)
	}
	if pool.Available() != 4 {
		t.Errorf("%d of 4 slots are free", pool.Available())
	}
}

func TestIntegrationOpenSaysWhatIsWrong(t *testing.T) {
	l := lab.ForTest(t)
	h, err := l.Host("h")
	must(t, err)
	run(t, h, "ip", "tuntap", "add", "mq0", "mode", "tap", "multi_queue")
	run(t, h, "ip", "tuntap", "add", "one0", "mode", "tap")
	run(t, h, "ip", "tuntap", "add", "tun0", "mode", "tun")
	must(t, h.Do(func() error {
		for _, c := range []struct {
			config tap.Config
			says   string // "" = works
		}{
			{tap.Config{Name: "mq0", Queues: 1}, ""},
			{tap.Config{Name: "mq0", Queues: 3}, ""},
			{tap.Config{Name: "one0", Queues: 1}, ""},
			{tap.Config{Name: "one0", Queues: 2}, "an interface of this name exists and is not a tap with this many queues"},
			{tap.Config{Name: "tun0"}, "an interface of this name exists and is not a tap with this many queues"},
			{tap.Config{Name: "much-too-long-a-name"}, "at most 15 characters"},
			{tap.Config{Name: "x", Queues: 257}, "1 to 256 are possible"},
			{tap.Config{Name: "x", MTU: 1}, "set mtu 1"},
		} {
			p, err := tap.Open(c.config)
			if err == nil {
				p.Close()
			}
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%+v: %v, want %q", c.config, err, c.says)
			}
		}
		p, err := tap.Open(tap.Config{Name: "one0"})
		if err != nil {
			return err
		}
		defer p.Close()
		if _, err := tap.Open(tap.Config{Name: "one0"}); !errors.Is(err, unix.EBUSY) {
			t.Errorf("opened twice: %v", err)
		}
		return nil
	}))
}
