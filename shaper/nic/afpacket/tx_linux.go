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
	maxLen  int      // longest frame the device's MTU allows, tag included

	head, sent, tail uint32
	unsent           int // bytes from sent to head

	lostPackets, lostBytes int    // refused by Post as too long or short, until Reap tells
	lost                   uint64 // all in all

	down    bool
	probeAt time.Duration // not asked after again before
	ifr     ifreq
}

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
	if n < ethHeader || n > q.maxLen {
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
// device's queue is stopped or it dropped a frame, which the kernel then keeps
// (tpacket_snd, net/packet/af_packet.c).
func (q *txQueue) Kick(now time.Duration) dequeue.Kick {
	if q.sent == q.head {
		return dequeue.KickAll
	}
	n, errno := ringDoorbell(q.fd)
	if errno == 0 && n == q.unsent {
		q.sent, q.unsent, q.down = q.head, 0, false
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
	switch {
	case q.sent == q.head:
		return dequeue.KickAll
	case q.sent != before:
		return dequeue.KickAgain
	case q.probe(now):
		return dequeue.KickDown
	}
	return dequeue.KickStopped
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
	const want = unix.IFF_UP | unix.IFF_RUNNING
	q.down = errno != 0 || q.ifr.short()&want != want
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
	q := &txQueue{fd: fd, index: index, maxLen: maxLen, lengths: make([]uint32, req.Frame_nr)}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return nil, q.fail("bypass the device's qdisc", err)
	}
	// A malformed frame would otherwise block the ring. Post lets none through.
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
	err := errors.Join(q.ring.close(), unix.Close(q.fd))
	q.fd = -1
	return err
}
