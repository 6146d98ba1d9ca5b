package aqm

import "math"

// What tc computes for the kernel's RED disciplines, from parameters that people
// can think in.

// REDWeight returns the smallest Wlog with which a burst of so many packets of
// avpkt bytes, after an idle time, leaves the average at least, or below
// (tc_red_eval_ewma). There is none when the burst is too short.
func REDWeight(least, burst, avpkt uint32) (wlog uint8, ok bool) {
	room := float64(burst) + 1 - float64(least)/float64(avpkt)
	if room < 1 {
		return 0, false
	}
	w := 0.5
	for wlog := uint8(1); wlog < 32; wlog++ {
		if room <= (1-math.Pow(1-w, float64(burst)))/w {
			return wlog, true
		}
		w /= 2
	}
	return 0, false
}

// Damp fills the table of how idle time lets the average fall: as if an average
// packet left in each of its transmission times at rate bytes a second
// (tc_red_eval_idle_damping). tc counts those in ticks of 64 ns, the kernel reads
// the table in microseconds.
func (c *RED) Damp(avpkt uint32, rate uint64) (ok bool) {
	xmit := math.Floor(float64(avpkt)/float64(rate)*1e6) * 15.625
	perTick := -math.Log(1-1/float64(uint64(1)<<c.Wlog)) / xmit
	longest := 31 / perTick
	for c.CellLog = 0; longest/float64(uint64(1)<<c.CellLog) >= 512; {
		if c.CellLog++; c.CellLog == 32 {
			return false
		}
	}
	for i := range c.Decay {
		c.Decay[i] = uint8(min(float64(uint64(i)<<c.CellLog)*perTick, 31))
	}
	c.Decay[0], c.Decay[255] = 0, 31
	return true
}

// Above says whether the average is above the minimum.
func (c *RED) Above(s *REDState) bool { return s.avg > uint64(c.Min)<<c.Wlog }

// Undecide takes back what the last arrival's decision changed, but not its part
// in the average: the packet was dropped for another reason.
func (s *REDState) Undecide(before REDState) { s.count, s.random = before.count, before.random }
