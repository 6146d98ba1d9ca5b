//go:build linux

package kernel_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"sluice/shaper/kernel"
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

// in runs fn in a host and returns its result.
func in[T any](t testing.TB, h *lab.Host, fn func() (T, error)) T {
	t.Helper()
	var v T
	check(t, h.Do(func() (err error) { v, err = fn(); return err }))
	return v
}

// wired is a host "dut" whose eth0 is wired to a host "peer", as a veth comes:
// offloads on, no qdisc.
func wired(t testing.TB, queues int) (dut, peer *lab.Host) {
	t.Helper()
	l := lab.ForTest(t)
	dut, peer = must(l.Host("dut"))(t), must(l.Host("peer"))(t)
	check(t, l.Wire(dut, "eth0", peer, "eth0", lab.Wire{Queues: queues, KeepOffloads: true, NoQdisc: true}))
	return dut, peer
}

// state is all that Prepare may touch.
type state struct {
	Link     kernel.Link
	Features map[string]ethtool.FeatureState
	Qdiscs   []kernel.Object
}

func stateOf(t testing.TB, h *lab.Host) state {
	t.Helper()
	return in(t, h, func() (s state, err error) {
		if s.Link, err = kernel.LinkByName("eth0"); err != nil {
			return s, err
		}
		if s.Qdiscs, err = kernel.Qdiscs(s.Link.Index); err != nil {
			return s, err
		}
		for i := range s.Qdiscs {
			s.Qdiscs[i].Stats = kernel.Stats{}
		}
		e, err := ethtool.NewEthtool()
		if err != nil {
			return s, err
		}
		defer e.Close()
		s.Features, err = e.FeaturesWithState("eth0")
		return s, err
	})
}

func TestIntegrationRestorePutsEverythingBack(t *testing.T) {
	for _, c := range []struct {
		name   string
		queues int
		down   bool
		qdisc  string
	}{
		{"one queue", 1, false, "pfifo"},
		{"two queues", 2, false, "mq"},
		{"down", 1, true, "pfifo"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dut, _ := wired(t, c.queues)
			if c.down {
				check(t, dut.Down("eth0"))
			}
			before := stateOf(t, dut)
			p := in(t, dut, func() (*kernel.Prepared, error) { return kernel.Prepare("eth0", kernel.Options{}) })
			if len(p.Warnings) != 0 {
				t.Errorf("warnings: %q", p.Warnings)
			}
			during := stateOf(t, dut)
			if !during.Link.Up || !during.Link.Promisc || during.Link.Qdisc != c.qdisc {
				t.Errorf("prepared: up %v, promiscuous %v, qdisc %s; want true, true, %s",
					during.Link.Up, during.Link.Promisc, during.Link.Qdisc, c.qdisc)
			}
			for _, f := range []string{"rx-gro", "tx-tcp-segmentation", "tx-generic-segmentation", "tx-checksum-ip-generic", "rx-vlan-hw-parse", "tx-vlan-hw-insert"} {
				if during.Features[f].Active {
					t.Errorf("prepared, and %s is still on", f)
				}
			}
			// From another thread and namespace: Prepared keeps to its own.
			check(t, p.Restore())
			check(t, p.Restore())
			if diff := cmp.Diff(before, stateOf(t, dut)); diff != "" {
				t.Errorf("not as it was (-before +after):\n%s", diff)
			}
		})
	}
}

// Without CAP_BPF everything succeeds until the ingress program.
func TestIntegrationPrepareUndoesWhatItDidWhenItFails(t *testing.T) {
	dut, _ := wired(t, 1)
	before := stateOf(t, dut)
	errs := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread must not serve others without its capabilities
		if err := netns.Set(dut.NS()); err != nil {
			errs <- err
			return
		}
		if err := dropCapabilities(unix.CAP_BPF, unix.CAP_SYS_ADMIN); err != nil {
			errs <- err
			return
		}
		_, err := kernel.Prepare("eth0", kernel.Options{})
		errs <- err
	}()
	err := <-errs
	if !errors.Is(err, kernel.ErrPermission) || strings.Count(err.Error(), "\n") != 0 {
		t.Errorf("without CAP_BPF: %v", err)
	}
	t.Log(err)
	if diff := cmp.Diff(before, stateOf(t, dut)); diff != "" {
		t.Errorf("not as it was (-before +after):\n%s", diff)
	}
}

