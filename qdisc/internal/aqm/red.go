// Packet path.

package aqm

import (
	"time"

	"sluice/qdisc"
)

// Action is what RED says of a packet that arrives.
type Action uint8

const (
	Pass  Action = iota // queue it
	Early               // mark or drop it, by chance
	Hard                // mark or drop it: the average is at the maximum
)

// RED is the parameters of Random Early Detection as the kernel gets them
// (struct red_parms; Floyd and Jacobson, 1993): a packet is marked with a
// probability that grows with the average backlog, from none at Min to
// MaxProb/2³² at Max. With Adaptive the maximum itself is moved to keep the
// average between 40 and 60 % of the way (Floyd, Gummadi and Shenker, 2001).
type RED struct {
	Min, Max uint32 // bytes
	Wlog     uint8  // a new packet's weight in the average is 2^-Wlog
	CellLog  uint8  // idle time is looked up in cells of 2^CellLog µs
	MaxProb  uint32 // of 2³²
	Adaptive bool
	Decay    [256]uint8 // by how many bits so many cells of idle time shift the average

	spacing uint32 // max(MaxProb / (Max − Min), 1)
}

// adaptEvery is how often MaxProb is adapted.
const adaptEvery = 500 * time.Millisecond

// REDState is what RED knows of one queue (struct red_vars). The average is
// scaled by 2^Wlog.
type REDState struct {
	avg       uint64
	count     int64         // packets since the last mark; −1: none since the average is in between
	random    uint32        // the draw for this mark
	idle      bool          // the queue is empty,
	idleSince time.Duration // since then
	next      time.Duration // when MaxProb is adapted next; 0: the clock has not started
}

// Start is the state of a new queue.
func (s *REDState) Start() { *s = REDState{count: -1} }

// Set has to be called after a change of c's parameters.
func (c *RED) Set() { c.spacing = max(c.MaxProb/max(c.Max-c.Min, 1), 1) }

// Arrives takes the backlog that a packet meets into the average, and says what
// to do with the packet.
func (c *RED) Arrives(ctx *qdisc.Context, s *REDState, backlog int) Action {
	c.adapt(s, ctx.Now)
	if s.idle {
		s.avg = c.afterIdle(s, ctx.Now)
		s.idle = false
	} else {
		s.avg += uint64(backlog) - s.avg>>c.Wlog
	}
	lowest, highest := uint64(c.Min)<<c.Wlog, uint64(c.Max)<<c.Wlog
	switch {
	case s.avg < lowest:
		s.count = -1
		return Pass
	case s.avg >= highest:
		s.count = -1
		return Hard
	}
	// The draw is kept, and marks spread evenly rather than as a lone die would
	// fall (Floyd and Jacobson §7).
	s.count++
	if s.count == 0 {
		s.random = c.draw(ctx)
		return Pass
	}
	if (s.avg-lowest)>>c.Wlog*uint64(s.count) < uint64(s.random) {
		return Pass
	}
	s.count = 0
	s.random = c.draw(ctx)
	return Early
}

func (c *RED) draw(ctx *qdisc.Context) uint32 { return uint32(ctx.Rand.Uint64()>>32) / c.spacing }

// Idle says that the queue is empty from now on.
func (s *REDState) Idle(now time.Duration) {
	if !s.idle {
		s.idle, s.idleSince = true, now
	}
}

// afterIdle is the average after the time that the queue has been empty, in
// which small packets could have left: a table of powers of two by the time's
// cell, and within the first cells a straight line (red_calc_qavg_from_idle_time).
func (c *RED) afterIdle(s *REDState, now time.Duration) uint64 {
	us := min(uint64((now-s.idleSince)/time.Microsecond), 255<<c.CellLog)
	if shift := c.Decay[us>>c.CellLog&255]; shift != 0 {
		return s.avg >> shift
	}
	if less := s.avg * us >> c.CellLog; less < s.avg/2 {
		return s.avg - less
	}
	return s.avg / 2
}

// Adaptive RED moves MaxProb between these.
const (
	probOne  = (1<<32 - 1) / 100
	probMost = (1<<32 - 1) / 100 * 50
)

// adapt makes up for what a timer would have done since the last packet
// (red_adaptative_algo). Between packets only the average of an idle queue
// changes.
func (c *RED) adapt(s *REDState, now time.Duration) {
	if s.next == 0 {
		s.next = now + adaptEvery
	}
	if !c.Adaptive {
		return
	}
	for n := 0; s.next <= now; n++ {
		if n == mostUpdates {
			s.next += (now - s.next + adaptEvery) / adaptEvery * adaptEvery
			return
		}
		avg := s.avg
		if s.idle {
			avg = c.afterIdle(s, s.next)
		}
		avg >>= c.Wlog
		fifth := uint64(max(c.Max-c.Min, 1) / 5)
		switch {
		case avg > uint64(c.Min)+3*fifth && c.MaxProb <= probMost:
			c.MaxProb += min(probOne, c.MaxProb/4)
		case avg < uint64(c.Min)+2*fifth && c.MaxProb >= probOne:
			c.MaxProb = c.MaxProb / 10 * 9
		}
		delta := max(c.Max-c.Min, 1)
		c.spacing = max((c.MaxProb+delta/2)/delta, 1)
		s.next += adaptEvery
	}
}
