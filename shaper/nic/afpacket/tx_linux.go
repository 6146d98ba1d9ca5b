// Packet path, except openTx and close.

package afpacket

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"sluice/dequeue"
	"sluice/qdisc"
)

// Where a transmit slot's data begins: tp_hdrlen less the address that only
// receive slots have.
const txData = unix.SizeofTpacket2Hdr

// probeEvery is how often a queue that doesn't get on asks after its device.
const probeEvery = 10 * time.Millisecond

// txQueue is a transmit socket. Slots from tail to sent are the kernel's or
// done, from sent to head they wait for the doorbell.
type txQueue struct {
	fd      int
	index   int // of the interface
	ring    ring
	lengths []uint32 // of the frames on the ring, by slot
	maxLen  int      // longest frame the device's MTU allows, tags included

	head, sent, tail uint32
	unsent           int // bytes from sent to head

	lostPackets, lostBytes int    // refused by Post as too long or short, until Reap tells
	lost                   uint64 // all in all

	down    bool
	probeAt time.Duration // not asked after again before
	ifr     ifreq

	// The frame at sent doesn't leave: since when, and how many frames the
	// device had dropped a little later.
	stuck   bool
	counted bool
	stuckAt time.Duration
	dropped uint64
	drops   *dropCounter

	// After a frame was given up: what the device takes and what not says whether
	// it was the length.
	watching     bool
	takenLen     int           // the longest frame taken since; 0: none
	refusedLen   int           // frames as long as this are dropped by the device; 0: not known of any
	refusedUntil time.Duration // then it is tried again
}

// A frame that doesn't leave for dropAfter, while the device counts drops from
// countAfter on, is given up. Where the device takes shorter ones meanwhile, it is
// the length (more than the MTU of a veth's peer, say), and for refusedFor all as
// long are given up at once. A device that takes none is only full: a TAP whose
// reader pauses.
const (
	countAfter = time.Millisecond
	dropAfter  = 5 * time.Millisecond
	refusedFor = time.Second
)

var _ dequeue.Driver = (*txQueue)(nil)

// Room returns the free slots.
func (q *txQueue) Room() int { return int(q.ring.slots - (q.head - q.tail)) }

// Post copies the frame into the next slot and frees p. A frame that the device
// cannot send is taken and lost.
func (q *txQueue) Post(p *qdisc.Packet) bool {
	if q.head-q.tail == q.ring.slots {
		return false
	}
	n := p.Len()
	if n < ethHeader || n > q.maxLen || q.refusedLen > 0 && n >= q.refusedLen {
		q.lostPackets++
		q.lostBytes += n
		q.lost++
		p.Free()
		return true
	}
	h := q.ring.header(q.head)
	if status(h) != unix.TP_STATUS_AVAILABLE {
		return false
	}
	slot := q.ring.slot(q.head)
	// The kernel makes hdrLen bytes part of the sk_buff's own memory, here all.
	vnetAt(slot[txData:]).hdrLen = uint16(n)
	copy(slot[txData+sizeofVnet:], p.Bytes())
	h.Len = uint32(sizeofVnet + n)
	setStatus(h, unix.TP_STATUS_SEND_REQUEST)
	q.lengths[q.head&q.ring.mask] = uint32(n)
	q.head++
	q.unsent += n
	p.Free()
	return true
}

// Kick rings. What the kernel couldn't send stays on the ring, in order: EAGAIN
// when the socket's memory is used up by frames under way, ENOBUFS when the
// device's queue is stopped or the device dropped a frame: the kernel keeps it
// and offers it again (tpacket_snd, net/packet/af_packet.c).
func (q *txQueue) Kick(now time.Duration) dequeue.Kick {
	if q.sent == q.head {
		return dequeue.KickAll
	}
	n, errno := ringDoorbell(q.fd)
	if errno == 0 && n == q.unsent {
		if q.watching {
			q.watch(q.sent, q.head)
		}
		q.sent, q.unsent, q.down, q.stuck = q.head, 0, false, false
		return dequeue.KickAll
	}
	switch errno {
	case unix.ENETDOWN, unix.ENXIO, unix.ENODEV:
		q.down, q.probeAt = true, now+probeEvery
		return dequeue.KickDown
	}
	// The return value doesn't count what was sent before an error; the slots do.
	before := q.sent
	for q.sent != q.head && status(q.ring.header(q.sent)) != unix.TP_STATUS_SEND_REQUEST {
		q.unsent -= int(q.lengths[q.sent&q.ring.mask])
		q.sent++
	}
	if q.sent != before {
		q.stuck = false
		if q.watching {
			q.watch(before, q.sent)
		}
		if q.sent == q.head {
			return dequeue.KickAll
		}
		return dequeue.KickAgain
	}
	if q.probe(now) {
		return dequeue.KickDown
	}
	if errno == unix.ENOBUFS && q.refused(now) {
		q.probeAt = now
		if q.probe(now) { // without carrier the kernel drops everything
			return dequeue.KickDown
		}
		q.giveUp(now)
		return dequeue.KickAgain
	}
	return dequeue.KickStopped
}