func dropCapabilities(caps ...int) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return err
	}
	for _, c := range caps {
		data[c/32].Effective &^= 1 << (c % 32)
		data[c/32].Permitted &^= 1 << (c % 32)
	}
	return unix.Capset(&hdr, &data[0])
}

func TestIntegrationNoSuchInterface(t *testing.T) {
	dut, _ := wired(t, 1)
	err := dut.Do(func() error { _, err := kernel.Prepare("eth7", kernel.Options{}); return err })
	if !errors.Is(err, kernel.ErrNoSuchLink) || !strings.Contains(err.Error(), `"eth7"`) {
		t.Errorf("for an interface that is not there: %v", err)
	}
}

func TestIntegrationRestoreOfADeviceThatIsGone(t *testing.T) {
	dut, _ := wired(t, 1)
	p := in(t, dut, func() (*kernel.Prepared, error) { return kernel.Prepare("eth0", kernel.Options{}) })
	check(t, dut.Delete("eth0"))
	check(t, p.Restore())
}

func TestIntegrationTheKernelIsSilentWhileTheIngressIsClosed(t *testing.T) {
	dut, peer := wired(t, 1)
	check(t, dut.Addr("eth0", "10.0.0.1/24"))
	check(t, peer.Addr("eth0", "10.0.0.2/24"))
	ping := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := peer.Ping(ctx, "10.0.0.1")
		return err
	}
	check(t, ping())
	p := in(t, dut, func() (*kernel.Prepared, error) { return kernel.Prepare("eth0", kernel.Options{}) })
	tap := must(dut.Listen("eth0", lab.Listen{Keep: 10}))(t)
	defer tap.Close()
	if ping() == nil {
		t.Error("the kernel answers although its ingress is closed")
	}
	if n, _ := tap.Count(); n == 0 {
		t.Error("the packet socket sees nothing either")
	}
	check(t, p.OpenIngress())
	check(t, ping())
	check(t, p.Restore())
	check(t, ping())
}

