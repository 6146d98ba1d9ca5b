// Packet path, except grow.

package netem

import (
	"time"

	"sluice/qdisc"
)

// queue holds packets by the time at which they may leave; those of one time in
// the order they came (tfifo). As long as times do not go back, which is so
// without jitter, it is a list; who has to leave before the list's last goes
// into a heap. Whatever is in the heap leaves before the list's last, so that one
// is the latest of all.
type queue struct {
	list  qdisc.List
	tail  time.Duration // of the list's last
	heap  []entry
	age   uint64
	bytes int
}

type entry struct {
	at  time.Duration
	age uint64
	p   *qdisc.Packet
}

func (a *entry) before(b *entry) bool { return a.at < b.at || a.at == b.at && a.age < b.age }

// A packet of the list has its time in its scratch area.
func at(p *qdisc.Packet) time.Duration { return time.Duration(p.Scratch[0]) }

// grow makes room in the heap.
func (q *queue) grow(n int) {
	if cap(q.heap) < n {
		q.heap = append(make([]entry, 0, n), q.heap...)
	}
}

func (q *queue) len() int { return q.list.Len() + len(q.heap) }

// last returns the latest time, Never when the queue is empty.
func (q *queue) last() time.Duration {
	if q.list.Len() == 0 {
		return qdisc.Never
	}
	return q.tail
}

// min returns the earliest time, Never when the queue is empty.
func (q *queue) min() time.Duration {
	first := qdisc.Never
	if p := q.list.Front(); p != nil {
		first = at(p)
	}
	if len(q.heap) > 0 {
		first = min(first, q.heap[0].at)
	}
	return first
}

// push queues p. It allocates when the heap has no more room, which doubles it.
func (q *queue) push(p *qdisc.Packet, t time.Duration) {
	q.bytes += int(p.PktLen)
	q.age++
	p.Scratch[0], p.Scratch[1] = uint64(t), q.age
	if q.list.Len() == 0 || t >= q.tail {
		q.tail = t
		q.list.Push(p)
		return
	}
	x := entry{t, q.age, p}
	q.heap = append(q.heap, x)
	i := len(q.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !x.before(&q.heap[up]) {
			break
		}
		q.heap[i] = q.heap[up]
		i = up
	}
	q.heap[i] = x
}

// pop takes the first, nil when the queue is empty.
func (q *queue) pop() *qdisc.Packet {
	p := q.list.Front()
	if len(q.heap) > 0 && q.heap[0].before(&entry{at: at(p), age: p.Scratch[1]}) {
		p = q.heap[0].p
		q.sink()
	} else if p != nil {
		q.list.Pop()
	}
	if p != nil {
		q.bytes -= int(p.PktLen)
	}
	return p
}

// sink takes out the top of the heap.
func (q *queue) sink() {
	n := len(q.heap) - 1
	x := q.heap[n]
	q.heap[n] = entry{}
	q.heap = q.heap[:n]
	if n == 0 {
		return
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= n {
			break
		}
		if right := down + 1; right < n && q.heap[right].before(&q.heap[down]) {
			down = right
		}
		if !q.heap[down].before(&x) {
			break
		}
		q.heap[i] = q.heap[down]
		i = down
	}
	q.heap[i] = x
}
