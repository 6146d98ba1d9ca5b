package wheel_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/qdisc/internal/wheel"
)

// entry is one entry of the model: a slice, sorted by instant, then by age.
type entry struct {
	slot int32
	at   time.Duration
}

// Whatever is put in, taken out and passed, what is due comes out in the order of
// the instants, of one instant in the order in which it was put in; and Next is
// exact.
func TestWheelIsASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 40
		var links wheel.Links
		links.Grow(n)
		wheels := []*wheel.Wheel{wheel.New(&links), wheel.New(&links)}
		models := make([][]entry, 2)
		now := time.Duration(0)
		ahead := func() time.Duration {
			return now + time.Duration(rapid.Int64Range(0, 1<<rapid.IntRange(0, 50).Draw(t, "scale")).Draw(t, "ahead"))
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			which := rapid.IntRange(0, 1).Draw(t, "wheel")
			w, m := wheels[which], &models[which]
			slot := int32(rapid.IntRange(0, n-1).Draw(t, "slot"))
			switch i := slices.IndexFunc(*m, func(e entry) bool { return e.slot == slot }); {
			case rapid.IntRange(0, 3).Draw(t, "pass") == 0:
				now = ahead()
				for k, w := range wheels {
					m := &models[k]
					for len(*m) > 0 && (*m)[0].at <= now {
						if got := w.Pop(now); got != (*m)[0].slot {
							t.Fatalf("at %d slot %d came out, want %v", now, got, (*m)[0])
						}
						*m = (*m)[1:]
					}
					if got := w.Pop(now); got >= 0 {
						t.Fatalf("at %d slot %d came out, and is not due", now, got)
					}
				}
			case i >= 0:
				if w.At(slot) != (*m)[i].at {
					t.Fatalf("slot %d stands at %v, want %v", slot, w.At(slot), (*m)[i].at)
				}
				w.Remove(slot)
				*m = slices.Delete(*m, i, i+1)
			case !links.Has(slot):
				at := ahead()
				w.Put(slot, at)
				i := len(*m)
				for i > 0 && (*m)[i-1].at > at {
					i--
				}
				*m = slices.Insert(*m, i, entry{slot, at})
			}
			for k, w := range wheels {
				next := time.Duration(wheel.Never)
				if len(models[k]) > 0 {
					next = models[k][0].at
				}
				if w.Next() != next || w.Empty() != (len(models[k]) == 0) {
					t.Fatalf("Next is %v, Empty %v; want %v of %d", w.Next(), w.Empty(), next, len(models[k]))
				}
			}
		}
		for k, w := range wheels {
			w.Reset()
			for _, e := range models[k] {
				if links.Has(e.slot) {
					t.Fatalf("slot %d is there after Reset", e.slot)
				}
			}
			if !w.Empty() {
				t.Fatal("not empty after Reset")
			}
		}
	})
}

// One entry that comes out and goes in again, a millisecond ahead, among many.
func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{1, 256, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var links wheel.Links
			links.Grow(n)
			w := wheel.New(&links)
			const period = time.Millisecond * 10
			for i := range n {
				w.Put(int32(i), period*time.Duration(i)/time.Duration(n))
			}
			b.ReportAllocs()
			for b.Loop() {
				at := w.Next()
				w.Put(w.Pop(at), at+period)
			}
		})
	}
}
