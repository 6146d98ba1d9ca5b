// Packet path, except NewTxq and Reset.

package dequeue

import (
	"math"
	"time"

	"sluice/bql"
	"sluice/qdisc"
)

// Txq is one transmit queue of a device: the kernel's netdev_queue together
// with the part of a driver's transmit function that is the same in all of
// them. It knows when the queue may not be used, how many bytes it may hold, and
// when the doorbell has to be rung.
//
// It belongs to the worker that owns the queue. A turn of that worker calls Reap
// first, lets runners post, and calls Flush last.
//
// The queue is stopped while any of these holds:
//
//   - driver XOFF: the ring is full, the driver refused a packet, or the device
//     answered the doorbell with KickStopped. It ends when Reap shows progress,
//     or after 50 µs, provided there is room;
//   - stack XOFF: BQL is over its limit. It ends with a completion;
//   - frozen: its owner is repairing it ([Txq.Freeze]);
//   - down: the device is gone or has no carrier.
type Txq struct {
	// Read mostly.
	driver   Driver
	runners  []*Runner     // those that wait here when the queue is stopped
	chunk    int           // packets between two looks at the doorbell: 1, or the whole list
	batch    int           // ring when so many are unrung
	interval time.Duration // how long unrung packets may wait beyond the turn
	timeout  time.Duration // watchdog_timeo
	noBQL    bool          // TxqConfig.NoBQL
	told     bool          // the driver tells of completions
	limited  bool          // has BQL

	// Written for every list.
	off        xoff
	probing    bool          // a stop ended by time alone, and nothing has moved since
	room       int           // packets Post is sure to take; > 0 unless driver XOFF is set
	unrung     int           // packets posted since the device last took all
	inflight   int           // packets posted and not completed
	flushAt    time.Duration // instant at which unrung packets must be rung
	transStart time.Duration // trans_start: last post or stop
	stoppedAt  time.Duration // instant of the last driver XOFF
	retriedAt  time.Duration // instant of the last stop that time alone ended
	downAt     time.Duration // instant at which the device was last found down
	timedOut   time.Duration // instant of the last timeout reported

	bql   bql.Limit
	stats TxqStats
}

// xoff says why a queue is stopped (netdev_queue_state_t); 0 is live.
type xoff uint8

const (
	driverXOFF xoff = 1 << iota // __QUEUE_STATE_DRV_XOFF
	stackXOFF                   // __QUEUE_STATE_STACK_XOFF
	frozen                      // __QUEUE_STATE_FROZEN
	down                        // no carrier; the kernel would attach noop instead
)

// retryAfter ends a driver XOFF that no completion ends: a driver's wake is not
// announced by any descriptor.
const retryAfter = 50 * time.Microsecond

// downPoll is how often a device that is down is asked whether it still is, when
// something waits for it.
const downPoll = 10 * time.Millisecond

// Doorbell says how soon posted packets are made visible to the device.
type Doorbell uint8

const (
	DoorbellTurn   Doorbell = iota // at the end of the turn, or FlushInterval later
	DoorbellList                   // after every list, as the kernel does
	DoorbellPacket                 // after every packet: no staging
)

// TxqConfig describes a [Txq].
type TxqConfig struct {
	Driver Driver

	// NoBQL leaves out byte queue limits. A driver that tells of no completions
	// (CompleteNone) never has them.
	NoBQL              bool
	MinLimit, MaxLimit uint32        // bounds of the BQL limit, at most bql.MaxLimit; 0: the kernel's, 0 and bql.MaxLimit
	HoldTime           time.Duration // BQL's slack hold time, in whole milliseconds; default 1 s

	Timeout time.Duration // of the transmit watchdog; default 5 s

	Doorbell Doorbell

	// FlushInterval lets unrung packets wait beyond their turn, for more to
	// share the doorbell; 0 rings at the end of the turn.
	FlushInterval time.Duration

	// FlushBatch rings as soon as so many packets are unrung. Default: 32 with a
	// FlushInterval, else no number, since the turn ends soon enough.
	FlushBatch int
}

// NewTxq makes a queue that is live unless its device is down.
func NewTxq(c TxqConfig) *Txq {
	t := &Txq{
		chunk:    math.MaxInt,
		batch:    c.FlushBatch,
		interval: c.FlushInterval,
		timeout:  c.Timeout,
		noBQL:    c.NoBQL,
	}
	if t.timeout <= 0 {
		t.timeout = 5 * time.Second
	}
	switch {
	case c.Doorbell == DoorbellPacket:
		t.chunk, t.batch = 1, 1
	case c.Doorbell == DoorbellList:
		t.batch = 1
	case t.batch <= 0 && t.interval > 0:
		t.batch = 32
	case t.batch <= 0:
		t.batch = math.MaxInt
	}
	t.bql.Init(0)
	_ = t.bql.SetMin(min(c.MinLimit, bql.MaxLimit))
	if c.MaxLimit > 0 {
		_ = t.bql.SetMax(min(c.MaxLimit, bql.MaxLimit))
	}
	if c.HoldTime > 0 {
		t.bql.SetHoldTime(tick(c.HoldTime))
	}
	t.adopt(c.Driver, 0)
	return t
}

