package qdisctest

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/qdisc"
)

// The suite is only worth what it catches: here are disciplines with one fault
// each, and what the suite has to say about them. Sequences are drawn from one
// seed, so that this passes always or never.
func TestMain(m *testing.M) {
	flag.Parse()
	for name, value := range map[string]string{
		"rapid.nofailfile": "true", "rapid.shrinktime": "0s", "rapid.seed": "2014",
	} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// faulty is a Fifo whose methods can be replaced by wrong ones.
type faulty struct {
	Fifo
	enqueue func(q *faulty, ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict
	dequeue func(q *faulty, ctx *qdisc.Context) *qdisc.Packet
	peek    func(q *faulty, ctx *qdisc.Context) *qdisc.Packet
	shed    func(q *faulty, ctx *qdisc.Context, n int) int
	reset   func(q *faulty, ctx *qdisc.Context)
}

func (q *faulty) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	if q.enqueue != nil {
		return q.enqueue(q, ctx, p)
	}
	return q.Fifo.Enqueue(ctx, p)
}

func (q *faulty) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if q.dequeue != nil {
		return q.dequeue(q, ctx)
	}
	return q.Fifo.Dequeue(ctx)
}

func (q *faulty) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if q.peek != nil {
		return q.peek(q, ctx)
	}
	return q.Fifo.Peek(ctx)
}

func (q *faulty) Shed(ctx *qdisc.Context, n int) int {
	if q.shed != nil {
		return q.shed(q, ctx, n)
	}
	return q.Fifo.Shed(ctx, n)
}

func (q *faulty) Reset(ctx *qdisc.Context) {
	if q.reset != nil {
		q.reset(q, ctx)
		return
	}
	q.Fifo.Reset(ctx)
}

// last takes the newest packet.
func (q *faulty) last() *qdisc.Packet {
	if len(q.queue) == 0 {
		return nil
	}
	p := q.queue[len(q.queue)-1]
	q.queue = q.queue[:len(q.queue)-1]
	q.Dequeued(p)
	return p
}

func TestTheSuiteCatches(t *testing.T) {
	for _, c := range []struct {
		fault string
		q     faulty
		want  string // a pattern in what the suite says
	}{
		{"nothing", faulty{}, ""},
		{"a packet kept and not counted", faulty{enqueue: func(q *faulty, _ *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
			q.queue = append(q.queue, p)
			return qdisc.Success
		}}, "the tree says 0 packets"},
		{"a frame that leaks", faulty{enqueue: func(q *faulty, ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
			ctx.Pool.Get()
			return q.Fifo.Enqueue(ctx, p)
		}}, "frames are out"},
		{"a drop that nobody counts", faulty{enqueue: func(q *faulty, ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
			ctx.Drop(p, qdisc.Overlimit)
			return qdisc.Dropped
		}}, "the root counts 0 drops"},
		{"success for a dropped packet", faulty{enqueue: func(q *faulty, ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
			q.Refuse(ctx, p, qdisc.Overlimit)
			return qdisc.Success
		}}, "Success, but it was dropped"},
		{"dropped for a queued packet", faulty{enqueue: func(q *faulty, ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
			q.Fifo.Enqueue(ctx, p)
			return qdisc.Dropped
		}}, "Dropped, but OnDrop did not see it"},
		{"congestion without a drop", faulty{enqueue: func(q *faulty, ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
			if len(q.queue) < 4 {
				q.Fifo.Enqueue(ctx, p)
				return qdisc.CN
			}
			return q.Fifo.Enqueue(ctx, p)
		}}, "CN, but nothing was dropped"},
		{"a stolen packet that stays", faulty{enqueue: func(q *faulty, ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
			return qdisc.Stolen
		}}, "Stolen, but not just freed"},
		{"the newest first", faulty{
			dequeue: func(q *faulty, _ *qdisc.Context) *qdisc.Packet { return q.last() },
			peek: func(q *faulty, _ *qdisc.Context) *qdisc.Packet {
				if len(q.queue) == 0 {
					return nil
				}
				return q.queue[len(q.queue)-1]
			},
		}, "of the same order"},
		{"a peek at the wrong end", faulty{peek: func(q *faulty, _ *qdisc.Context) *qdisc.Packet {
			if len(q.queue) == 0 {
				return nil
			}
			return q.queue[len(q.queue)-1]
		}}, "Peek showed packet"},
		{"a peek that consumes", faulty{peek: func(q *faulty, ctx *qdisc.Context) *qdisc.Packet {
			p := q.Fifo.Dequeue(ctx)
			if p != nil {
				q.queue = append(q.queue, p)
				q.Enqueued(p)
			}
			return p
		}}, "sent; it was|Peek showed packet|of the same order"},
		{"packets that do not come although nothing holds them", faulty{dequeue: func(q *faulty, ctx *qdisc.Context) *qdisc.Packet {
			if len(q.queue) == 1 {
				q.SetNextAt(ctx.Now + 1)
				return nil
			}
			return q.Fifo.Dequeue(ctx)
		}}, "gave nothing although"},
		{"a shed that gives nothing", faulty{shed: func(*faulty, *qdisc.Context, int) int { return 0 }}, "Shed gave nothing"},
		{"a shed that gives too much", faulty{shed: func(q *faulty, ctx *qdisc.Context, n int) int {
			return q.Fifo.Shed(ctx, n+1)
		}}, "dropped"},
		{"a shed that miscounts", faulty{shed: func(q *faulty, ctx *qdisc.Context, n int) int {
			return q.Fifo.Shed(ctx, n) + 1
		}}, "Shed says"},
		{"a reset that forgets a packet", faulty{reset: func(q *faulty, ctx *qdisc.Context) {
			if len(q.queue) > 0 {
				q.queue = q.queue[1:]
			}
			q.Fifo.Reset(ctx)
		}}, "frames are missing"},
		{"a reset that counts drops", faulty{reset: func(q *faulty, ctx *qdisc.Context) {
			q.Drops += uint64(len(q.queue))
			q.Fifo.Reset(ctx)
		}}, `counts \d+ drops`},
		{"randomness of its own", faulty{enqueue: func(q *faulty, ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
			if rand.IntN(8) == 0 {
				q.Refuse(ctx, p, qdisc.Generic)
				return qdisc.Dropped
			}
			return q.Fifo.Enqueue(ctx, p)
		}}, "on a second instance|compared with a new instance|flaky"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			q := c.q
			q.Limit = 10
			cfg := Config{
				New:   func(qdisc.Env) qdisc.Qdisc { f := q; return &f },
				Order: func(*qdisc.Packet) uint64 { return 0 },
			}
			expect(t, &cfg, shape{}, c.want)
			expect(t, &cfg, shape{under: true}, c.want)
		})
	}
}

