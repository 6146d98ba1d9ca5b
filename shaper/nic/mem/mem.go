// Admin path.

// Package mem is a pair of ports in memory, wired back to back by a link that
// has a speed, a latency and a device at either end that completes late: enough
// of a NIC for byte queue limits to have something to learn, and for a whole
// appliance to run in a test or in an unprivileged demo.
//
// The ports have no clock and no thread. Everything happens at the instants
// handed to Kick, Reap and Receive, virtual or real, and exactly: a frame
// starts at the later of its doorbell and the end of the frame before it, and
// the fraction of a nanosecond that is left when a frame ends is carried into
// the next one, so that a link of 3 Mbit/s sends 3,000,000 bits in a second.
// The same calls give the same instants, always.
//
// One worker owns both ends of a pair.
package mem

import (
	"fmt"
	"time"

	"sluice/dequeue"
	"sluice/qdisc"
	"sluice/shaper/nic"
)

// Config describes both directions of a pair. The zero Config is an infinitely
// fast link with one queue.
type Config struct {
	Rate     uint64        // bits per second; 0: serialisation takes no time
	Overhead int           // bytes a frame costs on the wire besides its length; Ethernet's preamble, FCS and gap are 24
	Latency  time.Duration // from the end of serialisation to the arrival at the other end

	// CompletionDelay lies between the end of serialisation and the instant
	// from which Reap shows the packet. With a CompletionInterval completions
	// show only at multiples of it, as a NIC's interrupt moderation batches
	// them.
	CompletionDelay    time.Duration
	CompletionInterval time.Duration

	Ring   int // descriptors of a transmit queue, a power of two; default 256
	RxRing int // frames waiting at a receive queue before it drops; default 1024
	Queues int // transmit and receive queues of a port; default 1
	MTU    int // default 1500
}

func (c *Config) validate() error {
	if c.Ring == 0 {
		c.Ring = 256
	}
	if c.RxRing == 0 {
		c.RxRing = 1024
	}
	if c.Queues == 0 {
		c.Queues = 1
	}
	if c.MTU == 0 {
		c.MTU = 1500
	}
	switch {
	case c.Ring < 1 || c.Ring&(c.Ring-1) != 0:
		return fmt.Errorf("ring of %d descriptors; a power of two is needed", c.Ring)
	case c.RxRing < 1:
		return fmt.Errorf("receive ring of %d frames; at least 1 is needed", c.RxRing)
	case c.Queues < 1:
		return fmt.Errorf("%d queues; at least 1 is needed", c.Queues)
	case c.MTU < 68 || c.MTU > maxMTU:
		return fmt.Errorf("mtu %d; 68 to %d are possible", c.MTU, maxMTU)
	case c.Overhead < 0 || c.Overhead > 1<<16:
		return fmt.Errorf("overhead of %d bytes; 0 to %d are possible", c.Overhead, 1<<16)
	case c.Latency < 0 || c.CompletionDelay < 0 || c.CompletionInterval < 0:
		return fmt.Errorf("latency %v, completion delay %v, completion interval %v; none may be negative",
			c.Latency, c.CompletionDelay, c.CompletionInterval)
	}
	return nil
}

const (
	linkHeader = 14 + 2*4               // Ethernet header with two VLAN tags
	headroom   = 256                    // of the injection pool
	maxMTU     = 65535 - headroom - 100 // a slot of a pool is at most 65535 bytes
)

// Port is one end of a pair.
type Port struct {
	name string
	cfg  Config
	out  wire // the direction that leaves by this port
	rxq  []RxQueue
	peer *Port
	tx   []dequeue.Driver
	rx   []nic.RxQueue

	pool *qdisc.Pool // what Inject copies into; made by the first Inject
	down bool
}

var _ nic.Port = (*Port)(nil)

// Pair makes two ports, each the other's far end: what is sent on transmit
// queue i of one arrives at receive queue i of the other. It panics when c
// describes no possible link.
func Pair(nameA, nameB string, c Config) (a, b *Port) {
	a, b, err := NewPair(nameA, nameB, c)
	if err != nil {
		panic("mem: " + err.Error())
	}
	return a, b
}

