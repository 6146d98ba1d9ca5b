// Packet path.

package cake

import (
	"bytes"
	"encoding/binary"

	"sluice/qdisc"
)

// ackMode says what becomes of acknowledgements that later ones repeat.
type ackMode uint8

const (
	ackKeep       ackMode = iota
	ackFilter             // one stays behind the newest
	ackAggressive         // none stays
)

// TCP's flags, and the options that can be looked through.
const (
	tcpSYN   = 0x02
	tcpACK   = 0x10
	tcpECE   = 0x40
	tcpCWR   = 0x80
	tcpFlags = 0x1ff &^ (tcpACK | tcpECE | tcpCWR) // an ACK with any of these says more

	optEnd       = 0
	optNOP       = 1
	optSACK      = 5
	optTimestamp = 8
	optMD5       = 19
)

// segment is a TCP segment, as the filter sees it.
type segment struct {
	addresses []byte // source and destination
	tcp       []byte // the header, options included
	payload   int
}

func (s *segment) flags() uint16 { return binary.BigEndian.Uint16(s.tcp[12:]) & 0x1ff }
func (s *segment) ack() uint32   { return binary.BigEndian.Uint32(s.tcp[8:]) }

// ecn is the part of the flags that echoes congestion: it must reach the sender.
func (s *segment) ecn() uint16 { return s.flags() & (tcpECE | tcpCWR) }

func (s *segment) sameFlow(o *segment) bool {
	return bytes.Equal(s.addresses, o.addresses) && bytes.Equal(s.tcp[:4], o.tcp[:4])
}

const (
	protoTCP  = 6
	protoIPv6 = 41
)

// parseSegment finds the TCP segment in p: in IPv4, in IPv6, or in IPv6 in IPv4.
// Fragments and what lies about its length have none.
func parseSegment(p *qdisc.Packet) (s segment, ok bool) {
	if p.L3 == 0 || int(p.L3) >= p.Len() {
		return s, false
	}
	b := p.Bytes()[p.L3:]
	if p.EtherType == etherIPv4 && len(b) >= 20 {
		header, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
		if header < 20 || total < header || total > len(b) || binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
			return s, false
		}
		switch b[9] {
		case protoTCP:
			return newSegment(b[12:20], b[header:total])
		case protoIPv6:
			return parseIPv6(b[header:total])
		}
		return s, false
	}
	if p.EtherType == etherIPv6 {
		return parseIPv6(b)
	}
	return s, false
}

func parseIPv6(b []byte) (s segment, ok bool) {
	if len(b) < 40 || b[0]>>4 != 6 || b[6] != protoTCP {
		return s, false
	}
	n := int(binary.BigEndian.Uint16(b[4:]))
	if 40+n > len(b) {
		return s, false
	}
	return newSegment(b[8:40], b[40:40+n])
}

func newSegment(addresses, b []byte) (s segment, ok bool) {
	if len(b) < 20 {
		return s, false
	}
	header := int(b[12]>>4) * 4
	if header < 20 || header > len(b) {
		return s, false
	}
	return segment{addresses, b[:header], len(b) - header}, true
}

// filterAcks looks, after an acknowledgement was queued last in f, for an older one
// that says nothing the new one does not say, and drops it.
func (q *cake) filterAcks(ctx *qdisc.Context, t *tin, f *flow) {
	before, p := q.redundantAck(f)
	if p == nil {
		return
	}
	f.queue.Cut(before)
	q.left(t, p)
	t.ackDrops++
	if q.ingress {
		q.charge(t, p, ctx.Now, true)
	}
	q.Discard(ctx, p, qdisc.Generic)
}