// late is a Slow that is not honest about when it is ready.
type late struct {
	Slow
	off       time.Duration
	remembers bool
}

func (q *late) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	p := q.Slow.Dequeue(ctx)
	if p == nil && q.Len() > 0 {
		q.SetNextAt(q.ready + q.off)
	}
	return p
}

func (q *late) Peek(ctx *qdisc.Context) *qdisc.Packet {
	p := q.Slow.Peek(ctx)
	if p == nil && q.Len() > 0 {
		q.SetNextAt(q.ready + q.off)
	}
	return p
}

func (q *late) Reset(ctx *qdisc.Context) {
	if q.remembers {
		q.Fifo.Reset(ctx)
		return
	}
	q.Slow.Reset(ctx)
}

func TestTheSuiteCatchesLateness(t *testing.T) {
	for _, c := range []struct {
		fault string
		q     late
		want  string
	}{
		{"nothing", late{}, ""},
		{"one nanosecond late", late{off: 1}, "which was late"},
		{"an instant that does not lie ahead", late{off: -time.Hour}, "it does not lie ahead"},
		{"a reset that leaves it throttled", late{remembers: true}, "compared with a new instance"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			q := c.q
			q.Limit, q.Gap = 10, time.Millisecond
			cfg := Config{New: func(qdisc.Env) qdisc.Qdisc { f := q; return &f }, Throttles: true}
			expect(t, &cfg, shape{}, c.want)
			expect(t, &cfg, shape{under: true}, c.want)
		})
	}
}

// careless is a parent of one child with one fault.
type careless struct {
	qdisc.Base
	child  qdisc.Child
	bypass bool // calls the child without Child
	litter bool // grafts without emptying the old child
	wrong  bool // grafts on any class
}

func (q *careless) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	return q.child.Enqueue(ctx, &q.Base, p)
}

func (q *careless) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if q.bypass {
		p := q.child.Qdisc().Dequeue(ctx)
		if p != nil {
			q.Dequeued(p)
		}
		return p
	}
	p := q.child.Dequeue(ctx, &q.Base)
	if p == nil {
		q.SetNextAt(q.child.NextAt())
	}
	return p
}

func (q *careless) Peek(ctx *qdisc.Context) *qdisc.Packet {
	p := q.child.Peek(ctx, &q.Base)
	if p == nil {
		q.SetNextAt(q.child.NextAt())
	}
	return p
}

func (q *careless) Shed(ctx *qdisc.Context, n int) int { return q.child.Shed(ctx, &q.Base, n) }

func (q *careless) Reset(ctx *qdisc.Context) {
	q.child.Reset(ctx, &q.Base)
	q.ResetBase(ctx)
}

func (q *careless) Walk(f func(qdisc.Class) bool) {
	leaf := q.child.Qdisc()
	f(qdisc.Class{ID: qdisc.MakeID(handle, 1), Leaf: leaf, Len: leaf.Len(), Bytes: leaf.Backlog()})
}

