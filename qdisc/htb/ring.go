// Packet path, except grow, insert and remove.

package htb

import (
	"math"
	"math/bits"
)

// ring is a set of ranks with a round robin pointer: what a row or a feed of the
// kernel's is, with a rank, the place in the order of the class ids, for the id,
// and words of bits for the tree. Above the words lies a word of bits for each 64
// of them, and so on up to a single one, so that the next member of 100,000 is
// three steps away at most.
//
// The kernel's pointer is a node, or none and the id to go on from. Both are the
// cursor here: the rank from which the next look begins.
type ring struct {
	bits   []uint64 // words of the members, then the words above, up to one
	words  int32    // how many of them are the members'
	cursor int32
}

// end is the cursor behind all members: the next look begins a new round.
const end = math.MaxInt32

// empty says whether the ring has no members.
func (r *ring) empty() bool { return len(r.bits) == 0 || r.bits[len(r.bits)-1] == 0 }

// add makes rank i a member. Twice is as good as once.
func (r *ring) add(i int32) {
	for base, n := int32(0), r.words; ; {
		w := &r.bits[base+i>>6]
		was := *w
		*w |= 1 << (i & 63)
		if was != 0 || n == 1 {
			return
		}
		base, n, i = base+n, (n+63)>>6, i>>6
	}
}

// del makes rank i no member.
func (r *ring) del(i int32) {
	for base, n := int32(0), r.words; ; {
		w := &r.bits[base+i>>6]
		if *w &^= 1 << (i & 63); *w != 0 || n == 1 {
			return
		}
		base, n, i = base+n, (n+63)>>6, i>>6
	}
}

// next returns the first member at or behind rank i, end when there is none.
func (r *ring) next(i int32) int32 {
	var below [6]int32 // where the words under the ones looked at begin
	base, n, up := int32(0), r.words, 0
	for {
		if i>>6 >= n {
			return end
		}
		if m := r.bits[base+i>>6] >> (i & 63); m != 0 {
			i += int32(bits.TrailingZeros64(m))
			break
		}
		if n == 1 {
			return end
		}
		below[up] = base
		up++
		base, n, i = base+n, (n+63)>>6, i>>6+1
	}
	for up > 0 {
		up--
		i = i<<6 + int32(bits.TrailingZeros64(r.bits[below[up]+i]))
	}
	return i
}

// stands says whether the pointer stands on a member.
func (r *ring) stands() bool {
	w := uint(r.cursor) >> 6
	return w < uint(len(r.bits)) && r.bits[w]>>(r.cursor&63)&1 != 0
}

// advance moves the pointer to the member behind the one it stands on.
func (r *ring) advance() { r.cursor = r.next(r.cursor + 1) }

// reset makes the ring empty, and forgets where it was.
func (r *ring) reset() {
	clear(r.bits)
	r.cursor = end
}

// grow makes room for ranks below n.
func (r *ring) grow(n int) {
	if n <= int(r.words)*64 {
		return
	}
	if r.words == 0 {
		r.cursor = end
	}
	words := max(1, 2*int(r.words))
	for words*64 < n {
		words *= 2
	}
	all := words
	for w := words; w > 1; {
		w = (w + 63) >> 6
		all += w
	}
	members := r.bits[:r.words]
	r.bits, r.words = make([]uint64, all), int32(words)
	copy(r.bits, members)
	r.rise()
}

// rise makes the words above those of the members.
func (r *ring) rise() {
	base, n := int32(0), r.words
	for n > 1 {
		above := r.bits[base+n : base+n+(n+63)>>6]
		clear(above)
		for i := range n {
			if r.bits[base+i] != 0 {
				above[i>>6] |= 1 << (i & 63)
			}
		}
		base, n = base+n, (n+63)>>6
	}
}

// insert makes a place at rank i, among n: everybody from there on moves one up.
func (r *ring) insert(i, n int32) {
	if r.words == 0 {
		return
	}
	r.grow(int(n) + 1)
	if i == n {
		return
	}
	first := i >> 6
	for w := r.words - 1; w > first; w-- {
		r.bits[w] = r.bits[w]<<1 | r.bits[w-1]>>63
	}
	low := uint64(1)<<(i&63) - 1
	r.bits[first] = r.bits[first]&low | r.bits[first]&^low<<1
	r.rise()
	if r.cursor >= i && r.cursor != end {
		r.cursor++
	}
}

// remove takes the place at rank i away, whose holder is no member: everybody
// behind moves one down.
func (r *ring) remove(i int32) {
	if r.words == 0 {
		return
	}
	first := i >> 6
	low := uint64(1)<<(i&63) - 1
	r.bits[first] = r.bits[first]&low | r.bits[first]>>1&^low
	for w := first + 1; w < r.words; w++ {
		r.bits[w-1] |= r.bits[w] << 63
		r.bits[w] >>= 1
	}
	r.rise()
	if r.cursor > i && r.cursor != end {
		r.cursor--
	}
}
