package worker_test

import (
	"encoding/binary"
	"testing"
	"time"

	"sluice/dequeue"
	"sluice/qdisc"
	"sluice/shaper/nic/mem"
)

// Through the whole engine: fq_codel at the root gets the worker's flow hash, so
// that a packet of another UDP flow does not wait behind a full queue; and what it
// marks leaves with a checksum as right as it came.
func TestFlowsAreToldApartAndMarked(t *testing.T) {
	b := newBench(t, "fq_codel", qdisc.Values{}.Set("ce_threshold", uint64(time.Millisecond)),
		mem.Config{Rate: 10e6, CompletionDelay: 20 * time.Microsecond}, dequeue.TxqConfig{})
	const other = 1000
	var order []uint32
	marked := 0
	b.outside.Sink(func(p *qdisc.Packet, _, _ time.Duration) {
		order = append(order, number(p))
		h := p.Bytes()[14:34]
		if h[1]&3 == 3 {
			marked++
		}
		sum := uint32(0)
		for i := 0; i < len(h); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(h[i:]))
		}
		for sum > 0xffff {
			sum = sum&0xffff + sum>>16
		}
		if sum != 0xffff {
			t.Fatalf("packet %d left with a wrong header checksum", number(p))
		}
	})
	ip := func(number uint32, port uint16) []byte {
		f := frame(1000, 2, number)
		binary.BigEndian.PutUint16(f[34:], port)
		h := f[14:34]
		sum := uint32(0)
		for i := 0; i < len(h); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(h[i:]))
		}
		for sum > 0xffff {
			sum = sum&0xffff + sum>>16
		}
		binary.BigEndian.PutUint16(h[10:], ^uint16(sum))
		return f
	}
	for i := range uint32(60) {
		b.inside.Inject(0, 0, ip(i, 5000))
	}
	b.inside.Inject(0, 10*time.Millisecond, ip(other, 6000))
	b.settle(t)
	place := -1
	for i, n := range order {
		if n == other {
			place = i
		}
	}
	// 12 packets have left by then, and a device holds a few.
	if len(order) != 61 || place < 10 || place > 30 {
		t.Errorf("the other flow's packet left as number %d of %d", place, len(order))
	}
	if marked == 0 || marked == len(order) {
		t.Errorf("%d of %d packets are marked", marked, len(order))
	}
}
