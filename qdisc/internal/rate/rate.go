// Packet path.

// Package rate is the arithmetic of rates that the shapers share: how long a
// packet occupies a link of some rate, how many bytes fit a time, and token
// buckets that lose nothing to rounding.
//
// There are two forms of the same thing.
//
// L2T is the kernel's (psched_l2t_ns): whole nanoseconds, cut off. A shaper that
// adds those up runs fast by what was cut off, a nanosecond a packet at most:
// nothing at 100 Mbit/s, 0.1 % with 1500-byte packets at 10 Gbit/s, 4 % at 100.
//
// [Bucket] counts in billionths of a byte instead. A rate of R bytes a second
// earns exactly R of them each nanosecond, and a byte costs exactly 10⁹: there
// is a multiplication where the kernel has one, and nothing to round. Only an
// instant that is asked for is rounded, up to the next nanosecond, and what the
// bucket earned until then beyond the need stays in it. Wherever the kernel's
// nanoseconds come out whole the two forms agree to the nanosecond.
package rate

import (
	"math/bits"
	"time"
)

// Config describes a rate and how a packet's bytes are counted against it.
type Config struct {
	Rate     uint64 // bytes a second
	Overhead uint16 // bytes added to every packet
	MPU      uint16 // bytes that a packet with its overhead counts at least
	ATM      bool   // counted in cells: 53 bytes on the wire carry 48
}

// Max is the largest rate, far above any link's, in bytes a second. It keeps
// the sum of a bucket's depth and a nanosecond's credit within 63 bits.
const Max = 1 << 60

// Rate converts between bytes and time (struct psched_ratecfg).
type Rate struct {
	rate     uint64
	mult     uint32
	shift    uint8
	atm      bool
	overhead uint16
	mpu      uint16
}

// New precomputes c (psched_ratecfg_precompute).
//
// Preconditions: c.Rate > 0. Above [Max] it is Max.
func New(c Config) Rate {
	r := Rate{rate: min(c.Rate, Max), overhead: c.Overhead, mpu: c.MPU, atm: c.ATM}
	factor := uint64(time.Second)
	for {
		// The multiplier is cut to 32 bits, as the kernel's is: that is where
		// a rate below 1 byte a second would go wrong, and there is none.
		r.mult = uint32(factor / r.rate)
		if r.mult>>31 != 0 || factor>>63 != 0 {
			return r
		}
		factor <<= 1
		r.shift++
	}
}

// Wire returns what a packet of n bytes counts for: overhead first, then the
// minimum, then cells.
func (r *Rate) Wire(n uint32) uint64 {
	w := max(uint64(n)+uint64(r.overhead), uint64(r.mpu))
	if r.atm {
		w = (w + 47) / 48 * 53
	}
	return w
}

// L2T returns the nanoseconds that n bytes take, cut off as the kernel does.
func (r *Rate) L2T(n uint32) uint64 {
	hi, lo := bits.Mul64(r.Wire(n), uint64(r.mult))
	return hi<<(64-r.shift) | lo>>r.shift
}

// T2L returns how many bytes fit d, the inverse of L2T (psched_ns_t2l). The
// minimum packet size has no inverse and is ignored.
func (r *Rate) T2L(d time.Duration) uint64 {
	hi, lo := bits.Mul64(uint64(max(d, 0)), r.rate)
	if hi >= uint64(time.Second) {
		return 1<<64 - 1
	}
	n, _ := bits.Div64(hi, lo, uint64(time.Second))
	if r.atm {
		n = n / 53 * 48
	}
	if n <= uint64(r.overhead) {
		return 0
	}
	return n - uint64(r.overhead)
}

// Byte is the price of one byte in the unit of credit: with 10⁹ of them, R
// bytes a second earn R a nanosecond. A signed 64-bit credit holds 9.2 GB.
const Byte = int64(time.Second)

// Cost returns the credit that a packet of n bytes takes.
func (r *Rate) Cost(n uint32) int64 { return int64(r.Wire(n)) * Byte }

// Wait returns how long the rate takes to earn credit, rounded up; 0 when there
// is nothing to earn. What does not fit is [time.Duration]'s largest.
func (r *Rate) Wait(credit int64) time.Duration {
	if credit <= 0 {
		return 0
	}
	return time.Duration((uint64(credit)-1)/r.rate + 1)
}

// Bucket is a token bucket. It keeps no instant: its owner knows when it was
// last settled, and so can hold several buckets to one instant, as tbf does.
type Bucket struct {
	Rate
	depth  int64 // credit of a full bucket
	credit int64 // credit at the instant of the last Settle
}

// NewBucket returns a full bucket that holds what burst bytes cost.
func NewBucket(r Rate, burst uint32) Bucket {
	b := Bucket{Rate: r, depth: r.Cost(burst)}
	b.credit = b.depth
	return b
}

// Fill makes the bucket full.
func (b *Bucket) Fill() { b.credit = b.depth }

// Window returns how long an empty bucket takes to fill.
func (b *Bucket) Window() time.Duration { return b.Wait(b.depth) }

// After returns the credit that would be left if n bytes were sent elapsed
// after the last Settle. It is negative when the bucket holds too little, and
// Wait of the missing part says for how long.
//
// A bucket that filled within the last nanosecond has not spilled yet: else one
// that is no deeper than a packet would lose the fraction that every wait is
// rounded up by.
func (b *Bucket) After(elapsed time.Duration, n uint32) int64 {
	have := b.depth
	spill := uint64(b.depth-b.credit) + b.rate
	if hi, lo := bits.Mul64(uint64(elapsed), b.rate); hi == 0 && lo < spill {
		have = b.credit + int64(lo)
	}
	return have - b.Cost(n)
}

// Settle stores what After returned. It may be a debt, down to −2⁶².
func (b *Bucket) Settle(credit int64) { b.credit = credit }
