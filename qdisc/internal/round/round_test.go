package round_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/qdisc"
	"sluice/qdisc/internal/round"
	"sluice/qdisc/qdisctest"
)

func pool(packets int) *qdisc.Context {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: packets, FrameSize: 9000})
	if err != nil {
		panic(err)
	}
	return qdisc.NewContext(pool, 1)
}

// world is a round over simple queues.
type world struct {
	ctx  *qdisc.Context
	base qdisc.Base
	round.Round
}

func newWorld(quanta ...uint32) *world {
	w := &world{ctx: pool(512)}
	for _, n := range quanta {
		w.Members = append(w.Members, round.Member{Child: qdisc.NewChild(&qdisctest.Fifo{Limit: 1000}), Quantum: n})
	}
	return w
}

func (w *world) put(member int32, n int) {
	p := w.ctx.Pool.Get()
	p.SetLen(n)
	p.Mark = uint32(member)
	w.Enqueue(w.ctx, &w.base, member, p)
}

// take returns what leaves next as "member×length(deficit left)".
func (w *world) take() string {
	p, _ := w.Dequeue(w.ctx, &w.base)
	if p == nil {
		return "nothing"
	}
	defer p.Free()
	return fmt.Sprintf("%c%d(%d)", 'A'+p.Mark, p.PktLen, w.Members[p.Mark].Deficit())
}

// The kernel's order for 600-byte packets in A with a quantum of 1000, and
// 1500-byte packets in B with 2000.
func TestKernelsOrder(t *testing.T) {
	w := newWorld(1000, 2000)
	for range 20 {
		w.put(0, 600)
		w.put(1, 1500)
	}
	want := []string{
		"A600(400)", "B1500(500)", "A600(800)", "A600(200)", "B1500(1000)", "A600(600)", "A600(0)",
		"B1500(1500)", "B1500(0)", "A600(400)", "B1500(500)", "A600(800)", "A600(200)",
	}
	var got []string
	for range want {
		got = append(got, w.take())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What a member saved is lost when it has nothing more to send; it comes back at
// the tail, with a fresh quantum.
func TestSavingsAreLostWhenEmpty(t *testing.T) {
	w := newWorld(1000, 1000)
	w.put(0, 100)
	w.put(1, 500)
	w.put(1, 500)
	got := []string{w.take()}
	w.put(0, 1000)
	got = append(got, w.take(), w.take(), w.take(), w.take())
	want := []string{"A100(0)", "B500(500)", "B500(0)", "A1000(0)", "nothing"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Leaving twice, or without ever having joined, changes nothing for the others.
func TestLeaveIsIdempotent(t *testing.T) {
	w := newWorld(1000, 1000, 1000)
	w.Leave(1)
	for m := range int32(3) {
		w.put(m, 500)
	}
	w.Leave(1)
	w.Leave(1)
	got := []string{w.take(), w.take(), w.take()}
	if diff := cmp.Diff([]string{"A500(0)", "C500(0)", "nothing"}, got); diff != "" {
		t.Error(diff)
	}
	w.Join(1)
	w.Join(1)
	if got := w.take(); got != "B500(0)" {
		t.Errorf("after it joined again: %s", got)
	}
}

// Reset takes everybody out, also who is in the round with nothing to send.
func TestResetLeavesNobody(t *testing.T) {
	w := newWorld(1000, 1000, 1000)
	for m := range int32(3) {
		w.put(m, 500)
	}
	w.Members[1].Child.Reset(w.ctx, &w.base)
	w.Reset(w.ctx, &w.base)
	if n, free := w.base.Len(), w.ctx.Pool.Available(); n != 0 || free != w.ctx.Pool.Size() {
		t.Errorf("len %d, %d frames free", n, free)
	}
	w.put(2, 500)
	w.put(1, 500)
	got := []string{w.take(), w.take(), w.take()}
	if diff := cmp.Diff([]string{"C500(0)", "B500(0)", "nothing"}, got); diff != "" {
		t.Error(diff)
	}
}

// A model as obvious as can be: a slice for the list, and what the textbook says
// of its head.
type model struct {
	quanta  []int
	queues  [][]int // lengths
	deficit []int
	list    []int
}

func (m *model) put(i, n int) {
	m.queues[i] = append(m.queues[i], n)
	if !slices.Contains(m.list, i) {
		m.list = append(m.list, i)
		m.deficit[i] = m.quanta[i]
	}
}

func (m *model) take() string {
	for len(m.list) > 0 {
		i := m.list[0]
		n := m.queues[i][0]
		if n > m.deficit[i] {
			m.deficit[i] += m.quanta[i]
			m.list = append(m.list[1:], i)
			continue
		}
		m.deficit[i] -= n
		m.queues[i] = m.queues[i][1:]
		left := m.deficit[i]
		if len(m.queues[i]) == 0 {
			m.list = m.list[1:]
			left = 0
		}
		return fmt.Sprintf("%c%d(%d)", 'A'+i, n, left)
	}
	return "nothing"
}

func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "members")
		m := model{queues: make([][]int, n), deficit: make([]int, n)}
		var quanta []uint32
		for range n {
			q := rapid.IntRange(1, 3000).Draw(t, "quantum")
			m.quanta, quanta = append(m.quanta, q), append(quanta, uint32(q))
		}
		w := newWorld(quanta...)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.IntRange(0, 1).Draw(t, "put") == 1 {
				i, n := rapid.IntRange(0, n-1).Draw(t, "member"), rapid.IntRange(60, 1514).Draw(t, "len")
				m.put(i, n)
				w.put(int32(i), n)
			} else if got, want := w.take(), m.take(); got != want {
				t.Fatalf("%s, want %s", got, want)
			}
		}
	})
}

