// Package qdisctest is the conformance suite that every discipline must pass,
// and the tools to write a discipline's own tests with: [Run] for what all
// disciplines promise, [Script] for what one of them does.
//
// Run draws random sequences of everything that can happen to a discipline
// (arrivals, departures, peeks, the passing of time, shedding, reset, and
// changes of parameters, children and classes as far as the discipline has
// them) and checks after every step that
//
//   - packets and bytes are conserved: what came in went out, was dropped, was
//     stolen, or is still there; no frame is lost and none is freed twice;
//   - Len and Backlog are exact in the whole tree, each parent's being the sum
//     of its children's and of what it holds itself;
//   - every dropped packet is counted at the root, and at least there;
//   - verdicts tell the truth about the packet they are about;
//   - Peek shows what Dequeue gives;
//   - NextAt is never late, lies ahead, and is reached in the end;
//   - Shed gives between one packet and what was asked;
//   - a refused change changes nothing, and a repeated notice does no harm;
//   - packets of one order key leave in the order they came.
//
// Each sequence is then run again on a new instance, which has to do exactly the
// same; and continued after a Reset, where it has to do what a new instance
// does. All of it happens with the discipline as the root, below a prio, and,
// for a classful one, above children of several characters.
package qdisctest

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"sluice/qdisc"
	"sluice/qdisc/fifo"
)

// Config says how to make the discipline and what it promises.
type Config struct {
	Name string // for messages

	// New makes one, always the same way. A ClassEditor may come with classes.
	New func(env qdisc.Env) qdisc.Qdisc

	// Order returns the key within which packets leave in the order they came;
	// nil: the discipline promises no order. A change of parameters, classes,
	// children or filters begins a new order.
	Order func(p *qdisc.Packet) uint64

	// Throttles: Dequeue may give nothing although packets wait.
	Throttles bool

	// Blocks: it may keep packets until it is told to give them out, and nobody
	// knows when: NextAt is Never then.
	Blocks bool

	// Changes are drawn for Change, when the discipline is a Changer. Refused
	// ones are welcome: a refusal must leave everything as it was.
	Changes []qdisc.Values

	// ClassValues are drawn for AddClass and ChangeClass, when the discipline
	// is a ClassEditor. With none, its classes stay as New made them.
	ClassValues []qdisc.Values

	// Own returns what a discipline keeps outside its children without
	// holding it (htb's direct queue). nil: nothing.
	Own func(q qdisc.Qdisc) (packets, bytes int)

	// KeepsState: a Reset does not make the discipline as good as new, for a
	// reason that the test states.
	KeepsState bool
}

// handle is the major number of the discipline under test, above that of a
// parent.
const (
	handle = 0x1
	above  = 0x99
)

// Env returns the environment that the suite builds in: a port with a short
// queue, so that limits are met.
func Env(handle uint32) qdisc.Env {
	return qdisc.Env{
		Handle: handle, TxQueueLen: 20, MTU: 1500, HeaderLen: 14,
		Pfifo: fifo.NewPfifo, Bfifo: fifo.NewBfifo,
	}
}

// Run runs the suite.
func Run(t *testing.T, c Config) {
	t.Helper()
	classful := false
	if q, ok := c.New(Env(handle)).(qdisc.Classful); ok {
		q.Walk(func(qdisc.Class) bool { classful = true; return false })
		classful = classful || len(c.ClassValues) > 0
	}

	t.Run("root", func(t *testing.T) { check(t, &c, shape{}) })
	t.Run("under prio", func(t *testing.T) { check(t, &c, shape{under: true}) })
	if classful {
		t.Run("over others", func(t *testing.T) { check(t, &c, shape{over: true}) })
		t.Run("under prio over others", func(t *testing.T) { check(t, &c, shape{under: true, over: true}) })
	}
	t.Run("allocations", func(t *testing.T) { allocations(t, &c) })
}

// shape is the tree around the discipline under test.
type shape struct {
	under bool // it is a band of a prio
	over  bool // its leaves are of a character that is drawn; else its default
}

// check runs random sequences against one shape of tree.
func check(t rapid.TB, c *Config, s shape) {
	rapid.Check(t, func(t *rapid.T) { once(t, c, s) })
}

// Check runs one random sequence against the discipline as the root, for tests
// that draw the discipline too.
func Check(t *rapid.T, c Config) { once(t, &c, shape{}) }

// Like checks that the discipline does what another one does with the same
// arrivals, departures and peeks: a slow and obvious model of it, or a tree of
// others that it stands for.
func Like(t *testing.T, c Config, model func(env qdisc.Env) qdisc.Qdisc) {
	m := c
	m.New = model
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		ops := draw(common, 128).Draw(t, "ops")
		w, slow := newWorld(t, &c, false, nil, seed), newWorld(quiet{t}, &m, false, nil, seed)
		w.run(ops)
		slow.run(ops)
		same(t, "compared with the model", w.trace, slow.trace)
	})
}

func once(t *rapid.T, c *Config, s shape) {
	t.Logf("%s", c.Name)
	seed := rapid.Uint64().Draw(t, "seed")
	first := operations(c).Draw(t, "ops")
	var child func() qdisc.Qdisc
	if s.over {
		child = children[uniform(t, len(children))]
	}

	w := newWorld(t, c, s.under, child, seed)
	w.run(first)

	again := newWorld(quiet{t}, c, s.under, child, seed)
	again.run(first)
	same(t, "the same operations on a second instance", w.trace, again.trace)

	if c.KeepsState {
		return
	}
	then := draw(common, 64).Draw(t, "ops after reset")
	w.reset()
	w.restart(seed)
	w.run(then)

	fresh := newWorld(quiet{t}, c, s.under, child, seed)
	fresh.ctx.Now = w.began
	fresh.run(configuring(first))
	fresh.reset()
	fresh.restart(seed)
	fresh.run(then)
	same(t, "after Reset, compared with a new instance", w.trace, fresh.trace)
}

func same(t fataler, what string, a, b []event) {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("%s: event %d was %v, now %v", what, i, a[i], b[i])
		}
	}
	if len(a) != len(b) {
		t.Fatalf("%s: %d events, now %d", what, len(a), len(b))
	}
}

// fataler is what the checks need of a test.
type fataler interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// quiet leaves out the log of a repeated run.
type quiet struct{ *rapid.T }

func (quiet) Logf(string, ...any) {}

// allocations checks that arrival, peek and departure allocate nothing, with
// room in the queue and without.
func allocations(t *testing.T, c *Config) {
	for _, standing := range []int{0, 8, 200} {
		t.Run(fmt.Sprintf("standing=%d", standing), func(t *testing.T) {
			pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 512, FrameSize: 2048})
			if err != nil {
				t.Fatal(err)
			}
			ctx := qdisc.NewContext(pool, 1)
			q := c.New(Env(handle))
			n := uint32(0)
			enqueue := func() {
				p := pool.Get()
				if p == nil {
					q.Shed(ctx, 4)
					p = pool.Get()
				}
				n++
				p.SetLen(60 + int(n*97%1455))
				p.Priority = handle<<16 | n%5
				p.Hash, p.Flags = n%7, qdisc.HashSet
				q.Enqueue(ctx, p)
			}
			for range standing {
				enqueue()
			}
			if got := testing.AllocsPerRun(500, func() {
				ctx.Now += 10_000_000
				enqueue()
				q.Peek(ctx)
				if p := q.Dequeue(ctx); p != nil {
					p.Free()
				}
			}); got != 0 {
				t.Errorf("%v allocations for one packet in and one out; want 0", got)
			}
		})
	}
}
