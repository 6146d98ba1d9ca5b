package main

import (
	"context"
	"fmt"
	"io"
	"time"

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
	probeEvery   = 5 * time.Millisecond
	probePayload = 32
	loadPayload  = 1472                   // a frame of 1514 bytes
	headers      = 14 + 20 + 8            // Ethernet, IPv4, UDP
	fill         = time.Second            // load before a measurement, so that queues are full when it starts
	probeWait    = 400 * time.Millisecond // for the last answers: longer than the FIFO
	sampleEvery  = 20 * time.Millisecond
)

// bench is where the comparison runs: in namespaces or in memory.
type bench interface {
	// Load switches the load of all classes on or off.
	Load(on bool) error
	// Probe measures the round trips of all classes at once, for d.
	Probe(ctx context.Context, d time.Duration) ([len(classes)]lab.RTTs, error)
	// Arrived returns the UDP payload bytes of the load that have arrived.
	Arrived() [len(classes)]uint64
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
		fmt.Fprintf(out, "  %-7s %s, for %v\n", phase.name, phase.text, phase.time)
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
		if err := b.Load(true); err != nil {
			return err
		}
		defer b.Load(false)
		wait(ctx, fill)
	}
	before, err := look(b, dev)
	if err != nil {
		return err
	}
	watched := make(chan error)
	watching, stop := context.WithCancel(ctx)
	go func() { watched <- r.watchBQL(watching, b, dev) }()
	r.rtts, err = b.Probe(ctx, d)
	stop()
	if werr := <-watched; err == nil {
		err = werr
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	after, err := look(b, dev)
	if err != nil {
		return err
	}
	seconds := after.at.Sub(before.at).Seconds()
	for i := range classes {
		r.goodput[i] = float64(after.arrived[i]-before.arrived[i]) * 8 / seconds
	}
	r.drops = map[string]uint64{}
	for parent, n := range after.drops {
		r.drops[parent] = n - before.drops[parent]
	}
	if bells := after.bells - before.bells; bells > 0 {
		r.perBell = float64(after.packets-before.packets) / float64(bells)
	}
	return nil
}

// counters are what grows, at one instant.
type counters struct {
	at             time.Time
	arrived        [len(classes)]uint64
	drops          map[string]uint64
	packets, bells uint64
}

func look(b bench, dev string) (c counters, err error) {
	port, err := portStatus(b, dev)
	if err != nil {
		return c, err
	}
	for _, t := range port.Txqs {
		c.packets += t.Packets
		c.bells += t.Bells
	}
	qdiscs, err := b.Qdiscs(dev)
	if err != nil {
		return c, err
	}
	c.drops = map[string]uint64{}
	for _, q := range qdiscs {
		c.drops[q.Parent.String()] = q.Stats.Drops
	}
	c.arrived, c.at = b.Arrived(), time.Now()
	return c, nil
}

func portStatus(b bench, dev string) (*shaper.PortStatus, error) {
	s, err := b.Status()
	if err != nil {
		return nil, err
	}
	for i := range s.Ports {
		if s.Ports[i].Name == dev {
			return &s.Ports[i], nil
		}
	}
	return nil, &shaper.NoDeviceError{Dev: dev}
}

// watchBQL samples the byte queue limit of dev until ctx ends.
func (r *result) watchBQL(ctx context.Context, b bench, dev string) error {
	for ctx.Err() == nil {
		port, err := portStatus(b, dev)
		if err != nil {
			return err
		}
		t := port.Txqs[0]
		r.limited, r.limit, r.peak = t.Limited, t.BQL.Limit, max(r.peak, t.BQL.Inflight)
		wait(ctx, sampleEvery)
	}
	return nil
}

// wait sleeps for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
