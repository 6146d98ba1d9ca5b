// Admin path.

package worker

import "time"

// realClock counts from its making. time.Since an epoch costs one vDSO read, a
// clock_gettime system call five times that.
type realClock struct{ epoch time.Time }

// NewClock returns the real, monotonic clock, at 0 now.
func NewClock() Clock { return realClock{time.Now()} }

func (c realClock) Now() time.Duration { return time.Since(c.epoch) }

// ManualClock is a clock that tests and replays move by hand.
type ManualClock struct{ T time.Duration }

// Now returns the instant it was set to.
func (c *ManualClock) Now() time.Duration { return c.T }

// Advance moves it on.
func (c *ManualClock) Advance(d time.Duration) { c.T += d }
