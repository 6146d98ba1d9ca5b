// Packet path, except Graft.

// Package round is deficit round robin (Shreedhar and Varghese, SIGCOMM 1995)
// between the children of a discipline: what drr is made of, and the weighted
// half of ets.
//
// Each member in turn may send a quantum of bytes, and what it could not use for
// a packet too large it keeps for its next turn. A member joins the round at its
// tail, with a fresh quantum, when it gets its first packet, and leaves with its
// last; what it had saved is lost then.
//
// With children that always give a packet when they have one the order is that
// of drr_dequeue and ets_qdisc_dequeue. A child that holds packets back (a tbf,
// say) is passed over and keeps its deficit; in the kernel all wait for it, and
// it warns.
package round

import (
	"time"

	"sluice/qdisc"
)

// Member is one child. The zero Member is a free slot.
type Member struct {
	qdisc.Child
	Quantum        uint32 // bytes per round; above 0
	active         bool   // in the round
	prev, next     int32  // neighbours in the round, when active
	deficit        uint64 // bytes it may still send in this round
	Packets, Bytes uint64 // what it sent by its turns
}

// Free says whether the slot has no child.
func (m *Member) Free() bool { return m.Qdisc() == nil }

// Deficit returns what the member may still send in this round; 0 when it has
// nothing to send.
func (m *Member) Deficit() uint64 {
	if m.Free() || m.Len() == 0 {
		return 0
	}
	return m.deficit
}

// Round is the members and whose turn it is. Its calls come with the Base of the
// discipline it is part of.
//
// Being active is membership in the ring of links, nothing else: the child's
// Len may change without the round being asked.
type Round struct {
	Members []Member
	turn    int32 // the head of the ring, when it is not empty
	actives int
}

// join puts member i at the tail of the round.
func (r *Round) join(i int32) {
	m := &r.Members[i]
	m.active, m.deficit = true, uint64(m.Quantum)
	if r.actives == 0 {
		m.prev, m.next, r.turn = i, i, i
	} else {
		head := &r.Members[r.turn]
		m.prev, m.next = head.prev, r.turn
		r.Members[m.prev].next = i
		head.prev = i
	}
	r.actives++
}

// Join lets member i take part from now on if it has packets.
func (r *Round) Join(i int32) {
	if m := &r.Members[i]; !m.active && m.Len() != 0 {
		r.join(i)
	}
}

// Leave takes member i out of the round. Twice is as good as once.
func (r *Round) Leave(i int32) {
	m := &r.Members[i]
	if !m.active {
		return
	}
	r.Members[m.prev].next = m.next
	r.Members[m.next].prev = m.prev
	if r.turn == i {
		r.turn = m.next
	}
	m.active = false
	r.actives--
}

// Enqueue gives p to member i.
func (r *Round) Enqueue(ctx *qdisc.Context, parent *qdisc.Base, i int32, p *qdisc.Packet) qdisc.Verdict {
	v := r.Members[i].Child.Enqueue(ctx, parent, p)
	r.Join(i)
	return v
}

// Dequeue goes round until the member whose turn it is can pay for its next
// packet. When none gives anything it returns the earliest instant at which one
// may, Never when the round is empty.
//
// It ends: a member that cannot pay gets richer by a quantum each time it is
// asked; one that has nothing to give for now counts as waiting, and when all do
// in a row that is the answer.
func (r *Round) Dequeue(ctx *qdisc.Context, parent *qdisc.Base) (*qdisc.Packet, time.Duration) {
	waiting, at := 0, qdisc.Never
	for waiting < r.actives {
		i := r.turn
		m := &r.Members[i]
		p := m.Peek(ctx, parent)
		switch {
		case p == nil && m.Len() == 0: // it dropped its last packets while it looked
			r.Leave(i)
		case p == nil:
			at = min(at, m.NextAt())
			waiting++
			r.turn = m.next
		case uint64(p.PktLen) > m.deficit:
			waiting, at = 0, qdisc.Never
			m.deficit += uint64(m.Quantum)
			r.turn = m.next
		default:
			m.deficit -= uint64(p.PktLen)
			p = m.Child.Dequeue(ctx, parent)
			m.Packets++
			m.Bytes += uint64(p.PktLen)
			if m.Len() == 0 {
				r.Leave(i)
			}
			return p, 0
		}
	}
	return nil, at
}

// Shed takes from the member with the most bytes, in the round or not; from
// another one when that has none to give, because they are parked.
func (r *Round) Shed(ctx *qdisc.Context, parent *qdisc.Base, n int) int {
	fattest, most := -1, 0
	for i := range r.Members {
		if m := &r.Members[i]; !m.Free() && m.Backlog() > most {
			fattest, most = i, m.Backlog()
		}
	}
	if fattest < 0 {
		return 0
	}
	got := r.shed(ctx, parent, fattest, n)
	for i := 0; i < len(r.Members) && got == 0; i++ {
		if !r.Members[i].Free() {
			got = r.shed(ctx, parent, i, n)
		}
	}
	return got
}

func (r *Round) shed(ctx *qdisc.Context, parent *qdisc.Base, i, n int) int {
	m := &r.Members[i]
	got := m.Child.Shed(ctx, parent, n)
	if m.Len() == 0 {
		r.Leave(int32(i))
	}
	return got
}

// Reset empties all members and the round, also of those whose child was empty
// already.
func (r *Round) Reset(ctx *qdisc.Context, parent *qdisc.Base) {
	for i := range r.Members {
		if m := &r.Members[i]; !m.Free() {
			r.Leave(int32(i))
			m.Child.Reset(ctx, parent)
		}
	}
}

// Graft makes child, which is empty, the child of member i; nil makes the slot
// free. It returns the one that was there, purged and out of the round, whether
// it had packets or not.
func (r *Round) Graft(ctx *qdisc.Context, parent *qdisc.Base, i int32, child qdisc.Qdisc) (old qdisc.Qdisc) {
	m := &r.Members[i]
	if !m.Free() {
		old = m.Qdisc()
		m.Purge(ctx, parent)
		r.Leave(i)
	}
	if child == nil {
		*m = Member{}
	} else {
		m.Child = qdisc.NewChild(child)
	}
	return old
}
