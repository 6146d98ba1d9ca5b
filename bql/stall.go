// Packet path.

package bql

import "math/bits"

const (
	wordTicks = 64 // ticks, one bit each, in a word of history
	ringWords = 4
)

// stall is the stall detector (dql_queue_stall, dql_check_stall).
type stall struct {
	// Written by record.
	head    Tick              // number of the word written last, tick/wordTicks
	history [ringWords]uint64 // bit t%64 of word t/64%4: something was queued at tick t

	// Written by check.
	lastReap Tick   // the previous completion
	count    uint64 // stalls found
	max      Tick   // the longest

	// Configuration.
	threshold Tick // 0 = off
}

// record notes that something is queued at now.
func (s *stall) record(now Tick) {
	word := now / wordTicks
	if word != s.head {
		// Words that were skipped hold bits of 256 ticks ago.
		for w := max(s.head, word-ringWords) + 1; w <= word; w++ {
			s.history[w%ringWords] = 0
		}
		s.head = word
	}
	s.history[word%ringWords] |= 1 << (now % wordTicks)
}

// check ends the gap between the previous completion and the one at now.
func (s *stall) check(now Tick) {
	if now-s.lastReap >= s.threshold {
		first := max((s.head-ringWords+1)*wordTicks, s.lastReap+1)
		last := min(s.head*wordTicks+wordTicks-1, now-s.threshold/2)
		if t := s.earliest(first, last); t <= last {
			s.count++
			s.max = max(s.max, now-t)
		}
	}
	s.lastReap = now
}

// earliest returns the first tick in [t, last] at which something was queued,
// or one after last.
func (s *stall) earliest(t, last Tick) Tick {
	for t <= last {
		if w := s.history[t/wordTicks%ringWords] >> (t % wordTicks); w != 0 {
			return t + Tick(bits.TrailingZeros64(w))
		}
		t += wordTicks - t%wordTicks
	}
	return t
}
