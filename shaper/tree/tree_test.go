package tree_test

import (
	"encoding/json"
	"errors"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/qdisc"
	"sluice/qdisc/kinds"
	"sluice/shaper/tree"
)

var id = qdisc.MakeID

// port is a tree with a root holder in place of a runner.
type port struct {
	*tree.Tree
	ctx     *qdisc.Context
	root    qdisc.Qdisc
	changed int
}

func newPort(t rapid.TB) *port {
	t.Helper()
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 512})
	if err != nil {
		t.Fatal(err)
	}
	p := &port{ctx: qdisc.NewContext(pool, 1)}
	p.Tree, err = tree.New(tree.Config{
		Name:   "d0",
		Env:    func(h uint32) qdisc.Env { return kinds.Env(1000, 1500, h) },
		Lookup: kinds.ByName,
		Install: func(ctx *qdisc.Context, q qdisc.Qdisc) qdisc.Qdisc {
			old := p.root
			if old != nil {
				old.Reset(ctx)
			}
			p.root = q
			return old
		},
		Default: func() (qdisc.Qdisc, *qdisc.Kind) {
			k := kinds.ByName("pfifo_fast")
			q, err := k.New(kinds.Env(1000, 1500, 0), nil)
			if err != nil {
				t.Fatal(err)
			}
			return q, k
		},
		Changed: func() { p.changed++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *port) must(t testing.TB, r tree.Request) {
	t.Helper()
	do := p.Qdisc
	if r.ClassID != 0 {
		do = p.Class
	}
	if err := do(p.ctx, r); err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
}

// send enqueues packets for a class at the root.
func (p *port) send(t rapid.TB, class uint32, n int) {
	t.Helper()
	for range n {
		pkt := p.ctx.Pool.Get()
		if pkt == nil {
			t.Fatal("out of packets")
		}
		pkt.SetLen(100)
		pkt.Priority = class
		p.root.Enqueue(p.ctx, pkt)
	}
}

func values(kv ...any) qdisc.Values {
	v := qdisc.Values{}
	for i := 0; i < len(kv); i += 2 {
		v.Set(kv[i].(string), uint64(kv[i+1].(int)))
	}
	return v
}

// prio makes parameters of a prio whose map sends everything to one band, unless
// a packet names another.
func prio(bands int, band uint64) qdisc.Values {
	all := make([]uint64, 16)
	for i := range all {
		all[i] = band
	}
	v := values("bands", bands)
	v["priomap"] = qdisc.Value{List: all}
	return v
}

func add(parent, handle qdisc.ClassID, kind string, v qdisc.Values) tree.Request {
	return tree.Request{Op: tree.Add, Parent: parent, Handle: handle, Kind: kind, Values: v}
}

// check fails unless every qdisc holds what its children hold and no more, every
// handle is there once, and what is not queued is back in the pool.
func (p *port) check(t rapid.TB) {
	t.Helper()
	seen := map[qdisc.ClassID]bool{}
	for _, info := range p.Qdiscs() {
		if info.Handle == 0 {
			continue
		}
		if seen[info.Handle] {
			t.Fatalf("handle %v is there twice", info.Handle)
		}
		seen[info.Handle] = true
		q, kind, ok := p.Lookup(info.Handle)
		if !ok || kind.Name != info.Kind {
			t.Fatalf("%s %v is not found by its handle", info.Kind, info.Handle)
		}
		parent, ok := q.(qdisc.Classful)
		if !ok {
			continue
		}
		n, bytes := q.Self().Held()
		parent.Walk(func(c qdisc.Class) bool {
			if c.Leaf != nil {
				n += c.Leaf.Len()
				bytes += c.Leaf.Backlog()
			}
			return true
		})
		if n != q.Len() || bytes != q.Backlog() {
			t.Fatalf("%s %v holds %d packets and %d bytes, its children %d and %d", info.Kind, info.Handle, q.Len(), q.Backlog(), n, bytes)
		}
	}
	if out := p.ctx.Pool.Size() - p.ctx.Pool.Available(); out != p.root.Len() {
		t.Fatalf("%d packets are out of the pool, %d queued", out, p.root.Len())
	}
}

// What a leaf loses deep in the tree is lost all the way up: a graft, a deletion
// and a change purge with accounting in every ancestor.
func TestAncestorsAddUp(t *testing.T) {
	for name, c := range map[string]struct {
		edit tree.Request
		left int
	}{
		"replace":          {tree.Request{Op: tree.Replace, Parent: id(2, 1), Handle: id(4, 0), Kind: "pfifo", Values: values("limit", 9)}, 9},
		"delete":           {tree.Request{Op: tree.Delete, Parent: id(2, 1)}, 9},
		"delete a subtree": {tree.Request{Op: tree.Delete, Parent: id(1, 2)}, 5},
		"fewer bands":      {tree.Request{Op: tree.Change, Parent: id(1, 2), Handle: id(2, 0), Kind: "prio", Values: prio(2, 0)}, 15},
		"delete a class":   {tree.Request{Op: tree.Delete, ClassID: id(3, 7)}, 15},
		"nothing":          {tree.Request{Op: tree.Link, Parent: id(1, 2), Handle: id(2, 0)}, 19},
		"a new root":       {tree.Request{Op: tree.Replace, Parent: tree.Root, Handle: id(9, 0), Kind: "pfifo"}, 0},
		"no root":          {tree.Request{Op: tree.Delete, Parent: tree.Root}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPort(t)
			p.must(t, add(tree.Root, id(1, 0), "prio", prio(3, 1)))
			p.must(t, add(id(1, 2), id(2, 0), "prio", prio(3, 2)))
			p.must(t, add(id(2, 1), id(0x20, 0), "pfifo", values("limit", 50)))
			p.must(t, add(id(2, 3), id(3, 0), "drr", nil))
			p.must(t, tree.Request{Op: tree.Add, Parent: id(3, 0), ClassID: id(3, 7), Kind: "drr", Values: values("quantum", 1500)})

			root := p.root
			p.send(t, 1<<16|1, 5)
			p.send(t, 2<<16|1, 10)
			p.send(t, 3<<16|7, 4)
			if leaf, _, _ := p.Lookup(id(0x20, 0)); leaf.Len() != 10 || root.Len() != 19 {
				t.Fatalf("%d packets in the leaf, %d at the root", leaf.Len(), root.Len())
			}
			p.must(t, c.edit)
			p.check(t)
			if p.root.Len() != c.left {
				t.Errorf("%d packets are left, want %d", p.root.Len(), c.left)
			}
			if lost := uint64(19 - c.left); p.root == root && root.Self().Drops != lost {
				t.Errorf("%d packets are gone and %d counted as dropped at the root", lost, root.Self().Drops)
			}
		})
	}
}

// The default root has no handle, comes back when the root is deleted, and cannot
// be deleted itself; the default children of classes are hidden.
func TestDefaults(t *testing.T) {
	p := newPort(t)
	def := []tree.QdiscInfo{{Dev: "d0", Kind: "pfifo_fast", Parent: tree.Root, RefCnt: 2}}
	ignore := cmp.FilterPath(func(path cmp.Path) bool { return path.Last().String() == ".Options" }, cmp.Ignore())
	if diff := cmp.Diff(def, p.Qdiscs(), ignore); diff != "" {
		t.Error(diff)
	}
	p.must(t, add(tree.Root, 0, "prio", prio(2, 0)))
	want := []tree.QdiscInfo{
		{Dev: "d0", Kind: "prio", Handle: id(0x8001, 0), Parent: tree.Root, RefCnt: 2},
		{Dev: "d0", Kind: "pfifo", Parent: id(0x8001, 1), Hidden: true},
		{Dev: "d0", Kind: "pfifo", Parent: id(0x8001, 2), Hidden: true},
	}
	if diff := cmp.Diff(want, p.Qdiscs(), ignore); diff != "" {
		t.Error(diff)
	}
	p.must(t, tree.Request{Op: tree.Delete, Parent: tree.Root})
	if diff := cmp.Diff(def, p.Qdiscs(), ignore); diff != "" {
		t.Error(diff)
	}
}

// A refused request changes nothing, and leaves nothing behind.
func TestRefusals(t *testing.T) {
	deep := func(p *port) {
		p.must(t, add(tree.Root, id(0x10, 0), "prio", prio(2, 0)))
		for i := range uint32(7) {
			p.must(t, add(id(0x10+i, 1), id(0x11+i, 0), "prio", prio(2, 0)))
		}
	}
	drr := func(p *port) {
		p.must(t, add(tree.Root, id(1, 0), "drr", nil))
		p.must(t, tree.Request{Op: tree.Add, Parent: id(1, 0), ClassID: id(1, 1), Kind: "drr"})
	}
	for _, c := range []struct {
		name  string
		setup func(*port)
		r     tree.Request
		class bool
		errno syscall.Errno
		ext   string
	}{
		{"nested too deep", deep, add(id(0x17, 1), 0, "pfifo", nil), false, syscall.ELOOP, "Qdiscs nest deeper than 7"},
		{"noqueue under a class", drr, add(id(1, 1), 0, "noqueue", nil), false, syscall.EINVAL, "Cannot assign noqueue to a class"},
		{"no such class", drr, add(id(1, 2), 0, "pfifo", nil), false, syscall.ENOENT, "Specified class not found"},
		{"below ingress", drr, add(tree.Ingress, 0, "pfifo", nil), false, syscall.ENOENT, "Failed to find specified qdisc"},
		{"handle with a minor", drr, add(id(1, 1), id(2, 1), "pfifo", nil), false, syscall.EINVAL, "Invalid minor handle"},
		{"change of nothing", drr, tree.Request{Op: tree.Change, Parent: id(1, 1), Kind: "pfifo"}, false, syscall.ENOENT,
			"Qdisc not found. To create specify NLM_F_CREATE flag"},
		{"change of what has no change", drr, tree.Request{Op: tree.Change, Parent: tree.Root, Values: values("x", 1)}, false, syscall.EINVAL,
			"Change operation not supported by specified qdisc"},
		{"class on another qdisc", drr, tree.Request{Op: tree.Add, Parent: id(1, 0), ClassID: id(2, 1)}, true, syscall.EINVAL, ""},
		{"class without qdisc", drr, tree.Request{Op: tree.Add, ClassID: id(2, 1)}, true, syscall.ENOENT, ""},
		{"class of another kind", drr, tree.Request{Op: tree.Add, ClassID: id(1, 2), Kind: "prio"}, true, syscall.EINVAL, ""},
		{"class that exists", drr, tree.Request{Op: tree.Add, ClassID: id(1, 1), Kind: "drr"}, true, syscall.EEXIST, ""},
		{"class that does not", drr, tree.Request{Op: tree.Change, ClassID: id(1, 9), Kind: "drr"}, true, syscall.ENOENT, ""},
		{"class without number", drr, tree.Request{Op: tree.Add, Parent: id(1, 0), Kind: "drr"}, true, syscall.EINVAL, ""},
		{"class of a band", deep, tree.Request{Op: tree.Delete, ClassID: id(0x10, 1)}, true, syscall.EOPNOTSUPP, ""},
		{"class on a classless qdisc", func(p *port) {
			p.must(t, add(tree.Root, id(1, 0), "pfifo", nil))
		}, tree.Request{Op: tree.Add, ClassID: id(1, 1)}, true, syscall.EINVAL, ""},
		{"class on the default root", func(*port) {}, tree.Request{Op: tree.Add, ClassID: id(0, 1)}, true, syscall.ENOENT, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPort(t)
			c.setup(p)
			before := [2]any{p.Qdiscs(), p.Classes()}
			do := p.Qdisc
			if c.class {
				do = p.Class
			}
			var e *qdisc.Error
			if err := do(p.ctx, c.r); !errors.As(err, &e) || e.Errno != c.errno || e.Ext != c.ext {
				t.Errorf("%v, want %v with %q", err, c.errno, c.ext)
			}
			if diff := cmp.Diff(before, [2]any{p.Qdiscs(), p.Classes()}); diff != "" {
				t.Errorf("the request was refused and changed something:\n%s", diff)
			}
		})
	}
}

