// Packet path.

package qfq

import "math/bits"

// Arithmetic is in fixed point: virtual time and everything compared with it are
// bytes over weight, times one.
const (
	fracBits   = 30
	one        = 1 << fracBits
	maxSlots   = 32 // of a group
	maxIndex   = 24 // of the last group
	lenShift   = 16 // log₂ of the largest maxpkt
	maxPerAgg  = 8  // classes an aggregate may have
	none       = -1
	maxGroups  = maxIndex + 1
	lastSlot   = maxSlots - 2 // the furthest from its group's start that an aggregate may be
	groupSlots = 2            // a group's finish time is its start plus so many slots
)

// Groups are in one of four sets: Eligible or Ineligible, as their start time has
// come or not, and Ready or Blocked, as no group of lower index and the same
// eligibility would finish later.
const (
	er = iota // eligible and ready: the first of them is served
	ir
	eb
	ib
	nSets
)

// aggregate is classes of the same weight and maxpkt that take turns, and are
// scheduled as one (struct qfq_aggregate; QFQ+).
type aggregate struct {
	start, finish uint64 // virtual times
	weight, lmax  uint32 // of each class
	invWeight     uint64 // one over the weight of all together
	budget        uint32 // bytes it may still send in its turn
	initial       uint32 // bytes it had at the beginning of its turn
	most          uint32 // bytes it has per turn
	classes       int32  // in it, active or not; 0: a free place
	group         int32  // by its weight and maxpkt; none yet when it has no classes
	head, tail    int32  // its active classes, in the order of their turns; or none
	prev, next    int32  // in its slot, when queued
	queued        bool
}

// group is aggregates whose packets take about as much virtual time (struct
// qfq_group). They are sorted into slots by start time, coarsely: that is what
// makes everything here cost the same however many there are.
type group struct {
	start, finish uint64
	full          uint32 // a bit for each slot that has somebody, the front one lowest
	front         uint8  // the slot that start belongs to
	shift         uint8  // log₂ of a slot's virtual time
	slots         [maxSlots]int32
}

// sched decides which aggregate is served: quick fair queueing (Checconi, Rizzo and
// Valente, "QFQ: Efficient Packet Scheduling with Tight Guarantees", 2013; its
// names in parentheses).
type sched struct {
	aggs     []aggregate
	groups   [maxGroups]group
	sets     [nSets]uint32 // of groups, by index
	v, oldV  uint64        // virtual time, and what it was when eligibility was looked at
	serving  int32         // the aggregate in service; or none
	wsum     uint32        // weight of all classes
	iwsum    uint64        // one over it
	minShift uint8         // shift of the first group
	perAgg   int32         // classes an aggregate may have
}

// after says whether a is later than b; virtual time wraps.
func after(a, b uint64) bool { return int64(a-b) > 0 }

func roundDown(t uint64, shift uint8) uint64 { return t &^ (1<<shift - 1) }

// reset empties the schedule. classes is how many an aggregate may have, a power
// of two.
func (s *sched) reset(classes int32) {
	s.perAgg = classes
	s.minShift = uint8(fracBits + lenShift + bits.Len32(uint32(classes)) - 1 - maxIndex)
	for i := range s.groups {
		g := &s.groups[i]
		*g = group{shift: s.minShift + uint8(i)}
		for j := range g.slots {
			g.slots[j] = none
		}
	}
	s.sets = [nSets]uint32{}
	s.v, s.oldV, s.serving, s.wsum, s.iwsum = 0, 0, none, 0, 0
}

// groupOf returns the index of the group for turns of so much virtual time.
func (s *sched) groupOf(time uint64) int32 {
	if time>>s.minShift == 0 {
		return 0
	}
	return int32(bits.Len64((time - 1) >> s.minShift))
}

// resize sets how many classes an aggregate has.
func (s *sched) resize(a *aggregate, classes int32) {
	a.most = uint32(classes) * a.lmax
	a.invWeight = one / (uint64(a.weight) * uint64(classes))
	if a.group == none {
		a.group = s.groupOf(a.invWeight * uint64(a.most))
	}
	s.wsum += a.weight * uint32(classes-a.classes)
	s.iwsum = one / uint64(s.wsum)
	a.classes = classes
}