// adopt starts on an empty ring.
func (t *Txq) adopt(d Driver, now time.Duration) {
	t.driver = d
	t.told = d.Completions() != CompleteNone
	t.limited = t.told && !t.noBQL
	t.bql.Reset(tick(now))
	t.unrung, t.inflight, t.probing = 0, 0, false
	t.transStart = now
	t.off &= frozen
	if d.Down() {
		t.wentDown(now)
	}
	if t.room = d.Room(); t.room <= 0 {
		t.stop(now)
	}
}

// Reset starts anew on d, which may be the driver it had, after its ring was
// flushed or the device was opened again (netdev_tx_reset_queue). What was
// posted before and not reaped never will be: without this BQL would count it in
// flight for ever. Waiting runners are scheduled.
func (t *Txq) Reset(ctx *qdisc.Context, d Driver) {
	t.adopt(d, ctx.Now)
	if t.off == 0 {
		t.wake()
	}
}

// Driver returns the driver's side of the queue.
func (t *Txq) Driver() Driver { return t.driver }

// BQL returns the byte queue limit for its settings to be changed between two
// turns, or nil when the queue has none.
func (t *Txq) BQL() *bql.Limit {
	if !t.limited {
		return nil
	}
	return &t.bql
}

// Stopped reports that nothing may be posted, for whatever reason
// (netif_xmit_frozen_or_stopped).
func (t *Txq) Stopped() bool { return t.off != 0 }

// Frozen reports that the owner has frozen the queue.
func (t *Txq) Frozen() bool { return t.off&frozen != 0 }

// Down reports that the device was found gone or without carrier.
func (t *Txq) Down() bool { return t.off&down != 0 }

// InFlight reports that completions are to come.
func (t *Txq) InFlight() bool { return t.inflight > 0 }

// budget returns what the next list may hold: packets, and the bytes that must
// be left before each packet but the first is taken. Without BQL the kernel
// never bulks, its budget being 0; here the ring's room is the bound.
func (t *Txq) budget() (packets, bytes int) {
	if !t.limited {
		return t.room, math.MaxInt
	}
	return t.room, int(t.bql.Avail())
}

// xmit posts the packets of l in order (dev_hard_start_xmit) and rings if the
// bell may not be held. It returns true when the driver took them all; else l
// holds the rest, first the one it refused, and the queue is stopped.
//
// A list is cut by the driver, never by BQL. The packet after which the queue
// stops is still a success: whoever comes next finds the queue stopped.
func (t *Txq) xmit(now time.Duration, l *qdisc.List) bool {
	t.stats.Lists++
	for {
		refused := t.post(now, l)
		if t.limited && t.off&stackXOFF == 0 && t.bql.Avail() < 0 {
			t.off |= stackXOFF
			t.stats.StackStops++
		}
		if refused || t.room <= 0 || t.off != 0 || t.unrung >= t.batch {
			t.ring(now)
		}
		if refused {
			t.stats.Refused++
			t.stop(now)
		} else if t.room <= 0 {
			// The bell may have made room, in a driver that copies
			// (netif_txq_maybe_stop looks twice for the same reason).
			if t.room = t.driver.Room(); t.room <= 0 {
				t.stop(now)
			}
		}
		if l.Len() == 0 {
			return true
		}
		if t.off&(driverXOFF|down) != 0 {
			return false
		}
	}
}

// post hands packets to the driver, one chunk of l, and counts them. It reports
// that the driver refused one, which is back at the front.
func (t *Txq) post(now time.Duration, l *qdisc.List) (refused bool) {
	driver := t.driver
	packets, bytes, last := 0, 0, 0
	for packets < t.chunk {
		p := l.Pop()
		if p == nil {
			break
		}
		n := p.Len() // the driver may free p at once
		if !driver.Post(p) {
			l.PushFront(p)
			refused = true
			break
		}
		packets++
		bytes += n
		last = n
	}
	if packets == 0 {
		return refused
	}
	if t.unrung == 0 {
		t.flushAt = now + t.interval
	}
	t.unrung += packets
	if t.told {
		t.inflight += packets
	}
	t.room -= packets
	t.stats.Packets += uint64(packets)
	t.stats.Bytes += uint64(bytes)
	t.touch(now)
	if t.limited {
		// Drivers tell BQL of each packet, and its size is a candidate for the
		// slack. Only that of the last one is ever looked at.
		if bytes > last {
			t.bql.Queued(uint32(bytes-last), tick(now))
		}
		t.bql.Queued(uint32(last), tick(now))
	}
	return refused
}

