// Packet path.

package dequeue

import (
	"time"

	"sluice/qdisc"
)

// The whole doorbell policy is xmit's one condition and what is in this file.
//
// Posted packets are invisible to the device until the doorbell is rung, and
// ringing costs: a system call, a memory barrier and an uncached write, an
// interrupt of a peer. So the bell is held while more may follow (xmit_more in
// the kernel), and what must never happen is that it is held and nobody rings.
// It is rung
//
//   - when the queue stops for any reason, because the device alone can start it
//     again and will not complete what it does not see;
//   - when the driver refuses a packet, or the queue is about to be replaced;
//   - when batch packets are unrung: 1 rings after each list, or each packet;
//   - at the end of the turn, or at flushAt if a flush interval holds it longer.
//
// A bell that did not reach the device stays due. NextFlush names the instant
// until the device has taken everything, so a worker that wakes up for it
// leaves nothing behind.

// maxKicks bounds how often one ring repeats for a device that takes only a
// part (AF_XDP in copy mode takes 32 frames a call). The rest is due at once.
const maxKicks = 64

// ring rings the doorbell until the device has taken everything, or cannot.
func (t *Txq) ring(now time.Duration) {
	if t.unrung == 0 {
		return
	}
	for range maxKicks {
		t.stats.Bells++
		switch t.driver.Kick(now) {
		case KickAll:
			t.stats.PacketsPerBell.add(t.unrung)
			t.unrung = 0
			t.moved(now)
			return
		case KickStopped:
			t.flushAt = now + retryAfter
			t.stop(now)
			return
		case KickDown:
			t.wentDown(now)
			return
		}
	}
	t.flushAt = now
}

// Flush rings for unrung packets that are due. End of a turn.
func (t *Txq) Flush(ctx *qdisc.Context) {
	if t.unrung > 0 && t.flushAt <= ctx.Now {
		t.FlushNow(ctx)
	}
}

// FlushNow rings for unrung packets, due or not: before the queue or its worker
// is reconfigured or stops, and before a flow moves to another queue.
func (t *Txq) FlushNow(ctx *qdisc.Context) {
	if t.off&(down|frozen) == 0 {
		t.ring(ctx.Now)
	}
}

// NextFlush returns the instant at which another turn is needed on account of
// unrung packets, or [qdisc.Never] when all is rung.
func (t *Txq) NextFlush() time.Duration {
	switch {
	case t.unrung == 0 || t.off&frozen != 0:
		return qdisc.Never
	case t.off&down != 0:
		return t.downAt + downPoll
	}
	return t.flushAt
}
