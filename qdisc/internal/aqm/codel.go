// Packet path, except what is about parameters.

package aqm

import (
	"time"

	"sluice/qdisc"
)

// Ticks is an instant or a span in CoDel's own unit, 1024 ns, in 32 bits that
// wrap after 73 minutes. Instants are compared by the sign of their difference.
type Ticks uint32

// TicksAt returns the instant d.
func TicksAt(d time.Duration) Ticks { return Ticks(d >> 10) }

// Duration returns a span as the kernel shows it: whole microseconds, cut off.
func (t Ticks) Duration() time.Duration {
	return time.Duration(t) << 10 / time.Microsecond * time.Microsecond
}

// After says whether t is later than u.
func (t Ticks) After(u Ticks) bool { return int32(t-u) > 0 }

// Span turns a span that people chose into ticks, through microseconds as the
// kernel's attributes do: 5 ms are 4882 ticks.
func Span(d time.Duration) Ticks { return Ticks(d / time.Microsecond * 1000 >> 10) }

// Off is the CEThreshold that no delay reaches.
const Off Ticks = 1<<31 - 1

// CoDel is the parameters of the control law, and what it counted for all queues
// that share them.
type CoDel struct {
	Target      Ticks // delay that a standing queue may cause
	Interval    Ticks // time that it may be exceeded
	CEThreshold Ticks // delay above which every packet is marked; Off: none
	MTU         int   // a backlog of no more than this is never too much
	ECN         bool  // mark rather than drop
	// A packet is marked for CEThreshold only when its DS field under Mask is
	// Selector.
	Selector, Mask uint8

	MaxPacket uint32 // largest packet so far
	Marked    uint64 // packets marked instead of dropped
	CEMarked  uint64 // packets marked for CEThreshold
}

// CoDelState is what the law remembers of one queue (struct codel_vars). The
// zero state is that of a new queue.
type CoDelState struct {
	Count     uint32 // drops since it began to drop
	LastCount uint32 // Count when it last began to
	LastDelay Ticks  // of the last packet that was looked at
	DropNext  Ticks  // when to drop next, while Dropping
	above     Ticks  // since when the delay is too long plus an interval; 0: it is not
	inverse   uint16 // 65536/√Count, by one step of Newton's method a drop
	Dropping  bool
	entering  bool // the packet that began it was dropped, the next one is delivered
	again     bool // a packet was dropped, the next one is looked at by the same rule
}

// Stamp keeps the instant of enqueue in the packet.
func Stamp(p *qdisc.Packet, now time.Duration) { p.Scratch[0] = uint64(TicksAt(now)) }

// Stamped returns the instant that Stamp kept.
func Stamped(p *qdisc.Packet) Ticks { return Ticks(p.Scratch[0]) }

// Drops decides about p, which was just taken from the head of a queue, and says
// whether it has to be dropped: the caller then takes the next one, or nil, and
// asks again. A packet that is not dropped may have been marked. It is RFC 8289
// §5 and the kernel's codel_dequeue, turned inside out so that the queue stays
// with its discipline.
//
//	for p := pop(); c.Drops(s, now, p, backlog); p = pop() {
//		drop(p)
//	}
//
// backlog is what is queued without p, in bytes.
func (c *CoDel) Drops(s *CoDelState, now Ticks, p *qdisc.Packet, backlog int) bool {
	tooLong := c.tooLong(s, now, p, backlog)
	switch {
	case s.entering:
		s.entering = false
		s.enter(c, now)
	case s.again:
		s.again = false
		if !tooLong {
			s.Dropping = false
			break
		}
		s.DropNext = s.law(c, s.DropNext)
		if s.due(now) && c.dropNext(s, p) {
			return true
		}
	case s.Dropping:
		if !tooLong {
			s.Dropping = false
		} else if s.due(now) && c.dropNext(s, p) {
			return true
		}
	case tooLong:
		if !c.mark(p) {
			s.entering = true
			return true
		}
		s.enter(c, now)
	}
	if p != nil && s.LastDelay.After(c.CEThreshold) && p.TOS&c.Mask == c.Selector && qdisc.SetCE(p) {
		c.CEMarked++
	}
	return false
}

// tooLong says whether the delay has been above the target for an interval
// (codel_should_drop). An empty queue has none: that a stale instant survived
// one made the first packet after an idle time look late.
func (c *CoDel) tooLong(s *CoDelState, now Ticks, p *qdisc.Packet, backlog int) bool {
	if p == nil {
		s.above = 0
		return false
	}
	s.LastDelay = now - Stamped(p)
	if p.PktLen > c.MaxPacket {
		c.MaxPacket = p.PktLen
	}
	if c.Target.After(s.LastDelay) || backlog <= c.MTU {
		s.above = 0
		return false
	}
	if s.above == 0 {
		s.above = now + c.Interval
		return false
	}
	return now.After(s.above)
}

// due says whether the next drop is.
func (s *CoDelState) due(now Ticks) bool { return !s.DropNext.After(now) }

// dropNext is the next drop; false when a mark took its place.
func (c *CoDel) dropNext(s *CoDelState, p *qdisc.Packet) bool {
	s.Count++
	s.newton()
	if c.mark(p) {
		s.DropNext = s.law(c, s.DropNext)
		return false
	}
	s.again = true
	return true
}

// mark marks p in place of a drop, if both sides want that.
func (c *CoDel) mark(p *qdisc.Packet) bool {
	if !c.ECN || !qdisc.SetCE(p) {
		return false
	}
	c.Marked++
	return true
}

// enter begins to drop. What was learnt is taken up again when it is not long
// ago: then the rate of drops goes on near where it was.
func (s *CoDelState) enter(c *CoDel, now Ticks) {
	s.Dropping = true
	if delta := s.Count - s.LastCount; delta > 1 && int32(now-s.DropNext-16*c.Interval) < 0 {
		s.Count = delta
		s.newton()
	} else {
		s.Count, s.inverse = 1, 1<<16-1
	}
	s.LastCount = s.Count
	s.DropNext = s.law(c, now)
}

// law spaces drops by interval/√count (RFC 8289 §4.3, codel_control_law).
func (s *CoDelState) law(c *CoDel, t Ticks) Ticks {
	return t + Ticks(uint64(c.Interval)*uint64(s.inverse)>>16)
}

// newton improves 1/√Count by one step, x ← x(3 − Count·x²)/2, in 32 bits of
// fraction of which 16 are kept (codel_Newton_step). One step a drop lags behind
// at first, which is part of how CoDel behaves.
//
// The method only converges from between 0 and √(3/Count). Where Count leapt
// (Aggravate) the start is brought there; in the kernel the product wraps and the
// next drops come at random, or, in a new queue, all at once.
func (s *CoDelState) newton() {
	if s.inverse == 0 {
		s.inverse = 1<<16 - 1
	}
	x := uint64(s.inverse) << 16
	x2 := x * x >> 32
	for uint64(s.Count)*x2 > 5<<31 {
		x >>= 1
		x2 >>= 2
	}
	v := (uint64(3)<<32 - uint64(s.Count)*x2) >> 2 // shifted to leave room for the product
	s.inverse = uint16(v * x >> (32 - 2 + 1) >> 16)
}

// Aggravate counts n packets that the discipline itself had to drop from the
// queue, so that the law drops more.
func (s *CoDelState) Aggravate(n int) { s.Count += uint32(n) }
