package qdisctest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"sluice/qdisc"
)

// Script runs the text scripts at path, a file or a directory of them, against
// disciplines made by kinds. Each file begins with a world of its own. A
// command's answer is compared with what the file says; -rewrite writes it.
//
//	new KIND [txqlen=1000] [mtu=1500] [handle=1] [PARAM=VALUE]...
//	    makes the root qdisc and prints its parameters
//	graft class=1:1 [kind=KIND [handle=H] [PARAM=VALUE]...] [at=H]
//	    grafts a child, or the default one, below the root or the qdisc with
//	    handle at
//	enqueue id=1 [n=1] [len=100] [prio=0|1:2] [mark=0] [hash=0] [class=1:2] [tos=0]
//	    n packets with ids counted up; also one packet a line below the command
//	    they are IPv4; with hash= of that flow, without it all of flow 0
//	dequeue [n=1], drain, peek
//	    says which packet, and whether it was marked with CE
//	at TIME, after TIME
//	    sets the clock, or moves it
//	change [at=H] [PARAM=VALUE]..., dump [at=H]
//	class add|change|del id=1:2 [parent=1:1] [PARAM=VALUE]...
//	classes
//	    the root's classes with parameters and extra statistics
//	filter [mark=M class=1:2|drop|stolen] [off]
//	    what the filters of the root say of packets with mark M
//	hold id=1, unhold id=1
//	    what the runner does when the driver gave a packet back
//	shed n=1, reset
//	xstats [at=H]
//	    extra statistics
//	stats
//	    counters of the whole tree
//
// Lists are written (1, 2, 3), times 5ms, rates 8mbit, all else as numbers.
func Script(t *testing.T, path string, kinds ...*qdisc.Kind) {
	t.Helper()
	datadriven.Walk(t, path, func(t *testing.T, path string) {
		s := newScript(t, kinds)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.d = t, d
			s.out.Reset()
			s.command()
			if s.out.Len() == 0 {
				return "ok\n"
			}
			return s.out.String()
		})
	})
}

// script is the state of one file.
type script struct {
	t     *testing.T
	d     *datadriven.TestData
	out   strings.Builder
	kinds map[string]*qdisc.Kind
	pool  *qdisc.Pool
	ctx   *qdisc.Context

	root  qdisc.Qdisc
	kind  *qdisc.Kind // root's
	named map[uint32]made
	ids   []string // of the packet in each slot
	ecn   []uint8  // it arrived with
	gone  []string // dropped by this command, "1 (overlimit)"
	held  map[string]*qdisc.Packet
	marks map[uint32]answer
}

// made is a qdisc that the script can name by its handle.
type made struct {
	q    qdisc.Qdisc
	kind *qdisc.Kind
	path []qdisc.Step
}

// answer is what a filter says.
type answer struct {
	v     qdisc.FilterVerdict
	class qdisc.ClassID
}

func newScript(t *testing.T, kinds []*qdisc.Kind) *script {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 4096, FrameSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	s := &script{
		pool: pool, ctx: qdisc.NewContext(pool, 1), ids: make([]string, pool.Size()), ecn: make([]uint8, pool.Size()),
		kinds: map[string]*qdisc.Kind{}, named: map[uint32]made{},
		held: map[string]*qdisc.Packet{}, marks: map[uint32]answer{},
	}
	for _, k := range kinds {
		s.kinds[k.Name] = k
	}
	s.ctx.OnDrop = func(p *qdisc.Packet, r qdisc.Reason) {
		s.gone = append(s.gone, fmt.Sprintf("%s (%v)", s.ids[p.Index()], r))
	}
	return s
}

