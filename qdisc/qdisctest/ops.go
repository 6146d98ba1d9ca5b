package qdisctest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"sluice/qdisc"
)

// action is what an op does.
type action uint8

const (
	nothing action = iota
	enqueue
	dequeue
	peek
	step // time passes
	wait // time passes until NextAt, or to just before it
	shed
	reset
	change
	graft
	addClass
	changeClass
	deleteClass
	filter // filters are attached or detached
	notify // a parent is told again of its empty children
)

var actionNames = [...]string{
	"nothing", "enqueue", "dequeue", "peek", "step", "wait", "shed", "reset", "change", "graft",
	"add class", "change class", "delete class", "filter", "notify",
}

// op is one step of a sequence: plain numbers, so that it can be run again on
// another instance, and that it shrinks well.
type op struct {
	do       action
	n        uint32 // length, number to shed, index into a list of the Config
	class    uint32 // class or priority
	hash     uint32
	fraction uint32
}

func (o op) String() string {
	return fmt.Sprintf("%s n=%d class=%#x hash=%d", actionNames[o.do], o.n, o.class, o.hash)
}

// common are the actions of the packet path, as often as they are drawn. The
// first is what shrinking tends to: nothing.
var common = []action{
	nothing,
	enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue,
	enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue,
	dequeue, dequeue, dequeue, dequeue, dequeue, dequeue, dequeue, dequeue, dequeue,
	dequeue, dequeue, dequeue, dequeue, dequeue, dequeue,
	peek, peek, peek, peek, step, step, step, wait, wait,
}

// operations draws everything that c has.
func operations(c *Config) *rapid.Generator[[]op] {
	actions := append([]action{}, common...)
	actions = append(actions, shed, shed, reset, graft, graft, filter, notify)
	if len(c.Changes) > 0 {
		actions = append(actions, change, change)
	}
	if len(c.ClassValues) > 0 {
		actions = append(actions, addClass, addClass, changeClass, deleteClass)
	}
	return draw(actions, 128)
}

// uniform draws a number below n ≤ 2048. rapid's own integers are mostly small,
// and its slices mostly short; a queue that is never full shows little.
func uniform(t *rapid.T, n int) int {
	v := 0
	for range 14 {
		v <<= 1
		if rapid.Bool().Draw(t, "bit") {
			v |= 1
		}
	}
	return v * n >> 14
}

// draw draws sequences of up to n actions.
func draw(actions []action, n int) *rapid.Generator[[]op] {
	return rapid.Custom(func(t *rapid.T) []op {
		ops := make([]op, 1+uniform(t, n))
		for i := range ops {
			ops[i] = drawOne(t, actions)
		}
		return ops
	})
}

func drawOne(t *rapid.T, actions []action) op {
	o := op{do: actions[uniform(t, len(actions))]}
	switch o.do {
	case enqueue:
		switch uniform(t, 4) {
		case 0:
			o.n = 60
		case 1:
			o.n = 1514
		default:
			o.n = 60 + uint32(uniform(t, 1455))
		}
		o.class = uint32(uniform(t, 32))
		if o.class >= 16 {
			o.class = handle<<16 | (o.class-16)%6
		}
		o.hash = uint32(uniform(t, 7))
	case step:
		o.n = rapid.OneOf(rapid.Uint32Range(0, 1000), rapid.Uint32Range(0, 20_000_000)).Draw(t, "ns")
	case wait:
		o.n, o.fraction = uint32(uniform(t, 3)), uint32(uniform(t, 101))
	case shed:
		o.n = 1 + uint32(uniform(t, 8))
	case change, graft, addClass, changeClass, deleteClass, filter:
		o.n, o.class = uint32(uniform(t, 100)), uint32(uniform(t, 10))
	}
	return o
}

// configuring keeps the ops whose effect outlives a Reset, and the passing of
// time, which is the caller's.
func configuring(ops []op) []op {
	var out []op
	for _, o := range ops {
		if o.do >= change {
			out = append(out, o)
		}
	}
	return out
}

// stub stands for a set of filters: what it answers is written on the packet.
type stub struct{}

func (stub) Classify(_ *qdisc.Context, p *qdisc.Packet) (qdisc.FilterVerdict, qdisc.ClassID) {
	switch p.Mark % 8 {
	case 0, 1, 2:
		return qdisc.NoMatch, 0
	case 3:
		return qdisc.FilterDrop, 0
	case 4:
		return qdisc.FilterStolen, 0
	}
	return qdisc.Match, qdisc.MakeID(handle, p.Mark/8%6)
}

// event is one thing that was seen from outside: a departure, a drop, or a
// verdict.
type event struct {
	what string
	id   uint64
	at   time.Duration
}

func (e event) String() string { return fmt.Sprintf("%s of packet %d at %v", e.what, e.id, e.at) }