// refused reports that the device drops the frame at sent whenever it is
// offered. A device without a qdisc also drops when its peer is full, but not
// for long.
func (q *txQueue) refused(now time.Duration) bool {
	if !q.stuck {
		q.stuck, q.counted, q.stuckAt = true, false, now
		return false
	}
	stuckFor := now - q.stuckAt
	if !q.counted && stuckFor >= countAfter {
		q.counted, q.dropped = true, q.drops.read()
		return false
	}
	if !q.counted || stuckFor < dropAfter {
		return false
	}
	q.stuck = false
	return q.drops.read() > q.dropped
}

// giveUp makes the frame at sent one that the kernel passes over: shorter than
// its virtio header (tpacket_snd with PACKET_LOSS).
func (q *txQueue) giveUp(now time.Duration) {
	q.ring.header(q.sent).Len = 0
	q.lost++
	n := int(q.lengths[q.sent&q.ring.mask])
	if 0 < q.takenLen && q.takenLen < n {
		q.refusedLen = n
	}
	q.watching, q.takenLen, q.refusedUntil = true, 0, now+refusedFor
}

// watch notes that the frames from one slot to another have left, save those
// given up.
func (q *txQueue) watch(from, to uint32) {
	for ; from != to; from++ {
		if q.ring.header(from).Len != 0 {
			q.takenLen = max(q.takenLen, int(q.lengths[from&q.ring.mask]))
		}
	}
}

// Reap walks the slots that the kernel gave back, in order.
func (q *txQueue) Reap(now time.Duration) (packets, bytes int) {
	for q.tail != q.sent && status(q.ring.header(q.tail)) == unix.TP_STATUS_AVAILABLE {
		bytes += int(q.lengths[q.tail&q.ring.mask])
		q.tail++
		packets++
	}
	packets += q.lostPackets
	bytes += q.lostBytes
	q.lostPackets, q.lostBytes = 0, 0
	if q.down {
		q.probe(now)
	}
	if q.watching && now >= q.refusedUntil {
		if q.refusedLen == 0 {
			q.watching, q.takenLen = false, 0
		}
		q.refusedLen = 0 // tried again, and watched: one more is enough then
	}
	return packets, bytes
}

// probe asks, not too often, whether the device is there, up and has carrier,
// and returns whether it is down. Without carrier the kernel refuses frames as
// if the queue were stopped. By index, because the device may have been renamed.
func (q *txQueue) probe(now time.Duration) bool {
	if now < q.probeAt {
		return q.down
	}
	q.probeAt = now + probeEvery
	q.ifr.setInt(int32(q.index))
	errno := ioctlIfreq(q.fd, unix.SIOCGIFNAME, &q.ifr)
	if errno == 0 {
		errno = ioctlIfreq(q.fd, unix.SIOCGIFFLAGS, &q.ifr)
	}
	flags := q.ifr.short()
	if q.down = errno != 0 || flags&unix.IFF_UP == 0; q.down {
		return true
	}
	carrier, known := q.ifr.carrier(q.fd)
	q.down = known && !carrier || !known && flags&unix.IFF_RUNNING == 0
	return q.down
}

// Lost returns the frames the device could not send.
func (q *txQueue) Lost() uint64 { return q.lost }

// Completions returns CompleteDevice: a slot comes back when the device is done
// with the frame; of a veth, when the peer has it.
func (q *txQueue) Completions() dequeue.Completions { return dequeue.CompleteDevice }

// Down reports that the device is gone, set down, or without carrier, as far as
// Kick and Reap have noticed.
func (q *txQueue) Down() bool { return q.down }

// openTx makes the socket and its ring.
func openTx(index, maxLen int, req unix.TpacketReq) (*txQueue, error) {
	fd, err := openSocket()
	if err != nil {
		return nil, err
	}
	q := &txQueue{fd: fd, index: index, maxLen: maxLen, lengths: make([]uint32, req.Frame_nr), drops: openDropCounter(index)}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return nil, q.fail("bypass the device's qdisc", err)
	}
	// A malformed frame would otherwise block the ring. giveUp makes them.
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_LOSS, 1); err != nil {
		return nil, q.fail("skip malformed frames", err)
	}
	// The ring is the limit, not the memory of the frames under way. FORCE needs
	// CAP_NET_ADMIN; without it EAGAIN comes earlier.
	want := int(req.Frame_nr) * (maxLen + 1024)
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, want) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, want)
	}
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_TX_RING, &req); err != nil {
		return nil, q.fail("make a transmit ring", err)
	}
	if q.ring, err = newRing(fd, req); err != nil {
		return nil, q.fail("map the transmit ring", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
		return nil, q.fail("bind", err)
	}
	return q, nil
}

func (q *txQueue) fail(what string, err error) error {
	return errors.Join(fmt.Errorf("%s: %w", what, err), q.close())
}

// close gives up what still waits for the doorbell.
func (q *txQueue) close() error {
	q.lost += uint64(q.head - q.sent)
	q.head = q.sent
	q.down = true
	q.drops.close()
	err := errors.Join(q.ring.close(), unix.Close(q.fd))
	q.fd = -1
	return err
}
