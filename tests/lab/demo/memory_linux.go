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
	"time"

	"sluice/qdisc"
	"sluice/shaper"
	"sluice/shaper/config"
	"sluice/shaper/nic"
	"sluice/shaper/nic/mem"
	"sluice/tests/lab"
)

// memory is the bench without privileges: the same engine on its own thread and
// by the real clock, between memory ports whose far ends are this program. The
// inside host is source, the outside host answers probes and counts the load.
type memory struct {
	*shaper.Engine
	inside  *mem.Port // its transmit side; what it receives comes from source
	outside *mem.Port
	stop    context.CancelFunc
	ended   chan error

	mu      sync.Mutex // the hosts act on the worker's thread
	source  source
	rtts    [len(classes)]lab.RTTs
	arrived [len(classes)]uint64
}

// nicRate is the speed of the memory ports' wires.
const nicRate = 1e9

func openMemory(ctx context.Context, o options, p *policies, out io.Writer) (bench, error) {
	fmt.Fprintf(out, "The engine runs in this process, between memory ports of 1 Gbit/s:\n\n")
	fmt.Fprintf(out, "  inside ──── %s engine %s ──── outside\n\n", p.inside, p.outside)
	writeTraffic(out, p.rate)
	m := &memory{ended: make(chan error, 1)}
	m.source.memory, m.source.jitter = m, rand.New(rand.NewPCG(1, 2))
	for i, c := range classes {
		m.source.flows = append(m.source.flows, newFlow(i, probePayload, probePort, probeEvery))
		if c.load > 0 {
			bits := (loadPayload + headers) * 8
			m.source.flows = append(m.source.flows,
				newFlow(i, loadPayload, loadPort, time.Duration(float64(bits)/(c.load*p.rate)*1e9)))
		}
	}
	m.inside, _ = mem.Pair(p.inside, "host", mem.Config{Rate: nicRate})
	m.inside.Sink(m.answered)
	m.outside, _ = mem.Pair(p.outside, "host", mem.Config{Rate: nicRate, CompletionDelay: 10 * time.Microsecond})
	m.outside.Sink(m.arrive)
	var err error
	m.Engine, err = shaper.Open(p.config, shaper.Options{Name: p.fifo, OpenPort: func(_ *config.Link, c *config.Port) (nic.Port, error) {
		if c.Dev == p.inside {
			return insidePort{m.inside, &m.source}, nil
		}
		return m.outside, nil
	}})
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() { m.ended <- m.Run(running) }()
	return m, nil
}

// insidePort is a memory port with another receive queue.
type insidePort struct {
	*mem.Port
	source *source
}

func (p insidePort) Rx() []nic.RxQueue { return []nic.RxQueue{p.source} }

// flow is a UDP flow of equal frames.
type flow struct {
	class int
	probe bool
	frame []byte
	every time.Duration // on average
	on    bool
	next  time.Duration // 0: as soon as it is asked
}

const probePort = 7

func newFlow(class, payload int, port uint16, every time.Duration) *flow {
	f := lab.Flow{
		SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2},
		Src: netip.AddrPortFrom(netip.MustParseAddr(insideIP), port), Dst: netip.AddrPortFrom(netip.MustParseAddr(outsideIP), port),
		TOS: uint8(classes[class].tos),
	}
	b := f.Frame(payload + headers)
	b[headers] = byte(class)
	return &flow{class: class, probe: port == probePort, frame: b, every: every}
}

// sentAt is the part of a probe's payload that says when it was due.
func sentAt(frame []byte) []byte { return frame[headers+8 : headers+16] }

// source is the receive queue that the inside host's frames come out of.
type source struct {
	*memory
	flows  []*flow
	jitter *rand.Rand
	stats  nic.RxStats
}

func (s *source) FD() int              { return -1 }
func (s *source) RxStats() nic.RxStats { return s.stats }

// NextAt returns when the next frame of any flow is due.
func (s *source) NextAt() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := qdisc.Never
	for _, f := range s.flows {
		if f.on {
			at = min(at, f.next)
		}
	}
	return at
}

// Receive makes the frames that are due, the earliest first.
func (s *source) Receive(ctx *qdisc.Context, l *qdisc.List, most int) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; n < most; n++ {
		var first *flow
		for _, f := range s.flows {
			if f.on && f.next == 0 {
				f.next = ctx.Now
			}
			if f.on && f.next <= ctx.Now && (first == nil || f.next < first.next) {
				first = f
			}
		}
		if first == nil {
			return n
		}
		p := ctx.Pool.Get()
		if p == nil {
			return n
		}
		p.SetLen(copy(p.Room(), first.frame))
		p.Arrival = ctx.Now
		if first.probe {
			binary.BigEndian.PutUint64(sentAt(p.Bytes()), uint64(first.next))
			s.rtts[first.class].Sent++
		}
		// Evenly spaced flows would stay in step, and meet a full queue always or
		// never.
		first.next += first.every/2 + time.Duration(s.jitter.Int64N(int64(first.every)))
		l.Push(p)
		s.stats.Packets++
		s.stats.Bytes += uint64(p.Len())
	}
	return n
}

// arrive is the outside host: it sends probes back and counts the rest.
func (m *memory) arrive(p *qdisc.Packet, _, end time.Duration) {
	frame := p.Bytes()
	if binary.BigEndian.Uint16(frame[36:]) == probePort {
		m.outside.Inject(0, end, frame)
		return
	}
	m.mu.Lock()
	m.arrived[frame[headers]] += uint64(len(frame) - headers)
	m.mu.Unlock()
}

// answered is the inside host when a probe comes back.
func (m *memory) answered(p *qdisc.Packet, _, end time.Duration) {
	sent := time.Duration(binary.BigEndian.Uint64(sentAt(p.Bytes())))
	m.mu.Lock()
	r := &m.rtts[p.Bytes()[headers]]
	r.Samples = append(r.Samples, end-sent)
	m.mu.Unlock()
}

func (m *memory) Arrived() [len(classes)]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.arrived
}

// turn switches the probes or the load on or off, and wakes the worker.
func (m *memory) turn(probes, on bool) error {
	m.mu.Lock()
	for _, f := range m.source.flows {
		if f.probe == probes {
			f.on, f.next = on, 0
		}
	}
	m.mu.Unlock()
	_, err := m.Status()
	return err
}

func (m *memory) Load(on bool) error { return m.turn(false, on) }

func (m *memory) Probe(ctx context.Context, d time.Duration) (rtts [len(classes)]lab.RTTs, err error) {
	m.mu.Lock()
	m.rtts = rtts
	m.mu.Unlock()
	if err := m.turn(true, true); err != nil {
		return rtts, err
	}
	wait(ctx, d)
	if err := m.turn(true, false); err != nil {
		return rtts, err
	}
	wait(ctx, probeWait)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rtts, ctx.Err()
}

func (m *memory) Apply(_ context.Context, file string) error {
	c, err := config.Load(file)
	if err != nil {
		return err
	}
	_, err = m.Engine.Apply(file, c, false)
	return err
}

func (m *memory) Close() error {
	m.stop()
	return <-m.ended
}
