//go:build linux

package appliance_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"sluice/shaper/kernel"
	"sluice/tests/lab"
)

// shaping is one tbf, said to both.
type shaping struct {
	mbit  int // a second
	burst int // bytes, 5 ms of the rate: what a stall of the machine may cost
	limit int // bytes, 50 ms
}

func shape(mbit int) shaping {
	return shaping{mbit: mbit, burst: max(mbit*1e6/8/200, 4*1514), limit: mbit * 1e6 / 8 / 20}
}

func (s shaping) policy() string {
	return fmt.Sprintf("[[qdisc]]\ndev = \"out0\"\nroot = true\nhandle = \"1:\"\nkind = \"tbf\"\n"+
		"rate = \"%d Mbit/s\"\nburst = \"%d B\"\nlimit = \"%d B\"\n", s.mbit, s.burst, s.limit)
}

// throughput is what arrived, by windows of 100 ms: layer 2 bytes without FCS.
type throughput struct {
	windows []float64 // Mbit/s, in order of time
	whole   float64
}

const window = 100 * time.Millisecond

func (r throughput) median() float64 {
	s := slices.Sorted(slices.Values(r.windows))
	if len(s) == 0 {
		return 0
	}
	return s[len(s)/2]
}

func (r throughput) String() string {
	return fmt.Sprintf("median of %d windows %.3f Mbit/s, least %.3f, most %.3f, whole %.3f", len(r.windows),
		r.median(), slices.Min(r.windows), slices.Max(r.windows), r.whole)
}

// overload sends full frames from inside for a while, half as much again as the
// rate, and measures what arrives outside: from when the burst is used up, by
// the kernel's receive time.
func overload(t *testing.T, from, to *lab.Host, s shaping, d time.Duration) throughput {
	t.Helper()
	const warmUp = 300 * time.Millisecond
	windows := make([]uint64, int(d/window)+1)
	var first time.Time
	r, err := to.Listen("eth0", lab.Listen{Each: func(f lab.Frame) {
		if first.IsZero() {
			first = f.At
		}
		if at := f.At.Sub(first) - warmUp; at >= 0 && int(at/window) < len(windows) {
			windows[at/window] += uint64(len(f.Data))
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), warmUp+d)
	defer cancel()
	frame := flow4.Frame(1514)
	_, err = from.Send(ctx, "eth0", lab.Send{Frames: [][]byte{frame}, PPS: 1.5 * float64(s.mbit) * 1e6 / 8 / 1514})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(window)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if n := r.Drops(); n > 0 {
		t.Logf("the test missed %d frames: the machine is busy", n)
	}
	// The last window is not a whole one.
	var out throughput
	for _, bytes := range windows[:len(windows)-1] {
		mbit := float64(bytes) * 8 / 1e6 / window.Seconds()
		out.windows = append(out.windows, mbit)
		out.whole += mbit / float64(len(windows)-1)
	}
	return out
}

// kernelSite is the same place with the kernel at work: the router bridges in0
// and out0, and out0 has the kernel's tbf.
func kernelSite(t *testing.T, shaping shaping) *site {
	t.Helper()
	s := newSite(t, lab.Wire{}, lab.Wire{})
	nl := s.router.Netlink()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	s.check(nl.LinkAdd(bridge))
	for _, name := range []string{"in0", "out0"} {
		l, err := nl.LinkByName(name)
		s.check(err)
		s.check(nl.LinkSetMaster(l, bridge))
	}
	s.check(s.router.Up("br0"))
	index, err := s.router.Index("out0")
	s.check(err)
	s.check(s.router.Do(func() error {
		tc, err := kernel.OpenTC()
		if err != nil {
			return err
		}
		defer tc.Close()
		return tc.ReplaceTbf(kernel.Where{Ifindex: index, Parent: kernel.HandleRoot}, kernel.Tbf{
			Rate: uint64(shaping.mbit) * 1e6 / 8, Burst: uint32(shaping.burst), Limit: uint32(shaping.limit)})
	}))
	return s
}

// Shaped to a rate, that rate arrives: the median of 100 ms windows is within 1 %
// of it. The kernel's tbf gets the same load in the same run.
//
// On a machine that others use too a window says what the shaper was given of the
// processor; so there are five attempts, and the best one counts.
func TestIntegrationTbfKeepsItsRate(t *testing.T) {
	rates, d := []int{100}, 1500*time.Millisecond
	if long {
		rates, d = []int{10, 100, 1000}, 5*time.Second
	}
	for _, mbit := range rates {
		t.Run(fmt.Sprintf("%d Mbit", mbit), func(t *testing.T) {
			shaping := shape(mbit)
			theirs := kernelSite(t, shaping)
			ours := newSite(t, lab.Wire{}, lab.Wire{})
			v := ours.start(shaping.policy())
			best := math.Inf(1)
			for attempt := 1; attempt <= 5 && best > 0.01; attempt++ {
				k := overload(t, theirs.inside, theirs.outside, shaping, d)
				s := overload(t, ours.inside, ours.outside, shaping, d)
				off := s.median()/float64(mbit) - 1
				best = min(best, math.Abs(off))
				t.Logf("attempt %d: tbf %d Mbit/s burst %d\nkernel  %v (%+.3f %%)\nsluiced %v (%+.3f %%)", attempt,
					mbit, shaping.burst, k, (k.median()/float64(mbit)-1)*100, s, off*100)
			}
			if best > 0.01 {
				t.Errorf("the median was off by %.2f %% at best, want at most 1 %%", best*100)
			}
			v.even(v.settled())
		})
	}
}
