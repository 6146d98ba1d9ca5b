package kinds_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"sluice/qdisc"
	"sluice/qdisc/kinds"
	"sluice/qdisc/qdisctest"
)

// enough are the parameters without which a kind cannot be made.
var enough = map[string]qdisc.Values{
	"choke": qdisc.Values{}.Set("limit", 100).Set("bandwidth", 125000),
	"ets":   qdisc.Values{}.Set("bands", 3),
	"red":   qdisc.Values{}.Set("limit", 20000).Set("avpkt", 1000),
	"tbf":   qdisc.Values{}.Set("rate", 125000).Set("burst", 3000).Set("limit", 10000),
}

// enoughClass are the parameters without which a kind's class cannot be made.
var enoughClass = map[string]qdisc.Values{
	"htb":  qdisc.Values{}.Set("rate", 125000),
	"hfsc": qdisc.Values{}.Set("sc.m2", 125_000_000),
}

func TestTheTableIsInOrderAndFindsByName(t *testing.T) {
	if !slices.IsSortedFunc(kinds.All(), func(a, b *qdisc.Kind) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("All is not in the order of the names")
	}
	for _, k := range kinds.All() {
		if kinds.ByName(k.Name) != k {
			t.Errorf("ByName(%q) is another kind", k.Name)
		}
	}
	if k := kinds.ByName("nosuch"); k != nil {
		t.Errorf("ByName of an unknown kind gave %s", k.Name)
	}
}

// What a kind's table says about it has to be true of what its constructor
// makes.
func TestEveryTableTellsTheTruth(t *testing.T) {
	for _, k := range kinds.All() {
		t.Run(k.Name, func(t *testing.T) {
			q := build(t, k.Name, 1)
			_, classful := q.(qdisc.Classful)
			editor, ok := q.(qdisc.ClassEditor) // of an ets, the parameter makes the classes
			makes := ok && !errors.Is(editor.AddClass(nil, 0, qdisc.MakeID(1, 99), nil), syscall.EOPNOTSUPP)
			_, changer := q.(qdisc.Changer)
			for _, c := range []struct {
				flag qdisc.KindFlags
				name string
				is   bool
			}{
				{qdisc.IsClassful, "IsClassful", classful},
				{qdisc.HasClasses, "HasClasses", makes},
				{qdisc.NoChange, "NoChange", !changer},
			} {
				if says := k.Flags&c.flag != 0; says != c.is {
					t.Errorf("flag %s is %v; the discipline itself: %v", c.name, says, c.is)
				}
			}
			if k.Doc == "" {
				t.Error("no Doc")
			}
			if d, ok := q.(qdisc.Dumper); ok {
				for name := range d.Dump() {
					if !slices.ContainsFunc(k.Params, func(p qdisc.Param) bool { return p.Name == name }) {
						t.Errorf("Dump gives %q, which Params does not name", name)
					}
				}
			} else if len(k.Params) > 0 {
				t.Error("has parameters and does not show them")
			}
		})
	}
}

// Any kind below any other: the suite on trees of two levels whose kinds are
// drawn too.
func TestAnyKindBelowAnyOther(t *testing.T) {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx := qdisc.NewContext(pool, 1)
	var parents, children []string
	for _, k := range kinds.All() {
		if k.Flags&qdisc.IsClassful != 0 {
			parents = append(parents, k.Name)
		}
		if k.Flags&qdisc.NoQueue == 0 {
			children = append(children, k.Name)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		parent := rapid.SampledFrom(parents).Draw(t, "parent")
		below := rapid.SliceOfN(rapid.SampledFrom(children), 1, 3).Draw(t, "children")
		qdisctest.Check(t, qdisctest.Config{
			Name:      parent,
			Throttles: true, // one of them may
			Blocks:    slices.Contains(below, "plug"),
			New: func(env qdisc.Env) qdisc.Qdisc {
				root := build(t, parent, env.Handle)
				for i, class := range classes(t, ctx, root, parent, env.Handle, len(below)) {
					child := build(t, below[i%len(below)], env.Handle+uint32(i)+1)
					if _, err := root.(qdisc.Classful).Graft(ctx, class, child); err != nil {
						t.Fatal(err)
					}
				}
				return root
			},
		})
	})
}

// classes returns the classes of q, of which it makes n if it comes without.
func classes(t fataler, ctx *qdisc.Context, q qdisc.Qdisc, kind string, handle uint32, n int) []qdisc.ClassID {
	ids := walk(q)
	if len(ids) > 0 {
		return ids
	}
	for i := range n {
		if err := q.(qdisc.ClassEditor).AddClass(ctx, 0, qdisc.MakeID(handle, uint32(i+1)), maps.Clone(enoughClass[kind])); err != nil {
			t.Fatal(err)
		}
	}
	return walk(q)
}

func walk(q qdisc.Qdisc) (ids []qdisc.ClassID) {
	q.(qdisc.Classful).Walk(func(c qdisc.Class) bool {
		if c.Leaf != nil || c.Hidden {
			ids = append(ids, c.ID)
		}
		return true
	})
	return ids
}

type fataler interface{ Fatal(...any) }

// build makes one of kind name, as tc would.
func build(t fataler, name string, handle uint32) qdisc.Qdisc {
	k := kinds.ByName(name)
	v := maps.Clone(enough[name])
	if v == nil {
		v = qdisc.Values{}
	}
	if k.Check != nil {
		if err := k.Check(v); err != nil {
			t.Fatal(err)
		}
	}
	env := kinds.Env(20, 1500, handle)
	env.TxQueues = 3
	q, err := k.New(env, v)
	if err != nil {
		t.Fatal(err)
	}
	return q
}
