// Packet path.

package aqm

import (
	"time"

	"sluice/qdisc"
)

// MaxProb is certainty, in PIE's 56 bits of fraction.
const MaxProb = 1<<56 - 1

const (
	tick         = 64 // ns: the kernel's psched tick, in which PIE counts delays
	ticksPerSec  = int64(time.Second) / tick
	firstUpdate  = 500 * time.Millisecond
	burst        = uint32(150 * time.Millisecond / tick)
	threshold    = 16384 // bytes that a measurement of the drain rate takes
	rateScale    = 8     // bits of fraction of the drain rate
	steep        = 250 * time.Millisecond / tick
	longestDelay = 16 * time.Second / tick // what more there is makes no difference
	mostUpdates  = 4096                    // made up for at once after a pause
	none         = ^uint64(0)
)

// PIE is the parameters of Proportional Integral controller Enhanced (RFC 8033):
// packets are dropped on arrival with a probability that is set anew at every
// Update, from how far the delay is from the target and from how it changed.
type PIE struct {
	Target      int64         // in ticks of 64 ns
	Update      time.Duration // 0: never
	Alpha, Beta uint32        // in 1/16 per second of delay
	MTU         int
	ByteMode    bool // small packets are dropped less
	Estimate    bool // delay from the drain rate, not from timestamps
}

// PIETicks returns how many ticks d is.
func PIETicks(d time.Duration) int64 { return int64(d / tick) }

// PIEState is what PIE knows of one queue (struct pie_vars). Zero, it becomes
// that of a new queue by Init.
type PIEState struct {
	Prob      uint64        // drop probability, of MaxProb
	accu      uint64        // probability since the last drop, summed up
	next      time.Duration // when Prob is set next; 0: the clock has not started
	stamp     uint64        // of the last departure, or of the start of a measurement; none
	Delay     int64         // in ticks
	oldDelay  int64         // at the last update
	burst     uint32        // time that is left without drops, in ticks
	counted   int32         // bytes that left in this measurement; negative: there is none
	DrainRate uint32        // bytes per tick, shifted by rateScale
}

// Init begins a new measurement and allows a burst (pie_vars_init).
func (s *PIEState) Init() {
	s.accu, s.stamp, s.burst, s.counted, s.DrainRate = 0, none, burst, -1, 0
}

// DelayTime returns the delay as a time.
func (s *PIEState) DelayTime() time.Duration { return time.Duration(s.Delay) * tick }

// BytesPerSecond returns the drain rate.
func (s *PIEState) BytesPerSecond() uint64 {
	return uint64(s.DrainRate) * uint64(ticksPerSec) >> rateScale
}

// Advance does the updates that are due by now: there is no timer here, and
// nothing else changes between two packets. started is when the clock of all
// queues that share c did.
func (c *PIE) Advance(s *PIEState, started, now time.Duration, backlog int) {
	if s.next == 0 {
		s.next = started + firstUpdate
	}
	if now < s.next || c.Update == 0 {
		return
	}
	for range mostUpdates {
		before := *s
		c.update(s, backlog)
		same := *s == before
		s.next += c.Update
		if now < s.next {
			return
		}
		if same {
			break // and stays so
		}
	}
	s.next += (now - s.next + c.Update) / c.Update * c.Update
}