func (q *careless) Graft(ctx *qdisc.Context, class qdisc.ClassID, child qdisc.Qdisc) (qdisc.Qdisc, error) {
	if class.Minor() != 1 && !q.wrong {
		return nil, &qdisc.Error{Errno: syscall.ENOENT}
	}
	if child == nil {
		child = &Fifo{Limit: 10}
	}
	old := q.child.Qdisc()
	if !q.litter {
		q.child.Purge(ctx, &q.Base)
	}
	q.child = qdisc.NewChild(child)
	return old, nil
}

func TestTheSuiteCatchesCarelessParents(t *testing.T) {
	for _, c := range []struct {
		fault string
		q     careless
		want  string
	}{
		{"nothing", careless{}, ""},
		{"a child called past its Child", careless{bypass: true}, "the tree says|NextAt is|gave nothing"},
		{"a graft that leaves packets in the old child", careless{litter: true}, "packets in it"},
		{"a graft on a class that is not there", careless{wrong: true}, "a class that does not exist"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			cfg := Config{New: func(qdisc.Env) qdisc.Qdisc {
				f := c.q
				f.child = qdisc.NewChild(&Fifo{Limit: 10})
				return &f
			}}
			expect(t, &cfg, shape{over: true}, c.want)
			expect(t, &cfg, shape{over: true, under: true}, c.want)
		})
	}
}

// halfway refuses every change, after it made half of it.
type halfway struct {
	Fifo
	sheds, plain bool
}

func (q *halfway) Change(ctx *qdisc.Context, v qdisc.Values) error {
	switch {
	case q.plain:
		return errors.New("refused")
	case q.sheds:
		q.Fifo.Shed(ctx, 1)
	default:
		q.Limit++
	}
	return &qdisc.Error{Errno: syscall.EINVAL}
}

func (q *halfway) Dump() qdisc.Values { return qdisc.Values{}.Set("limit", uint64(q.Limit)) }

func TestTheSuiteCatchesRefusalsThatChange(t *testing.T) {
	for _, c := range []struct {
		fault string
		q     halfway
		want  string
	}{
		{"a parameter set", halfway{}, "was refused .* and changed"},
		{"a packet dropped", halfway{sheds: true}, "was refused .* and dropped"},
		{"a refusal that is not the kernel's", halfway{plain: true}, `is not a \*qdisc.Error`},
	} {
		t.Run(c.fault, func(t *testing.T) {
			cfg := Config{
				New:     func(qdisc.Env) qdisc.Qdisc { f := c.q; f.Limit = 10; return &f },
				Changes: []qdisc.Values{{}},
			}
			expect(t, &cfg, shape{}, c.want)
			expect(t, &cfg, shape{under: true}, c.want)
		})
	}
}

// expect runs the suite on a discipline and wants it to fail with a text that
// matches, or to pass when want is empty.
func expect(t *testing.T, c *Config, s shape, want string) {
	t.Helper()
	r := &recorder{name: t.Name()}
	done := make(chan struct{})
	go func() { // Fatal ends the goroutine
		defer close(done)
		check(r, c, s)
	}()
	<-done
	switch {
	case want == "" && r.failed:
		t.Errorf("the suite complains:\n%s", r.text())
	case want != "" && !r.failed:
		t.Error("the suite noticed nothing")
	case !regexp.MustCompile(want).MatchString(r.text()):
		t.Errorf("the suite complains about something else than %q:\n%s", want, r.text())
	}
}

// recorder is a test that may fail.
type recorder struct {
	name   string
	failed bool
	lines  []string
}

func (r *recorder) text() string { return strings.Join(r.lines, "\n") }

func (r *recorder) add(text string) { r.lines = append(r.lines, text) }

func (r *recorder) Helper()                   {}
func (r *recorder) Name() string              { return r.name }
func (r *recorder) Failed() bool              { return r.failed }
func (r *recorder) Fail()                     { r.failed = true }
func (r *recorder) Log(args ...any)           { r.add(fmt.Sprint(args...)) }
func (r *recorder) Logf(f string, a ...any)   { r.add(fmt.Sprintf(f, a...)) }
func (r *recorder) Error(args ...any)         { r.Log(args...); r.failed = true }
func (r *recorder) Errorf(f string, a ...any) { r.Logf(f, a...); r.failed = true }
func (r *recorder) Skip(args ...any)          { r.Log(args...); runtime.Goexit() }
func (r *recorder) Skipf(f string, a ...any)  { r.Logf(f, a...); runtime.Goexit() }
func (r *recorder) SkipNow()                  { runtime.Goexit() }
func (r *recorder) Fatal(args ...any)         { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(f string, a ...any) { r.Errorf(f, a...); runtime.Goexit() }
func (r *recorder) FailNow()                  { r.failed = true; runtime.Goexit() }
