package qdisc_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"sluice/qdisc"
)

func TestClassTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table qdisc.ClassTable
		model := map[qdisc.ClassID]int32{}
		// Few ids, so that they meet, in both of the shapes that occur.
		id := rapid.Custom(func(t *rapid.T) qdisc.ClassID {
			minor := rapid.Uint32Range(1, 40).Draw(t, "minor")
			if rapid.Bool().Draw(t, "wide") {
				minor *= 0x01000100
			}
			return qdisc.MakeID(rapid.Uint32Range(0, 2).Draw(t, "major"), minor)
		})
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				id, slot := id.Draw(t, "id"), rapid.Int32Range(0, 1<<20).Draw(t, "slot")
				table.Insert(id, slot)
				model[id] = slot
			},
			"delete": func(t *rapid.T) {
				id := id.Draw(t, "id")
				_, want := model[id]
				if got := table.Delete(id); got != want {
					t.Fatalf("deleting %v says %v, want %v", id, got, want)
				}
				delete(model, id)
			},
			"": func(t *rapid.T) {
				if table.Len() != len(model) {
					t.Fatalf("%d classes, want %d", table.Len(), len(model))
				}
				for id, want := range model {
					if got := table.Find(id); got != want {
						t.Fatalf("%v is in slot %d, want %d", id, got, want)
					}
				}
				absent := id.Draw(t, "absent")
				if _, ok := model[absent]; !ok && table.Find(absent) != -1 {
					t.Fatalf("%v is found and was never there", absent)
				}
			},
		})
	})
}

func TestClassTableNeverFindsZero(t *testing.T) {
	var table qdisc.ClassTable
	if table.Find(0) != -1 || table.Find(1) != -1 || table.Delete(1) {
		t.Error("an empty table finds something")
	}
	table.Insert(1, 5)
	if table.Find(0) != -1 {
		t.Error("id 0 is found")
	}
}

func BenchmarkClassTableFind(b *testing.B) {
	for _, n := range []int{4, 64, 1024, 16384} {
		b.Run(fmt.Sprintf("classes=%d", n), func(b *testing.B) {
			var table qdisc.ClassTable
			for i := range n {
				table.Insert(qdisc.MakeID(1, uint32(i+1)), int32(i))
			}
			var sum int32
			for i := range b.N {
				sum += table.Find(qdisc.MakeID(1, uint32(i*7&(n-1)+1)))
			}
			sink = sum
		})
	}
}

var sink int32
