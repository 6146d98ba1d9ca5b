// Admin path.

// Package worker is the loop: one locked OS thread that owns receive queues,
// transmit queues and the qdiscs on them. Nobody else writes what it owns.
//
// [Worker.Turn] is one deterministic step, which tests drive with a fake clock
// and memory ports. [Worker.Run] is the thread around it: it sleeps in ppoll
// until a frame, a command or the next deadline. [Worker.Do] is how the rest of
// the program reaches what the worker owns: a function that runs between two
// turns.
package worker

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"sluice/dequeue"
	"sluice/qdisc"
	"sluice/shaper/classify"
	"sluice/shaper/nic"
)

// Clock gives the instant since an epoch of its own choice.
type Clock interface {
	Now() time.Duration
}

// Config is what a worker needs to start.
type Config struct {
	Name string // for errors and status; default "worker"

	Pool  *qdisc.Pool // packets and frames; the worker's alone
	Clock Clock       // nil: the real one
	Seed  uint64      // of the random source that disciplines use, and of the flow hash

	// CPU the thread is pinned to; -1: wherever the kernel likes.
	CPU int

	// BusyPoll is how long to go on polling after the last packet before
	// sleeping. 0: sleep at once.
	BusyPoll time.Duration

	// RxCoalesce is the longest pause between being woken by a frame and polling
	// again. It is used only when frames wake the worker faster than every
	// coalesceBelow and nothing is queued; 0: never.
	RxCoalesce time.Duration

	// NoPriority leaves every packet's priority at 0, instead of taking it from
	// the TOS byte as a router does.
	NoPriority bool
}

func (c *Config) validate() error {
	if c.Name == "" {
		c.Name = "worker"
	}
	if c.Clock == nil {
		c.Clock = NewClock()
	}
	switch {
	case c.Pool == nil:
		return errors.New("worker needs a packet pool")
	case c.BusyPoll < 0, c.RxCoalesce < 0:
		return errors.New("busy_poll and rx_coalesce cannot be negative")
	}
	return nil
}

// Worker owns what is attached to it. Its exported counters are written by
// Turn; read them in Do, or when no Run is active.
type Worker struct {
	// read mostly
	name       string
	clock      Clock
	ctx        *qdisc.Context
	ingress    []*Ingress
	egress     []*Egress
	sched      dequeue.Scheduler
	cpu        int
	busyPoll   time.Duration
	rxCoalesce time.Duration
	noPriority bool

	// written by Turn
	active   time.Duration // last turn that received something
	watchdog time.Duration // next test for tx timeouts
	Turns    uint64
	Received uint64
	Shed     uint64

	// written by Run
	Wakes      uint64 // returns from sleep
	EmptyWakes uint64 // of those, the ones that found no frame and no deadline due
	coalesce   time.Duration

	// written by everybody
	mail    atomic.Pointer[command]
	running atomic.Bool
	wakeFD  int
}

// New makes a worker that owns nothing yet.
func New(c Config) (*Worker, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	fd, err := newWakeFD()
	if err != nil {
		return nil, fmt.Errorf("%s: cannot make its wake-up descriptor: %w", c.Name, err)
	}
	ctx := qdisc.NewContext(c.Pool, c.Seed)
	ctx.Hasher = func(p *qdisc.Packet) uint32 { return classify.FlowHash(p, c.Seed) }
	return &Worker{
		name: c.Name, clock: c.Clock, ctx: ctx,
		cpu: c.CPU, busyPoll: c.BusyPoll, rxCoalesce: c.RxCoalesce,
		noPriority: c.NoPriority, wakeFD: fd,
	}, nil
}

// Context returns the worker's context, for admin code inside Do, and for tests.
func (w *Worker) Context() *qdisc.Context { return w.ctx }

// Scheduler returns the worker's scheduler, to build runners for AddEgress.
func (w *Worker) Scheduler() *dequeue.Scheduler { return &w.sched }

// AddEgress gives the worker the transmit side of a port. Call it inside Do, or
// before Run.
func (w *Worker) AddEgress(e *Egress) { w.egress = append(w.egress, e) }

// AddIngress gives the worker a receive queue, number queue of port, whose
// frames leave by out. Call it inside Do, or before Run.
func (w *Worker) AddIngress(rx nic.RxQueue, port, queue int, out *Egress) *Ingress {
	in := &Ingress{rx: rx, fd: rx.FD(), port: uint16(port), out: out}
	in.queue = uint16(queue % len(out.Txqs))
	w.ingress = append(w.ingress, in)
	return in
}

// Rx returns the receive queue of in.
func (in *Ingress) Rx() nic.RxQueue { return in.rx }

// Queued returns the packets that wait in the qdiscs of all egresses.
func (w *Worker) Queued() int {
	n := 0
	for _, e := range w.egress {
		n += e.Runner.Len()
	}
	return n
}

// InFlight returns the packets that devices have and will complete: not those of
// one that is gone or without carrier.
func (w *Worker) InFlight() int {
	n := 0
	for _, e := range w.egress {
		for _, t := range e.Txqs {
			if !t.Down() && !t.Driver().Down() {
				n += t.Stats().InFlight
			}
		}
	}
	return n
}

// Unplug makes the worker stop receiving; what is queued still leaves. It is the
// first half of a clean stop. Call it inside Do.
func (w *Worker) Unplug() { w.ingress = nil }

// Purge drops what is still queued, rings what is posted and lets go of all
// ports. Call it inside Do, or after Run.
func (w *Worker) Purge() {
	for _, e := range w.egress {
		for _, t := range e.Txqs {
			t.FlushNow(w.ctx)
		}
		e.Runner.Reset(w.ctx)
	}
	w.ingress, w.egress = nil, nil
}
