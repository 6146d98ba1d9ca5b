// Packet path.

package cake

import (
	"math"
	"math/bits"
	"time"

	"sluice/qdisc"
)

// minRate is the smallest rate that is computed with, in bytes a second.
const minRate = 64

// perByte is the time that a byte takes, in nanoseconds times 2^shift.
type perByte struct {
	ns    uint64 // below 2^34; 0: no time at all
	shift uint8
}

// perByteAt returns what a byte takes at a rate of bytes a second; rate 0 is
// without limit.
func perByteAt(rate uint64) perByte {
	if rate == 0 {
		return perByte{}
	}
	b := perByte{uint64(time.Second) << 34 / max(rate, minRate), 34}
	for b.ns >= 1<<34 {
		b.ns >>= 1
		b.shift--
	}
	return b
}

// of returns the nanoseconds that n bytes take, cut off.
func (b perByte) of(n uint32) time.Duration {
	return time.Duration(uint64(n) * b.ns >> b.shift)
}

// shaper is the clock of the whole discipline: the instant at which the link is
// free again.
//
// The failsafe clock runs at two thirds of the rate and is not charged for drops:
// whatever drops have done to the first one, this much always gets through.
type shaper struct {
	rate     perByte
	clock    time.Duration
	fraction uint64 // of a nanosecond, that the clock lacks: of 2^rate.shift
	failsafe time.Duration
}

// free returns the instant from which a packet may leave.
func (s *shaper) free() time.Duration { return min(s.clock, s.failsafe) }

// wake is called when a packet finds everything empty: time that was not used is
// lost.
func (s *shaper) wake(now time.Duration, b *qdisc.Base) {
	if s.clock < now {
		s.clock, s.failsafe, s.fraction = now, now, 0
		return
	}
	if at := s.free(); at > now {
		b.Overlimits++
		b.SetNextAt(at)
	}
}

// charge moves the clocks by what p takes and returns its bytes on the wire.
func (q *cake) charge(t *tin, p *qdisc.Packet, now time.Duration, drop bool) int32 {
	n := uint32(p.Scratch[size])
	s := &q.shaper
	if s.rate.ns == 0 {
		return int32(n)
	}
	cost := uint64(n)*s.rate.ns + s.fraction
	s.fraction = cost & (1<<s.rate.shift - 1)
	d := time.Duration(cost >> s.rate.shift)
	s.clock += d
	if !drop {
		s.failsafe += d + d>>1
	}
	// A tin's clock never falls further behind than one packet: what it did not
	// use is no credit.
	if d := t.rate.of(n); t.clock < now {
		t.clock += d
	} else if t.clock < now+d {
		t.clock = now + d
	}
	return int32(n)
}

func (s *shaper) reset() { s.clock, s.failsafe, s.fraction = 0, 0, 0 }

// link is how the link cuts packets.
type link uint8

const (
	linkPlain link = iota
	linkATM        // cells of 53 bytes that carry 48 (ITU-T I.361)
	linkPTM        // 65 bytes carry 64 (ITU-T G.992.3 Annex N)
)

// sizes turns the length of a frame into the bytes it takes on the wire, and
// remembers what it saw.
type sizes struct {
	network  bool // count from the network header on
	overhead int
	mpu      int
	link     link

	minNet, maxNet, minAdj, maxAdj uint32
	offset                         uint64 // average offset of the network header, times 2^16
}

func (s *sizes) forget() {
	s.minNet, s.maxNet, s.minAdj, s.maxAdj = math.MaxUint32, 0, math.MaxUint32, 0
}

// adjust returns the bytes that p takes on the wire.
func (s *sizes) adjust(p *qdisc.Packet) uint32 {
	n, off := p.Len(), int(p.L3)
	s.offset = average(s.offset, uint64(off)<<16, 8)
	if s.network {
		n -= off
	}
	s.minNet, s.maxNet = min(s.minNet, uint32(n)), max(s.maxNet, uint32(n))
	n = max(n+s.overhead, s.mpu, 0)
	switch s.link {
	case linkATM:
		n = (n + 47) / 48 * 53
	case linkPTM:
		n += (n + 63) / 64
	}
	s.minAdj, s.maxAdj = min(s.minAdj, uint32(n)), max(s.maxAdj, uint32(n))
	return uint32(n)
}

// average moves an average towards sample by 2^-shift of their distance.
func average(avg, sample uint64, shift uint) uint64 {
	return avg - avg>>shift + sample>>shift
}

// autorate follows the rate of what arrives (autorate-ingress).
type autorate struct {
	last     time.Duration // the last arrival
	interval uint64        // average distance of arrivals
	begin    time.Duration // of the window that is measured
	bytes    uint64        // in it
	applied  time.Duration // when the rate was last set
}

// reapply is how long a learnt rate holds at least.
const reapply = 250 * time.Millisecond

// learn measures the rate of arrival, in windows that end with a pause longer
// than usual, so that what arrives in bursts is seen at its long-term rate.
func (q *cake) learn(now time.Duration, p *qdisc.Packet) {
	if !q.params.autorate {
		return
	}
	a := &q.auto
	a.bytes += uint64(p.PktLen)
	gap := uint64(min(now-a.last, time.Second))
	shift := uint(8)
	if gap > a.interval {
		shift = 2
	}
	a.interval = average(a.interval, gap, shift)
	a.last = now
	if gap <= a.interval {
		return
	}
	if window := uint64(now - a.begin); window > 0 {
		hi, lo := bits.Mul64(a.bytes, uint64(time.Second))
		rate, _ := bits.Div64(hi%window, lo, window)
		shift = 8
		if rate > q.capacity {
			shift = 2
		}
		q.capacity = average(q.capacity, rate, shift)
	}
	a.bytes, a.begin = 0, now
	if now > a.applied+reapply {
		a.applied = now
		q.configure(q.capacity * 15 >> 4)
	}
}
