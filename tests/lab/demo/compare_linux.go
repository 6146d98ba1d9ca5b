package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"sluice/dequeue"
	"sluice/shaper"
	"sluice/shaper/tree"
	"sluice/tests/lab"
)

// class is one sort of traffic. Each has a probe that measures round trips;
// its load is a part of the uplink's rate, in UDP frames of 1514 bytes.
type class struct {
	name string
	dscp string
	tos  int
	load float64
	band string // the class of etc/sluice.toml that it falls into
}

var classes = [...]class{
	{"voice", "ef", 46 << 2, 0, "10:1"},  // strict
	{"normal", "cs0", 0, 0.4, "10:2"},    // has three quarters of what voice leaves, and wants less
	{"bulk", "cs1", 8 << 2, 1.6, "10:3"}, // has one quarter, and wants everything
}

const (
	insideIP, outsideIP = "10.0.0.1", "10.0.0.2"

	probePort, loadPort = 7, 9
	probePayload        = 32
	loadPayload         = 1472        // a frame of 1514 bytes
	headers             = 14 + 20 + 8 // Ethernet, IPv4, UDP

	probeEvery  = 5 * time.Millisecond
	probeWait   = 400 * time.Millisecond // for the last answers: longer than the FIFO
	fill        = time.Second            // load before a measurement, so that queues are full when it starts
	sampleEvery = 20 * time.Millisecond  // of BQL
)

// bench is where the comparison runs: in namespaces or in memory.
type bench interface {
	// Load switches the load of all classes on or off.
	Load(on bool)
	// Probe measures the round trips of all classes at once, for d.
	Probe(ctx context.Context, d time.Duration) ([len(classes)]lab.RTTs, error)
	// Arrived returns the packets of the load that have arrived.
	Arrived() [len(classes)]uint64
	// Now and Wait are its clock, which is not always the real one.
	Now() time.Duration
	Wait(ctx context.Context, d time.Duration)
	// Apply puts a policy into force.
	Apply(ctx context.Context, file string) error

	Status() (*shaper.Status, error)
	Qdiscs(dev string) ([]tree.QdiscInfo, error)
	Close() error
}

// result is what one phase measured.
type result struct {
	name    string
	loaded  bool
	goodput [len(classes)]float64 // bit/s of UDP payload, without the probes
	rtts    [len(classes)]lab.RTTs
	drops   map[string]uint64 // by the parent of the queue that dropped
	perBell float64
	limited bool   // it has BQL
	limit   uint32 // BQL, at the end
	peak    uint32 // bytes in flight, at most
}

// compare measures the idle path, the FIFO and the shaped policy.
func compare(ctx context.Context, b bench, p *policies, d time.Duration, out io.Writer) (rs []result, err error) {
	for _, phase := range []struct {
		name, text, file string
		time             time.Duration
	}{
		{"idle", "only the probes", "", d / 2},
		{"fifo", "all of it, through one queue of 1000 packets", "", d},
		{"shaped", "the same, through the bands of ets", p.shaped, d},
	} {
		if phase.file != "" {
			if err := b.Apply(ctx, phase.file); err != nil {
				return nil, err
			}
		}
		fmt.Fprintf(out, "  %-7s %s, for %g s\n", phase.name, phase.text, phase.time.Seconds())
		r := result{name: phase.name, loaded: phase.name != "idle"}
		if err := r.measure(ctx, b, p.outside, phase.time); err != nil {
			return nil, err
		}
		rs = append(rs, r)
	}
	return rs, nil
}

// measure fills r with what happens at dev.
func (r *result) measure(ctx context.Context, b bench, dev string, d time.Duration) error {
	if r.loaded {
		b.Load(true)
		defer b.Load(false)
		b.Wait(ctx, fill)
	}
	before, err := look(b, dev)
	if err != nil {
		return err
	}
	sampling, stop := context.WithCancel(ctx)
	sampled := make(chan error)
	go func() { sampled <- r.sampleBQL(sampling, b, dev) }()
	r.rtts, err = b.Probe(ctx, d)
	stop()
	if err := errors.Join(err, <-sampled, ctx.Err()); err != nil {
		return err
	}
	after, err := look(b, dev)
	if err != nil {
		return err
	}
	for i := range classes {
		bits := float64(after.arrived[i]-before.arrived[i]) * loadPayload * 8
		r.goodput[i] = bits / (after.at - before.at).Seconds()
	}
	r.drops = map[string]uint64{}
	for parent, n := range after.drops {
		r.drops[parent] = n - before.drops[parent]
	}
	r.perBell = float64(after.packets-before.packets) / float64(max(after.bells-before.bells, 1))
	return nil
}

// sampleBQL watches the byte queue limit of dev until ctx ends.
func (r *result) sampleBQL(ctx context.Context, b bench, dev string) error {
	for ctx.Err() == nil {
		t, err := txq(b, dev)
		if err != nil {
			return err
		}
		r.limited, r.limit, r.peak = t.Limited, t.BQL.Limit, max(r.peak, t.BQL.Inflight)
		b.Wait(ctx, sampleEvery)
	}
	return nil
}

// counters are what grows, at one instant.
type counters struct {
	at             time.Duration
	arrived        [len(classes)]uint64
	drops          map[string]uint64
	packets, bells uint64
}

func look(b bench, dev string) (c counters, err error) {
	t, err := txq(b, dev)
	if err != nil {
		return c, err
	}
	qdiscs, err := b.Qdiscs(dev)
	if err != nil {
		return c, err
	}
	c = counters{at: b.Now(), arrived: b.Arrived(), packets: t.Packets, bells: t.Bells, drops: map[string]uint64{}}
	for _, q := range qdiscs {
		c.drops[q.Parent.String()] = q.Stats.Drops
	}
	return c, nil
}

// txq returns what dev's only transmit queue has counted.
func txq(b bench, dev string) (t dequeue.TxqStats, err error) {
	s, err := b.Status()
	if err != nil {
		return t, err
	}
	i := slices.IndexFunc(s.Ports, func(p shaper.PortStatus) bool { return p.Name == dev })
	return s.Ports[i].Txqs[0], nil
}
