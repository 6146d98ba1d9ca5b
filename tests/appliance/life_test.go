//go:build linux

package appliance_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"sluice/shaper"
	"sluice/tests/lab"
)

// state is what sluiced may change of an interface of the router, as text.
func (s *site) state(ifname string) string {
	s.t.Helper()
	var b strings.Builder
	s.check(s.router.Do(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		features, err := e.Features(ifname)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(features)) {
			if features[name] {
				fmt.Fprintln(&b, ifname, name)
			}
		}
		return nil
	}))
	nl := s.router.Netlink()
	link, err := nl.LinkByName(ifname)
	s.check(err)
	fmt.Fprintln(&b, ifname, "promiscuity", link.Attrs().Promisc, link.Attrs().Flags)
	qdiscs, err := nl.QdiscList(link)
	s.check(err)
	for _, q := range qdiscs {
		fmt.Fprintln(&b, ifname, "qdisc", q.Type(), netlink.HandleStr(q.Attrs().Handle), netlink.HandleStr(q.Attrs().Parent))
	}
	return b.String()
}

// slow is a rate at which n packets of 1000 bytes take the time.
func slow(n int, d time.Duration) string {
	return fmt.Sprintf("[[qdisc]]\ndev = \"out0\"\nroot = true\nkind = \"tbf\"\nrate = \"%d B/s\"\nburst = \"2 KiB\"\nlimit = \"1 MiB\"\n",
		int(float64(n*1000)/d.Seconds()))
}

// A clean stop sends what is queued, if that takes less than a second, and puts
// everything back.
func TestIntegrationStopDrainsAndRestores(t *testing.T) {
	const n = 100
	for _, c := range []struct {
		name string
		need time.Duration // to send what is queued
		all  bool
	}{
		{"a third of a second", 300 * time.Millisecond, true},
		{"a minute", time.Minute, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, lab.Wire{KeepOffloads: true, NoQdisc: true}, lab.Wire{KeepOffloads: true, NoQdisc: true})
			before := s.state("in0") + s.state("out0")
			v := s.start(slow(n, c.need))
			if during := s.state("in0") + s.state("out0"); during == before {
				t.Error("nothing was changed on the interfaces: the test shows nothing")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			r, err := s.outside.Listen("eth0", lab.Listen{Filter: ours})
			s.check(err)
			defer r.Close()
			_, err = s.inside.Send(ctx, "eth0", lab.Send{Frames: [][]byte{flow4.Frame(1000)}, N: n})
			s.check(err)
			v.eventually("everything is received", func(st *shaper.Status) bool { return st.Balance.Received == n })
			took := v.stop(syscall.SIGTERM)
			if c.all {
				s.check(r.Wait(ctx, n))
			}
			got, _ := r.Count()
			t.Logf("%d of %d packets arrived; the stop took %v, and sluiced ended with %v", got, n, took.Round(time.Millisecond), v.err)
			if !c.all && got >= n {
				t.Errorf("all %d packets arrived: nothing was left to drop", n)
			}
			if v.err != nil {
				t.Errorf("sluiced ended with %v", v.err)
			}
			// A second to drain, and the interfaces to be put back.
			if took > 3*time.Second {
				t.Errorf("the stop took %v", took)
			}
			if after := s.state("in0") + s.state("out0"); after != before {
				t.Errorf("the interfaces were\n%sand are now\n%s", before, after)
			}
			if _, err := os.Stat(s.socket()); err == nil {
				t.Error("the control socket is still there")
			}
		})
	}
}

// SIGHUP applies the file; a broken one changes nothing.
func TestIntegrationReload(t *testing.T) {
	s := newSite(t, lab.Wire{}, lab.Wire{})
	v := s.start(shape(10).policy())
	show := func() string {
		t.Helper()
		out, errs, code := v.sluice("qdisc", "show", "dev", "out0")
		if code != 0 {
			t.Errorf("exit code %d: %s", code, errs)
		}
		return out
	}
	first := show()
	s.write("sluice.toml", strings.Replace(shape(20).policy(), "tbf", "tbv", 1))
	s.check(v.cmd.Process.Signal(syscall.SIGHUP))
	v.waitLog("not reloaded")
	if now := show(); now != first {
		t.Errorf("a broken file changed\n%sto\n%s", first, now)
	}
	cross(t, s.inside, s.outside, sizes(60, 100, flow4.Frame))

	s.write("sluice.toml", shape(20).policy())
	s.check(v.cmd.Process.Signal(syscall.SIGHUP))
	v.waitLog("policy applied")
	now := show()
	if !strings.Contains(first, "rate 10Mbit") || !strings.Contains(now, "rate 20Mbit") {
		t.Errorf("the good file changed\n%sto\n%s", first, now)
	}
	t.Logf("%safter SIGHUP\n%s", first, now)
	cross(t, s.inside, s.outside, sizes(60, 100, flow4.Frame))

	_, _, code := v.sluice("qdisc", "change", "dev", "out0", "root", "tbf", "rate", "30mbit", "burst", "64kb", "latency", "50ms")
	if code != 0 {
		t.Errorf("qdisc change: exit code %d", code)
	}
	s.check(v.cmd.Process.Signal(syscall.SIGHUP))
	v.waitLog("discard-edits")
	if now := show(); !strings.Contains(now, "rate 30Mbit") {
		t.Errorf("SIGHUP threw an edit away: %s", now)
	}
}

// A process that is killed leaves nothing in the way: the kernel forwards again,
// and a new sluiced starts as if nothing had been. While we live, the kernel does
// not send our frames a second time.
func TestIntegrationKilledLeavesTheKernelsPath(t *testing.T) {
	s := kernelSite(t, shape(1000))
	frames := sizes(60, 400, flow4.Frame)
	twice := func() {
		t.Helper()
		r, err := s.outside.Listen("eth0", lab.Listen{Filter: ours})
		s.check(err)
		defer r.Close()
		cross(t, s.inside, s.outside, frames)
		time.Sleep(20 * time.Millisecond)
		if n, _ := r.Count(); n != uint64(len(frames)) {
			t.Errorf("%d frames arrived of %d", n, len(frames))
		}
	}
	twice()
	for range 2 {
		v := s.start("")
		twice()
		if b := v.settled().Balance; b.Sent != uint64(len(frames)) {
			t.Errorf("sluiced sent %d of %d frames: the kernel forwarded the others", b.Sent, len(frames))
		}
		v.stop(syscall.SIGKILL)
		start := time.Now()
		flowing(t, s.inside, s.outside)
		t.Logf("killed; the kernel forwards after %v at most", time.Since(start).Round(time.Millisecond))
		twice()
	}
}
