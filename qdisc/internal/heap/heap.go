// Packet path, except Grow.

// Package heap is a priority queue of slots, for disciplines that keep their
// classes or flows in a slice: a binary heap beside it, which knows where each
// slot stands, so that one can be taken out or moved in O(log n).
//
// Equal keys leave in the order in which they came: order is first Key, then
// Tie, then age. Nothing allocates but Grow.
package heap

// Key is what a heap is ordered by.
type Key struct {
	Key int64
	Tie int64
}

// Heap is the queue. The zero Heap is empty and has no slots; see Grow.
type Heap struct {
	items []item
	where []int32 // of each slot: its place in items plus one; 0: not there
	age   uint64
}

type item struct {
	Key
	age  uint64
	slot int32
}

func (a *item) before(b *item) bool {
	switch {
	case a.Key.Key != b.Key.Key:
		return a.Key.Key < b.Key.Key
	case a.Tie != b.Tie:
		return a.Tie < b.Tie
	}
	return a.age < b.age
}

// Grow makes room for slots below n.
func (h *Heap) Grow(n int) {
	for len(h.where) < n {
		h.where = append(h.where, 0)
	}
	if cap(h.items) < n {
		h.items = append(make([]item, 0, cap(h.where)), h.items...)
	}
}

// Len returns how many slots are queued.
func (h *Heap) Len() int { return len(h.items) }

// Has says whether slot is queued.
func (h *Heap) Has(slot int32) bool { return h.where[slot] != 0 }

// Min returns the first slot and its key, −1 when the heap is empty.
func (h *Heap) Min() (slot int32, k Key) {
	if len(h.items) == 0 {
		return -1, Key{}
	}
	return h.items[0].slot, h.items[0].Key
}

// KeyOf returns the key of a queued slot.
func (h *Heap) KeyOf(slot int32) Key { return h.items[h.where[slot]-1].Key }

// Set queues slot under k, behind all of the same key; one that is queued
// already moves.
func (h *Heap) Set(slot int32, k Key) {
	h.age++
	h.set(item{k, h.age, slot})
}

// Move gives a queued slot another key, and leaves its age.
func (h *Heap) Move(slot int32, k Key) {
	h.set(item{k, h.items[h.where[slot]-1].age, slot})
}

// Copy queues slot, which is queued in from, under k with the age it has there.
func (h *Heap) Copy(slot int32, k Key, from *Heap) {
	h.set(item{k, from.items[from.where[slot]-1].age, slot})
}

func (h *Heap) set(x item) {
	i := int(h.where[x.slot]) - 1
	if i < 0 {
		i = len(h.items)
		h.items = append(h.items, x)
	}
	h.place(i, x)
}

// Remove takes slot out, if it is in.
func (h *Heap) Remove(slot int32) {
	i := int(h.where[slot]) - 1
	if i < 0 {
		return
	}
	h.where[slot] = 0
	last := len(h.items) - 1
	x := h.items[last]
	h.items = h.items[:last]
	if i < last {
		h.place(i, x)
	}
}

// Clear takes all out and forgets all ages.
func (h *Heap) Clear() {
	for i := range h.items {
		h.where[h.items[i].slot] = 0
	}
	h.items = h.items[:0]
	h.age = 0
}

// place puts x where the hole i is, or as far up or down from there as it
// belongs.
func (h *Heap) place(i int, x item) {
	for i > 0 {
		up := (i - 1) / 2
		if !x.before(&h.items[up]) {
			break
		}
		h.put(i, h.items[up])
		i = up
	}
	for {
		down := 2*i + 1
		if down >= len(h.items) {
			break
		}
		if right := down + 1; right < len(h.items) && h.items[right].before(&h.items[down]) {
			down = right
		}
		if !h.items[down].before(&x) {
			break
		}
		h.put(i, h.items[down])
		i = down
	}
	h.put(i, x)
}

func (h *Heap) put(i int, x item) {
	h.items[i] = x
	h.where[x.slot] = int32(i) + 1
}
