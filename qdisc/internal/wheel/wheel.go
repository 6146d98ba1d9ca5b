// Packet path, except Grow.

// Package wheel is a hierarchical timing wheel of slots: for disciplines that
// keep their classes in a slice and have to know which of very many is due next.
// Putting in, taking out and moving cost the same however many wait.
//
// Time is read as digits of six bits. An entry is filed under the highest digit
// in which its instant differs from the wheel's own; when the wheel's time
// reaches that digit's turn, the entries under it are filed again by the digits
// below (Varghese and Lauck, SOSP 1987, scheme 7). A word of bits for each digit
// says where entries are. At the lowest digit a list holds one instant alone, so
// entries come out in the exact order of their instants, and those of one instant
// in the order in which they went in.
package wheel

import (
	"math/bits"
	"time"
)

const (
	digit  = 6
	slots  = 1 << digit
	digits = 11 // all of a time.Duration
	none   = -1
)

// Never is the instant of an empty wheel.
const Never = time.Duration(1<<63 - 1)

// Links are the entries that can be in one of several wheels: one for each slot
// of the owner's slice.
type Links struct{ all []link }

type link struct {
	key        int64
	prev, next int32
	place      int16 // digit*slots + value; none: in no wheel
}

// Grow makes room for slots below n.
func (l *Links) Grow(n int) {
	for len(l.all) < n {
		l.all = append(l.all, link{place: none})
	}
}

// Has says whether a slot is in a wheel.
func (l *Links) Has(slot int32) bool { return l.all[slot].place != none }

// Wheel is one queue of instants. Make it with New.
type Wheel struct {
	links *Links
	now   int64
	used  uint16         // a bit for each digit with entries
	bits  [digits]uint64 // a bit for each list with entries
	lists [digits * slots]list
}

type list struct{ head, tail int32 }

// New returns an empty wheel whose entries are in l.
func New(l *Links) *Wheel { return &Wheel{links: l} }

// Empty says whether nothing waits.
func (w *Wheel) Empty() bool { return w.used == 0 }

// Put enters a slot, which is in no wheel.
//
// Preconditions: at lies not before the instant of the last Pop.
func (w *Wheel) Put(slot int32, at time.Duration) {
	l := &w.links.all[slot]
	l.key = int64(at)
	w.file(slot, l)
}

// file appends a slot to the list that its key belongs to.
func (w *Wheel) file(slot int32, l *link) {
	d := 0
	if x := uint64(l.key ^ w.now); x != 0 {
		d = (bits.Len64(x) - 1) / digit
	}
	v := int(l.key>>(d*digit)) & (slots - 1)
	place := d*slots + v
	at := &w.lists[place]
	l.place, l.next, l.prev = int16(place), none, none
	if w.bits[d]>>v&1 != 0 {
		l.prev = at.tail
		w.links.all[at.tail].next = slot
	} else {
		at.head = slot
		w.bits[d] |= 1 << v
		w.used |= 1 << d
	}
	at.tail = slot
}

// Remove takes a slot out, which has to be in this wheel.
func (w *Wheel) Remove(slot int32) {
	l := &w.links.all[slot]
	at := &w.lists[l.place]
	if l.prev != none {
		w.links.all[l.prev].next = l.next
	} else {
		at.head = l.next
	}
	if l.next != none {
		w.links.all[l.next].prev = l.prev
	} else {
		at.tail = l.prev
	}
	if at.head == none {
		w.clear(int(l.place)/slots, int(l.place)%slots)
	}
	l.place = none
}

func (w *Wheel) clear(d, v int) {
	if w.bits[d] &^= 1 << v; w.bits[d] == 0 {
		w.used &^= 1 << d
	}
}

// At returns the instant of a slot that is in a wheel.
func (w *Wheel) At(slot int32) time.Duration { return time.Duration(w.links.all[slot].key) }

// Pop takes out the earliest slot that is due, −1 when none is. The wheel's time
// follows.
//
// Preconditions: now never decreases.
func (w *Wheel) Pop(now time.Duration) int32 {
	for w.used != 0 {
		d := bits.TrailingZeros16(w.used)
		v := bits.TrailingZeros64(w.bits[d])
		shift := d * digit
		start := w.now&^(1<<(shift+digit)-1) | int64(v)<<shift
		if start > int64(now) {
			break
		}
		at := &w.lists[d*slots+v]
		w.now = start
		if d == 0 {
			slot := at.head
			w.Remove(slot)
			return slot
		}
		w.clear(d, v)
		for slot := at.head; slot != none; {
			l := &w.links.all[slot]
			next := l.next
			w.file(slot, l)
			slot = next
		}
	}
	w.now = int64(now)
	return none
}

// Next returns the earliest instant, Never when nothing waits. It looks at every
// entry of one list, so it is for when the answer changed.
func (w *Wheel) Next() time.Duration {
	if w.used == 0 {
		return Never
	}
	d := bits.TrailingZeros16(w.used)
	v := bits.TrailingZeros64(w.bits[d])
	slot := w.lists[d*slots+v].head
	earliest := w.links.all[slot].key
	if d == 0 {
		return time.Duration(earliest)
	}
	for ; slot != none; slot = w.links.all[slot].next {
		earliest = min(earliest, w.links.all[slot].key)
	}
	return time.Duration(earliest)
}

// Reset empties the wheel.
func (w *Wheel) Reset() {
	for w.used != 0 {
		d := bits.TrailingZeros16(w.used)
		for w.bits[d] != 0 {
			w.Remove(w.lists[d*slots+bits.TrailingZeros64(w.bits[d])].head)
		}
	}
}
