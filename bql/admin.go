// Admin path.

package bql

import (
	"fmt"
	"strconv"
	"strings"
)

// Bounds of the stall threshold. The upper one is half of what the history
// holds.
const (
	MinStallThreshold Tick = 4
	MaxStallThreshold Tick = ringWords * wordTicks / 2
)

// Snapshot is a copy of what the kernel shows in sysfs, under
// queues/tx-N/byte_queue_limits, and of the counters behind it.
type Snapshot struct {
	Limit    uint32 `json:"limit"` // bytes the queue may hold now
	Min      uint32 `json:"min"`   // bounds of Limit
	Max      uint32 `json:"max"`
	HoldTime Tick   `json:"hold_time"` // how long slack is watched before the limit shrinks
	Inflight uint32 `json:"inflight"`  // bytes queued and not completed

	StallThreshold Tick   `json:"stall_threshold"` // 0 = off
	StallCount     uint64 `json:"stall_count"`     // completions that came too late
	StallMax       Tick   `json:"stall_max"`       // the latest of them

	NumQueued    uint32 `json:"num_queued"`    // bytes ever queued, wraps
	NumCompleted uint32 `json:"num_completed"` // bytes ever completed, wraps
	AdjLimit     uint32 `json:"adj_limit"`     // NumQueued at which the queue is full
}

// Snapshot returns a copy of the visible state. The owning worker only.
func (l *Limit) Snapshot() Snapshot {
	return Snapshot{
		Limit:          l.limit,
		Min:            l.min,
		Max:            l.max,
		HoldTime:       l.holdTime,
		Inflight:       l.Inflight(),
		StallThreshold: l.stall.threshold,
		StallCount:     l.stall.count,
		StallMax:       l.stall.max,
		NumQueued:      l.numQueued,
		NumCompleted:   l.numCompleted,
		AdjLimit:       l.adjLimit,
	}
}

// SetLimit sets the limit itself. It takes effect, and bounds apply, at the
// next completion; from there it moves again.
func (l *Limit) SetLimit(bytes uint32) error { return set(&l.limit, "limit", bytes) }

// SetMin sets the least limit, which is also the least bulk: so many bytes may
// always be queued. It takes effect at the next completion or Reset.
func (l *Limit) SetMin(bytes uint32) error { return set(&l.min, "limit_min", bytes) }

// SetMax sets the greatest limit; it prevails over the least. It takes effect
// at the next completion.
func (l *Limit) SetMax(bytes uint32) error { return set(&l.max, "limit_max", bytes) }

func set(field *uint32, name string, bytes uint32) error {
	if bytes > MaxLimit {
		return fmt.Errorf("%s %d bytes; at most %d is possible", name, bytes, MaxLimit)
	}
	*field = bytes
	return nil
}

// SetHoldTime sets how long slack is watched before the limit shrinks.
func (l *Limit) SetHoldTime(t Tick) { l.holdTime = t }

// SetStallThreshold sets how late a completion must be to count as a stall; 0
// switches the detector off. Gaps are measured from now at the earliest when it
// was off.
func (l *Limit) SetStallThreshold(t, now Tick) error {
	if t != 0 && (t < MinStallThreshold || t > MaxStallThreshold) {
		return fmt.Errorf("stall_thrs %d ms; it is 0 (off) or from %d to %d",
			t, MinStallThreshold, MaxStallThreshold)
	}
	if l.stall.threshold == 0 && t != 0 {
		l.stall.lastReap = now
	}
	l.stall.threshold = t
	return nil
}

// ClearStallMax forgets the longest stall; the count stays.
func (l *Limit) ClearStallMax() { l.stall.max = 0 }

// ParseLimit reads a limit as it is written to sysfs: a decimal number, or
// "max".
func ParseLimit(s string) (uint32, error) {
	s = strings.TrimSuffix(s, "\n")
	if s == "max" {
		return MaxLimit, nil
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n > MaxLimit {
		return 0, fmt.Errorf("limit %q; it is \"max\" or a number of bytes up to %d", s, MaxLimit)
	}
	return uint32(n), nil
}
