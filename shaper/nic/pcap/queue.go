// Packet path, except that files can fail and block.

package pcap

import (
	"io"
	"time"

	"sluice/dequeue"
	"sluice/qdisc"
	"sluice/shaper/nic"
)

// RxQueue replays a capture.
type RxQueue struct {
	r     *Reader
	start time.Duration
	fast  bool
	first time.Time // timestamp of the first frame that has one

	next   time.Duration // instant of the frame below; Never: there is none
	frame  []byte        // the reader's
	length int           // on the wire
	last   time.Duration // instant of the frame before

	done  bool // nothing more comes from the file
	stats nic.RxStats
	err   error
}

var _ nic.RxQueue = (*RxQueue)(nil)

// advance reads the next frame. Its instant is never before that of the frame
// ahead of it, for captures of several queues are not always in order.
func (q *RxQueue) advance() {
	q.next = qdisc.Never
	if q.r == nil || q.done {
		return
	}
	frame, length, at, err := q.r.Next()
	if err != nil {
		q.done = true
		if err != io.EOF {
			q.err = err
		}
		return
	}
	q.frame, q.length = frame, length
	if !at.IsZero() {
		if q.first.IsZero() {
			q.first = at
		}
		q.last = max(q.last, q.start+at.Sub(q.first))
	}
	q.next = q.last
}

// Receive takes the frames whose instant has come. One that was captured only
// in part is filled up with zeros to its length on the wire: a replay shapes
// lengths. A frame for which the pool has no packet waits.
func (q *RxQueue) Receive(ctx *qdisc.Context, l *qdisc.List, max int) int {
	n := 0
	for n < max && q.next != qdisc.Never && (q.fast || q.next <= ctx.Now) {
		p := ctx.Pool.Get()
		if p == nil {
			break
		}
		if q.length == 0 || q.length > len(p.Room()) {
			p.Free()
			q.stats.Errors++
			q.advance()
			continue
		}
		k := copy(p.Room(), q.frame)
		clear(p.Room()[k:q.length])
		p.SetLen(q.length)
		p.Arrival = ctx.Now
		l.Push(p)
		n++
		q.stats.Packets++
		q.stats.Bytes += uint64(q.length)
		q.advance()
	}
	return n
}

// FD returns -1: NextAt announces frames.
func (q *RxQueue) FD() int { return -1 }

// NextAt returns the instant of the next frame: 0 when the port ignores
// timestamps, Never when the file is done.
func (q *RxQueue) NextAt() time.Duration {
	if q.fast && q.next != qdisc.Never {
		return 0
	}
	return q.next
}

// RxStats returns the counters.
func (q *RxQueue) RxStats() nic.RxStats { return q.stats }

// ring is how many frames Post takes between two doorbells.
const ring = 1024

// TxQueue writes a capture. A file is an infinitely fast device: a frame leaves
// and completes at its doorbell.
type TxQueue struct {
	w      *Writer // nil: nothing is written
	posted qdisc.List

	packets, bytes int // completed and not reaped
	lost           uint64
	err            error
}

var _ dequeue.Driver = (*TxQueue)(nil)

// Room returns how many frames fit before the next doorbell.
func (q *TxQueue) Room() int {
	if q.err != nil {
		return 0
	}
	return ring - q.posted.Len()
}

// Post holds p until the doorbell.
func (q *TxQueue) Post(p *qdisc.Packet) bool {
	if q.Room() == 0 {
		return false
	}
	q.posted.Push(p)
	return true
}

// Kick writes what was posted, with instant now. When the file takes no more,
// the device is down and the rest is lost.
func (q *TxQueue) Kick(now time.Duration) dequeue.Kick {
	for p := q.posted.Pop(); p != nil; p = q.posted.Pop() {
		if q.w != nil && q.err == nil {
			q.err = q.w.Write(p.Bytes(), now)
		}
		if q.err != nil {
			q.lost++
		}
		q.packets++
		q.bytes += p.Len()
		p.Free()
	}
	if q.err != nil {
		return dequeue.KickDown
	}
	return dequeue.KickAll
}

// Reap reports what the doorbells since the last call wrote.
func (q *TxQueue) Reap(time.Duration) (packets, bytes int) {
	packets, bytes = q.packets, q.bytes
	q.packets, q.bytes = 0, 0
	return packets, bytes
}

// Lost returns the frames that a failed write took.
func (q *TxQueue) Lost() uint64 { return q.lost }

// Completions returns CompleteDevice.
func (q *TxQueue) Completions() dequeue.Completions { return dequeue.CompleteDevice }

// Down reports that the file takes no more.
func (q *TxQueue) Down() bool { return q.err != nil }