// activate schedules an aggregate that had no active class, or puts it into
// service when nobody is.
func (s *sched) activate(i int32) {
	a := &s.aggs[i]
	a.initial, a.budget = a.most, a.most
	s.stamp(a)
	if s.serving == none {
		s.serving = i
		s.oldV, s.v = a.start, a.start // who is in service is eligible
		return
	}
	s.queue(i)
}

// stamp gives an aggregate that comes back its times: from where it left off, or
// from now when that is long ago (update_start).
func (s *sched) stamp(a *aggregate) {
	g := &s.groups[a.group]
	finish := roundDown(a.finish, g.shift)
	limit := roundDown(s.v, g.shift) + 1<<g.shift
	switch {
	case after(a.finish, s.v) && !after(finish, limit):
		a.start = a.finish
	default:
		a.start = s.v
		// A ready group further up must not be overtaken: the order of finish
		// times within a set is what makes the first group the right one.
		if above := s.sets[er] >> a.group << a.group; above != 0 {
			if f := s.groups[bits.TrailingZeros32(above)].finish; after(finish, f) {
				a.start = limit
				if after(limit, f) {
					a.start = f
				}
			}
		}
	}
	a.finish = a.start + uint64(a.most)*a.invWeight
}

// endTurn charges the aggregate in service for what it sent and gives it a new
// budget. While it has active classes it goes on from there.
func (s *sched) endTurn(i int32) {
	a := &s.aggs[i]
	s.charge(a)
	a.initial, a.budget = a.most, a.most
	if a.head != none {
		a.start = a.finish
		a.finish = a.start + uint64(a.most)*a.invWeight
		s.queue(i)
	}
}

// charge sets the finish time to what was in fact used. An aggregate that lost
// classes may have used more than it could now.
func (s *sched) charge(a *aggregate) {
	a.finish = a.start + uint64(min(a.most, a.initial-a.budget))*a.invWeight
}

// queue puts an aggregate into its group, by its start time (qfq_schedule_agg).
func (s *sched) queue(i int32) {
	a := &s.aggs[i]
	g := &s.groups[a.group]
	start := roundDown(a.start, g.shift)
	switch {
	case g.full == 0:
		if s.sets[er] == 0 && s.serving == none && after(start, s.v) {
			s.v = start
		}
		s.place(a.group, start)
	case after(g.start, a.start):
		// The group was not eligible: it starts earlier now.
		back := (g.start - start) >> g.shift
		g.full <<= back
		g.front = uint8((uint64(g.front) - back) % maxSlots)
		s.remove(a.group, ir, ib)
		s.place(a.group, start)
	}

	slot := (start - g.start) >> g.shift
	if slot > lastSlot {
		early := start - g.start - lastSlot<<g.shift
		a.start -= early
		a.finish -= early
		slot = lastSlot
	}
	g.full |= 1 << slot
	head := &g.slots[(uint64(g.front)+slot)%maxSlots]
	a.prev, a.next, a.queued = none, *head, true
	if *head != none {
		s.aggs[*head].prev = i
	}
	*head = i
}

// unqueue takes an aggregate out of its group's slot (qfq_slot_remove).
func (s *sched) unqueue(i int32) {
	a := &s.aggs[i]
	g := &s.groups[a.group]
	slot := (roundDown(a.start, g.shift) - g.start) >> g.shift
	head := &g.slots[(uint64(g.front)+slot)%maxSlots]
	if a.prev == none {
		*head = a.next
	} else {
		s.aggs[a.prev].next = a.next
	}
	if a.next != none {
		s.aggs[a.next].prev = a.prev
	}
	if *head == none {
		g.full &^= 1 << slot
	}
	a.queued = false
}

// place gives a group that is in no set its times, and puts it into one.
func (s *sched) place(index int32, start uint64) {
	g := &s.groups[index]
	g.start = start
	g.finish = start + groupSlots<<g.shift
	set := er
	if after(g.start, s.v) {
		set = ir
	}
	if above := s.sets[er] >> index << index; above != 0 && after(g.finish, s.groups[bits.TrailingZeros32(above)].finish) {
		set += eb
	}
	s.sets[set] |= 1 << index
}

