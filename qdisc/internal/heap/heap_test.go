package heap_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sluice/qdisc/internal/heap"
)

// entry is what the obvious model, a sorted slice, knows of a slot.
type entry struct {
	slot int32
	k    heap.Key
	age  int
}

func order(a, b entry) int {
	for _, x := range [][2]int64{{a.k.Key, b.k.Key}, {a.k.Tie, b.k.Tie}, {int64(a.age), int64(b.age)}} {
		if x[0] != x[1] {
			return int(x[0] - x[1])
		}
	}
	return 0
}

func TestAgainstSortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h heap.Heap
		n := rapid.IntRange(1, 20).Draw(t, "slots")
		h.Grow(n)
		var all []entry
		find := func(slot int32) int {
			return slices.IndexFunc(all, func(e entry) bool { return e.slot == slot })
		}
		for age := range rapid.IntRange(1, 200).Draw(t, "steps") {
			slot := int32(rapid.IntRange(0, n-1).Draw(t, "slot"))
			k := heap.Key{Key: int64(rapid.IntRange(0, 5).Draw(t, "key")), Tie: int64(rapid.IntRange(0, 2).Draw(t, "tie"))}
			i := find(slot)
			switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
			case op < 5:
				if i >= 0 {
					all = slices.Delete(all, i, i+1)
				}
				all = append(all, entry{slot, k, age})
				h.Set(slot, k)
			case op < 6 && i >= 0:
				all[i].k = k
				h.Move(slot, k)
			case op < 9:
				if i >= 0 {
					all = slices.Delete(all, i, i+1)
				}
				h.Remove(slot)
			default:
				if rapid.IntRange(0, 5).Draw(t, "clear") == 0 {
					all = nil
					h.Clear()
				}
			}
			slices.SortFunc(all, order)
			want, wantKey := int32(-1), heap.Key{}
			if len(all) > 0 {
				want, wantKey = all[0].slot, all[0].k
			}
			if got, k := h.Min(); got != want || k != wantKey {
				t.Fatalf("the first is %d under %v, want %d under %v", got, k, want, wantKey)
			}
			if h.Len() != len(all) || h.Has(slot) != (find(slot) >= 0) {
				t.Fatalf("len %d, has %d: %v", h.Len(), slot, h.Has(slot))
			}
		}
		for _, e := range all {
			got, _ := h.Min()
			if got != e.slot {
				t.Fatalf("%d leaves, want %d", got, e.slot)
			}
			h.Remove(got)
		}
	})
}

// A slot that goes from one heap to another keeps its place among its equals.
func TestCopyKeepsTheAge(t *testing.T) {
	var a, b heap.Heap
	a.Grow(3)
	b.Grow(3)
	for _, slot := range []int32{2, 0, 1} {
		a.Set(slot, heap.Key{Key: int64(slot)})
	}
	for slot := range int32(3) {
		b.Copy(slot, heap.Key{Key: 7}, &a)
	}
	for _, want := range []int32{2, 0, 1} {
		got, _ := b.Min()
		if got != want {
			t.Fatalf("%d leaves, want %d", got, want)
		}
		b.Remove(got)
	}
}

func BenchmarkMoveTheFirst(b *testing.B) {
	var h heap.Heap
	h.Grow(1024)
	for i := range int32(1024) {
		h.Set(i, heap.Key{Key: int64(i)})
	}
	b.ReportAllocs()
	for b.Loop() {
		slot, k := h.Min()
		h.Set(slot, heap.Key{Key: k.Key + 1024})
	}
}
