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
	enqueue action = iota
	dequeue
	peek
	step  // time passes
	waitN // time passes until NextAt, or to just before it
	shed
	reset
	change
	graft
	addClass
	changeClass
	deleteClass
	filter // filters are attached or detached
)

var actionNames = [...]string{
	"enqueue", "dequeue", "peek", "step", "wait", "shed", "reset", "change", "graft",
	"add class", "change class", "delete class", "filter",
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

// common are the actions of the packet path, as often as they are drawn.
var common = []action{
	enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue,
	dequeue, dequeue, dequeue, dequeue, dequeue, dequeue,
	peek, peek, step, step, waitN,
}

// operations draws everything.
func operations(c *Config) *rapid.Generator[op] {
	rare := []action{shed, reset, graft, filter}
	if len(c.Changes) > 0 {
		rare = append(rare, change)
	}
	if len(c.ClassValues) > 0 {
		rare = append(rare, addClass, changeClass, deleteClass)
	}
	return draw(append(rare, common...))
}

func draw(actions []action) *rapid.Generator[op] {
	return rapid.Custom(func(t *rapid.T) op {
		o := op{do: rapid.SampledFrom(actions).Draw(t, "do")}
		switch o.do {
		case enqueue:
			o.n = rapid.OneOf(rapid.Uint32Range(60, 1514), rapid.SampledFrom([]uint32{60, 1514})).Draw(t, "len")
			o.class = rapid.OneOf(rapid.Uint32Range(0, 15), rapid.Uint32Range(handle<<16, handle<<16+5)).Draw(t, "priority")
			o.hash = rapid.Uint32Range(0, 6).Draw(t, "hash")
		case step:
			o.n = rapid.OneOf(rapid.Uint32Range(0, 1000), rapid.Uint32Range(0, 20_000_000)).Draw(t, "ns")
		case waitN:
			o.n = rapid.Uint32Range(0, 2).Draw(t, "how")
			o.fraction = rapid.Uint32Range(0, 100).Draw(t, "percent")
		case shed:
			o.n = rapid.Uint32Range(1, 8).Draw(t, "n")
		case change, graft, addClass, changeClass, deleteClass, filter:
			o.n = rapid.Uint32Range(0, 99).Draw(t, "which")
			o.class = rapid.Uint32Range(0, 9).Draw(t, "class")
		}
		return o
	})
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
