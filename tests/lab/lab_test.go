//go:build linux

package lab_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/tests/lab"
)

// bare is two hosts on one wire, both at eth0, without addresses: their stacks
// say nothing.
func bare(t testing.TB) (a, b *lab.Host) {
	t.Helper()
	l := lab.ForTest(t)
	a, b = must(l.Host("client"))(t), must(l.Host("server"))(t)
	check(t, l.Wire(a, "eth0", b, "eth0", lab.Wire{}))
	return a, b
}

// pair is bare with addresses: client 10.0.0.1 and server 10.0.0.2.
func pair(t testing.TB) (a, b *lab.Host) {
	t.Helper()
	a, b = bare(t)
	check(t, a.Addr("eth0", "10.0.0.1/24"))
	check(t, b.Addr("eth0", "10.0.0.2/24"))
	return a, b
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T { t.Helper(); check(t, err); return v }
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestIntegrationHostsReachEachOther(t *testing.T) {
	a, b := pair(t)
	check(t, a.Addr6("eth0", "fd00::1/64"))
	check(t, b.Addr6("eth0", "fd00::2/64"))
	for _, to := range []string{"10.0.0.2", "fd00::2"} {
		if _, err := a.Ping(t.Context(), to); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.Ping(t.Context(), "10.0.0.3"); err == nil {
		t.Error("a host that does not exist answered")
	}
}

func TestIntegrationDoComesBack(t *testing.T) {
	a, _ := pair(t)
	here := must(os.Readlink("/proc/thread-self/ns/net"))(t)
	var there string
	check(t, a.Do(func() (err error) {
		there, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}))
	if here == there {
		t.Errorf("Do ran in %s, the caller's own namespace", here)
	}
	want := errors.New("mine")
	if err := a.Do(func() error { return want }); err != want {
		t.Errorf("Do returned %v, not what the function returned", err)
	}
	if now := must(os.Readlink("/proc/thread-self/ns/net"))(t); now != here {
		t.Errorf("after Do the caller is in %s, was in %s", now, here)
	}
	if via := must(os.Readlink(a.Path()))(t); via != there {
		t.Errorf("Path leads to %s, the host is %s", via, there)
	}
}

func TestIntegrationCommandRunsInside(t *testing.T) {
	a, _ := pair(t)
	out, err := a.Command(t.Context(), "cat", "/proc/net/dev").CombinedOutput()
	check(t, err)
	var names []string
	for line := range strings.Lines(string(out)) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	if got := strings.Join(names, " "); got != "lo eth0" && got != "eth0 lo" {
		t.Errorf("the command sees interfaces %q, want lo and eth0", got)
	}
}

func TestIntegrationCloseRemovesEverything(t *testing.T) {
	l := lab.ForTest(t)
	a, b := must(l.Host("a"))(t), must(l.Host("b"))(t)
	check(t, l.Wire(a, "eth0", b, "eth0", lab.Wire{}))
	path := a.Path()
	check(t, l.Close())
	check(t, l.Close())
	if to, err := os.Readlink(path); err == nil && strings.HasPrefix(to, "net:") {
		t.Errorf("the namespace is still held as %s", path)
	}
}

func TestIntegrationAWireIsSilentAndCarriesFramesUnchanged(t *testing.T) {
	a, b := bare(t)
	r := must(b.Listen("eth0", lab.Listen{Keep: 100}))(t)
	defer r.Close()
	time.Sleep(100 * time.Millisecond)
	if n, _ := r.Count(); n != 0 {
		t.Fatalf("%d frames nobody sent: % .40x", n, r.Frames()[0].Data)
	}
	tci := uint16(5<<13 | 42)
	v4 := lab.Flow{
		SrcMAC: must(a.MAC("eth0"))(t), DstMAC: must(b.MAC("eth0"))(t),
		Src: netip.MustParseAddrPort("10.0.0.1:1000"), Dst: netip.MustParseAddrPort("10.0.0.2:2000"),
	}
	tagged, v6 := v4, v4
	tagged.VLAN = &tci
	v6.Src, v6.Dst = netip.MustParseAddrPort("[fd00::1]:1000"), netip.MustParseAddrPort("[fd00::2]:2000")
	frames := [][]byte{v4.Frame(60), v4.Frame(1514), tagged.Frame(64), v6.Frame(99)}
	before := time.Now()
	sent, err := a.Send(t.Context(), "eth0", lab.Send{Frames: frames, N: 2 * len(frames)})
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	check(t, r.Wait(ctx, sent.Packets))
	for i, f := range r.Frames() {
		if want := frames[i%len(frames)]; !bytes.Equal(f.Data, want) {
			t.Errorf("frame %d: got %d bytes % .40x, want %d bytes % .40x", i, len(f.Data), f.Data, len(want), want)
		}
		if f.At.Before(before) || f.At.After(time.Now()) {
			t.Errorf("frame %d was received at %v, sent after %v", i, f.At, before)
		}
	}
}

// The stack checks what Frame computed.
func TestIntegrationFramesHaveRightChecksums(t *testing.T) {
	a, b := pair(t)
	check(t, b.Addr6("eth0", "fd00::2/64"))
	for _, f := range []lab.Flow{
		{Src: netip.MustParseAddrPort("10.0.0.1:1000"), Dst: netip.MustParseAddrPort("10.0.0.2:2000"), TOS: 0x10},
		{Src: netip.MustParseAddrPort("[fd00::1]:1000"), Dst: netip.MustParseAddrPort("[fd00::2]:2000"), TOS: 0xb8},
	} {
		f.SrcMAC, f.DstMAC = must(a.MAC("eth0"))(t), must(b.MAC("eth0"))(t)
		var fd int
		check(t, b.Do(func() (err error) {
			if f.Dst.Addr().Is4() {
				fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
				return errors.Join(err, unix.Bind(fd, &unix.SockaddrInet4{Port: 2000}))
			}
			fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			return errors.Join(err, unix.Bind(fd, &unix.SockaddrInet6{Port: 2000}))
		}))
		check(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}))
		for _, size := range []int{64, 65, 1514} {
			frame := f.Frame(size)
			must(a.Send(t.Context(), "eth0", lab.Send{Frames: [][]byte{frame}, N: 1}))(t)
			if _, _, err := unix.Recvfrom(fd, make([]byte, 2000), 0); err != nil {
				t.Errorf("the stack did not take a %d-byte frame to %v: %v", size, f.Dst, err)
			}
		}
		unix.Close(fd)
	}
}

