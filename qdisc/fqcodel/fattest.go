// Packet path, except grow.

package fqcodel

import "math/bits"

// fattest finds the flow with the most bytes, the first of several.
//
// The kernel looks through all flows each time. Here they are in blocks, a
// block's answer is kept until one of its flows changed, and a change costs one
// bit: with a drop_batch of 1 a full queue looks at a few blocks per drop.
type fattest struct {
	dirty []uint64 // a bit for each block: its answer is stale
	best  []int32  // of each block
	most  []int    // bytes of that flow
}

// blockBits: a block is 64 flows, 4 KiB.
const blockBits = 6

// grow makes room for n flows.
func (t *fattest) grow(n int) {
	blocks := (n-1)>>blockBits + 1
	t.dirty = make([]uint64, (blocks-1)/64+1)
	t.best = make([]int32, blocks)
	t.most = make([]int, blocks)
	for b := range blocks {
		t.best[b] = int32(b << blockBits)
	}
}

// changed says that the bytes of flow i did.
func (t *fattest) changed(i int32) {
	b := uint32(i) >> blockBits
	t.dirty[b>>6] |= 1 << (b & 63)
}

// find returns the flow.
func (t *fattest) find(flows []flow) int32 {
	for w, word := range t.dirty {
		for ; word != 0; word &= word - 1 {
			t.look(flows, w<<6+bits.TrailingZeros64(word))
		}
		t.dirty[w] = 0
	}
	fat := 0
	for b, n := range t.most {
		if n > t.most[fat] {
			fat = b
		}
	}
	return t.best[fat]
}

// look finds the fattest of block b.
func (t *fattest) look(flows []flow, b int) {
	first := b << blockBits
	best, most := first, -1
	for i := first; i < min(first+1<<blockBits, len(flows)); i++ {
		if n := flows[i].queue.Bytes(); n > most {
			best, most = i, n
		}
	}
	t.best[b], t.most[b] = int32(best), most
}