// gate is a queue that gives nothing before an instant.
type gate struct {
	qdisctest.Fifo
}

func newGate() *gate { return &gate{qdisctest.Fifo{Limit: 1000}} }

func (g *gate) closed(ctx *qdisc.Context) bool {
	g.SetNextAt(1000)
	return ctx.Now < 1000
}

func (g *gate) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if g.closed(ctx) {
		return nil
	}
	return g.Fifo.Peek(ctx)
}

func (g *gate) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if g.closed(ctx) {
		return nil
	}
	return g.Fifo.Dequeue(ctx)
}

// A member that waits does not stop the others, keeps its deficit, and comes to
// its turn when it is ready.
func TestWaitingMemberLetsOthersPass(t *testing.T) {
	w := newWorld(600, 300, 300)
	w.Members[1].Child = qdisc.NewChild(newGate())
	for range 3 {
		for m := range int32(3) {
			w.put(m, 300)
		}
	}
	got := []string{w.take(), w.take(), w.take(), w.take(), w.take(), w.take()}
	want := []string{"A300(300)", "A300(0)", "C300(0)", "A300(0)", "C300(0)", "C300(0)"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if p, at := w.Dequeue(w.ctx, &w.base); p != nil || at != 1000 {
		t.Errorf("only the waiting one is left: %v at %v, want nothing until 1000", p, at)
	}
	w.ctx.Now = 1000
	if got := w.take(); got != "B300(0)" {
		t.Errorf("after the wait: %s", got)
	}
}

// When all wait, the answer is the earliest instant of all.
func TestAllWaiting(t *testing.T) {
	w := newWorld(300, 300)
	for m := range int32(2) {
		w.Members[m].Child = qdisc.NewChild(newGate())
		w.put(m, 1500)
	}
	if p, at := w.Dequeue(w.ctx, &w.base); p != nil || at != 1000 {
		t.Errorf("%v at %v, want nothing until 1000", p, at)
	}
}

// Over a long time the members share in the ratio of their quanta, whatever the
// sizes of their packets, to within a quantum and a full frame each.
func TestSharesAreTheQuanta(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quanta := rapid.SliceOfN(rapid.Uint32Range(256, 6000), 2, 6).Draw(t, "quanta")
		w := newWorld(quanta...)
		size := rapid.IntRange(60, 1514)
		for i := range quanta {
			for range 8 {
				w.put(int32(i), size.Draw(t, "len"))
			}
		}
		for range 3000 {
			p, _ := w.Dequeue(w.ctx, &w.base)
			i := int32(p.Mark)
			p.SetLen(60 + (int(p.PktLen)*7+int(i)*31)%1455)
			w.Enqueue(w.ctx, &w.base, i, p)
		}
		for i := range quanta {
			for j := range quanta {
				a := float64(w.Members[i].Bytes) / float64(quanta[i])
				b := float64(w.Members[j].Bytes) / float64(quanta[j])
				// In rounds: each may be one ahead, and a frame short of it.
				if limit := 2 + 1514/float64(min(quanta[i], quanta[j])); a-b > limit {
					t.Fatalf("member %d had %.2f rounds, member %d %.2f", i, a, j, b)
				}
			}
		}
	})
}

func BenchmarkDequeue(b *testing.B) {
	for _, n := range []int{2, 16, 1024} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			quanta := make([]uint32, n)
			for i := range quanta {
				quanta[i] = 1514
			}
			w := newWorld(quanta...)
			w.ctx = pool(2 * n)
			for i := range n {
				w.Members[i].Child = qdisc.NewChild(&queue{})
				w.put(int32(i), 1514)
				w.put(int32(i), 1514)
			}
			b.ReportAllocs()
			for b.Loop() {
				p, _ := w.Dequeue(w.ctx, &w.base)
				w.Enqueue(w.ctx, &w.base, int32(p.Mark), p)
			}
		})
	}
}

// queue is a fifo without a limit that does not allocate.
type queue struct {
	qdisctest.Fifo
	list qdisc.List
}

func (q *queue) Enqueue(_ *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	q.list.Push(p)
	q.Enqueued(p)
	return qdisc.Success
}

func (q *queue) Peek(*qdisc.Context) *qdisc.Packet { return q.list.Front() }

func (q *queue) Dequeue(*qdisc.Context) *qdisc.Packet {
	p := q.list.Pop()
	if p != nil {
		q.Dequeued(p)
	}
	return p
}
