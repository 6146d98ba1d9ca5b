// Package bql decides how many bytes a transmit queue may hold: byte queue
// limits, the kernel's dynamic queue limits (lib/dynamic_queue_limits.c), as
// plain arithmetic without a device, a clock or a lock.
//
// # The goal
//
// A device ring is a FIFO that no qdisc can reorder, so every byte in it is
// latency that the qdisc cannot take back. It must still be deep enough that
// the device never runs out of work between two completions. The depth that
// does just that depends on line rate, interrupt moderation and packet sizes;
// it is different for every queue and changes with time. It is counted in
// bytes, not packets, because the device drains bytes at a steady rate.
//
// A [Limit] finds it by watching two numbers, both counted from the beginning
// and left to wrap: bytes queued and bytes completed. Their difference is in
// flight. The sender tells [Limit.Queued] of what it posts, and stops when
// [Limit.Avail] is negative; the completion handler tells [Limit.Completed],
// which is where the limit moves. The object that crosses the limit is still
// let in, so a queue that stands still is over its limit by at most one object,
// and a small limit can never block a large packet.
//
// # Starved: the limit grows
//
// A queue that ran empty is no proof that the limit is too low: the sender may
// have had nothing to send. It is proof only if the limit held the sender back,
// that is, if the queue had gone over its limit. So the limit grows when
//
//   - the queue was over its limit and this completion empties it, or
//   - it was over its limit at the previous completion, and all that was in
//     flight then is now done. Completions come in batches: the device may have
//     run dry, and been refilled, between the two.
//
// It grows by the bytes that were both queued and completed since the previous
// completion, plus the amount by which the queue was over then: with a limit
// that much higher they could have been posted before the device ran dry. From
// zero it reaches a working depth in a few completions.
//
// # Slack: the limit shrinks
//
// When the queue was busy during a whole interval, with some of the previous
// interval's bytes still in flight at the end, the device did not come close to
// running dry. The excess is the slack: what the queue may hold (limit, plus
// what it was over) less twice what one completion takes, room for one batch
// being completed and one being filled. A single large object can put the queue
// over its limit by almost its own size and make the device look nearer to
// starving than it was, so its size less the overshoot is a second candidate,
// and the larger counts.
//
// Growth is immediate, since starving costs throughput at once. Shrinking is
// patient: only the smallest slack seen during HoldTime (a second) comes off,
// when the first completion after it finds the queue busy. Idle intervals say
// nothing either way and leave the window running; growth starts it anew.
//
// # One step at a time
//
// Whenever the limit changes, the amount the queue was over by is forgotten. It
// was measured against the old limit, and the bytes it speaks of are still in
// flight; counted again by the next completion, they would let one burst raise
// the limit twice. Between two steps of the second kind of growth lies at least
// one full cycle, in which the new limit is tried.
//
// # Stalls
//
// The detector answers whether completions came late, which the limit alone
// hides. One bit per tick, in a ring of 256, says in which ticks something was
// queued. A completion that comes at least a threshold after the one before
// looks for the earliest bit in the gap, leaving out the last half threshold,
// which is no stall. Every gap as long as the threshold with data queued in its
// first half is found, as long as the ring reaches back to it; gaps of half the
// threshold may be.
//
// # Where it differs from the kernel
//
// Reset makes the new limit available at once. In the kernel a stale adj_limit
// stays in force until the first completion, which a queue that believes itself
// over the limit may never see. StallMax is not cut to 16 bits. And there are
// no barriers: one worker queues and completes.
package bql
