package htb

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A ring is a sorted list of members with a pointer into it, however large it is,
// and whatever places are made and taken away among them.
func TestRingIsASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := int32(rapid.SampledFrom([]int{1, 2, 63, 64, 65, 130, 4095, 4096, 4097, 70_000, 300_000}).Draw(t, "size"))
		var r ring
		r.grow(int(size))
		members := []int32{}
		cursor := int32(end)
		next := func(from int32) int32 {
			i, _ := slices.BinarySearch(members, from)
			if i == len(members) {
				return end
			}
			return members[i]
		}
		at := func(n int32) int32 {
			if rapid.Bool().Draw(t, "near") && len(members) > 0 {
				near := rapid.SampledFrom(members).Draw(t, "member") + int32(rapid.IntRange(-1, 1).Draw(t, "off"))
				return min(max(near, 0), n-1)
			}
			return int32(rapid.IntRange(0, int(n-1)).Draw(t, "rank"))
		}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0, 1, 2, 3:
				x := at(size)
				r.add(x)
				if i, there := slices.BinarySearch(members, x); !there {
					members = slices.Insert(members, i, x)
				}
			case 4, 5:
				x := at(size)
				r.del(x)
				if i, there := slices.BinarySearch(members, x); there {
					members = slices.Delete(members, i, i+1)
				}
			case 6:
				if cursor = next(cursor); cursor == end {
					cursor = next(0)
				}
				if r.cursor = r.next(r.cursor); r.cursor == end {
					r.cursor = r.next(0)
				}
			case 7:
				if cursor != end {
					cursor = next(cursor + 1)
					r.advance()
				}
			case 8:
				x := at(size + 1)
				r.insert(x, size)
				if x < size && cursor != end && cursor >= x {
					cursor++
				}
				for i := range members {
					if members[i] >= x {
						members[i]++
					}
				}
				size++
			case 9:
				x := at(size)
				if slices.Contains(members, x) || size == 1 {
					continue
				}
				r.remove(x)
				if cursor != end && cursor > x {
					cursor--
				}
				for i := range members {
					if members[i] > x {
						members[i]--
					}
				}
				size--
			}
			stands := cursor != end && slices.Contains(members, cursor)
			if r.cursor != cursor || r.empty() != (len(members) == 0) || r.stands() != stands {
				t.Fatalf("cursor %d, empty %v, stands %v; want %d, %v, %v", r.cursor, r.empty(), r.stands(), cursor, len(members) == 0, stands)
			}
			for i, from := 0, int32(0); i <= len(members); i++ {
				got, want := r.next(from), next(from)
				if got != want {
					t.Fatalf("behind %d comes %d, want %d", from, got, want)
				}
				if got == end {
					break
				}
				from = got + 1
			}
		}
	})
}
