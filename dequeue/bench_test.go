package dequeue_test

import (
	"fmt"
	"testing"
	"time"

	"sluice/dequeue"
	"sluice/dequeue/dequeuetest"
	"sluice/qdisc"
	"sluice/qdisc/pfifofast"
)

// sink is the cheapest driver that keeps the contract: it frees what is posted
// and completes it at the next Reap. What is measured with it is dequeue.
type sink struct {
	packets, bytes int
	kind           dequeue.Completions
}

func (s *sink) Room() int { return 4096 - s.packets }
func (s *sink) Post(p *qdisc.Packet) bool {
	s.packets++
	s.bytes += p.Len()
	p.Free()
	return true
}
func (s *sink) Kick(time.Duration) dequeue.Kick { return dequeue.KickAll }
func (s *sink) Reap(time.Duration) (packets, bytes int) {
	packets, bytes = s.packets, s.bytes
	s.packets, s.bytes = 0, 0
	return packets, bytes
}
func (s *sink) Lost() uint64                     { return 0 }
func (s *sink) Completions() dequeue.Completions { return s.kind }
func (s *sink) Down() bool                       { return false }

// plain is the cheapest discipline: a list.
type plain struct {
	qdisc.Base
	list qdisc.List
}

func (q *plain) Enqueue(_ *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	q.list.Push(p)
	q.Enqueued(p)
	return qdisc.Success
}
func (q *plain) Dequeue(*qdisc.Context) *qdisc.Packet {
	p := q.list.Pop()
	if p == nil {
		return nil
	}
	q.Dequeued(p)
	return p
}
func (q *plain) Peek(*qdisc.Context) *qdisc.Packet { return q.list.Front() }
func (q *plain) Shed(*qdisc.Context, int) int      { return 0 }
func (q *plain) Reset(*qdisc.Context)              {}

// turn is one turn of a worker from Submit to completion.
type turn struct {
	ctx   *qdisc.Context
	sched dequeue.Scheduler
	txq   *dequeue.Txq
	run   *dequeue.Runner
	burst qdisc.List
}

func newTurn(root qdisc.Qdisc, d dequeue.Driver, c dequeue.TxqConfig) *turn {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 1024, FrameSize: 512})
	if err != nil {
		panic(err)
	}
	t := &turn{ctx: qdisc.NewContext(pool, 1)}
	c.Driver = d
	t.txq = dequeue.NewTxq(c)
	t.run = dequeue.NewRunner(dequeue.RunnerConfig{Root: root, Txqs: []*dequeue.Txq{t.txq}, Scheduler: &t.sched})
	return t
}

func (t *turn) do(n int) {
	t.txq.Reap(t.ctx)
	for range n {
		p := t.ctx.Pool.Get()
		p.SetLen(64)
		t.burst.Push(p)
	}
	t.run.Submit(t.ctx, &t.burst)
	t.sched.Pass(t.ctx)
	t.txq.Flush(t.ctx)
	t.ctx.Now += 60 * time.Microsecond
}

// BenchmarkBare makes the same dynamic calls of discipline and driver with
// nothing in between: what is missing from BenchmarkTurn's numbers to it is
// dequeue's share.
func BenchmarkBare(b *testing.B) {
	var root qdisc.Qdisc = &plain{}
	var d dequeue.Driver = &sink{}
	t := newTurn(root, d, dequeue.TxqConfig{})
	b.ReportAllocs()
	for n := 0; n < b.N; n += 64 {
		for range 64 {
			p := t.ctx.Pool.Get()
			p.SetLen(64)
			t.burst.Push(p)
		}
		for p := t.burst.Pop(); p != nil; p = t.burst.Pop() {
			root.Enqueue(t.ctx, p)
		}
		for p := root.Dequeue(t.ctx); p != nil; p = root.Dequeue(t.ctx) {
			d.Post(p)
		}
		d.Kick(0)
		d.Reap(0)
	}
}

// BenchmarkTurn is the time of one packet from Submit to completion, bare
// discipline and driver included.
func BenchmarkTurn(b *testing.B) {
	for _, burst := range []int{1, 4, 32, 64} {
		for _, kind := range []struct {
			name string
			c    dequeue.Completions
		}{{"bql", dequeue.CompleteDevice}, {"nobql", dequeue.CompleteNone}} {
			b.Run(fmt.Sprintf("%s/burst=%d", kind.name, burst), func(b *testing.B) {
				t := newTurn(&plain{}, &sink{kind: kind.c}, dequeue.TxqConfig{MinLimit: 64 << 10})
				b.ReportAllocs()
				for n := 0; n < b.N; n += burst {
					t.do(burst)
				}
			})
		}
	}
}

// BenchmarkPfifoFast is BenchmarkTurn with the default discipline.
func BenchmarkPfifoFast(b *testing.B) {
	root, err := pfifofast.Kind.New(qdisc.Env{TxQueueLen: 1000, MTU: 1500, HeaderLen: 14}, nil)
	if err != nil {
		b.Fatal(err)
	}
	t := newTurn(root, &sink{kind: dequeue.CompleteDevice}, dequeue.TxqConfig{MinLimit: 64 << 10})
	b.ReportAllocs()
	for n := 0; n < b.N; n += 64 {
		t.do(64)
	}
}

// The packet path allocates nothing, in the good case and in the bad one.
func TestPacketPathDoesNotAllocate(t *testing.T) {
	d := &dequeuetest.Driver{Size: 64, Kind: dequeue.CompleteDevice, Auto: true}
	turn := newTurn(&dequeuetest.Queue{Bypass: true}, d, dequeue.TxqConfig{})
	n := 0
	allocs := testing.AllocsPerRun(1000, func() {
		n++
		if n%7 == 0 {
			d.Refuse(n%5, 2)
		}
		turn.do(1 + n%40)
	})
	if allocs != 0 {
		t.Errorf("%v allocations a turn", allocs)
	}
	if turn.run.Stats().Requeues == 0 || turn.txq.Stats().StackStops == 0 {
		t.Error("the bad case did not happen")
	}
}
