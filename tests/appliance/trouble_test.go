//go:build linux

package appliance_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/shaper"
	"sluice/tests/lab"
)

// sentence fails the test unless said is one line that has all the words.
func sentence(t *testing.T, said string, words ...string) {
	t.Helper()
	t.Log(strings.TrimSpace(said))
	if strings.Count(said, "\n") != 1 {
		t.Errorf("this is not one sentence in one line:\n%s", said)
	}
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Errorf("it does not say %q", w)
		}
	}
}

// What cannot work is refused with one sentence, and nothing is left changed.
func TestIntegrationRefusals(t *testing.T) {
	s := newSite(t, lab.Wire{KeepOffloads: true, NoQdisc: true}, lab.Wire{KeepOffloads: true, NoQdisc: true})
	before := s.state("in0") + s.state("out0")
	policy := func(inside, outside string) string {
		file := filepath.Join(s.dir, "other.toml")
		s.check(os.WriteFile(file, fmt.Appendf(nil, "version = 1\n[control]\nsocket = %q\n[link.test]\ninside = %q\noutside = %q\n",
			s.socket()+"2", inside, outside), 0o644))
		return file
	}

	t.Run("missing interface", func(t *testing.T) {
		said, code := s.fails(policy("in0", "wan7"))
		sentence(t, said, `"wan7"`, "no such interface", "ip link")
		if code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
	})
	t.Run("not an Ethernet device", func(t *testing.T) {
		fd := s.tun("tun0", unix.IFF_TUN)
		defer unix.Close(fd)
		said, code := s.fails(policy("in0", "tun0"))
		sentence(t, said, "tun0", "not an Ethernet device")
		if code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
	})
	t.Run("no privileges", func(t *testing.T) {
		s.check(os.Chmod(s.dir, 0o755))
		cmd := s.router.Command(t.Context(), filepath.Join(bin, "sluiced"), "-config", policy("in0", "out0"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		_, said, code := output(t, cmd.Cmd, cmd.Run)
		sentence(t, said, "not permitted: run as root or with CAP_NET_ADMIN")
		if code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
	})
	t.Run("no configuration", func(t *testing.T) {
		said, code := s.fails(filepath.Join(s.dir, "nothing.toml"))
		sentence(t, said, "nothing.toml", "no such file")
		if code != 3 {
			t.Errorf("exit code %d, want 3", code)
		}
	})
	if after := s.state("in0") + s.state("out0"); after != before {
		t.Errorf("the interfaces were\n%sand are now\n%s", before, after)
	}
	first := s.start("")
	t.Run("two on one port", func(t *testing.T) {
		said, code := s.fails(policy("in0", "out0"))
		sentence(t, said, "in0", "in use by another sluiced", fmt.Sprintf("process %d", first.cmd.Process.Pid))
		if code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
	})
	t.Run("two on one control socket", func(t *testing.T) {
		other := newSite(t, lab.Wire{}, lab.Wire{})
		said, code := other.fails(s.write("sluice.toml", ""))
		sentence(t, said, s.socket(), "another sluiced has it")
		if code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
	})
	cross(t, s.inside, s.outside, sizes(60, 100, flow4.Frame)) // the first one is none the worse
}

const tenMistakes = `version = 1

[engine]
wieght = 64                     # 1 unknown key
busy_poll = 50                  # 2 no unit

[link.home]
inside = "in0"
outside = "in0"                 # 3 inside is outside

[[qdisc]]
dev = "in0"
root = true
handle = "1:"
kind = "tbf"
rate = "50 mbps"                # 4 a unit that means something else elsewhere
burst = "16 KiB"
latency = "20 ms"

[[qdisc]]
dev = "in0"
parent = "2:1"                  # 5 no such qdisc
handle = "1:"                   # 6 taken
kind = "pfifo"
limit = "1000 packets"

[[qdisc]]
dev = "in0"
parent = "1:1"
handle = "3:"
kind = "fq_codle"               # 7 unknown kind

[[filter]]
dev = "wan0"                    # 8 no such port
parent = "1:"
match = "any"
class = "1:1"

[[filter]]
dev = "in0"
parent = "1:"
match = "udp and dcsp ef"       # 9 a word of the match
class = "1:1"

[qdics]                         # 10 unknown table
`

// All mistakes of a file come out in one go, each at its place, from the service
// and from the command.
func TestIntegrationTenMistakes(t *testing.T) {
	s := newSite(t, lab.Wire{}, lab.Wire{})
	file := filepath.Join(s.dir, "sluice.toml")
	s.check(os.WriteFile(file, []byte(tenMistakes), 0o644))
	said, code := s.fails(file)
	t.Log("\n" + said)
	place := regexp.MustCompile(`^` + regexp.QuoteMeta(file) + `:\d+:\d+: .+\.?$`)
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if len(lines) != 10 || code != 3 {
		t.Errorf("%d mistakes reported, exit code %d; want 10 and 3", len(lines), code)
	}
	for _, l := range lines {
		if !place.MatchString(l) {
			t.Errorf("not FILE:LINE:COLUMN: what: %s", l)
		}
	}
	cmd := exec.Command(filepath.Join(bin, "sluice"), "check", file)
	if _, errs, code := output(t, cmd, cmd.Run); code != 3 || errs != said {
		t.Errorf("sluice check: exit code %d, and it says\n%s", code, errs)
	}
}

// A NIC that vanishes takes its own traffic with it and nothing else: the other
// link does not lose a packet.
func TestIntegrationInterfaceVanishes(t *testing.T) {
	s := newSite(t, lab.Wire{}, lab.Wire{})
	s.check(s.lab.Wire(s.inside, "eth1", s.router, "in1", lab.Wire{}))
	s.check(s.lab.Wire(s.router, "out1", s.outside, "eth1", lab.Wire{}))
	v := s.start("[link.other]\ninside = \"in1\"\noutside = \"out1\"\n")
	cross(t, s.inside, s.outside, sizes(60, 100, flow4.Frame))

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	const n = 4000
	r, err := s.outside.Listen("eth1", lab.Listen{Filter: ours})
	s.check(err)
	defer r.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := s.inside.Send(ctx, "eth1", lab.Send{Frames: [][]byte{flow4.Frame(200)}, N: n, PPS: 2000}); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() { // what will have no way out
		if _, err := s.inside.Send(ctx, "eth0", lab.Send{Frames: [][]byte{flow4.Frame(200)}, N: n, PPS: 2000}); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(500 * time.Millisecond)
	s.check(s.router.Delete("out0"))
	wg.Wait()
	s.check(r.Wait(ctx, n))

	v.waitLog("interface is gone")
	turns := v.eventually("out0 is down", func(st *shaper.Status) bool { return port(t, st, "out0").Down }).Worker.Turns
	time.Sleep(300 * time.Millisecond)
	st := v.status()
	gone := port(t, st, "out0")
	if text, _, _ := v.sluice("status"); !regexp.MustCompile(`(?m)^out0 +test +afpacket +down `).MatchString(text) {
		t.Errorf("sluice status does not say that out0 is down:\n%s", text)
	}
	if !st.Balance.Even() {
		t.Errorf("the counters do not add up: %+v", st.Balance)
	}
	t.Logf("out0: queued %d, dropped %v, %d turns in 300 ms afterwards; the other link lost nothing of %d",
		gone.Qlen, st.Worker.Drops, st.Worker.Turns-turns, n)
	// It sleeps; a descriptor with nothing but an error does not keep it turning.
	if st.Worker.Turns-turns > 300*60 {
		t.Errorf("%d turns in 300 ms without traffic", st.Worker.Turns-turns)
	}
	v.stop(syscall.SIGTERM)
	if v.err != nil {
		t.Errorf("sluiced ended with %v", v.err)
	}
}

// flowing waits until what from sends arrives at to, and returns how long that
// took.
func flowing(t *testing.T, from, to *lab.Host) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	flow := flow4
	flow.SrcMAC = net.HardwareAddr{2, 0, 0, 0, 0, 3} // not one that others wait for
	r, err := to.Listen("eth0", lab.Listen{Filter: func(f []byte) bool { return bytes.Equal(f[6:12], flow.SrcMAC) }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	start := time.Now()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := from.Send(ctx, "eth0", lab.Send{Frames: [][]byte{flow.Frame(100)}, PPS: 1000}); err != nil {
			t.Error(err)
		}
	})
	if err := r.Wait(ctx, 1); err != nil {
		t.Error(err)
	}
	took := time.Since(start)
	cancel()
	wg.Wait()
	return took
}

// The other end of a cable is not there yet, goes down, and comes back.
func TestIntegrationPeerGoesDownAndUp(t *testing.T) {
	s := newSite(t, lab.Wire{}, lab.Wire{})
	s.check(s.outside.Down("eth0"))
	v := s.start("")
	if !port(t, v.status(), "out0").Down {
		t.Error("status does not say that nothing is plugged in at out0")
	}
	s.check(s.outside.Up("eth0"))
	t.Logf("plugged in; traffic after %v", flowing(t, s.inside, s.outside).Round(time.Millisecond))
	v.eventually("out0 is up", func(st *shaper.Status) bool { return !port(t, st, "out0").Down })
	for _, end := range []struct {
		h    *lab.Host
		name string
	}{{s.outside, "eth0"}, {s.router, "out0"}} {
		s.check(end.h.Down(end.name))
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := s.inside.Send(ctx, "eth0", lab.Send{Frames: [][]byte{flow4.Frame(100)}, PPS: 1000})
		s.check(err)
		cancel()
		st := v.eventually("out0 is down", func(st *shaper.Status) bool { return port(t, st, "out0").Down })
		v.evenBalance()
		s.check(end.h.Up(end.name))
		t.Logf("%s/%s: down with %d queued; up again, traffic after %v", end.h.Name(), end.name,
			port(t, st, "out0").Qlen, flowing(t, s.inside, s.outside).Round(time.Millisecond))
	}
	v.even(v.settled())
}

// tun makes a TUN or TAP interface in the router, up, without a reader. It lives
// until the descriptor is closed.
func (s *site) tun(name string, kind uint16) (fd int) {
	s.t.Helper()
	s.check(s.router.Do(func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
		ifr, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		ifr.SetUint16(kind | unix.IFF_NO_PI)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	}))
	s.check(s.router.Up(name))
	return fd
}

// A peer that does not read fills the device and so stops the queue; the qdisc
// behind it fills and drops, counted. When the peer reads again, everything goes on
// by itself and at once. When it closes, the port is down and the service lives.
func TestIntegrationPeerDoesNotRead(t *testing.T) {
	s := newSite(t, lab.Wire{}, lab.Wire{})
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip(err)
	}
	s.check(s.lab.Wire(s.inside, "eth1", s.router, "in1", lab.Wire{}))
	fd := s.tun("tap0", unix.IFF_TAP)
	v := s.start("[link.other]\ninside = \"in1\"\noutside = \"tap0\"\ntxqueuelen = \"100 packets\"\n")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	const n = 6000
	send := func() {
		t.Helper()
		_, err := s.inside.Send(ctx, "eth1", lab.Send{Frames: [][]byte{flow4.Frame(200)}, N: n, PPS: 20000})
		s.check(err)
	}
	read := func(patience time.Duration) (packets int) {
		buf := make([]byte, 2048)
		for last := time.Now(); time.Since(last) < patience; {
			if _, err := unix.Read(fd, buf); err != nil {
				time.Sleep(time.Millisecond)
				continue
			}
			last = time.Now()
			packets++
		}
		return packets
	}
	send()
	time.Sleep(100 * time.Millisecond)
	st := v.status()
	q := port(t, st, "tap0")
	t.Logf("nobody reads: %d of %d posted, %d of those lost by the device, %d queued, dropped %v, driver stops %d",
		q.Txqs[0].Packets, n, q.Txqs[0].Lost, q.Qlen, st.Worker.Drops, q.Txqs[0].DriverStops)
	if q.Qlen == 0 || st.Balance.Dropped == 0 || !st.Balance.Even() {
		t.Errorf("queued %d, balance %+v: want a queue, drops, and counters that add up", q.Qlen, st.Balance)
	}
	cross(t, s.inside, s.outside, sizes(60, 100, flow4.Frame)) // the other link

	got := read(300 * time.Millisecond)
	st = v.settled()
	v.even(st)
	if q := port(t, st, "tap0").Txqs[0]; uint64(got) != q.Packets-q.Lost {
		t.Errorf("the peer read %d packets, %d were sent and %d of those lost", got, q.Packets, q.Lost)
	}
	t.Logf("it reads again: %d packets were waiting", got)
	again := make(chan int)
	go func() { again <- read(500 * time.Millisecond) }()
	send() // takes 0.3 s
	got = <-again
	t.Logf("%d of %d more arrived", got, n)
	if got == 0 {
		t.Error("nothing arrives any more")
	}

	s.check(unix.Close(fd))
	v.waitLog("interface is gone")
	send()
	cross(t, s.inside, s.outside, sizes(60, 100, flow4.Frame))
	v.eventually("tap0 is down", func(st *shaper.Status) bool { return port(t, st, "tap0").Down })
	v.evenBalance()
}