// Numbers for qdiscs without one come from the counter, past those in use.
func TestAutomaticHandles(t *testing.T) {
	p := newPort(t)
	p.must(t, add(tree.Root, id(1, 0), "prio", prio(3, 0)))
	p.must(t, add(id(1, 1), id(0x8001, 0), "pfifo", nil))
	p.must(t, add(id(1, 2), 0, "pfifo", nil))
	if _, _, ok := p.Lookup(id(0x8002, 0)); !ok {
		t.Errorf("no 8002: in %+v", p.Qdiscs())
	}
}

type anyone struct{}

func (anyone) Classify(*qdisc.Context, *qdisc.Packet) (qdisc.FilterVerdict, qdisc.ClassID) {
	return qdisc.Match, id(1, 2)
}

func TestAttach(t *testing.T) {
	p := newPort(t)
	if err := p.Attach(tree.Root, anyone{}); err == nil {
		t.Error("the default root takes a classifier")
	}
	p.must(t, add(tree.Root, id(1, 0), "prio", prio(3, 0)))
	for parent, want := range map[qdisc.ClassID]string{
		id(9, 0): "Parent Qdisc doesn't exists", id(1, 7): "Specified class doesn't exist",
	} {
		if err := p.Attach(parent, anyone{}); err == nil || err.Error() != want {
			t.Errorf("attach to %v: %v, want %s", parent, err, want)
		}
	}
	for _, parent := range []qdisc.ClassID{tree.Root, id(1, 0)} {
		if err := p.Attach(parent, anyone{}); err != nil {
			t.Fatal(err)
		}
		p.send(t, 0, 1)
		if err := p.Attach(parent, nil); err != nil {
			t.Fatal(err)
		}
		p.send(t, 0, 1)
	}
	classes := p.Classes()
	if classes[0].Qlen != 2 || classes[1].Qlen != 2 {
		t.Errorf("with a classifier 1:2 gets a packet, without 1:1 does, each twice: %+v", classes)
	}
}

