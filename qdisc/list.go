// Packet path.

package qdisc

// List is a FIFO of packets, linked through the packets themselves. The zero
// List is empty. It must not be copied while it holds packets.
type List struct {
	head, tail *Packet
	n          int
	bytes      int // sum of PktLen
}

// Len returns the number of packets.
func (l *List) Len() int { return l.n }

// Bytes returns the sum of the packets' PktLen.
func (l *List) Bytes() int { return l.bytes }

// Front returns the first packet without taking it, or nil.
func (l *List) Front() *Packet { return l.head }

// Back returns the last packet without taking it, or nil.
func (l *List) Back() *Packet { return l.tail }

// Next returns the packet behind p on the list that holds p, or nil.
func (p *Packet) Next() *Packet { return p.next }

// Push appends p.
func (l *List) Push(p *Packet) {
	p.next = nil
	if l.tail == nil {
		l.head = p
	} else {
		l.tail.next = p
	}
	l.tail = p
	l.n++
	l.bytes += int(p.PktLen)
}

// PushFront puts p before all others.
func (l *List) PushFront(p *Packet) {
	p.next = l.head
	l.head = p
	if l.tail == nil {
		l.tail = p
	}
	l.n++
	l.bytes += int(p.PktLen)
}

// Pop takes the first packet, or nil.
func (l *List) Pop() *Packet {
	p := l.head
	if p == nil {
		return nil
	}
	l.head = p.next
	if l.head == nil {
		l.tail = nil
	}
	p.next = nil
	l.n--
	l.bytes -= int(p.PktLen)
	return p
}

// Cut takes the packet behind before, which is on the list; the first one when
// before is nil. nil when there is none.
func (l *List) Cut(before *Packet) *Packet {
	if before == nil {
		return l.Pop()
	}
	p := before.next
	if p == nil {
		return nil
	}
	before.next = p.next
	if l.tail == p {
		l.tail = before
	}
	p.next = nil
	l.n--
	l.bytes -= int(p.PktLen)
	return p
}

// Append moves all packets of m behind those of l; m is empty afterwards.
func (l *List) Append(m *List) {
	if m.head == nil {
		return
	}
	if l.tail == nil {
		l.head = m.head
	} else {
		l.tail.next = m.head
	}
	l.tail = m.tail
	l.n += m.n
	l.bytes += m.bytes
	*m = List{}
}