// NewPair is Pair for configurations that come from outside.
func NewPair(nameA, nameB string, c Config) (a, b *Port, err error) {
	if err := c.validate(); err != nil {
		return nil, nil, fmt.Errorf("memory ports %s and %s: %w", nameA, nameB, err)
	}
	a, b = newPort(nameA, c), newPort(nameB, c)
	a.peer, b.peer = b, a
	return a, b, nil
}

func newPort(name string, c Config) *Port {
	p := &Port{name: name, cfg: c}
	p.out = wire{port: p, rate: c.Rate, overhead: c.Overhead, queues: make([]TxQueue, c.Queues)}
	p.rxq = make([]RxQueue, c.Queues)
	p.tx = make([]dequeue.Driver, c.Queues)
	p.rx = make([]nic.RxQueue, c.Queues)
	for i := range c.Queues {
		p.out.queues[i] = TxQueue{wire: &p.out, index: i, ring: make([]descriptor, c.Ring), credits: -1}
		p.rxq[i] = RxQueue{port: p, index: i, limit: c.RxRing}
		p.tx[i], p.rx[i] = &p.out.queues[i], &p.rxq[i]
	}
	return p
}

// Name returns the port's name.
func (p *Port) Name() string { return p.name }

// Driver returns "mem".
func (p *Port) Driver() string { return "mem" }

// MTU returns the configured MTU.
func (p *Port) MTU() int { return p.cfg.MTU }

// Rx returns the receive queues.
func (p *Port) Rx() []nic.RxQueue { return p.rx }

// Tx returns the transmit queues.
func (p *Port) Tx() []dequeue.Driver { return p.tx }

// RxQueue returns receive queue i with all its methods.
func (p *Port) RxQueue(i int) *RxQueue { return &p.rxq[i] }

// TxQueue returns transmit queue i with all its methods.
func (p *Port) TxQueue(i int) *TxQueue { return &p.out.queues[i] }

// Peer returns the other end.
func (p *Port) Peer() *Port { return p.peer }

// Sink takes the frames that leave by p instead of the other end: f sees each
// one with the exact instants at which its serialisation starts and ends, in
// the order of the wire, and may look but not keep; the packet is freed behind
// it. f runs inside the call that let the frame start (Kick, Reap or a Receive
// of the other end). A nil f connects the wire again.
func (p *Port) Sink(f func(pkt *qdisc.Packet, start, end time.Duration)) { p.out.sink = f }

// SetDown takes the carrier away, at both ends as a pulled cable does, or
// gives it back. Frames that had not started are lost, those under way arrive.
func (p *Port) SetDown(down bool) {
	for _, end := range []*Port{p, p.peer} {
		end.down = down
		if down {
			end.out.lose()
		}
	}
}

// NextAt returns the earliest instant at which something will have happened at
// this port: a frame arrived or a completion shows. Never when nothing is under
// way. A virtual clock goes there next.
func (p *Port) NextAt() time.Duration {
	at := qdisc.Never
	for i := range p.rxq {
		at = min(at, p.rxq[i].NextAt(), p.out.queues[i].NextAt())
	}
	return at
}

// Inject puts a copy of frame at receive queue q, as if it arrived at instant
// at. It returns false when the port's memory for injected frames (as many as
// RxRing a queue) is full or the frame is longer than the MTU and a link header
// with two VLAN tags.
//
// Preconditions: the instants of one queue's injected frames do not decrease.
func (p *Port) Inject(q int, at time.Duration, frame []byte) bool {
	if p.pool == nil {
		pool, err := qdisc.NewPool(qdisc.PoolConfig{
			Packets: p.cfg.RxRing * p.cfg.Queues, FrameSize: max(2048, headroom+linkHeader+p.cfg.MTU), Headroom: headroom})
		if err != nil {
			panic("mem: " + err.Error())
		}
		p.pool = pool
	}
	if len(frame) > p.cfg.MTU+linkHeader {
		return false
	}
	pkt := p.pool.Get()
	if pkt == nil {
		return false
	}
	copy(pkt.Room(), frame)
	pkt.SetLen(len(frame))
	p.InjectPacket(q, at, pkt)
	return true
}

// Close frees every packet that waits at this port, in either direction.
func (p *Port) Close() error {
	for i := range p.rxq {
		p.out.queues[i].free()
		p.rxq[i].free()
	}
	return nil
}