// redundantAck returns the acknowledgement to drop, and the packet before it in
// the queue.
//
// It has to be a pure one of the same connection, and the oldest. Unless the mode
// is aggressive a second one must be queued behind it, so that some stay to clock
// the sender. A change of the congestion echo begins the search anew: what was
// found before carries the old state to the sender.
func (q *cake) redundantAck(f *flow) (before, p *qdisc.Packet) {
	last := f.queue.Back()
	if f.queue.Front() == last {
		return nil, nil
	}
	newest, ok := parseSegment(last)
	if !ok || newest.flags()&(tcpACK|tcpSYN) != tcpACK {
		return nil, nil
	}
	var echo uint16
	var prev *qdisc.Packet
	for old := f.queue.Front(); old != last; prev, old = old, old.Next() {
		s, ok := parseSegment(old)
		if !ok || !s.sameFlow(&newest) {
			continue
		}
		if p != nil && s.ecn() != echo {
			before, p = nil, nil
		}
		if !s.saidBy(&newest) {
			continue
		}
		if p != nil {
			return before, p
		}
		before, p, echo = prev, old, s.ecn()
	}
	if p != nil && q.acks == ackAggressive && p.Next() == last && echo == newest.ecn() {
		return before, p
	}
	return nil, nil
}

// saidBy says whether s is a pure acknowledgement that newer makes superfluous.
func (s *segment) saidBy(newer *segment) bool {
	if s.payload != 0 || s.flags()&tcpFlags != 0 || s.flags()&tcpACK == 0 ||
		after(s.ack(), newer.ack()) || !s.optionsSaidBy(newer) {
		return false
	}
	more, ok := s.sacksSaidBy(newer)
	return ok && (more || s.ack() != newer.ack()) // else it is a duplicate, which counts
}

// after compares sequence numbers (RFC 9293 §3.4).
func after(a, b uint32) bool { return int32(a-b) > 0 }

// option finds an option of TCP: its content, nil when it is not there. With kind
// optEnd it says whether nothing but options known to be harmless is there.
func (s *segment) option(kind byte) (content []byte, harmless bool) {
	for o := s.tcp[20:]; len(o) > 0; {
		switch o[0] {
		case optEnd:
			return nil, true
		case optNOP:
			o = o[1:]
			continue
		}
		if len(o) < 2 || o[1] < 2 || int(o[1]) > len(o) {
			return nil, false
		}
		if o[0] == kind {
			return o[2:o[1]], true
		}
		if o[0] != optSACK && o[0] != optMD5 && !(o[0] == optTimestamp && o[1] == 10) {
			return nil, false
		}
		o = o[o[1]:]
	}
	return nil, true
}

// optionsSaidBy says whether s has no option that matters, and no timestamp that is
// newer than the newer one's.
func (s *segment) optionsSaidBy(newer *segment) bool {
	if _, harmless := s.option(optEnd); !harmless {
		return false
	}
	old, _ := s.option(optTimestamp)
	if old == nil {
		return true
	}
	now, _ := newer.option(optTimestamp)
	return len(now) == 8 &&
		!after(binary.BigEndian.Uint32(old), binary.BigEndian.Uint32(now)) &&
		!after(binary.BigEndian.Uint32(old[4:]), binary.BigEndian.Uint32(now[4:]))
}

// sacksSaidBy compares selective acknowledgements (RFC 2018): ok when all that s
// reports is within what newer reports, more when newer reports more bytes.
func (s *segment) sacksSaidBy(newer *segment) (more, ok bool) {
	old, _ := s.option(optSACK)
	now, _ := newer.option(optSACK)
	oldBytes, nowBytes := uint32(0), uint32(0)
	for b := now; len(b) >= 8; b = b[8:] {
		nowBytes += binary.BigEndian.Uint32(b[4:]) - binary.BigEndian.Uint32(b)
	}
	for ; len(old) >= 8; old = old[8:] {
		start, end := binary.BigEndian.Uint32(old), binary.BigEndian.Uint32(old[4:])
		if after(s.ack(), start) {
			return false, false // a D-SACK (RFC 2883) is always news
		}
		within := false
		for b := now; len(b) >= 8 && !within; b = b[8:] {
			within = !after(binary.BigEndian.Uint32(b), start) && !after(end, binary.BigEndian.Uint32(b[4:]))
		}
		if !within {
			return false, false
		}
		oldBytes += end - start
	}
	return nowBytes > oldBytes, true
}
