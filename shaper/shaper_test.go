package shaper_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sluice/qdisc"
	"sluice/shaper"
	"sluice/shaper/config"
	"sluice/shaper/nic"
	"sluice/shaper/nic/mem"
	"sluice/shaper/tree"
	"sluice/shaper/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const policy = `version = 1
[link.l]
inside = "in"
outside = "out"
driver = "mem"
txqueuelen = "10000 packets"
[[qdisc]]
dev = "out"
root = true
handle = "1:"
kind = "tbf"
rate = "%d Mbit/s"
burst = "16 KiB"
limit = "16 MiB"
[[qdisc]]
dev = "out"
parent = "1:1"
handle = "10:"
kind = "prio"
[[filter]]
dev = "out"
parent = "10:"
match = "%s"
class = "10:1"
`

func parse(t *testing.T, format string, args ...any) *config.Config {
	t.Helper()
	c, err := config.Parse("test.toml", fmt.Appendf(nil, format, args...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rig is an engine on memory ports. Frames wait at inside for their instant.
type rig struct {
	*shaper.Engine
	inside, outside *mem.Port
	left            atomic.Uint64
	disorder        atomic.Uint64
	stop            context.CancelFunc
	ended           chan error
}

func start(t *testing.T, c *config.Config, frames int, gap time.Duration) *rig {
	t.Helper()
	return startOn(t, mem.Config{Rate: 1e9, CompletionDelay: 10 * time.Microsecond}, c, frames, gap)
}

// startOn is start with another wire at outside.
func startOn(t *testing.T, wire mem.Config, c *config.Config, frames int, gap time.Duration) *rig {
	t.Helper()
	r := &rig{ended: make(chan error, 1)}
	_, r.inside = mem.Pair("host", "in", mem.Config{RxRing: max(frames, 1)})
	r.outside, _ = mem.Pair("out", "net", wire)
	next := uint32(0)
	r.outside.Sink(func(p *qdisc.Packet, _, _ time.Duration) {
		r.left.Add(1)
		if n := binary.BigEndian.Uint32(p.Bytes()[42:]); n != next {
			r.disorder.Add(1)
			next = n
		}
		next++
	})
	f := make([]byte, 1000)
	copy(f[12:], []byte{8, 0, 0x45, 0, 3, 0xda, 0, 0, 0, 0, 64, 17})
	copy(f[34:], []byte{0, 1, 0, 2, 3, 0xc6})
	for i := range frames {
		binary.BigEndian.PutUint32(f[42:], uint32(i))
		if !r.inside.Inject(0, 20*time.Millisecond+time.Duration(i)*gap, f) {
			t.Fatal("no room to inject")
		}
	}
	var err error
	r.Engine, err = shaper.Open(c, shaper.Options{Name: "test.toml", OpenPort: func(_ *config.Link, p *config.Port) (nic.Port, error) {
		if p.Dev == "in" {
			return r.inside, nil
		}
		return r.outside, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	go func() { r.ended <- r.Run(ctx) }()
	t.Cleanup(func() { r.stop() })
	return r
}

// until waits for a status that satisfies ok.
func (r *rig) until(t *testing.T, what string, ok func(*shaper.Status) bool) *shaper.Status {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		s, err := r.Status()
		if err != nil {
			t.Fatal(err)
		}
		if !s.Balance.Even() {
			t.Fatalf("counters do not add up: %+v", s.Balance)
		}
		if ok(s) {
			return s
		}
	}
	s, _ := r.Status()
	t.Fatalf("waited 20 s for %s: %+v", what, s)
	return nil
}

func TestPolicyChangesUnderLoadLoseNothing(t *testing.T) {
	// 1000 bytes each 60 µs, 133 Mbit/s for 0.36 s, through 100 to 120 Mbit/s. All
	// of it fits into the queue and the pool, however late the thread comes.
	const frames = 6000
	r := start(t, parse(t, policy, 100, "dscp ef"), frames, 60*time.Microsecond)
	applies := 0
	for end := time.Now().Add(20 * time.Second); r.left.Load() < frames*3/4 && time.Now().Before(end); {
		c := parse(t, policy, 100+applies%20, []string{"dscp ef", "dscp cs6"}[applies%2])
		if _, err := r.Apply("test.toml", c, false); err != nil {
			t.Fatal(err)
		}
		applies++
		time.Sleep(3 * time.Millisecond)
	}
	s := r.until(t, "the last frame", func(s *shaper.Status) bool { return s.Balance.Sent == frames })
	t.Logf("%d policies applied under load", applies)
	if s.Balance.Dropped != 0 || r.disorder.Load() != 0 {
		t.Errorf("%d of %d frames dropped, %d out of place", s.Balance.Dropped, frames, r.disorder.Load())
	}
}

func TestStopSendsWhatIsQueued(t *testing.T) {
	const frames = 1000
	r := start(t, parse(t, policy, 50, "dscp ef"), frames, time.Microsecond)
	s := r.until(t, "a backlog", func(s *shaper.Status) bool { return s.Balance.Received == frames })
	if s.Balance.Queued == 0 {
		t.Fatal("50 Mbit/s kept up with a burst at 8 Gbit/s")
	}
	r.stop()
	if err := <-r.ended; err != nil {
		t.Fatal(err)
	}
	if n := r.left.Load(); n != frames {
		t.Errorf("%d of %d queued frames left before the end", n, frames)
	}
}

func TestStopWaitsForWhatTheDeviceHas(t *testing.T) {
	const frames = 20 // 8 ms each
	r := startOn(t, mem.Config{Rate: 1e6}, parse(t, policy, 100, "dscp ef"), frames, time.Microsecond)
	r.until(t, "all posted", func(s *shaper.Status) bool { return s.Balance.Received == frames && s.Balance.Queued == 0 })
	r.stop()
	if err := <-r.ended; err != nil {
		t.Fatal(err)
	}
	if n := r.left.Load(); n != frames {
		t.Errorf("%d of %d frames left before the end", n, frames)
	}
}

func TestStopGivesUpAfterASecond(t *testing.T) {
	r := start(t, parse(t, policy, 1, "dscp ef"), 1000, time.Microsecond)
	r.until(t, "a backlog", func(s *shaper.Status) bool { return s.Balance.Received == 1000 })
	begin := time.Now()
	r.stop()
	if err := <-r.ended; err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begin); d < 900*time.Millisecond || d > 5*time.Second {
		t.Errorf("stopped after %v", d)
	}
	if n := r.left.Load(); n == 0 || n == 1000 {
		t.Errorf("%d of 1000 frames left", n)
	}
}

// The control socket is open a little longer than the ports.
func TestWhoComesAfterTheEndIsTold(t *testing.T) {
	c := parse(t, policy, 50, "dscp ef")
	r := start(t, c, 0, 0)
	r.stop()
	if err := <-r.ended; err != nil {
		t.Fatal(err)
	}
	for what, ask := range map[string]func() error{
		"apply":   func() error { _, err := r.Apply("test.toml", c, true); return err },
		"edit":    func() error { return r.Qdisc("out", tree.Request{Op: tree.Add}) },
		"status":  func() error { _, err := r.Status(); return err },
		"qdiscs":  func() error { _, err := r.Qdiscs("out"); return err },
		"classes": func() error { _, err := r.Classes(""); return err },
	} {
		if err := ask(); !errors.Is(err, worker.ErrStopped) || errors.Is(err, shaper.ErrHalfApplied) {
			t.Errorf("%s after the end: %v", what, err)
		}
	}
}

func TestEditsByHandGuardThePolicy(t *testing.T) {
	r := start(t, parse(t, policy, 50, "dscp ef"), 0, 0)
	change := tree.Request{Op: tree.Change, Parent: tree.Root, Handle: qdisc.MakeID(1, 0), Kind: "tbf",
		Values: qdisc.Values{"rate": {N: 1e6}, "burst": {N: 20000}, "limit": {N: 100000}}}
	if err := r.Qdisc("out", change); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Apply("test.toml", parse(t, policy, 60, "dscp ef"), false); !errors.Is(err, shaper.ErrEdited) {
		t.Fatalf("apply over edits: %v", err)
	}
	if s, _ := r.Status(); !s.Edited {
		t.Error("status does not show the edit")
	}
	if _, err := r.Apply("test.toml", parse(t, policy, 60, "dscp ef"), true); err != nil {
		t.Fatal(err)
	}
	all, err := r.Qdiscs("out")
	if err != nil || len(all) < 2 || all[0].Options.N("rate", 0) != 60e6/8 || all[1].Kind != "prio" {
		t.Errorf("after discarding edits: %+v %v", all, err)
	}
}

func TestRefusals(t *testing.T) {
	r := start(t, parse(t, policy, 50, "dscp ef"), 0, 0)
	var none *shaper.NoDeviceError
	if err := r.Qdisc("nosuch", tree.Request{Op: tree.Add}); !errors.As(err, &none) || none.Dev != "nosuch" {
		t.Errorf("edit of a device that is no port: %v", err)
	}
	var q *qdisc.Error
	if err := r.Qdisc("out", tree.Request{Op: tree.Delete, Handle: qdisc.MakeID(9, 0)}); !errors.As(err, &q) {
		t.Errorf("deleting a handle that does not exist: %v", err)
	}
	other := parse(t, strings.Replace(policy, `"in"`, `"in2"`, 1), 50, "dscp ef")
	if _, err := r.Apply("test.toml", other, false); err == nil || !strings.Contains(err.Error(), "restart sluiced") {
		t.Errorf("a policy for other ports: %v", err)
	}
	s, err := r.Status()
	if err != nil || s.Edited {
		t.Errorf("refused edits count as edits: %+v %v", s, err)
	}
}

func TestSlotsTooSmallForTheMTUAreRefused(t *testing.T) {
	c := parse(t, policy, 50, "dscp ef")
	_, err := shaper.Open(c, shaper.Options{Name: "test.toml", OpenPort: func(_ *config.Link, p *config.Port) (nic.Port, error) {
		a, _ := mem.Pair(p.Dev, "peer", mem.Config{MTU: 9000})
		return a, nil
	}})
	if err == nil || !strings.Contains(err.Error(), `frame_size to at least "10 KiB"`) {
		t.Errorf("MTU 9000 in slots of 2 KiB: %v", err)
	}
}
