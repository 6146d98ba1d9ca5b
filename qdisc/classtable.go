// Packet path, except Insert and Delete.

package qdisc

// ClassTable finds the slot of a class by its id: what qdisc_class_hash is to
// the kernel. A discipline keeps its classes in a slice and this beside it, so
// that nothing is chased but two cache lines.
//
// Open addressing with linear probing, at most half full; Delete closes the gap
// behind it, so there are no tombstones to slow a table whose classes come and
// go. The zero ClassTable is empty and ready. Id 0 is never found.
type ClassTable struct {
	entries []classEntry // a power of two of them
	shift   uint8        // 64 − log₂ of how many
	n       int
}

type classEntry struct {
	id   ClassID // 0: free
	slot int32
}

// Len returns the number of classes.
func (t *ClassTable) Len() int { return t.n }

// Find returns the slot of id, or −1.
func (t *ClassTable) Find(id ClassID) int32 {
	if id == 0 || t.n == 0 {
		return -1
	}
	mask := len(t.entries) - 1
	for i := t.home(id); ; i++ {
		switch e := &t.entries[i&mask]; e.id {
		case id:
			return e.slot
		case 0:
			return -1
		}
	}
}

// Insert sets the slot of id, which must not be 0. It allocates when the table
// has to grow.
func (t *ClassTable) Insert(id ClassID, slot int32) {
	if id == 0 {
		panic("qdisc: class id 0")
	}
	if 2*(t.n+1) > len(t.entries) {
		t.grow()
	}
	mask := len(t.entries) - 1
	for i := t.home(id); ; i = (i + 1) & mask {
		switch e := &t.entries[i]; e.id {
		case 0:
			*e = classEntry{id, slot}
			t.n++
			return
		case id:
			e.slot = slot
			return
		}
	}
}

// Delete removes id and says whether it was there.
func (t *ClassTable) Delete(id ClassID) bool {
	if t.Find(id) < 0 {
		return false
	}
	mask := len(t.entries) - 1
	gap := t.home(id)
	for t.entries[gap].id != id {
		gap = (gap + 1) & mask
	}
	// Whoever follows in the run and would not be found across the gap moves
	// into it.
	for i := (gap + 1) & mask; t.entries[i].id != 0; i = (i + 1) & mask {
		if home := t.home(t.entries[i].id); (i-home)&mask >= (i-gap)&mask {
			t.entries[gap] = t.entries[i]
			gap = i
		}
	}
	t.entries[gap] = classEntry{}
	t.n--
	return true
}

// home is where the search for id starts: the top bits of a multiplication by
// 2⁶⁴ over the golden ratio, which spreads the consecutive minors that people
// choose.
func (t *ClassTable) home(id ClassID) int {
	return int(uint64(id) * 0x9e3779b97f4a7c15 >> t.shift)
}

func (t *ClassTable) grow() {
	old := t.entries
	size := max(8, 2*len(old))
	t.entries = make([]classEntry, size)
	t.shift = 64
	for ; size > 1; size >>= 1 {
		t.shift--
	}
	t.n = 0
	for _, e := range old {
		if e.id != 0 {
			t.Insert(e.id, e.slot)
		}
	}
}

// Classify returns the slot of the class that p belongs to in the qdisc with
// this handle: the one that its class names, or its priority; else the one that
// filter names, which may be nil. It returns −1 when there is none, and what the
// filter said (drr_classify, qfq_classify).
func (t *ClassTable) Classify(ctx *Context, p *Packet, handle uint32, filter Classifier) (slot int32, v FilterVerdict) {
	if p.Class != 0 && p.Class.Major() == handle {
		if slot = t.Find(p.Class); slot >= 0 {
			return slot, Match
		}
	}
	if p.Priority>>16 == handle {
		if slot = t.Find(FromTC(p.Priority)); slot >= 0 {
			return slot, Match
		}
	}
	if filter == nil {
		return -1, NoMatch
	}
	v, id := filter.Classify(ctx, p)
	if v != Match {
		return -1, v
	}
	return t.Find(id), v
}
