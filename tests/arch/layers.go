package arch

import (
	"go/token"
	"strings"
)

// Layers is the order of the house, lowest first. A package imports packages of
// lower layers and of its own room, and nothing else of the module. A room is
// one entry; what "*" stands for is a room each. A package that is named in
// full is not what a wildcard means.
//
// Tests may reach wherever the compiler lets them.
var Layers = [][]string{
	{"bql", "qdisc"},
	{"qdisc/internal/...", "dequeue"},
	{"qdisc/*", "dequeue/dequeuetest"},
	{"qdisc/kinds", "qdisc/qdisctest"},
	{"shaper/nic/...", "shaper/classify/..."},
	{"shaper/tree"},
	{"shaper/worker", "shaper/config"},
	{"shaper/policy", "shaper/kernel", "shaper/telemetry"},
	{"shaper"},
	{"shaper/control", "shaper/tc", "shaper/replay"},
	{"cmd/sluiced/...", "cmd/sluice/..."},
	{"tests/..."},
}

// testSupport are the packages that only tests may use.
var testSupport = []string{"qdisc/qdisctest", "dequeue/dequeuetest", "tests/..."}

// place returns the room and the layer of a package; ok is false when the
// table has no room for it.
func place(p string) (room string, layer int, ok bool) {
	for i, patterns := range Layers {
		for _, pattern := range patterns {
			switch {
			case pattern == p:
				return p, i, true
			case !match(p, pattern):
			case strings.HasSuffix(pattern, "/*"):
				room, layer, ok = p, i, true
			default:
				room, layer, ok = pattern, i, true
			}
		}
	}
	return room, layer, ok
}

// CheckLayers complains about imports that point sideways or up, about
// packages without a room, and about test support in what is shipped.
func CheckLayers(pkgs []*Package) (bad []string) {
	for _, p := range pkgs {
		room, layer, ok := place(p.Path)
		if !ok {
			bad = append(bad, p.Path+": a room that the table does not know; add it to Layers in tests/arch/layers.go")
			continue
		}
		for _, f := range p.Files {
			if f.Test() {
				continue
			}
			f.Imports(func(imp string, at token.Pos) {
				target, ours := own(imp)
				if !ours {
					return
				}
				targetRoom, targetLayer, ok := place(target)
				switch {
				case !ok || targetRoom == room:
				case targetLayer >= layer:
					bad = append(bad, f.At(at, "%s imports %s, which is not on a lower layer", p.Path, target))
				case match(target, testSupport...) && !match(p.Path, testSupport...):
					bad = append(bad, f.At(at, "%s imports %s, which is for tests", p.Path, target))
				}
			})
		}
	}
	return bad
}
