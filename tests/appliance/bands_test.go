//go:build linux

package appliance_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/qdisc"
	"sluice/shaper/nic/afpacket"
	"sluice/tests/lab"
)

// Code points (RFC 2474), as TOS bytes.
const (
	ef  = 46 << 2
	cs1 = 8 << 2
)

// threeBands is 50 Mbit/s for a strict band, of which that may have limit, and
// two that share the rest 3:1. EF is in the first band, CS1 in the last.
func threeBands(limit string) string {
	policy := `
[[qdisc]]
dev = "out0"
root = true
handle = "1:"
kind = "tbf"
rate = "50 Mbit/s"
burst = "32 KiB"
latency = "50 ms"

[[qdisc]]
dev = "out0"
parent = "1:1"
handle = "10:"
kind = "ets"
strict = 1
quanta = ["4542 B", "1514 B"]
priomap = [1, 1, 2, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1]

[[filter]]
dev = "out0"
parent = "10:"
match = "dscp ef"
class = "10:1"

[[filter]]
dev = "out0"
parent = "10:"
match = "dscp cs1"
class = "10:3"
`
	if limit != "" {
		policy += fmt.Sprintf(`
[[qdisc]]
dev = "out0"
parent = "10:1"
kind = "tbf"
rate = %q
burst = "8 KiB"
latency = "50 ms"
`, limit)
	}
	return policy + pfifo("10:2") + pfifo("10:3")
}

func pfifo(parent string) string {
	return fmt.Sprintf("\n[[qdisc]]\ndev = \"out0\"\nparent = %q\nkind = \"pfifo\"\nlimit = \"100 packets\"\n", parent)
}

// Three bands kept full share 50 Mbit/s: the strict one has all that its own
// limit of 10 allows, the other two divide the other 40 by 3:1. That the shares
// are exact is shown on a virtual clock (qdisc/ets, shaper/worker); here they
// have passed the kernel, and a busy machine.
func TestIntegrationBandsShare(t *testing.T) {
	s := newSite(t, lab.Wire{}, lab.Wire{})
	v := s.start(threeBands("10 Mbit/s"))
	bands := []uint8{ef, 0, cs1}
	want := []float64{0.2, 0.6, 0.2}
	const warmUp = 300 * time.Millisecond
	d := 2 * time.Second
	if long {
		d = 10 * time.Second
	}
	var frames [][]byte
	for i, tos := range bands {
		frames = append(frames, udp(fmt.Sprintf("192.0.2.%d:1000", i+1), "198.51.100.1:2000", tos).Frame(1514))
	}
	var bytes [3]uint64
	var last, silence [3]time.Duration
	var first time.Time
	r, err := s.outside.Listen("eth0", lab.Listen{Each: func(f lab.Frame) {
		if first.IsZero() {
			first = f.At
		}
		at := f.At.Sub(first) - warmUp
		if at < 0 || at > d {
			return
		}
		band := f.Data[29] - 1 // last byte of the source address
		bytes[band] += uint64(len(f.Data))
		silence[band] = max(silence[band], at-last[band])
		last[band] = at
	}})
	s.check(err)
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), warmUp+d)
	defer cancel()
	// 50 Mbit/s for each band: three times what the link has.
	_, err = s.inside.Send(ctx, "eth0", lab.Send{Frames: frames, PPS: 150e6 / 8 / 1514})
	s.check(err)
	s.check(r.Close())
	var all uint64
	for _, n := range bytes {
		all += n
	}
	for i := range bands {
		share := float64(bytes[i]) / float64(all)
		t.Logf("band %d: share %.4f, computed %.4f (%+.2f %%), longest silence %v", i, share, want[i],
			(share/want[i]-1)*100, silence[i].Round(10*time.Microsecond))
		if math.Abs(share/want[i]-1) > 0.03 {
			t.Errorf("band %d has a share of %.4f, want %.4f within 3 %%", i, share, want[i])
		}
	}
	t.Logf("together %.3f Mbit/s of 50", float64(all)*8/1e6/d.Seconds())
	v.even(v.settled())
}

