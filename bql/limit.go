// Packet path.

package bql

// Tick is an instant or a span in the kernel's jiffies, one millisecond each.
// Instants count from the caller's epoch and are never negative.
type Tick int64

const (
	// MaxObject is the largest number of bytes one call to Queued may add
	// (DQL_MAX_OBJECT).
	MaxObject = 1<<32/16 - 1

	// MaxLimit is the largest limit (DQL_MAX_LIMIT). A full queue plus one
	// object stays below 2^31, so differences of counters keep their sign.
	MaxLimit = 1<<32/2 - 1 - MaxObject

	noSlack = 1<<32 - 1 // nothing measured yet in this window
)

// Limit is the state of one transmit queue, struct dql. It must be readied by
// Init, and belongs to the worker that owns the queue: calls are never
// concurrent.
//
// All counters of bytes are 32 bits wide and wrap. They are compared by the
// sign of their difference.
type Limit struct {
	// Written by Queued, read by Avail.
	numQueued  uint32 // bytes ever queued
	lastObject uint32 // size of the last call to Queued

	// Written by Completed. Avail needs only the first.
	adjLimit       uint32 // limit + numCompleted: the value of numQueued at which the queue is full
	limit          uint32 // also written by SetLimit
	numCompleted   uint32 // bytes ever completed
	prevOver       uint32 // bytes over the limit at the previous completion
	prevNumQueued  uint32 // numQueued at the previous completion
	prevLastObject uint32 // lastObject at the previous completion
	lowestSlack    uint32 // least slack of this window, noSlack = none
	slackStart     Tick   // start of this window

	// Configuration.
	min, max uint32
	holdTime Tick // length of the window

	stall stall
}

// Init makes l a fresh limit: 0 bytes to begin with, no bounds but MaxLimit, a
// hold time of a second, no stall detection.
func (l *Limit) Init(now Tick) {
	*l = Limit{max: MaxLimit, holdTime: 1000}
	l.Reset(now)
}

// Reset forgets what is in flight and all that was learned: the ring was
// flushed. Bounds, hold time, stall threshold and the stalls counted stay.
func (l *Limit) Reset(now Tick) {
	*l = Limit{
		limit:       l.min,
		adjLimit:    l.min,
		lowestSlack: noSlack,
		slackStart:  now,
		min:         l.min,
		max:         l.max,
		holdTime:    l.holdTime,
		stall: stall{
			lastReap:  now,
			threshold: l.stall.threshold,
			count:     l.stall.count,
			max:       l.stall.max,
		},
	}
}

// Queued adds n bytes, which were just posted. It never refuses: ask Avail
// before. A call with more than MaxObject is ignored altogether, as the kernel
// does.
func (l *Limit) Queued(n uint32, now Tick) {
	if n > MaxObject {
		return
	}
	l.numQueued += n
	l.lastObject = n
	if l.stall.threshold != 0 {
		l.stall.record(now)
	}
}

// Avail returns the bytes that may still be queued; negative when the queue is
// over its limit. At exactly 0 one more object may be queued.
func (l *Limit) Avail() int32 { return int32(l.adjLimit - l.numQueued) }

// Inflight returns the bytes queued and not completed.
func (l *Limit) Inflight() uint32 { return l.numQueued - l.numCompleted }

// Completed takes n bytes off, which the device is done with, and adapts the
// limit. Call it once per round of completions, and not for an empty round: a
// round is the interval that the algorithm measures.
//
// It panics when n is more than is in flight, as the kernel does: the driver
// counts wrong, and no later number can be trusted.
func (l *Limit) Completed(n uint32, now Tick) {
	if n > l.Inflight() {
		panic("bql: more bytes completed than queued")
	}
	completed := l.numCompleted + n
	over := pos(l.Inflight() - l.limit)
	fresh := int32(completed - l.prevNumQueued) // bytes queued and completed since the previous completion
	caughtUp := fresh >= 0                      // all that was in flight then is done

	limit := l.limit
	switch {
	case over != 0 && completed == l.numQueued, l.prevOver != 0 && caughtUp:
		limit += pos(uint32(fresh)) + l.prevOver
		l.restartWindow(now)

	case !caughtUp: // busy from then to now
		slack := pos(limit + l.prevOver - 2*n)
		if l.prevOver != 0 {
			slack = max(slack, pos(l.prevLastObject-l.prevOver))
		}
		l.lowestSlack = min(l.lowestSlack, slack)
		if now-l.slackStart > l.holdTime {
			limit = pos(limit - l.lowestSlack)
			l.restartWindow(now)
		}
	}

	if limit = min(max(limit, l.min), l.max); limit != l.limit {
		l.limit = limit
		over = 0 // it was measured against the old limit
	}
	l.adjLimit = limit + completed
	l.numCompleted = completed
	l.prevOver = over
	l.prevNumQueued = l.numQueued
	l.prevLastObject = l.lastObject
	if l.stall.threshold != 0 {
		l.stall.check(now)
	}
}

func (l *Limit) restartWindow(now Tick) {
	l.slackStart = now
	l.lowestSlack = noSlack
}

// pos returns x, or 0 when x is negative read as a signed number.
func pos(x uint32) uint32 { return uint32(max(int32(x), 0)) }