// The process that closed the ingress is killed: the kernel answers again.
func TestIntegrationTheIngressOpensWhenTheProcessDies(t *testing.T) {
	if os.Getenv("SLUICE_TEST_CHILD") == "prepare" {
		_, err := kernel.Prepare("eth0", kernel.Options{})
		check(t, err)
		os.Stdout.WriteString("prepared\n")
		select {}
	}
	dut, peer := wired(t, 1)
	check(t, dut.Addr("eth0", "10.0.0.1/24"))
	check(t, peer.Addr("eth0", "10.0.0.2/24"))
	self := must(os.Executable())(t)
	child := dut.Command(t.Context(), self, "-test.run=^TestIntegrationTheIngressOpensWhenTheProcessDies$")
	child.Env = append(os.Environ(), "SLUICE_TEST_CHILD=prepare")
	out := must(child.StdoutPipe())(t)
	check(t, child.Start())
	if line := must(bufio.NewReader(out).ReadString('\n'))(t); line != "prepared\n" {
		t.Fatalf("the child says %q", line)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := peer.Ping(ctx, "10.0.0.1"); err == nil {
		t.Error("the kernel answers although its ingress is closed")
	}
	check(t, child.Process.Kill())
	var exit *exec.ExitError
	if err := child.Wait(); !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if _, err := peer.Ping(t.Context(), "10.0.0.1"); err != nil {
		t.Errorf("after the process was killed: %v", err)
	}
}

func TestIntegrationAnInterfaceIsClaimedOnce(t *testing.T) {
	dut, peer := wired(t, 1)
	claim := func() (func(), error) { return kernel.Claim("eth0") }
	release := in(t, dut, claim)
	err := dut.Do(func() error { _, err := claim(); return err })
	if !errors.Is(err, kernel.ErrClaimed) || !strings.Contains(err.Error(), "eth0") || !strings.Contains(err.Error(), "process ") {
		t.Errorf("claimed twice: %v", err)
	}
	in(t, peer, claim)() // another namespace, another eth0
	release()
	release()
	in(t, dut, claim)()
}

func TestIntegrationLinksAreDescribed(t *testing.T) {
	dut, _ := wired(t, 2)
	got := in(t, dut, func() (kernel.Link, error) { return kernel.LinkByName("eth0") })
	mac := must(dut.MAC("eth0"))(t)
	want := kernel.Link{
		Index: got.Index, Name: "eth0", Kind: "veth", MTU: 1500, HardwareAddr: mac.String(), TxQueues: 2, RxQueues: 2,
		TxQLen: 1000, Qdisc: "noqueue", Up: true, Carrier: true, Speed: 10e9,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	all := in(t, dut, kernel.Links)
	if len(all) != 2 || !slices.Contains(all, want) {
		t.Errorf("links: %+v", all)
	}
	err := dut.Do(func() error { _, err := kernel.LinkByName("eth1"); return err })
	if !errors.Is(err, kernel.ErrNoSuchLink) || !strings.Contains(err.Error(), `"eth1"`) {
		t.Errorf("an interface that is not there: %v", err)
	}
}

func TestIntegrationWatchTellsWhatBecomesOfALink(t *testing.T) {
	dut, peer := wired(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	events := in(t, dut, func() (<-chan kernel.LinkEvent, error) { return kernel.Watch(ctx) })
	next := func(want kernel.LinkEventKind, name string) kernel.LinkEvent {
		t.Helper()
		for deadline := time.After(5 * time.Second); ; {
			select {
			case e := <-events:
				if e.Kind == want && e.Link.Name == name {
					return e
				}
				t.Errorf("event %v of %s, want %v of %s", e.Kind, e.Link.Name, want, name)
			case <-deadline:
				t.Fatalf("no event %v of %s", want, name)
			}
		}
	}
	check(t, peer.Down("eth0"))
	next(kernel.LinkDown, "eth0")
	check(t, peer.Up("eth0"))
	next(kernel.LinkUp, "eth0")
	check(t, dut.SetMTU("eth0", 1400))
	if e := next(kernel.LinkChanged, "eth0"); e.Link.MTU != 1400 {
		t.Errorf("MTU %d, want 1400", e.Link.MTU)
	}
	check(t, dut.Rename("eth0", "wan"))
	if e := next(kernel.LinkRenamed, "wan"); e.OldName != "eth0" {
		t.Errorf("renamed from %q, want eth0", e.OldName)
	}
	check(t, dut.Delete("wan"))
	next(kernel.LinkDown, "wan")
	next(kernel.LinkRemoved, "wan")
	cancel()
	for range events {
	}
}

func TestIntegrationWatchReadsTheStateAgainAfterAnOverrun(t *testing.T) {
	dut, _ := wired(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := in(t, dut, func() (<-chan kernel.LinkEvent, error) { return kernel.WatchWithBuffer(ctx, 4096) })
	// Nobody reads: the channel fills, then the socket's small buffer.
	for i := range 200 {
		check(t, dut.SetMTU("eth0", 1400+i%2))
	}
	check(t, dut.SetMTU("eth0", 1300))
	resyncs, mtu := 0, 0
	for mtu != 1300 {
		select {
		case e := <-events:
			if e.Kind == kernel.LinkResync {
				resyncs++
			} else {
				mtu = e.Link.MTU
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("the last MTU was never told; %d resyncs", resyncs)
		}
	}
	if resyncs == 0 {
		t.Error("200 notices fit a buffer of 4 KB and a channel of 64")
	}
}

func TestIntegrationObjectsAreReadBack(t *testing.T) {
	dut, peer := wired(t, 1)
	check(t, dut.Addr("eth0", "10.0.0.1/24"))
	check(t, dut.Neighbor("eth0", "10.0.0.2", must(peer.MAC("eth0"))(t)))
	index := must(dut.Index("eth0"))(t)
	tc := in(t, dut, kernel.OpenTC)
	defer tc.Close()
	qdiscs := func() []kernel.Object {
		return in(t, dut, func() ([]kernel.Object, error) { return kernel.Qdiscs(index) })
	}
	root := kernel.Where{Ifindex: index, Parent: kernel.HandleRoot, Handle: 1 << 16}

	check(t, tc.ReplaceHtb(root, kernel.Htb{Default: 0x10}))
	class := kernel.Where{Ifindex: index, Parent: 1 << 16, Handle: 1<<16 | 0x10}
	check(t, tc.ReplaceHtbClass(class, kernel.HtbClass{Rate: 125e6, Burst: 16000, Cburst: 16000}))
	check(t, tc.ReplaceTbf(kernel.Where{Ifindex: index, Parent: class.Handle, Handle: 2 << 16},
		kernel.Tbf{Rate: 125e6, Burst: 3000, Limit: 30000}))
	frame := make([]byte, 100)
	copy(frame[12:], []byte{0x88, 0xb5})
	must(dut.Send(t.Context(), "eth0", lab.Send{Frames: [][]byte{frame}, N: 7}))(t)

	var kinds []string
	for _, q := range qdiscs() {
		kinds = append(kinds, q.Kind)
		if want := (kernel.Stats{Bytes: 700, Packets: 7}); q.Stats != want {
			t.Errorf("%s: %+v, want %+v", q.Kind, q.Stats, want)
		}
	}
	if got := strings.Join(kinds, " "); got != "htb tbf" {
		t.Errorf("qdiscs %q, want htb and tbf", got)
	}
	classes := in(t, dut, func() ([]kernel.Object, error) { return kernel.Classes(index) })
	var htb []kernel.Object
	for _, c := range classes {
		if c.Kind == "htb" {
			htb = append(htb, c)
		}
	}
	if len(htb) != 1 || htb[0].Handle != class.Handle || htb[0].Leaf != 2<<16 || htb[0].Stats.Packets != 7 {
		t.Errorf("htb's classes: %+v", htb)
	}
	if all := in(t, dut, func() ([]kernel.Object, error) { return kernel.Qdiscs(0) }); len(all) <= len(kinds) {
		t.Errorf("%d qdiscs on all interfaces, %d on one", len(all), len(kinds))
	}
	check(t, tc.DeleteQdisc(root))
	if q := qdiscs(); len(q) != 1 || q[0].Kind != "noqueue" {
		t.Errorf("after the root was deleted: %+v", q)
	}
}

func TestIntegrationRefusalsCarryTheKernelsWords(t *testing.T) {
	dut, _ := wired(t, 1)
	tc := in(t, dut, kernel.OpenTC)
	defer tc.Close()
	index := must(dut.Index("eth0"))(t)
	err := tc.ReplacePfifo(kernel.Where{Ifindex: index, Parent: 7<<16 | 1}, kernel.Pfifo{Limit: 1})
	var op *kernel.OpError
	if !errors.As(err, &op) || op.Kind != "pfifo" || op.ExtAck == "" {
		t.Errorf("a parent that is not there: %v", err)
	}
	err = tc.ReplacePfifo(kernel.Where{Ifindex: 9999, Parent: kernel.HandleRoot}, kernel.Pfifo{Limit: 1})
	if !errors.Is(err, kernel.ErrNoSuchLink) {
		t.Errorf("a device that is not there: %v", err)
	}
	t.Log(err)
}