// fifo is 50 Mbit/s with one queue of 1000 packets, as tc gives.
const fifo = `
[[qdisc]]
dev = "out0"
root = true
handle = "1:"
kind = "tbf"
rate = "50 Mbit/s"
burst = "32 KiB"
latency = "50 ms"

[[qdisc]]
dev = "out0"
parent = "1:1"
kind = "pfifo"
limit = "1000 packets"
`

// Behind a link of 50 Mbit/s with twice as much on offer, the first of three
// bands has the round trips of an idle link, give or take 2 ms, at the 99th
// percentile. In one queue it waits behind all the others.
//
// A machine that stops for some milliseconds shows in a p99, whoever queues. So
// there are up to three attempts, of which the best one counts, each beside the
// same load on a link that is wide enough for it: where that has such a p99
// without any queue, it was the machine, and the median has to do.
func TestIntegrationFirstBandKeepsItsRoundTrip(t *testing.T) {
	n := 300
	if long {
		n = 1500
	}
	s := newSite(t, lab.Wire{}, lab.Wire{})
	s.addresses()
	echo, err := s.outside.Echo("10.0.0.2:7")
	s.check(err)
	defer echo.Close()
	probe := func(load bool) lab.RTTs {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		if load {
			wg.Go(func() {
				if _, err := s.inside.UDPBulk(ctx, lab.UDPBulk{To: "10.0.0.2:9", Rate: 100e6, TOS: cs1}); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(400 * time.Millisecond) // the queue is full
		}
		r, err := s.inside.Probe(ctx, lab.Probe{To: "10.0.0.2:7", Count: n, TOS: ef, Wait: 400 * time.Millisecond})
		s.check(err)
		cancel()
		wg.Wait()
		if len(r.Samples) == 0 {
			t.Fatal("no probe was answered")
		}
		return r
	}
	const within = 2 * time.Millisecond
	v := s.start(shape(1000).policy())
	policy := func(text string) {
		t.Helper()
		if out, errs, code := v.sluice("apply", s.write("next.toml", text)); code != 0 {
			t.Fatalf("apply: %s%s", out, errs)
		}
	}
	var idle, wide, queue, shaped lab.RTTs
	busy := false
	for attempt := 1; ; attempt++ {
		policy(shape(1000).policy())
		idle, wide = probe(false), probe(true)
		policy(fifo)
		queue = probe(true)
		policy(threeBands(""))
		shaped = probe(true)
		t.Logf("attempt %d, round trips of EF:\nidle              %v\nload, 1 Gbit/s    %v\nload, 50 Mbit/s:\n  in one queue    %v\n  in three bands  %v",
			attempt, idle, wide, queue, shaped)
		busy = busy || wide.Percentile(99)-idle.Percentile(99) > within
		if attempt == 3 || shaped.Percentile(99)-idle.Percentile(99) <= within {
			break
		}
	}
	v.evenBalance()
	if shaped.Lost() > 0 {
		t.Errorf("%d packets of the first band were lost", shaped.Lost())
	}
	if queue.Percentile(50)-idle.Percentile(99) <= within {
		t.Errorf("in one queue half the round trips are within %v of the idle link's p99: there was no load", within)
	}
	p := 99.0
	if busy {
		t.Log("the machine is busy: its p99 is beyond what is asked without any queue")
		p = 50
	}
	if more := shaped.Percentile(p) - idle.Percentile(p); more > within {
		t.Errorf("p%g is %v above the idle link's, want at most %v", p, more, within)
	}
}

// A doorbell is a system call. With more 64-byte packets than can be sent, many
// share one; with one packet a millisecond, none waits for another.
func TestIntegrationPacketsShareDoorbells(t *testing.T) {
	s := newSite(t, lab.Wire{}, lab.Wire{})
	other, worker := cpus(t)
	v := s.start(fmt.Sprintf("[engine]\ncpu = %d\n", worker))
	// With a CPU each, a sender is no faster than the appliance. So there are three,
	// and two share the worker's with it. Of three attempts the best one counts:
	// others may keep the senders from their work.
	for attempt := 1; ; attempt++ {
		full := port(t, v.status(), "in0").Rx[0].Drops
		var wg sync.WaitGroup
		for _, cpu := range []int{other, worker, worker} {
			wg.Go(func() { flood(t, s.inside, cpu, flow4.Frame(64), 1500*time.Millisecond) })
		}
		time.Sleep(300 * time.Millisecond)
		before := port(t, v.status(), "out0").Txqs[0]
		time.Sleep(time.Second)
		st := v.status()
		after := port(t, st, "out0").Txqs[0]
		wg.Wait()
		full = port(t, st, "in0").Rx[0].Drops - full
		packets, bells := after.Packets-before.Packets, after.Bells-before.Bells
		for i, n := range before.PacketsPerBell {
			after.PacketsPerBell[i] -= n
		}
		t.Logf("attempt %d: %d packets of 64 bytes in %d bells in a second: %.1f a bell; lost before they reached us %d; bells by packets (1, 2, 4 …) %v",
			attempt, packets, bells, float64(packets)/float64(bells), full, after.PacketsPerBell)
		if full > 0 && packets >= 16*bells {
			break
		}
		if attempt == 3 {
			t.Fatalf("%.1f packets a bell, want at least 16", float64(packets)/float64(bells))
		}
	}
	v.even(v.settled())
}

// flood sends a frame as often as a transmit ring can: a sender with a system
// call for each is no faster than the appliance.
func flood(t *testing.T, h *lab.Host, cpu int, frame []byte, d time.Duration) {
	defer pin(t, cpu)()
	// As urgent as the appliance's own thread, which else keeps a sender on its
	// CPU from ever being ahead of it.
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -15)
	defer unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 0)
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 1})
	if err != nil {
		t.Error(err)
		return
	}
	var p *afpacket.Port
	if err := h.Do(func() (err error) {
		p, err = afpacket.Open(afpacket.Options{Interface: "eth0"})
		return err
	}); err != nil {
		t.Error(err)
		return
	}
	defer p.Close()
	tx := p.Tx()[0]
	for start := time.Now(); time.Since(start) < d; {
		for range min(tx.Room(), 256) {
			k := pool.Get()
			copy(k.Room(), frame)
			k.SetLen(len(frame))
			tx.Post(k)
		}
		now := time.Since(start)
		tx.Kick(now)
		tx.Reap(now)
	}
}

