package qfq

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"sluice/qdisc"
	"sluice/qdisc/qdisctest"
)

// broken returns what is not as it has to be between two calls; empty when all is
// well. It works everything out again from the definitions.
func (s *sched) broken() string {
	queued := map[int32]bool{}
	for index := range s.groups {
		g := &s.groups[index]
		bit := uint32(1) << index
		sets := 0
		for set := range s.sets {
			sets += bits.OnesCount32(s.sets[set] & bit)
		}
		if (g.full != 0) != (sets == 1) {
			return fmt.Sprintf("group %d: slots %b, in %d sets", index, g.full, sets)
		}
		for slot := range maxSlots {
			head := g.slots[(int(g.front)+slot)%maxSlots]
			if (head != none) != (g.full>>slot&1 == 1) {
				return fmt.Sprintf("group %d, slot %d: full is %b", index, slot, g.full)
			}
			for i := head; i != none; i = s.aggs[i].next {
				a := &s.aggs[i]
				start := roundDown(a.start, g.shift)
				if a.group != int32(index) || !a.queued || (start-g.start)>>g.shift != uint64(slot) {
					return fmt.Sprintf("aggregate %d in group %d, slot %d, which starts at %d, is %+v", i, index, slot, g.start, *a)
				}
				queued[i] = true
			}
		}
		if g.full == 0 {
			continue
		}
		if g.full&1 == 0 {
			return fmt.Sprintf("group %d: the front slot is empty", index)
		}
		if g.finish != g.start+groupSlots<<g.shift {
			return fmt.Sprintf("group %d: starts at %d, finishes at %d", index, g.start, g.finish)
		}
		// Eligible is who may start by now; who became so since eligibility was
		// last looked at may still wait to be moved.
		if eligible := (s.sets[er]|s.sets[eb])&bit != 0; eligible && after(g.start, s.v) {
			return fmt.Sprintf("group %d starts at %d, after %d, and is eligible", index, g.start, s.v)
		} else if !eligible && !after(g.start, s.oldV) && g.start != s.oldV {
			return fmt.Sprintf("group %d started at %d, before %d, and is not eligible", index, g.start, s.oldV)
		}
		// Ready is who finishes before every ready eligible group above it.
		blocked := false
		for above := index + 1; above < maxGroups; above++ {
			if s.sets[er]>>above&1 == 1 && after(g.finish, s.groups[above].finish) {
				blocked = true
			}
		}
		if isBlocked := (s.sets[eb]|s.sets[ib])&bit != 0; isBlocked != blocked {
			return fmt.Sprintf("group %d finishes at %d: blocked is %v, should be %v", index, g.finish, isBlocked, blocked)
		}
	}
	for i := range s.aggs {
		a := &s.aggs[i]
		if a.classes == 0 {
			continue
		}
		if want := a.head != none && s.serving != int32(i); queued[int32(i)] != want {
			return fmt.Sprintf("aggregate %d: queued is %v, should be %v", i, queued[int32(i)], want)
		}
	}
	return ""
}

// Whatever happens to the classes, the schedule is what the definitions say, and
// within an aggregate nobody saves more than two packets.
func TestScheduleIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 1024, FrameSize: 2048})
		if err != nil {
			t.Fatal(err)
		}
		ctx := qdisc.NewContext(pool, 1)
		root, err := Kind.New(qdisctest.Env(1), nil)
		if err != nil {
			t.Fatal(err)
		}
		q := root.(*qfq)
		// rapid's own numbers are mostly small ones; here all are wanted alike.
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		busy := 50 + r.IntN(25) // arrivals in a hundred
		values := func() qdisc.Values {
			return qdisc.Values{}.Set("weight", []uint64{1, 1, 1, 2, 3, 10, 100, 1024}[r.IntN(8)]).
				Set("maxpkt", []uint64{512, 1514, 1514}[r.IntN(3)])
		}
		for minor := range uint32(12) {
			if err := q.AddClass(ctx, 0, qdisc.MakeID(1, minor+1), values()); err != nil {
				t.Fatal(err)
			}
		}
		for step := range 1000 {
			minor := 1 + r.Uint32N(12)
			id := qdisc.MakeID(1, minor)
			switch what := r.IntN(100); {
			case what == 0:
				q.DeleteClass(ctx, id)
			case what < 3:
				q.AddClass(ctx, 0, id, values())
			case what < 5:
				q.ChangeClass(ctx, id, values())
			case what < 6:
				q.Graft(ctx, id, nil) // which empties it
			case what < 8:
				q.Shed(ctx, 3)
			case what < busy && pool.Available() > 0:
				p := pool.Get()
				p.SetLen(60 + r.IntN(1455))
				p.Priority = 1<<16 | minor
				q.Enqueue(ctx, p)
			default:
				if p := q.Dequeue(ctx); p != nil {
					p.Free()
				}
			}
			if what := q.broken(); what != "" {
				t.Fatalf("step %d: %s", step, what)
			}
			for i := range q.classes {
				c := &q.classes[i]
				if c.active && c.deficit > 2*1514 {
					t.Fatalf("class %v has a deficit of %d", c.id, c.deficit)
				}
			}
		}
	})
}
