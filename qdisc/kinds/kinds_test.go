package kinds_test

import (
	"slices"
	"strings"
	"testing"

	"sluice/qdisc"
	"sluice/qdisc/kinds"
	"sluice/qdisc/qdisctest"
)

// enough are the parameters without which a kind cannot be made.
var enough = map[string]qdisc.Values{
	"ets": qdisc.Values{}.Set("bands", 3),
	"tbf": qdisc.Values{}.Set("rate", 125000).Set("burst", 3000).Set("limit", 10000),
}

func TestTheTableIsInOrderAndFindsByName(t *testing.T) {
	names := func(k *qdisc.Kind) string { return k.Name }
	if !slices.IsSortedFunc(kinds.All(), func(a, b *qdisc.Kind) int { return strings.Compare(names(a), names(b)) }) {
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
			v := qdisc.Values{}
			for name, x := range enough[k.Name] {
				v[name] = x
			}
			if k.Check != nil {
				if err := k.Check(v); err != nil {
					t.Fatalf("Check: %v", err)
				}
			}
			q, err := k.New(kinds.Env(1000, 1500, 1), v)
			if err != nil {
				t.Fatalf("New: %v", err)
			}
			_, classful := q.(qdisc.Classful)
			_, editor := q.(qdisc.ClassEditor)
			_, changer := q.(qdisc.Changer)
			for _, c := range []struct {
				flag qdisc.KindFlags
				name string
				is   bool
			}{
				{qdisc.IsClassful, "IsClassful", classful},
				{qdisc.HasClasses, "HasClasses", editor},
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

// A discipline that is grafted as a child must pass the suite there, whatever
// its parent; here every kind is a child of every other that has children.
func TestEveryKindBelowEveryOther(t *testing.T) {
	build := func(t *testing.T, k *qdisc.Kind, handle uint32) qdisc.Qdisc {
		v := qdisc.Values{}
		for name, x := range enough[k.Name] {
			v[name] = x
		}
		if k.Check != nil {
			if err := k.Check(v); err != nil {
				t.Fatal(err)
			}
		}
		q, err := k.New(kinds.Env(20, 1500, handle), v)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	for _, parent := range kinds.All() {
		if parent.Flags&qdisc.IsClassful == 0 || parent.Flags&qdisc.HasClasses != 0 {
			continue
		}
		for _, child := range kinds.All() {
			if child.Flags&qdisc.NoQueue != 0 {
				continue
			}
			t.Run(parent.Name+"/"+child.Name, func(t *testing.T) {
				qdisctest.Run(t, qdisctest.Config{
					Name: parent.Name + " over " + child.Name,
					New: func(env qdisc.Env) qdisc.Qdisc {
						q := build(t, parent, env.Handle).(qdisc.Classful)
						var classes []qdisc.ClassID
						q.Walk(func(c qdisc.Class) bool { classes = append(classes, c.ID); return true })
						pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 1})
						if err != nil {
							t.Fatal(err)
						}
						ctx := qdisc.NewContext(pool, 1)
						for i, class := range classes {
							if _, err := q.Graft(ctx, class, build(t, child, env.Handle+uint32(i)+1)); err != nil {
								t.Fatal(err)
							}
						}
						return q.(qdisc.Qdisc)
					},
					Throttles: true,
				})
			})
		}
	}
}