func TestOpsTravelAsWords(t *testing.T) {
	for op := tree.Add; op <= tree.Delete; op++ {
		text, err := json.Marshal(tree.Request{Op: op})
		var back tree.Request
		if err != nil || json.Unmarshal(text, &back) != nil || back.Op != op {
			t.Errorf("%v travels as %s and arrives as %v", op, text, back.Op)
		}
	}
	if err := json.Unmarshal([]byte(`{"op":"drop"}`), new(tree.Request)); err == nil {
		t.Error("an unknown operation is accepted")
	}
}

// Whatever is asked in whatever order, with packets queued anywhere: every tree
// adds up after every step, and nothing but a kernel's refusal comes back.
func TestAnythingGoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPort(t)
		major := rapid.Uint32Range(0, 4)
		minor := rapid.Uint32Range(0, 4)
		kind := rapid.SampledFrom([]string{"", "pfifo", "bfifo", "prio", "drr", "tbf", "noqueue", "blackhole", "nosuch"})
		parameters := map[string][]qdisc.Values{
			"pfifo": {nil, values("limit", 3)},
			"prio":  {prio(2, 0), prio(4, 3), prio(17, 0)},
			"drr":   {nil, values("quantum", 300)},
			"tbf":   {values("rate", 125000, "burst", 2000, "limit", 4000), nil},
		}
		parent := func() qdisc.ClassID {
			switch rapid.IntRange(0, 5).Draw(t, "where") {
			case 0:
				return tree.Root
			case 1:
				return 0
			}
			return id(major.Draw(t, "parent major"), minor.Draw(t, "parent minor"))
		}
		request := func() tree.Request {
			r := tree.Request{
				Op:     tree.Op(rapid.IntRange(1, 5).Draw(t, "op")),
				Parent: parent(),
				Kind:   kind.Draw(t, "kind"),
			}
			if all := parameters[r.Kind]; all != nil {
				r.Values = rapid.SampledFrom(all).Draw(t, "values")
			}
			return r
		}
		orderly := func(err error) {
			var e *qdisc.Error
			if err != nil && !errors.As(err, &e) {
				t.Fatalf("%v is no refusal of a kernel", err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { p.check(t) },
			"qdisc": func(*rapid.T) {
				r := request()
				r.Handle = id(major.Draw(t, "handle"), 0)
				orderly(p.Qdisc(p.ctx, r))
			},
			"class": func(*rapid.T) {
				r := request()
				r.ClassID = id(major.Draw(t, "major"), minor.Draw(t, "minor"))
				if r.Kind != "drr" {
					r.Values = nil
				}
				orderly(p.Class(p.ctx, r))
			},
			"send": func(t *rapid.T) {
				for range rapid.IntRange(1, 8).Draw(t, "packets") {
					if p.ctx.Pool.Available() == 0 {
						return
					}
					p.send(t, major.Draw(t, "major")<<16|minor.Draw(t, "minor"), 1)
				}
			},
			"take": func(t *rapid.T) {
				if pkt := p.root.Dequeue(p.ctx); pkt != nil {
					pkt.Free()
				}
			},
			"time": func(t *rapid.T) { p.ctx.Now += 10_000_000 },
		})
	})
}
