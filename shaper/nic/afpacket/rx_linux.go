// Packet path, except openRx and close.

package afpacket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"sluice/qdisc"
	"sluice/shaper/nic"
)

// rxQueue is a receive socket.
type rxQueue struct {
	fd      int
	ring    ring
	next    uint32 // slot that the kernel fills next
	maxLen  int    // longest frame that the MTU allows, tags included
	stats   nic.RxStats
	scratch unix.TpacketStats
	errorAt time.Duration // the socket's error is not cleared again before
}

// clearEvery is how often an idle queue clears its socket's error.
const clearEvery = time.Millisecond

var _ nic.RxQueue = (*rxQueue)(nil)

// FD returns the socket.
func (q *rxQueue) FD() int { return q.fd }

// NextAt returns qdisc.Never: the descriptor tells of every frame.
func (q *rxQueue) NextAt() time.Duration { return qdisc.Never }

// RxStats returns the counters. It asks the kernel for the drops: a system call.
func (q *rxQueue) RxStats() nic.RxStats {
	s := q.stats
	q.stats.Drops += packetStatistics(q.fd, &q.scratch)
	s.Drops = q.stats.Drops
	return s
}

// Receive copies waiting frames into packets. Without a free packet a frame
// stays in the ring, whose own overflow the kernel counts.
func (q *rxQueue) Receive(ctx *qdisc.Context, l *qdisc.List, max int) int {
	n := 0
	for n < max {
		h := q.ring.header(q.next)
		st := status(h)
		if st&unix.TP_STATUS_USER == 0 {
			if n == 0 && ctx.Now >= q.errorAt {
				// A device that goes down leaves an error behind, for which poll
				// would return at once for ever.
				q.errorAt = ctx.Now + clearEvery
				clearError(q.fd)
			}
			break
		}
		p := ctx.Pool.Get()
		if p == nil {
			break
		}
		if q.take(h, st, p) {
			p.Arrival = ctx.Now
			q.stats.Packets++
			q.stats.Bytes += uint64(p.Len())
			l.Push(p)
			n++
		} else {
			p.Free()
		}
		setStatus(h, unix.TP_STATUS_KERNEL)
		q.next++
	}
	return n
}

// take copies the frame of the next slot into p, as it was on the wire: the VLAN
// tag put back, the checksum finished. It returns false for what is not to be
// had as one wire frame, and counts that.
func (q *rxQueue) take(h *header, st uint32, p *qdisc.Packet) bool {
	slot := q.ring.slot(q.next)
	if packetType(slot) == unix.PACKET_OUTGOING {
		return false // kernels whose fanout can't ignore them
	}
	size, mac := int(h.Snaplen), int(h.Mac)
	tag := 0
	if st&unix.TP_STATUS_VLAN_VALID != 0 {
		tag = 4
	}
	// Longer than a slot, a super-packet, longer than the pool's frames, or no
	// Ethernet frame.
	room := p.Room()
	vnet := vnetAt(slot[mac-sizeofVnet:])
	if h.Len != h.Snaplen || size+tag > q.maxLen || size+tag > len(room) ||
		size < ethHeader || vnet.gsoType != 0 {
		q.stats.Errors++
		return false
	}
	frame := slot[mac : mac+size]
	if tag == 0 {
		copy(room, frame)
	} else {
		tpid := h.Vlan_tpid
		if st&unix.TP_STATUS_VLAN_TPID_VALID == 0 {
			tpid = unix.ETH_P_8021Q
		}
		copy(room, frame[:12])
		binary.BigEndian.PutUint16(room[12:], tpid)
		binary.BigEndian.PutUint16(room[14:], h.Vlan_tci)
		copy(room[16:], frame[12:])
	}
	p.SetLen(size + tag)
	if vnet.flags&vnetNeedsCsum != 0 && !complete(p.Bytes(), int(vnet.csumStart)+tag, int(vnet.csumOffset)) {
		q.stats.Errors++
		return false
	}
	return true
}

// openRx makes the socket and its ring. It receives from the bind on.
func openRx(index, maxLen int, req unix.TpacketReq) (*rxQueue, error) {
	fd, err := openSocket()
	if err != nil {
		return nil, err
	}
	q := &rxQueue{fd: fd, maxLen: maxLen}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return nil, q.fail("ignore outgoing frames", err)
	}
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return nil, q.fail("make a receive ring", err)
	}
	if q.ring, err = newRing(fd, req); err != nil {
		return nil, q.fail("map the receive ring", err)
	}
	addr := &unix.SockaddrLinklayer{Ifindex: index, Protocol: htons(unix.ETH_P_ALL)}
	if err := unix.Bind(fd, addr); err != nil {
		return nil, q.fail("bind", err)
	}
	// Promiscuous by membership: the kernel takes it back when the socket goes,
	// however this process ends.
	all := &unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, all); err != nil {
		return nil, q.fail("set promiscuous", err)
	}
	return q, nil
}

func (q *rxQueue) fail(what string, err error) error {
	return errors.Join(fmt.Errorf("%s: %w", what, err), q.close())
}

func (q *rxQueue) close() error {
	err := errors.Join(q.ring.close(), unix.Close(q.fd))
	q.fd = -1
	return err
}
