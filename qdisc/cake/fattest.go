// Packet path.

package cake

// flowID names a queue of the whole discipline: tin and number in it.
type flowID uint16

func id(tin, i int) flowID { return flowID(tin*queues + i) }

func (q *cake) flow(id flowID) (*tin, *flow) {
	t := &q.tins[id/queues]
	return t, &t.flows[id%queues]
}

func (q *cake) bytes(id flowID) int {
	_, f := q.flow(id)
	return f.queue.Bytes()
}

// fattest is a heap of the queues that hold packets, the longest on top. It is
// made when packets have to be dropped, and kept up for some time afterwards;
// when all is well it costs nothing.
type fattest struct {
	heap      []flowID
	countdown int // departures until it is given up; 0: not kept up
}

// top returns the longest queue.
func (h *fattest) top(q *cake) (flowID, bool) {
	if h.countdown == 0 {
		h.build(q)
	}
	h.countdown = monitored
	if len(h.heap) == 0 {
		return 0, false
	}
	return h.heap[0], true
}

func (h *fattest) build(q *cake) {
	h.heap = h.heap[:0]
	for tin := range q.n {
		t := &q.tins[tin]
		if t.table == nil {
			continue
		}
		for i := range t.flows {
			f := &t.flows[i]
			f.place = 0
			if f.queue.Len() > 0 {
				h.heap = append(h.heap, id(tin, i))
				f.place = int16(len(h.heap))
			}
		}
	}
	for i := len(h.heap)/2 - 1; i >= 0; i-- {
		h.down(q, i)
	}
}

func (h *fattest) reset() { h.heap, h.countdown = h.heap[:0], 0 }

// changed is called when a queue that is not empty has more or less than before.
func (h *fattest) changed(q *cake, id flowID) {
	_, f := q.flow(id)
	if f.place == 0 {
		h.heap = append(h.heap, id)
		f.place = int16(len(h.heap))
	}
	h.up(q, int(f.place)-1)
	h.down(q, int(f.place)-1)
}

// shrunk is called when a queue gave a packet.
func (h *fattest) shrunk(q *cake, id flowID) {
	_, f := q.flow(id)
	i := int(f.place) - 1
	if f.queue.Len() > 0 {
		h.down(q, i)
		return
	}
	f.place = 0
	last := len(h.heap) - 1
	moved := h.heap[last]
	h.heap = h.heap[:last]
	if i == last {
		return
	}
	h.put(q, i, moved)
	h.down(q, i)
	h.up(q, i)
}

func (h *fattest) put(q *cake, i int, id flowID) {
	h.heap[i] = id
	_, f := q.flow(id)
	f.place = int16(i + 1)
}

func (h *fattest) up(q *cake, i int) {
	id := h.heap[i]
	n := q.bytes(id)
	for i > 0 {
		above := (i - 1) / 2
		if q.bytes(h.heap[above]) >= n {
			break
		}
		h.put(q, i, h.heap[above])
		i = above
	}
	h.put(q, i, id)
}

func (h *fattest) down(q *cake, i int) {
	id := h.heap[i]
	n := q.bytes(id)
	for {
		below := 2*i + 1
		if below >= len(h.heap) {
			break
		}
		if r := below + 1; r < len(h.heap) && q.bytes(h.heap[r]) > q.bytes(h.heap[below]) {
			below = r
		}
		if q.bytes(h.heap[below]) <= n {
			break
		}
		h.put(q, i, h.heap[below])
		i = below
	}
	h.put(q, i, id)
}