func (s *sched) remove(index int32, sets ...int) {
	for _, set := range sets {
		s.sets[set] &^= 1 << index
	}
}

// move takes groups from one set to another.
func (s *sched) move(groups uint32, from, to int) {
	groups &= s.sets[from]
	s.sets[from] &^= groups
	s.sets[to] |= groups
}

// choose takes the next aggregate to serve out of the schedule; none when there
// is none.
func (s *sched) choose() int32 {
	s.makeEligible()
	s.oldV = s.v
	if s.sets[er] == 0 {
		return none
	}
	index := int32(bits.TrailingZeros32(s.sets[er]))
	g := &s.groups[index]
	finish := g.finish
	i := g.slots[g.front]
	s.unqueueFront(g, i)
	if g.full == 0 {
		s.remove(index, er)
	} else if start := s.advance(g); start == g.start {
		return i
	} else {
		s.remove(index, er)
		s.place(index, start)
	}
	s.unblock(index, finish)
	return i
}

func (s *sched) unqueueFront(g *group, i int32) {
	a := &s.aggs[i]
	g.slots[g.front] = a.next
	if a.next == none {
		g.full &^= 1
	} else {
		s.aggs[a.next].prev = none
	}
	a.queued = false
}

// advance moves the front of a group, which is not empty, to its first full slot,
// and returns when that starts (qfq_slot_scan).
func (s *sched) advance(g *group) uint64 {
	skip := bits.TrailingZeros32(g.full)
	g.front = uint8((int(g.front) + skip) % maxSlots)
	g.full >>= skip
	return roundDown(s.aggs[g.slots[g.front]].start, g.shift)
}

// makeEligible moves the groups whose start time has come; when none is eligible
// virtual time jumps to the first (make_eligible).
//
// A group of index n starts at multiples of its slot, so whether its time has come
// is told by whether the bits from its slot upwards have changed.
func (s *sched) makeEligible() {
	waiting := s.sets[ir] | s.sets[ib]
	if waiting == 0 {
		return
	}
	if s.sets[er] == 0 {
		if start := s.groups[bits.TrailingZeros32(waiting)].start; after(start, s.v) {
			s.v = start
		}
	}
	changed := s.v>>s.minShift ^ s.oldV>>s.minShift
	if changed == 0 {
		return
	}
	groups := ^uint32(0)
	if n := bits.Len64(changed); n < 32 {
		groups = 1<<n - 1
	}
	s.move(groups, ir, er)
	s.move(groups, ib, eb)
}

// unblock moves the groups below index that its finish time had kept back
// (unblock_groups).
func (s *sched) unblock(index int32, finish uint64) {
	if above := s.sets[er] >> (index + 1) << (index + 1); above != 0 {
		if !after(s.groups[bits.TrailingZeros32(above)].finish, finish) {
			return
		}
	}
	below := uint32(1)<<index - 1
	s.move(below, eb, er)
	s.move(below, ib, ir)
}

// deactivate takes an aggregate out that has no active class any more.
func (s *sched) deactivate(i int32) {
	a := &s.aggs[i]
	if i == s.serving {
		s.charge(a)
		s.serving = s.choose()
		return
	}
	if !a.queued {
		return
	}
	a.finish = a.start
	s.unqueue(i)
	index := a.group
	g := &s.groups[index]
	switch {
	case g.full == 0:
		s.remove(index, er, ir, eb, ib)
		s.unblockAll()
	case g.slots[g.front] == none:
		if start := s.advance(g); start != g.start {
			s.remove(index, er, ir, eb, ib)
			s.place(index, start)
			s.unblockAll()
		}
	}
}

// unblockAll moves the groups that no ready one keeps back any more, now that one
// went or will finish later. The kernel leaves some of them blocked until another
// group has been served.
func (s *sched) unblockAll() {
	for blocked := s.sets[eb] | s.sets[ib]; blocked != 0; {
		index := bits.Len32(blocked) - 1 // from above, as they may keep back those below
		bit := uint32(1) << index
		blocked &^= bit
		above := s.sets[er] >> index << index
		if above == 0 || !after(s.groups[index].finish, s.groups[bits.TrailingZeros32(above)].finish) {
			s.move(bit, eb, er)
			s.move(bit, ib, ir)
		}
	}
}