func TestIntegrationLonePacketDoesNotWait(t *testing.T) {
	s := newSite(t, lab.Wire{}, lab.Wire{})
	s.addresses()
	v := s.start("")
	echo, err := s.outside.Echo("10.0.0.2:7")
	s.check(err)
	defer echo.Close()
	probe := func(every time.Duration, n int) (lab.RTTs, float64) {
		t.Helper()
		before := port(t, v.status(), "out0").Txqs[0]
		r, err := s.inside.Probe(t.Context(), lab.Probe{To: "10.0.0.2:7", Every: every, Count: n})
		s.check(err)
		after := port(t, v.status(), "out0").Txqs[0]
		return r, float64(after.Packets-before.Packets) / float64(after.Bells-before.Bells)
	}
	single, _ := probe(20*time.Millisecond, 50)
	steady, perBell := probe(time.Millisecond, 1000)
	t.Logf("one packet every 20 ms: %v", single)
	t.Logf("one packet every 1 ms:  %v; %.2f packets a bell", steady, perBell)
	// Who waits for a second packet waits 1 ms, at the first hop and again on the
	// way back.
	if more := steady.Percentile(50) - single.Percentile(50); more > 500*time.Microsecond {
		t.Errorf("p50 is %v more than that of single packets", more)
	}
	if steady.Lost() > 0 {
		t.Errorf("%d packets lost", steady.Lost())
	}
}
