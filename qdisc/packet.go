// Packet path.

package qdisc

import "time"

// Packet is one wire frame and all that is known about it: the engine's
// sk_buff. Super-packets are cut at receive, so a Packet is always one segment.
//
// A Packet and its frame are one slot of a [Pool] and never part: whoever holds
// the Packet holds the bytes. It has exactly one owner at any time, and is on
// at most one [List]. The owner ends its life with [Packet.Free].
//
// Two cache lines: the first is what queueing touches, the second what
// classification and the drivers touch.
type Packet struct {
	next *Packet // link of the List that holds it
	pool *Pool   // where it goes when freed
	buf  []byte  // the whole slot: headroom, frame, tailroom

	Arrival  time.Duration // instant of receive, since the worker's epoch
	PktLen   uint32        // bytes as scheduling counts them (qdisc_pkt_len): frame without FCS, plus the size table's correction
	Priority uint32        // skb->priority; a non-zero major half names a class
	Mark     uint32        // skb->mark
	Hash     uint32        // flow hash, valid when Flags has HashSet

	Class     ClassID // class named from outside the discipline, 0 = none
	off, len  uint16  // the frame within buf
	Port      uint16  // index of the receiving port on its worker
	Queue     uint16  // queue mapping: which txq of the egress port
	L3        uint16  // offset of the network header from the start of the frame, 0 = unknown
	L4        uint16  // offset of the transport header, 0 = none or a later fragment
	EtherType uint16  // protocol of the network header, behind VLAN tags and PPPoE
	VLAN      uint16  // outer tag control information, valid when Flags has VLANSet
	index     uint32  // number of the slot in its pool
	L4Proto   uint8   // IP protocol of the transport header, extension headers skipped
	TOS       uint8   // IPv4 TOS or IPv6 traffic class: DSCP in the upper six bits, ECN in the lower two
	Flags     PacketFlags
	_         uint8

	// Scratch belongs to the discipline that holds the packet, as skb->cb
	// does; its content does not survive the discipline.
	Scratch [4]uint64
}

// PacketFlags are the yes-or-no facts about a packet.
type PacketFlags uint8

const (
	Parsed    PacketFlags = 1 << iota // headers were read: L3, L4, EtherType, L4Proto, TOS, VLAN are valid
	HashSet                           // Hash is valid
	VLANSet                           // VLAN is valid
	Malformed                         // parsing stopped at a header that lies or is cut off
	Fragment                          // a later IP fragment: no transport header
	free                              // in its pool; guards against a second Free
)

// Bytes returns the frame, from the destination address to the last byte
// before the FCS. The slice is valid as long as the caller owns the packet.
func (p *Packet) Bytes() []byte { return p.buf[p.off : p.off+p.len : len(p.buf)] }

// Len returns the length of the frame in bytes (skb->len), which is what byte
// queue limits count.
func (p *Packet) Len() int { return int(p.len) }

// Room returns the slot from the start of the frame to its end, for a driver to
// receive into; SetLen says how much of it became the frame.
func (p *Packet) Room() []byte { return p.buf[p.off:] }

// SetLen sets the frame's length, and PktLen with it.
//
// Preconditions: n ≤ len(p.Room()).
func (p *Packet) SetLen(n int) {
	_ = p.buf[int(p.off)+n:]
	p.len, p.PktLen = uint16(n), uint32(n)
}

// SetFrame places the frame at [off, off+n) of its slot, for drivers whose
// device chose the place (AF_XDP), and sets PktLen.
func (p *Packet) SetFrame(off, n int) {
	_ = p.buf[off : off+n]
	p.off, p.len, p.PktLen = uint16(off), uint16(n), uint32(n)
}

// Offset returns where in its slot the frame starts.
func (p *Packet) Offset() int { return int(p.off) }

// Push makes the frame n bytes longer at its front (skb_push) and returns the
// whole frame, or nil when the headroom is too small; nothing changed then.
// Header offsets are the caller's to mend.
func (p *Packet) Push(n int) []byte {
	if n > int(p.off) {
		return nil
	}
	p.off -= uint16(n)
	p.len += uint16(n)
	p.PktLen += uint32(n)
	return p.Bytes()
}

// Index returns the number of the packet's slot in its pool.
func (p *Packet) Index() uint32 { return p.index }

// Pool returns the pool the packet belongs to.
func (p *Packet) Pool() *Pool { return p.pool }

// Free gives the packet back to its pool. The caller must not touch it again.
func (p *Packet) Free() { p.pool.put(p) }

// DSCP returns the differentiated services code point (RFC 2474 §3).
func (p *Packet) DSCP() uint8 { return p.TOS >> 2 }

// ECN returns the congestion notification field (RFC 3168 §5): 0 Not-ECT,
// 1 ECT(1), 2 ECT(0), 3 CE.
func (p *Packet) ECN() uint8 { return p.TOS & 3 }