// touch sets trans_start: the queue has just been used or stopped, so the
// watchdog's time starts here. A device that is only being retried does not get
// new time: if it never moves, the watchdog has to find out.
func (t *Txq) touch(now time.Duration) {
	if !t.probing {
		t.transStart = now
	}
}

// moved ends a retry: the device completed something or took everything.
func (t *Txq) moved(now time.Duration) {
	if t.probing {
		t.probing = false
		t.transStart = now
	}
}

// stop sets driver XOFF (netif_tx_stop_queue).
func (t *Txq) stop(now time.Duration) {
	if t.off&driverXOFF == 0 {
		t.off |= driverXOFF
		t.stats.DriverStops++
	}
	t.stoppedAt = now
	t.touch(now)
}

func (t *Txq) wentDown(now time.Duration) {
	t.off |= down
	t.downAt = now
}

// Reap collects completions, tells BQL of them, and wakes the queue if nothing
// holds it any longer; its waiting runners are then scheduled. Start of a turn.
func (t *Txq) Reap(ctx *qdisc.Context) {
	now := ctx.Now
	packets, bytes := t.driver.Reap(now)
	if packets > 0 {
		if t.told {
			t.inflight -= packets
			// A device that went away may have dropped what it never saw.
			t.unrung = min(t.unrung, t.inflight)
		}
		t.moved(now)
		t.stats.Completed += uint64(packets)
		t.stats.CompletedBytes += uint64(bytes)
	}
	if bytes > 0 && t.limited {
		t.bql.Completed(uint32(bytes), tick(now))
	}
	t.room = t.driver.Room()
	if t.off != 0 {
		t.resume(now, packets > 0)
	}
	if t.room <= 0 && t.off&driverXOFF == 0 {
		t.stop(now)
	}
}

// resume clears the reasons to be stopped that no longer hold. Each has its own
// condition, and the wake is lost by none of them, whichever ends last:
// runners are scheduled when the queue is live.
func (t *Txq) resume(now time.Duration, progress bool) {
	off := t.off
	if off&stackXOFF != 0 && t.bql.Avail() >= 0 {
		off &^= stackXOFF
	}
	if off&down != 0 {
		if t.driver.Down() {
			t.downAt = now
		} else {
			off &^= down
			t.flushAt = now
			t.transStart = now
		}
	}
	if off&driverXOFF != 0 {
		if progress {
			t.flushAt = now
		}
		if t.room > 0 && (progress || now-t.stoppedAt >= retryAfter) {
			off &^= driverXOFF
			if !progress {
				t.probing = true
				t.retriedAt = now
			}
		}
	}
	if off != t.off {
		t.off = off
		if off == 0 {
			t.wake()
		}
	}
}

// wake schedules the runners that have packets (netif_tx_wake_queue). If several
// share the queue, each wake begins with another of them: else the first could use
// up what BQL allows before the second is asked, every time.
func (t *Txq) wake() {
	first := int(t.stats.Wakes)
	t.stats.Wakes++
	for i := range t.runners {
		if r := t.runners[(first+i)%len(t.runners)]; r.Len() > 0 {
			r.sched.Schedule(r)
		}
	}
}

// CheckTimeout is the transmit watchdog (dev_watchdog): has the queue been
// stopped, by its driver or by BQL, for longer than the timeout? A queue stopped
// by BQL counts, because completions that never come stop it too. stalled is the
// time since the queue last moved; it is told once per timeout.
//
// The caller then does what it can: reopen the device and [Txq.Reset]. Nobody
// posts meanwhile, since one worker owns both; if it takes longer than a turn,
// Freeze and Unfreeze stand around it.
func (t *Txq) CheckTimeout(ctx *qdisc.Context) (timedOut bool, stalled time.Duration) {
	now := ctx.Now
	stopped := t.off&(driverXOFF|stackXOFF) != 0 || t.probing && t.retriedAt == now
	if !stopped || t.off&(frozen|down) != 0 || now-max(t.transStart, t.timedOut) <= t.timeout {
		return false, 0
	}
	t.timedOut = now
	t.stats.Timeouts++
	return true, now - t.transStart
}

// Freeze stops the queue until Unfreeze (netif_freeze_queues).
func (t *Txq) Freeze() { t.off |= frozen }

// Unfreeze ends Freeze, and schedules waiting runners if nothing else holds the
// queue (netif_tx_unlock).
func (t *Txq) Unfreeze() {
	if t.off&frozen == 0 {
		return
	}
	t.off &^= frozen
	if t.off == 0 {
		t.wake()
	}
}

// attach makes r one of those that wait for the queue.
func (t *Txq) attach(r *Runner) { t.runners = append(t.runners, r) }

// detach reverses attach.
func (t *Txq) detach(r *Runner) {
	for i := range t.runners {
		if t.runners[i] == r {
			t.runners = append(t.runners[:i], t.runners[i+1:]...)
			return
		}
	}
}

// tick converts to BQL's time.
func tick(t time.Duration) bql.Tick { return bql.Tick(t / time.Millisecond) }
