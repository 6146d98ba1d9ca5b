// Packet path.

package fq

import (
	"time"

	"sluice/qdisc"
)

// flow is one place of the table (struct fq_flow).
type flow struct {
	qdisc.List
	nextTime time.Duration // it may not send earlier; 0: it was never paced
	fraction uint64        // of a nanosecond that its delays came out short, in parts of maxrate
	age      time.Duration // when it became idle
	credit   int32         // bytes it may send before it is the others' turn
	next     int32         // behind it on its list
	band     uint8         // of its last packet
	place    place
}

// refill gives a flow that comes back at least a quantum. One that left with a
// debt still has it: the kernel compares without sign.
func (f *flow) refill(quantum uint32) {
	if f.credit >= 0 {
		f.credit = max(f.credit, int32(quantum))
	}
}

// place says where a flow is.
type place uint8

const (
	unknown  place = iota // nowhere: never met, or forgotten
	detached              // idle
	listed                // on a band's list, perhaps without packets
	delayed               // waiting for its time
)

// none is the flow behind the last one.
const none = -1

// list is a list of flows. Links are places in the table. The zero list is
// empty.
type list struct {
	head, tail int32
	some       bool
}

func (l *list) empty() bool { return !l.some }

func (q *fq) push(l *list, i int32) {
	q.flows[i].next = none
	if l.some {
		q.flows[l.tail].next = i
	} else {
		l.head, l.some = i, true
	}
	l.tail = i
}

func (q *fq) pop(l *list) {
	l.head = q.flows[l.head].next
	l.some = l.head != none
}

// queue is a heap of flows by time; flows of the same time come out in the order
// they went in.
type queue struct {
	heap  []entry // each before its four children
	order uint32
}

// entry is 16 bytes, so four children are a cache line.
type entry struct {
	at    time.Duration
	order uint32 // tells entries of the same time apart
	flow  int32
}

func (e *entry) before(o *entry) bool {
	return e.at < o.at || e.at == o.at && int32(e.order-o.order) < 0
}

// next returns the earliest time, Never when there is none.
func (q *queue) next() time.Duration {
	if len(q.heap) == 0 {
		return qdisc.Never
	}
	return q.heap[0].at
}

// push adds a flow. There must be room for it.
func (q *queue) push(at time.Duration, flow int32) {
	q.order++
	e := entry{at, q.order, flow}
	i := len(q.heap)
	q.heap = q.heap[:i+1]
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&q.heap[up]) {
			break
		}
		q.heap[i] = q.heap[up]
		i = up
	}
	q.heap[i] = e
}

// pop takes the earliest flow. There must be one.
func (q *queue) pop() int32 {
	flow := q.heap[0].flow
	n := len(q.heap) - 1
	e := q.heap[n]
	q.heap = q.heap[:n]
	if n == 0 {
		return flow
	}
	i := 0
	for {
		first := 4*i + 1
		if first >= n {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, n); c++ {
			if q.heap[c].before(&q.heap[least]) {
				least = c
			}
		}
		if !q.heap[least].before(&e) {
			break
		}
		q.heap[i] = q.heap[least]
		i = least
	}
	q.heap[i] = e
	return flow
}
