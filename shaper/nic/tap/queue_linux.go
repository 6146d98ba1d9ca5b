// Packet path.

package tap

import (
	"time"

	"golang.org/x/sys/unix"

	"sluice/dequeue"
	"sluice/qdisc"
	"sluice/shaper/nic"
)

// maxSuper is the longest frame a TAP hands over: 64 KiB behind a link header
// with VLAN tags.
const maxSuper = 1<<16 + 14 + 2*4

// RxQueue is one receive queue.
type RxQueue struct {
	fd    int
	hdr   [vnetLen]byte
	iov   [3][]byte
	buf   []byte // a super-packet, and what does not fit a slot of anything else
	cut   cutter // of buf
	stats nic.RxStats
}

var _ nic.RxQueue = (*RxQueue)(nil)

// Receive reads frames until none waits, each straight into its slot; only
// super-packets pass through a buffer. One that the pool or max cannot take
// whole is continued by the next call.
func (q *RxQueue) Receive(ctx *qdisc.Context, l *qdisc.List, max int) int {
	n := 0
	for n < max {
		p := ctx.Pool.Get()
		if p == nil {
			break
		}
		if q.cut.more() {
			p.SetLen(q.cut.next(p.Room()))
		} else {
			length, ok := q.read(p.Room())
			if !ok {
				p.Free()
				break
			}
			if length == 0 {
				q.stats.Errors++
				p.Free()
				continue
			}
			p.SetLen(length)
		}
		p.Arrival = ctx.Now
		l.Push(p)
		n++
		q.stats.Packets++
		q.stats.Bytes += uint64(p.Len())
	}
	return n
}

// read reads one frame into room, the first one of a super-packet if it is
// that, and returns its length: 0 when it has to be refused. ok is false when
// there is none to read.
func (q *RxQueue) read(room []byte) (length int, ok bool) {
	q.iov[0], q.iov[1], q.iov[2] = q.hdr[:], room, q.buf[len(room):]
	n, err := unix.Readv(q.fd, q.iov[:])
	for err == unix.EINTR {
		n, err = unix.Readv(q.fd, q.iov[:])
	}
	q.iov[1] = nil
	if err != nil || n < vnetLen {
		return 0, false // EAGAIN; EBADFD when the interface was removed
	}
	n -= vnetLen
	h := readVnet(&q.hdr)
	if h.gsoType == gsoNone {
		if n > len(room) || n < 14 || h.flags&needsCsum != 0 && !complete(room[:n], h.csumStart, h.csumOffset) {
			return 0, true
		}
		return n, true
	}
	copy(q.buf, room[:min(n, len(room))])
	if !q.cut.start(q.buf[:n], h) || q.cut.size() > len(room) {
		q.cut.stop()
		return 0, true
	}
	return q.cut.next(room), true
}

// FD returns the descriptor to poll.
func (q *RxQueue) FD() int { return q.fd }

// NextAt returns 0 while a super-packet is cut, of which no descriptor tells,
// else Never.
func (q *RxQueue) NextAt() time.Duration {
	if q.cut.more() {
		return 0
	}
	return qdisc.Never
}

// RxStats returns the counters. What the interface's own queue drops is counted
// by the kernel, as the interface's tx_dropped.
func (q *RxQueue) RxStats() nic.RxStats { return q.stats }

const (
	ring    = 256                   // packets between two doorbells
	probing = 10 * time.Millisecond // how often a down interface is looked at
)

// TxQueue is one transmit queue.
type TxQueue struct {
	fd     int
	hdr    [vnetLen]byte // stays zero: a complete frame
	iov    [2][]byte
	poll   [1]unix.PollFd
	posted qdisc.List

	packets, bytes int // written and not reaped
	lost           uint64
	down           bool
	probeAt        time.Duration // when a down interface is looked at again
}

var _ dequeue.Driver = (*TxQueue)(nil)

// Room returns how many packets fit before the next doorbell.
func (q *TxQueue) Room() int {
	if q.down {
		return 0
	}
	return ring - q.posted.Len()
}

// Post remembers p until the doorbell.
func (q *TxQueue) Post(p *qdisc.Packet) bool {
	if q.Room() == 0 {
		return false
	}
	q.posted.Push(p)
	return true
}

// Kick writes what was posted. What the kernel has no memory for stays, and
// the next doorbell tries again; what finds the interface down is lost.
func (q *TxQueue) Kick(now time.Duration) dequeue.Kick {
	for p := q.posted.Front(); p != nil; p = q.posted.Front() {
		q.iov[0], q.iov[1] = q.hdr[:], p.Bytes()
		_, err := unix.Writev(q.fd, q.iov[:])
		q.iov[1] = nil
		switch err {
		case nil:
			q.done()
		case unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
			return dequeue.KickStopped
		case unix.EIO, unix.EBADFD:
			q.down, q.probeAt = true, now+probing
			for q.posted.Len() > 0 {
				q.lost++
				q.done()
			}
			return dequeue.KickDown
		default: // not a frame to the kernel's liking
			q.lost++
			q.done()
		}
	}
	if q.down {
		return dequeue.KickDown
	}
	return dequeue.KickAll
}

// done completes the first posted packet.
func (q *TxQueue) done() {
	p := q.posted.Pop()
	q.packets++
	q.bytes += p.Len()
	p.Free()
}

// Reap reports what was written, which the kernel's stack has taken.
func (q *TxQueue) Reap(now time.Duration) (packets, bytes int) {
	if q.down && now >= q.probeAt {
		q.probe()
		q.probeAt = now + probing
	}
	packets, bytes = q.packets, q.bytes
	q.packets, q.bytes = 0, 0
	return packets, bytes
}

// probe looks whether the interface is up: tun_chr_poll shows a TAP writable
// only then.
func (q *TxQueue) probe() {
	q.poll[0] = unix.PollFd{Fd: int32(q.fd), Events: unix.POLLOUT}
	n, err := unix.Poll(q.poll[:], 0)
	q.down = err != nil || n != 1 || q.poll[0].Revents&unix.POLLOUT == 0
}

// Lost returns the packets that found the interface down, or that the kernel
// took for no frames.
func (q *TxQueue) Lost() uint64 { return q.lost }

// Completions returns CompletePeer: a written frame has passed the kernel's
// receive path.
func (q *TxQueue) Completions() dequeue.Completions { return dequeue.CompletePeer }

// Down reports that the interface was down when last written to or looked at.
func (q *TxQueue) Down() bool { return q.down }