func TestIntegrationNoFrameIsLostAtFullSpeed(t *testing.T) {
	a, b := bare(t)
	const n = 100_000
	var next, gaps uint64
	r := must(b.Listen("eth0", lab.Listen{Each: func(f lab.Frame) {
		if binary.BigEndian.Uint64(f.Data[42:]) != next {
			gaps++
		}
		next++
	}}))(t)
	f := lab.Flow{
		SrcMAC: must(a.MAC("eth0"))(t), DstMAC: must(b.MAC("eth0"))(t),
		Src: netip.MustParseAddrPort("10.0.0.1:1000"), Dst: netip.MustParseAddrPort("10.0.0.2:2000"),
	}
	sent := must(a.Send(t.Context(), "eth0", lab.Send{Frames: [][]byte{f.Frame(64)}, N: n,
		Edit: func(i int, b []byte) { binary.BigEndian.PutUint64(b[42:], uint64(i)) }}))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	check(t, r.Wait(ctx, n))
	check(t, r.Close())
	packets, size := r.Count()
	if packets != n || size != n*64 || gaps != 0 || r.Drops() != 0 {
		t.Errorf("%d packets, %d bytes, %d out of order, %d dropped by the receiver; want %d, %d, 0, 0",
			packets, size, gaps, r.Drops(), n, n*64)
	}
	t.Logf("%.0f frames a second, %d refused", n/sent.Elapsed.Seconds(), sent.Refused)
}

func TestIntegrationASenderKeepsItsRate(t *testing.T) {
	a, _ := bare(t)
	sent := must(a.Send(t.Context(), "eth0", lab.Send{Frames: [][]byte{make([]byte, 60)}, N: 1000, PPS: 5000}))(t)
	if sent.Elapsed < 199*time.Millisecond {
		t.Errorf("1000 frames at 5000 a second took %v, less than 199 ms", sent.Elapsed)
	}
}

func TestIntegrationProbeCountsWhatComesBack(t *testing.T) {
	a, b := pair(t)
	echo := must(b.Echo("10.0.0.2:7"))(t)
	rtts := must(a.Probe(t.Context(), lab.Probe{To: "10.0.0.2:7", Count: 100, Every: time.Millisecond, TOS: 0x10}))(t)
	if rtts.Sent != 100 || rtts.Lost() != 0 {
		t.Errorf("on an idle wire: %v", rtts)
	}
	t.Log(rtts)
	check(t, echo.Close())
	rtts = must(a.Probe(t.Context(), lab.Probe{To: "10.0.0.2:7", Count: 10, Every: time.Millisecond, Wait: 50 * time.Millisecond}))(t)
	if rtts.Lost() != 10 || rtts.Percentile(50) != 0 {
		t.Errorf("nobody answers, and yet: %v", rtts)
	}
}

func TestIntegrationBulk(t *testing.T) {
	a, b := pair(t)
	sink := must(b.TCPSink("10.0.0.2:5001"))(t)
	defer sink.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	n, cc, err := a.TCPBulk(ctx, lab.TCPBulk{To: "10.0.0.2:5001", Conns: 2})
	check(t, err)
	if got := sink.Bytes(); got == 0 || got > n {
		t.Errorf("%d bytes written, %d received", n, got)
	}
	t.Logf("%d MB by %s", n>>20, cc)

	r := must(b.Listen("eth0", lab.Listen{Filter: func(f []byte) bool { return len(f) > 1000 }}))(t)
	defer r.Close()
	ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	sent := must(a.UDPBulk(ctx, lab.UDPBulk{To: "10.0.0.2:9", Rate: 20e6}))(t)
	if rate := float64(sent.Bytes*8) / sent.Elapsed.Seconds(); rate > 20.5e6 {
		t.Errorf("asked for 20 Mbit/s, sent %.1f", rate/1e6)
	}
	if packets, size := r.Count(); size != packets*1514 {
		t.Errorf("%d frames with %d bytes; full frames have 1514", packets, size)
	}
}
