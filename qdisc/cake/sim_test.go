package cake_test

import (
	"encoding/binary"
	"hash/fnv"
	"testing"
	"time"

	"sluice/qdisc"
)

// sim is a discipline with a virtual clock.
type sim struct {
	testing.TB
	ctx *qdisc.Context
	q   qdisc.Qdisc
}

func newSim(t testing.TB, packets int, kv ...any) *sim {
	t.Helper()
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: packets, FrameSize: 2048})
	if err != nil {
		t.Fatal(err)
	}
	s := &sim{t, qdisc.NewContext(pool, 1), build(t, kv...)}
	s.ctx.Hasher = func(p *qdisc.Packet) uint32 {
		h := fnv.New32a()
		h.Write(p.Bytes()[23:38]) // protocol to ports
		return h.Sum32()
	}
	return s
}

const ect0 = 2

// udp makes a frame of n bytes from host 10.0.0.src:sport to 10.1.0.dst.
func (s *sim) udp(src, dst byte, sport uint16, n int, tos uint8) *qdisc.Packet {
	s.Helper()
	p := s.ctx.Pool.Get()
	if p == nil {
		s.Fatal("out of packets")
	}
	p.SetLen(n)
	b := p.Bytes()
	clear(b)
	b[12] = 8 // IPv4
	h := b[14:]
	h[0], h[1], h[8], h[9] = 0x45, tos, 64, 17
	binary.BigEndian.PutUint16(h[2:], uint16(n-14))
	copy(h[12:], []byte{10, 0, 0, src, 10, 1, 0, dst})
	if n >= 38 {
		binary.BigEndian.PutUint16(h[20:], sport)
	}
	checksum(h[:20])
	p.L3, p.L4, p.EtherType, p.L4Proto, p.TOS = 14, 34, 0x0800, 17, tos
	p.Flags |= qdisc.Parsed
	return p
}

// checksum fills in the checksum of an IPv4 header.
func checksum(h []byte) {
	h[10], h[11] = 0, 0
	binary.BigEndian.PutUint16(h[10:], ^sum(h))
}

// sum is the ones' complement sum of b (RFC 1071).
func sum(b []byte) uint16 {
	var n uint32
	for i := 0; i+1 < len(b); i += 2 {
		n += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for n > 0xffff {
		n = n>>16 + n&0xffff
	}
	return uint16(n)
}

// next sleeps until a packet leaves, and returns it; nil when empty.
func (s *sim) next() *qdisc.Packet {
	s.Helper()
	for {
		if p := s.q.Dequeue(s.ctx); p != nil {
			return p
		}
		if s.q.Len() == 0 {
			return nil
		}
		at := s.q.NextAt()
		if at <= s.ctx.Now || at == qdisc.Never {
			s.Fatalf("nothing leaves at %v, %d packets wait, NextAt is %v", s.ctx.Now, s.q.Len(), at)
		}
		s.ctx.Now = at
	}
}

func (s *sim) put(p *qdisc.Packet) qdisc.Verdict { return s.q.Enqueue(s.ctx, p) }

// drain empties the queue and returns how many left.
func (s *sim) drain() (n int) {
	s.Helper()
	for p := s.next(); p != nil; p = s.next() {
		p.Free()
		n++
	}
	return n
}

func (s *sim) stats() qdisc.Values { return s.q.(qdisc.XStatser).XStats() }

func (s *sim) tin(i int) qdisc.Values { return s.stats()["tins"].Rows[i] }

// greedy flows always have packets queued: whatever leaves or is dropped comes
// again. They listen to nobody.
type greedy struct {
	src, dst byte
	sport    uint16
	size     int
	tos      uint8
}

// run keeps depth packets of every flow queued until the clock has advanced by d, and
// returns what each sent in the second half of it. each, if set, is called before
// every departure.
func (s *sim) run(flows []greedy, depth int, d time.Duration, each func()) []float64 {
	s.Helper()
	owed := make([]int, len(flows))
	owner := make([]int, s.ctx.Pool.Size())
	s.ctx.OnDrop = func(p *qdisc.Packet, _ qdisc.Reason) {
		if i := owner[p.Index()]; i >= 0 {
			owed[i]++
			owner[p.Index()] = -1
		}
	}
	for i := range owed {
		owed[i] = depth
	}
	refill := func() {
		for i := range flows {
			for ; owed[i] > 0; owed[i]-- {
				f := &flows[i]
				p := s.udp(f.src, f.dst, f.sport, f.size, f.tos)
				owner[p.Index()] = i
				s.put(p)
			}
		}
	}
	for i := range owner {
		owner[i] = -1
	}
	refill()
	sent := make([]float64, len(flows))
	for end, half := s.ctx.Now+d, s.ctx.Now+d/2; s.ctx.Now < end; {
		if each != nil {
			each()
		}
		p := s.next()
		if p == nil {
			s.Fatal("greedy flows ran dry")
		}
		if i := owner[p.Index()]; i >= 0 {
			owed[i]++
			owner[p.Index()] = -1
			if s.ctx.Now > half {
				sent[i] += float64(p.Len())
			}
		}
		p.Free()
		refill()
	}
	s.ctx.OnDrop = nil
	return sent
}

// jain is Jain's index of fairness: 1 when all are equal, 1/n when one has all.
func jain(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += v
		squares += v * v
	}
	return sum * sum / (float64(len(x)) * squares)
}
