package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sluice/qdisc"
	"sluice/shaper"
	"sluice/shaper/config"
	"sluice/shaper/nic"
	"sluice/shaper/nic/mem"
	"sluice/tests/lab"
)

// memory is the bench without privileges: the same engine between memory ports,
// by a clock of its own, so that nothing else on the machine shows in the
// numbers. Both hosts are this type.
type memory struct {
	*shaper.Engine
	clock   tickingClock
	inside  *mem.Port // its transmit side; what arrives there is made by Receive
	outside *mem.Port
	stop    context.CancelFunc
	ended   chan error

	mu      sync.Mutex // the hosts act on the worker's thread
	flows   []*flow
	stats   nic.RxStats
	rtts    [len(classes)]lab.RTTs
	arrived [len(classes)]uint64
}

// tick is what passes from one turn of the worker to the next.
const tick = 5 * time.Microsecond

// tickingClock moves on when the worker looks at it.
type tickingClock struct{ now atomic.Int64 }

func (c *tickingClock) Now() time.Duration { return time.Duration(c.now.Add(int64(tick))) }

// flow is a UDP flow of equal frames, evenly spaced but for some jitter:
// without it flows stay in step, and meet a full queue always or never.
type flow struct {
	class int
	port  uint16
	frame []byte
	every time.Duration
	on    bool
	next  time.Duration
}

func openMemory(_ context.Context, o options, p *policies, out io.Writer) (bench, error) {
	fmt.Fprintf(out, "The engine runs in this process, between memory ports of 1 Gbit/s, on a virtual clock:\n\n")
	fmt.Fprintf(out, "  inside ──── %s engine %s ──── outside\n\n", p.inside, p.outside)
	writeTraffic(out, p.rate)
	wire := mem.Config{Rate: 1e9, CompletionDelay: 10 * time.Microsecond}
	m := &memory{ended: make(chan error, 1)}
	m.inside, _ = mem.Pair(p.inside, "host", wire)
	m.inside.Sink(m.answered)
	m.outside, _ = mem.Pair(p.outside, "host", wire)
	m.outside.Sink(m.arrive)
	for i, c := range classes {
		m.add(i, probePort, probePayload, probeEvery)
		if c.load > 0 {
			m.add(i, loadPort, loadPayload, time.Duration((loadPayload+headers)*8/(c.load*p.rate)*1e9))
		}
	}
	c, err := loadSleepless(p.fifo)
	if err != nil {
		return nil, err
	}
	m.Engine, err = shaper.Open(c, shaper.Options{Name: p.fifo, Clock: &m.clock,
		OpenPort: func(_ *config.Link, c *config.Port) (nic.Port, error) {
			if c.Dev == p.inside {
				return insidePort{m.inside, m}, nil
			}
			return m.outside, nil
		}})
	if err != nil {
		return nil, err
	}
	var running context.Context
	running, m.stop = context.WithCancel(context.Background())
	go func() { m.ended <- m.Run(running) }()
	return m, nil
}

func (m *memory) add(class int, port uint16, payload int, every time.Duration) {
	frame := lab.Flow{
		SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Src: netip.AddrPortFrom(netip.MustParseAddr(insideIP), port),
		DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, Dst: netip.AddrPortFrom(netip.MustParseAddr(outsideIP), port),
		TOS: uint8(classes[class].tos),
	}.Frame(payload + headers)
	frame[headers] = byte(class)
	m.flows = append(m.flows, &flow{class: class, port: port, frame: frame, every: every})
}

// sentAt is the part of a frame's payload that says when it was due.
func sentAt(frame []byte) []byte { return frame[headers+8 : headers+16] }

// insidePort is a memory port whose receive queue is the inside host.
type insidePort struct {
	*mem.Port
	host *memory
}

func (p insidePort) Rx() []nic.RxQueue { return []nic.RxQueue{p.host} }

func (m *memory) FD() int              { return -1 }
func (m *memory) RxStats() nic.RxStats { return m.stats }

// NextAt returns when the next frame of any flow is due.
func (m *memory) NextAt() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := qdisc.Never
	for _, f := range m.flows {
		if f.on {
			at = min(at, f.next)
		}
	}
	return at
}

// Receive makes the frames that are due.
func (m *memory) Receive(ctx *qdisc.Context, l *qdisc.List, most int) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.flows {
		for ; f.on && f.next <= ctx.Now && n < most; n++ {
			p := ctx.Pool.Get()
			if p == nil {
				return n
			}
			p.SetLen(copy(p.Room(), f.frame))
			p.Arrival = ctx.Now
			binary.BigEndian.PutUint64(sentAt(p.Bytes()), uint64(f.next))
			l.Push(p)
			m.stats.Packets++
			m.stats.Bytes += uint64(p.Len())
			if f.port == probePort {
				m.rtts[f.class].Sent++
			}
			f.next += f.every/2 + rand.N(f.every)
		}
	}
	return n
}

// arrive is the outside host: it sends probes back and counts the rest.
func (m *memory) arrive(p *qdisc.Packet, _, end time.Duration) {
	frame := p.Bytes()
	if binary.BigEndian.Uint16(frame[headers-6:]) == probePort {
		m.outside.Inject(0, end, frame)
		return
	}
	m.mu.Lock()
	m.arrived[frame[headers]]++
	m.mu.Unlock()
}

// answered is the inside host when a probe comes back.
func (m *memory) answered(p *qdisc.Packet, _, end time.Duration) {
	m.mu.Lock()
	r := &m.rtts[p.Bytes()[headers]]
	r.Samples = append(r.Samples, end-time.Duration(binary.BigEndian.Uint64(sentAt(p.Bytes()))))
	m.mu.Unlock()
}

func (m *memory) Arrived() [len(classes)]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.arrived
}

func (m *memory) Now() time.Duration { return time.Duration(m.clock.now.Load()) }

func (m *memory) Wait(ctx context.Context, d time.Duration) {
	for end := m.Now() + d; m.Now() < end && ctx.Err() == nil; {
		time.Sleep(10 * time.Microsecond)
	}
}

// turn switches the flows to a port on or off.
func (m *memory) turn(port uint16, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.flows {
		if f.port == port {
			f.on, f.next = on, m.Now()
		}
	}
}

func (m *memory) Load(on bool) { m.turn(loadPort, on) }

func (m *memory) Probe(ctx context.Context, d time.Duration) (rtts [len(classes)]lab.RTTs, err error) {
	m.mu.Lock()
	m.rtts = rtts
	m.mu.Unlock()
	m.turn(probePort, true)
	m.Wait(ctx, d)
	m.turn(probePort, false)
	m.Wait(ctx, probeWait)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rtts, ctx.Err()
}

func (m *memory) Apply(_ context.Context, file string) error {
	c, err := loadSleepless(file)
	if err != nil {
		return err
	}
	_, err = m.Engine.Apply(file, c, false)
	return err
}

// loadSleepless reads a policy, and lets the worker poll all the time: its clock
// stands still while it sleeps.
func loadSleepless(file string) (*config.Config, error) {
	c, err := config.Load(file)
	if err == nil {
		c.Engine.BusyPoll = 1 << 62
	}
	return c, err
}

func (m *memory) Close() error {
	m.stop()
	return <-m.ended
}