// Classify answers by the packet's mark.
func (s *script) Classify(_ *qdisc.Context, p *qdisc.Packet) (qdisc.FilterVerdict, qdisc.ClassID) {
	a := s.marks[p.Mark]
	return a.v, a.class
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

// dropped returns what was dropped since it was last asked, as " drops 1 (overlimit)".
func (s *script) dropped() string {
	if len(s.gone) == 0 {
		return ""
	}
	text := " drops " + strings.Join(s.gone, ", ")
	s.gone = nil
	return text
}

func (s *script) command() {
	if s.root == nil && s.d.Cmd != "new" {
		s.fatalf("the first command has to be new")
	}
	switch s.d.Cmd {
	case "new":
		s.makeRoot()
	case "graft":
		s.graft()
	case "enqueue":
		s.enqueue()
	case "dequeue":
		for range s.number("n", 1) {
			if !s.dequeue() {
				return
			}
		}
	case "drain":
		for s.dequeue() {
		}
	case "peek":
		p := s.root.Peek(s.ctx)
		if p == nil {
			s.nothing()
			return
		}
		s.printf("%s%s", s.ids[p.Index()], s.dropped())
	case "at":
		s.ctx.Now = s.duration(s.d.CmdArgs[0].Key)
	case "after":
		s.ctx.Now += s.duration(s.d.CmdArgs[0].Key)
	case "change":
		s.change()
	case "dump":
		m := s.at()
		s.printf("%s", s.values(m.kind.Params, m.q.(qdisc.Dumper).Dump()))
	case "class":
		s.editClass()
	case "classes":
		s.classes()
	case "filter":
		s.filter()
	case "hold":
		s.hold()
	case "unhold":
		s.unhold()
	case "xstats":
		m := s.at()
		s.printf("%s", s.values(m.kind.XStats, m.q.(qdisc.XStatser).XStats()))
	case "shed":
		n := s.root.Shed(s.ctx, int(s.number("n", 1)))
		s.printf("%d%s", n, s.dropped())
	case "reset":
		s.root.Reset(s.ctx)
		s.printf("ok%s", s.dropped())
	case "stats":
		s.stats(s.root, "root", "")
	default:
		s.fatalf("unknown command")
	}
}

func (s *script) fatalf(format string, args ...any) {
	s.t.Helper()
	s.d.Fatalf(s.t, format, args...)
}

// env reads the environment of a constructor from the command.
func (s *script) env(handle uint64) qdisc.Env {
	env := Env(uint32(handle))
	env.TxQueueLen = int(s.number("txqlen", 1000))
	env.MTU = int(s.number("mtu", 1500))
	return env
}

// build makes a discipline as tc would: Check, then New.
func (s *script) build(name string, handle uint64, skip ...string) (qdisc.Qdisc, *qdisc.Kind, error) {
	kind := s.kinds[name]
	if kind == nil {
		s.fatalf("kind %q was not given to Script", name)
	}
	v := s.given(kind.Params, append(skip, "txqlen", "mtu", "handle", "kind", name)...)
	if kind.Check != nil {
		if err := kind.Check(v); err != nil {
			return nil, nil, err
		}
	}
	q, err := kind.New(s.env(handle), v)
	return q, kind, err
}

func (s *script) makeRoot() {
	handle := s.number("handle", 1)
	q, kind, err := s.build(s.d.CmdArgs[0].Key, handle)
	if err != nil {
		s.failed(err)
		return
	}
	if s.root != nil {
		s.root.Reset(s.ctx)
		s.gone = nil
	}
	s.root, s.kind = q, kind
	s.named = map[uint32]made{uint32(handle): {q, kind, []qdisc.Step{{Qdisc: q}}}}
	if d, ok := q.(qdisc.Dumper); ok {
		s.printf("%s", s.values(kind.Params, d.Dump()))
	}
}

// at returns the qdisc that the command names, else the root.
func (s *script) at() made {
	h := s.number("at", 0)
	if h == 0 {
		return made{s.root, s.kind, []qdisc.Step{{Qdisc: s.root}}}
	}
	m, ok := s.named[uint32(h)]
	if !ok {
		s.fatalf("no qdisc %x:", h)
	}
	return m
}

func (s *script) graft() {
	parent := s.at()
	class := s.class("class")
	var q qdisc.Qdisc
	var kind *qdisc.Kind
	handle := s.number("handle", 0)
	if s.d.HasArg("kind") {
		var err error
		if q, kind, err = s.build(s.word("kind"), handle, "class", "at"); err != nil {
			s.failed(err)
			return
		}
	}
	last := len(parent.path) - 1
	err := qdisc.Edit(parent.path, func() error {
		_, err := parent.q.(qdisc.Classful).Graft(s.ctx, class, q)
		return err
	})
	if err != nil {
		s.failed(err)
		return
	}
	path := append(append([]qdisc.Step{}, parent.path[:last]...), qdisc.Step{Qdisc: parent.q, Class: class}, qdisc.Step{Qdisc: q})
	if q != nil {
		s.named[uint32(handle)] = made{q, kind, path}
	}
	s.printf("ok%s", s.dropped())
}

func (s *script) enqueue() {
	if strings.TrimSpace(s.d.Input) == "" {
		s.arrive()
		return
	}
	whole := s.d.CmdArgs
	for _, line := range strings.Split(strings.TrimSpace(s.d.Input), "\n") {
		_, args, err := datadriven.ParseLine("enqueue " + line)
		if err != nil {
			s.fatalf("%v", err)
		}
		s.d.CmdArgs = append(args, whole...)
		s.arrive()
	}
}

// packet makes the packet that the command describes.
func (s *script) packet(id string) *qdisc.Packet {
	p := s.pool.Get()
	if p == nil {
		s.fatalf("no free packet")
	}
	p.SetLen(int(s.number("len", 100)))
	p.Priority = s.priority()
	p.Mark = uint32(s.number("mark", 0))
	ipv4(p, uint8(s.number("tos", 0)))
	p.Arrival = s.ctx.Now
	if s.d.HasArg("hash") {
		p.Hash = uint32(s.number("hash", 0))
		p.Flags |= qdisc.HashSet
	}
	if s.d.HasArg("class") {
		p.Class = s.class("class")
	}
	s.ids[p.Index()], s.ecn[p.Index()] = id, p.ECN()
	return p
}

func (s *script) arrive() {
	first, n := s.number("id", 1), s.number("n", 1)
	for id := first; id < first+n; id++ {
		name := strconv.FormatUint(id, 10)
		v := s.root.Enqueue(s.ctx, s.packet(name))
		s.printf("%s: %s%s", name, verdicts[v], s.dropped())
	}
}

var verdicts = [...]string{"success", "dropped", "cn", "stolen"}

func (s *script) dequeue() bool {
	p := s.root.Dequeue(s.ctx)
	if p == nil {
		s.nothing()
		return false
	}
	mark := ""
	if p.ECN() == 3 && s.ecn[p.Index()] != 3 {
		mark = " marked"
	}
	s.printf("%s%s%s", s.ids[p.Index()], mark, s.dropped())
	p.Free()
	return true
}

// nothing says why nothing came.
func (s *script) nothing() {
	if s.root.Len() == 0 {
		s.printf("empty%s", s.dropped())
		return
	}
	if at := s.root.NextAt(); at != qdisc.Never {
		s.printf("waits until %v%s", at, s.dropped())
		return
	}
	s.printf("waits%s", s.dropped())
}

func (s *script) change() {
	m := s.at()
	q, ok := m.q.(qdisc.Changer)
	if !ok {
		s.failed(errors.New("no change operation"))
		return
	}
	v := s.given(m.kind.Params, "at")
	if m.kind.Check != nil {
		if err := m.kind.Check(v); err != nil {
			s.failed(err)
			return
		}
	}
	s.done(qdisc.Edit(m.path, func() error { return q.Change(s.ctx, v) }))
}

func (s *script) editClass() {
	m := s.at()
	q, ok := m.q.(qdisc.ClassEditor)
	if !ok {
		s.fatalf("no ClassEditor")
	}
	id, what := s.class("id"), s.d.CmdArgs[0].Key
	v := s.given(m.kind.ClassParams, "at", "id", "parent", what)
	if m.kind.CheckClass != nil && what != "del" {
		if err := m.kind.CheckClass(v); err != nil {
			s.failed(err)
			return
		}
	}
	s.done(qdisc.Edit(m.path, func() error {
		switch what {
		case "add":
			var parent qdisc.ClassID
			if s.d.HasArg("parent") {
				parent = s.class("parent")
			}
			return q.AddClass(s.ctx, parent, id, v)
		case "change":
			return q.ChangeClass(s.ctx, id, v)
		case "del":
			return q.DeleteClass(s.ctx, id)
		}
		s.fatalf("class add, change or del")
		return nil
	}))
}

func (s *script) classes() {
	m := s.at()
	m.q.(qdisc.Walker).Walk(func(c qdisc.Class) bool {
		line := c.ID.String()
		for _, more := range []string{s.values(m.kind.ClassParams, c.Params), s.values(m.kind.ClassXStats, c.XStats)} {
			if more != "" {
				line += " " + more
			}
		}
		s.printf("%s", line)
		return true
	})
}

func (s *script) filter() {
	q, ok := s.root.(qdisc.Filtered)
	if !ok {
		s.fatalf("the root takes no filters")
	}
	if s.d.HasArg("off") {
		s.done(q.SetClassifier(0, nil))
		return
	}
	a := answer{v: qdisc.Match}
	switch {
	case s.d.HasArg("drop"):
		a.v = qdisc.FilterDrop
	case s.d.HasArg("stolen"):
		a.v = qdisc.FilterStolen
	default:
		a.class = s.class("class")
	}
	s.marks[uint32(s.number("mark", 0))] = a
	s.done(q.SetClassifier(0, s))
}

func (s *script) hold() {
	id := s.word("id")
	s.held[id] = s.packet(id)
	s.root.Self().Hold(s.held[id])
}

func (s *script) unhold() {
	id := s.word("id")
	s.root.Self().Unhold(s.held[id])
	s.held[id].Free()
}

// stats prints q's counters and those of all below it.
func (s *script) stats(q qdisc.Qdisc, name, indent string) {
	b := q.Self()
	line := fmt.Sprintf("%s%s: len %d backlog %d sent %d/%d dropped %d", indent, name,
		q.Len(), q.Backlog(), b.Packets, b.Bytes, b.Drops)
	if b.Overlimits > 0 {
		line += fmt.Sprintf(" overlimits %d", b.Overlimits)
	}
	if n, _ := b.Held(); n > 0 {
		line += fmt.Sprintf(" held %d", n)
	}
	s.printf("%s", line)
	if q, ok := q.(qdisc.Classful); ok {
		q.Walk(func(c qdisc.Class) bool {
			if c.Leaf != nil {
				s.stats(c.Leaf, c.ID.String(), indent+"  ")
			}
			return true
		})
	}
}

// done prints the outcome of an administrative change.
func (s *script) done(err error) {
	if err != nil {
		s.failed(err)
		return
	}
	s.printf("ok%s", s.dropped())
}

func (s *script) failed(err error) {
	if e := (*qdisc.Error)(nil); errors.As(err, &e) {
		s.printf("kernel: %v%s", err, s.dropped())
		return
	}
	s.printf("tc: %v%s", err, s.dropped())
}
