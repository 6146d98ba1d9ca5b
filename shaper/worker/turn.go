// Packet path.

package worker

import (
	"time"

	"sluice/dequeue"
	"sluice/qdisc"
	"sluice/shaper/classify"
	"sluice/shaper/nic"
)

// burst is how many frames one receive queue may bring in a turn (napi budget).
const burst = 64

// stopPoll is the longest sleep while a stopped transmit queue has packets
// waiting: completions and a driver's wake are announced by no descriptor.
const stopPoll = 50 * time.Microsecond

// flightPoll is the longest sleep while a device still holds frames of ours, so
// that BQL and the stall detector learn of completions while they are news.
const flightPoll = time.Millisecond

// watchdogPeriod is how often stopped queues are tested for a tx timeout.
const watchdogPeriod = 100 * time.Millisecond

// Ingress is one receive queue and where its frames go.
type Ingress struct {
	rx      nic.RxQueue
	fd      int
	port    uint16
	queue   uint16
	out     *Egress
	silent  time.Duration // its descriptor reports an error without end: not polled until then
	Packets uint64        // received
	Bytes   uint64
}

// Egress is the transmit side of one port: the runner with its root qdisc, and
// the transmit queues it fills.
type Egress struct {
	Runner *dequeue.Runner
	Txqs   []*dequeue.Txq

	in       qdisc.List // what this turn's receive bursts brought for it
	Timeouts uint64     // tx timeouts of its queues
}

// Turn is one pass of the loop: it reads the clock once, reaps completions,
// receives, classifies, enqueues, runs every scheduled runner once and rings the
// doorbells that are due. It returns the instant by which the next turn must
// come; an instant not after the one it read means at once.
//
// It is deterministic: everything follows from the clock, the frames received
// and the seed. The functions below are in the order a packet meets them.
func (w *Worker) Turn() time.Duration {
	w.ctx.Now = w.clock.Now()
	w.Turns++
	w.reap()
	if w.receive() {
		w.active = w.ctx.Now
	}
	w.submit()
	w.wakeThrottled()
	w.sched.Pass(w.ctx)
	w.flush()
	return w.next()
}

// reap tells BQL and the stopped queues what the devices have completed.
func (w *Worker) reap() {
	for _, e := range w.egress {
		for _, t := range e.Txqs {
			t.Reap(w.ctx)
		}
	}
	if w.ctx.Now < w.watchdog {
		return
	}
	w.watchdog = w.ctx.Now + watchdogPeriod
	for _, e := range w.egress {
		for _, t := range e.Txqs {
			if late, _ := t.CheckTimeout(w.ctx); late {
				e.Timeouts++
			}
		}
	}
}

// receive takes one burst from every receive queue, reads the headers and sorts
// the packets by the egress they are for. It reports whether any came.
func (w *Worker) receive() bool {
	got := 0
	for _, in := range w.ingress {
		if w.ctx.Pool.Available() < burst {
			w.shed(burst - w.ctx.Pool.Available())
		}
		// The burst goes straight to the end of the egress's list, behind what
		// other queues brought; what is new starts behind last.
		l := &in.out.in
		last, bytes := l.Back(), l.Bytes()
		n := in.rx.Receive(w.ctx, l, burst)
		if n == 0 {
			continue
		}
		got += n
		in.Packets += uint64(n)
		in.Bytes += uint64(l.Bytes() - bytes)
		p := l.Front()
		if last != nil {
			p = last.Next()
		}
		for ; p != nil; p = p.Next() {
			p.Port = in.port
			p.Queue = in.queue
			if w.noPriority {
				classify.ParseHeaders(p)
			} else {
				classify.Parse(p)
			}
		}
	}
	w.Received += uint64(got)
	return got > 0
}

// shed frees n slots of the pool at the expense of the fattest backlog.
func (w *Worker) shed(n int) {
	var fat *Egress
	for _, e := range w.egress {
		if fat == nil || e.Runner.Len() > fat.Runner.Len() {
			fat = e
		}
	}
	if fat != nil {
		w.Shed += uint64(fat.Runner.Root().Shed(w.ctx, n))
	}
}

// submit hands each egress the packets of this turn.
func (w *Worker) submit() {
	for _, e := range w.egress {
		if e.in.Len() > 0 {
			e.Runner.Submit(w.ctx, &e.in)
		}
	}
}

// wakeThrottled schedules the runners whose shaper may send again
// (qdisc_watchdog).
func (w *Worker) wakeThrottled() {
	for _, e := range w.egress {
		if e.Runner.NextAt() <= w.ctx.Now {
			w.sched.Schedule(e.Runner)
		}
	}
}

// flush rings the doorbells that are due.
func (w *Worker) flush() {
	for _, e := range w.egress {
		for _, t := range e.Txqs {
			t.Flush(w.ctx)
		}
	}
}

// next works out the deadline of the next turn.
func (w *Worker) next() time.Duration {
	if w.sched.Pending() {
		return w.ctx.Now
	}
	at := qdisc.Never
	for _, e := range w.egress {
		at = min(at, e.Runner.NextAt())
		if e.Runner.Waiting() {
			at = min(at, w.ctx.Now+stopPoll)
		}
		for _, t := range e.Txqs {
			at = min(at, t.NextFlush())
			if t.InFlight() && !t.Down() { // what is gone completes nothing
				at = min(at, w.ctx.Now+flightPoll)
			}
		}
	}
	for _, in := range w.ingress {
		at = min(at, in.rx.NextAt())
	}
	return at
}
