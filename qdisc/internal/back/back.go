// Packet path.

// Package back takes the last packet off a list at once, for disciplines that drop
// the newest: a [qdisc.List] is linked forwards only, and to find the packet before
// the last one it would have to be walked.
//
// The way back is kept in the last word of the packets' Scratch, as the number of
// their slot and of its pool. So all packets of a list have to be pushed with
// [Links.Push], and that word is nobody else's; what is taken from the front, or
// cut, may be taken as from any list.
package back

import "sluice/qdisc"

// word of the Scratch.
const word = 3

// Links are the pools that the packets of one discipline came from: nearly always
// one. The zero Links is ready.
type Links struct{ pools []*qdisc.Pool }

// Push appends p to l. The first packet of a pool allocates.
func (k *Links) Push(l *qdisc.List, p *qdisc.Packet) {
	if last := l.Back(); last != nil {
		p.Scratch[word] = k.number(last.Pool())<<32 | uint64(last.Index())
	}
	l.Push(p)
}

// PopBack takes the last packet of l, or nil.
func (k *Links) PopBack(l *qdisc.List) *qdisc.Packet {
	if l.Len() <= 1 {
		return l.Pop()
	}
	w := l.Back().Scratch[word]
	return l.Cut(k.pools[w>>32].At(uint32(w)))
}

func (k *Links) number(pool *qdisc.Pool) uint64 {
	for i, x := range k.pools {
		if x == pool {
			return uint64(i)
		}
	}
	k.pools = append(k.pools, pool)
	return uint64(len(k.pools) - 1)
}