// update sets the probability (RFC 8033 §4.2, pie_calculate_probability).
func (c *PIE) update(s *PIEState, backlog int) {
	delay, old := s.Delay, s.oldDelay
	if c.Estimate {
		old, delay = s.Delay, 0
		if s.DrainRate > 0 {
			delay = int64(backlog) << rateScale / int64(s.DrainRate)
		}
		s.oldDelay = old
	}

	alpha := int64(uint64(c.Alpha) * (MaxProb / uint64(ticksPerSec)) >> 4)
	beta := int64(uint64(c.Beta) * (MaxProb / uint64(ticksPerSec)) >> 4)
	// The lighter the congestion, the finer the steps (§5.2).
	if s.Prob < MaxProb/10 {
		alpha, beta = alpha>>1, beta>>1
		for power := uint64(100); power <= 1e6 && s.Prob < MaxProb/power; power *= 10 {
			alpha, beta = alpha>>2, beta>>2
		}
	}
	far := min(delay, int64(longestDelay))
	delta := alpha*(far-c.Target) + beta*(far-min(old, int64(longestDelay)))
	if s.Prob >= MaxProb/10 {
		delta = min(delta, MaxProb/100*2)
	}
	if delay > int64(steep) {
		delta += MaxProb / 50
	}
	decay := delay != 0 || backlog == 0
	switch prob := int64(s.Prob) + delta; {
	case prob > MaxProb:
		s.Prob, decay = MaxProb, false
	case prob < 0:
		s.Prob = 0
	default:
		s.Prob = uint64(prob)
	}
	if delay == 0 && old == 0 && decay {
		s.Prob -= s.Prob / 64
	}
	s.Delay = delay
	if delay < c.Target/2 && s.oldDelay < c.Target/2 && s.Prob == 0 && (!c.Estimate || s.DrainRate > 0) {
		s.Init()
	}
	if !c.Estimate {
		s.oldDelay = delay
	}
}

// Drops decides about p, before it joins backlog bytes (RFC 8033 §4.1,
// pie_drop_early). The random choice is bounded: none below 85 % of a drop's
// worth of probability since the last one, always above 850 % (§5.4).
func (c *PIE) Drops(ctx *qdisc.Context, s *PIEState, p *qdisc.Packet, backlog int) bool {
	if s.burst > 0 || s.Delay < c.Target/2 && s.Prob < MaxProb/5 || backlog < 2*c.MTU {
		return false
	}
	prob := s.Prob
	if c.ByteMode && p.Len() <= c.MTU {
		prob = uint64(p.Len()) * (prob / uint64(c.MTU))
	}
	if prob == 0 {
		s.accu = 0
	} else {
		s.accu += prob
	}
	switch {
	case s.accu < MaxProb/100*85:
		return false
	case s.accu >= MaxProb/2*17:
		return true
	case ctx.Rand.Uint64()>>8 < prob:
		s.accu = 0
		return true
	}
	return false
}

// Dropped says that a packet was.
func (s *PIEState) Dropped() { s.accu = 0 }

// Enqueued keeps the instant in p.
func (c *PIE) Enqueued(p *qdisc.Packet, now time.Duration) { p.Scratch[0] = uint64(now / tick) }

// Dequeued learns from p, which leaves backlog bytes behind
// (pie_process_dequeue).
func (c *PIE) Dequeued(s *PIEState, p *qdisc.Packet, now time.Duration, backlog int) {
	at, since := uint64(now/tick), uint64(0)
	if !c.Estimate {
		s.Delay = int64(at - p.Scratch[0])
		if s.stamp != none {
			since = at - s.stamp
		}
		s.stamp = at
		if backlog == 0 {
			s.Delay = 0
		}
		s.allow(since)
		return
	}
	if backlog >= threshold && s.counted < 0 {
		s.stamp, s.counted = at, 0
	}
	if s.counted < 0 {
		return
	}
	if s.counted += int32(p.Len()); s.counted < threshold {
		return
	}
	if since = at - s.stamp; since == 0 {
		return
	}
	rate := uint32(uint64(s.counted) << rateScale / since)
	if s.DrainRate == 0 {
		s.DrainRate = rate
	} else {
		s.DrainRate += rate>>3 - s.DrainRate>>3
	}
	s.stamp, s.counted = at, 0
	if backlog < threshold {
		s.counted = -1
	}
	s.allow(since)
}

// allow uses up the burst allowance.
func (s *PIEState) allow(since uint64) {
	s.burst -= uint32(min(since, uint64(s.burst)))
}
