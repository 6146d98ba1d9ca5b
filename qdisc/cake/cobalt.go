// Packet path.

package cake

import (
	"math"
	"math/bits"
	"time"

	"sluice/qdisc"
)

// law is what COBALT goes by, the same for all flows of a tin.
type law struct {
	target, interval time.Duration
	mtuTime          time.Duration // what a full frame takes
}

// Steps of BLUE's probability, in 2^-32.
const (
	blueUp   = 1 << 24 // 1/256, when the queue was full
	blueDown = 1 << 20 // 1/4096, when it was empty
)

// cobalt is the AQM of one flow: "CoDel and BLUE alternate".
//
// CoDel sees a queue that stands above target, and signals ever more often, with
// the square root of their number, until it does not. Other than the original,
// the number goes down again the way it came. BLUE sees overflows and empty
// queues, and drops at random what CoDel cannot move.
type cobalt struct {
	dropNext time.Duration
	blueAt   time.Duration // when probability last changed
	count    uint32
	root     uint32 // 2^32/√count; 0 before the first signal, which then comes at once
	blue     uint32 // BLUE's probability, of 2^32
	dropping bool
}

// verdict is what the AQM says of a packet.
type verdict uint8

const (
	passed verdict = iota
	marked
	congested // CoDel's drop
	flooded   // BLUE's
)

func (v verdict) reason() qdisc.Reason {
	if v == flooded {
		return qdisc.FloodProtection
	}
	return qdisc.Congested
}

// judge decides about p, which was just taken from the queue. busy is the number
// of flows that share the link where the queue really stands (ingress), else 0.
func (c *cobalt) judge(ctx *qdisc.Context, l *law, p *qdisc.Packet, busy int32) verdict {
	now := ctx.Now
	sojourn := now - time.Duration(p.Scratch[stamp])
	above := sojourn > l.target && sojourn > 4*l.mtuTime && sojourn > 2*l.mtuTime*time.Duration(busy)
	due := c.count > 0 && now >= c.dropNext
	switch {
	case above && !c.dropping:
		c.dropping = true
		c.dropNext = now + c.pause(l)
		c.count = max(c.count, 1)
	case !above:
		c.dropping = false
	}

	v := passed
	if due && c.dropping {
		v = congested
		if qdisc.SetCE(p) {
			v = marked
		}
		if c.count < math.MaxUint32 {
			c.count++
			c.newRoot()
		}
		c.dropNext += c.pause(l)
	} else {
		for due {
			c.count--
			c.newRoot()
			c.dropNext += c.pause(l)
			due = c.count > 0 && now >= c.dropNext
		}
	}
	if c.blue > 0 && uint32(ctx.Rand.Uint64()>>32) < c.blue {
		v = flooded
	}

	// While nothing is due dropNext is the instant until which the flow is
	// remembered.
	if c.count == 0 {
		c.dropNext = now + l.interval
	} else if now > c.dropNext && v <= marked {
		c.dropNext = now
	}
	return v
}

// queueFull tells BLUE of an overflow; true when it begins to work on the flow.
func (c *cobalt) queueFull(l *law, now time.Duration) (began bool) {
	if now-c.blueAt > l.target {
		began = c.blue == 0
		sum, carry := bits.Add32(c.blue, blueUp, 0)
		if c.blue = sum; carry != 0 {
			c.blue = math.MaxUint32
		}
		c.blueAt = now
	}
	c.dropping = true
	c.dropNext = now
	if c.count == 0 {
		c.count = 1
		c.newRoot()
	}
	return began
}

// queueEmpty tells both laws that the flow has nothing queued; true when BLUE
// leaves it alone from now on.
func (c *cobalt) queueEmpty(l *law, now time.Duration) (ended bool) {
	if c.blue > 0 && now-c.blueAt > l.target {
		c.blue -= min(c.blue, blueDown)
		c.blueAt = now
		ended = c.blue == 0
	}
	c.dropping = false
	if c.count > 0 && now >= c.dropNext {
		c.count--
		c.newRoot()
		c.dropNext += c.pause(l)
	}
	return ended
}

// atRest says whether there is nothing about the flow to remember.
func (c *cobalt) atRest(now time.Duration) bool {
	return c.blue == 0 && c.count == 0 && now >= c.dropNext
}

// pause is the distance of signals, interval/√count.
func (c *cobalt) pause(l *law) time.Duration {
	hi, lo := bits.Mul64(uint64(l.interval), uint64(c.root))
	return time.Duration(hi<<32 | lo>>32)
}

// newRoot follows count: exactly where it is small, by one step of Newton's
// method from its neighbour's above, where that is exact enough. (Rational
// arithmetic in 32 bits: x ← x·(3 − count·x²)/2.)
func (c *cobalt) newRoot() {
	if c.count < uint32(len(roots)) {
		c.root = roots[c.count]
		return
	}
	x := uint64(c.root)
	square := x * x >> 32
	rest := 3<<32 - uint64(c.count)*square // below 3·2^32
	c.root = uint32(min(rest>>2*x>>31, math.MaxUint32))
}

// roots are 2^32/√count of small counts; of 0 as of 1.
var roots = func() (r [16]uint32) {
	r[0], r[1] = math.MaxUint32, math.MaxUint32
	for n := 2; n < len(r); n++ {
		r[n] = uint32((1 << 32) / math.Sqrt(float64(n)))
	}
	return r
}()
