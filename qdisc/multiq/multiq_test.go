package multiq_test

import (
	"errors"
	"syscall"
	"testing"

	"sluice/qdisc"
	"sluice/qdisc/multiq"
	"sluice/qdisc/qdisctest"
)

// scheduler is what a multiq is to its tests.
type scheduler interface {
	qdisc.Qdisc
	qdisc.Classful
}

func build(t testing.TB, env qdisc.Env, stopped func(int) bool) scheduler {
	t.Helper()
	env.TxQueues, env.Stopped = 4, stopped
	q, err := multiq.Kind.New(env, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q.(scheduler)
}

// mapped gives every packet a queue by its hash, one of them beyond the last.
type mapped struct{ scheduler }

func (m mapped) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	p.Queue = uint16(p.Hash)
	return m.scheduler.Enqueue(ctx, p)
}

func (m mapped) SetClassifier(class qdisc.ClassID, c qdisc.Classifier) error {
	return m.scheduler.(qdisc.Filtered).SetClassifier(class, c)
}

func TestConformance(t *testing.T) {
	qdisctest.Run(t, qdisctest.Config{
		Name:  "multiq",
		New:   func(env qdisc.Env) qdisc.Qdisc { return mapped{build(t, env, nil)} },
		Order: func(p *qdisc.Packet) uint64 { return uint64(p.Hash) },
	})
}

func put(ctx *qdisc.Context, q qdisc.Qdisc, queue uint16) {
	p := ctx.Pool.Get()
	p.SetLen(100)
	p.Queue = queue
	q.Enqueue(ctx, p)
}

func order(ctx *qdisc.Context, q qdisc.Qdisc) (queues []uint16) {
	for p := q.Dequeue(ctx); p != nil; p = q.Dequeue(ctx) {
		queues = append(queues, p.Queue)
		p.Free()
	}
	return queues
}

func same(a, b []uint16) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func newContext(t *testing.T) *qdisc.Context {
	t.Helper()
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 64})
	if err != nil {
		t.Fatal(err)
	}
	return qdisc.NewContext(pool, 1)
}

// Bands take turns, packet by packet; the second one has the first. A queue that
// does not exist is the first one.
func TestBandsTakeTurns(t *testing.T) {
	ctx := newContext(t)
	q := build(t, qdisctest.Env(1), nil)
	for _, queue := range []uint16{0, 0, 0, 1, 3, 3, 9} {
		put(ctx, q, queue)
	}
	if got := order(ctx, q); !same(got, []uint16{1, 3, 0, 3, 0, 0, 9}) {
		t.Errorf("left: %v", got)
	}
}

// A stopped queue holds up its own band only, also when it is looked at.
func TestStoppedQueueHoldsUpNobodyElse(t *testing.T) {
	ctx := newContext(t)
	stopped := [4]bool{1: true}
	q := build(t, qdisctest.Env(1), func(queue int) bool { return stopped[queue] })
	for _, queue := range []uint16{1, 1, 2, 3} {
		put(ctx, q, queue)
	}
	if p := q.Peek(ctx); p == nil || p.Queue != 2 {
		t.Fatalf("%v is next", p)
	}
	if got := order(ctx, q); !same(got, []uint16{2, 3}) {
		t.Errorf("left: %v", got)
	}
	if q.NextAt() != qdisc.Never || q.Len() != 2 {
		t.Errorf("%d wait until %v; want two, for their queue to wake", q.Len(), q.NextAt())
	}
	stopped[1] = false
	if got := order(ctx, q); !same(got, []uint16{1, 1}) {
		t.Errorf("left: %v", got)
	}
}

func TestOneQueueIsNotEnough(t *testing.T) {
	for _, queues := range []int{0, 1} {
		env := qdisctest.Env(1)
		env.TxQueues = queues
		if _, err := multiq.Kind.New(env, nil); !errors.Is(err, syscall.EOPNOTSUPP) {
			t.Errorf("%d queues: %v", queues, err)
		}
	}
}

func TestGraft(t *testing.T) {
	q := build(t, qdisctest.Env(1), nil)
	for _, class := range []qdisc.ClassID{qdisc.MakeID(1, 0), qdisc.MakeID(1, 5), qdisc.MakeID(2, 1)} {
		if _, err := q.Graft(newContext(t), class, nil); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("%v: %v", class, err)
		}
	}
}

func Benchmark(b *testing.B) {
	qdisctest.Bench(b, func(env qdisc.Env) qdisc.Qdisc { return mapped{build(b, env, nil)} })
}
