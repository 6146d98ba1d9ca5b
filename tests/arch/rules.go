package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// Rule is one house rule. Check returns a complaint for each place that breaks
// it.
type Rule struct {
	Name  string
	Check func([]*Package) []string
}

// Rules are all of them.
var Rules = []Rule{
	{"imports point to lower layers", CheckLayers},
	{"the engine imports the engine", CheckEngineImports},
	{"the engine is deterministic", CheckEngine},
	{"modules stay in their rooms", CheckModules},
	{"raw system calls stay in their rooms", CheckRaw},
	{"the packet path is plain", CheckPacketPath},
	{"every package says its purpose", CheckDoc},
	{"gofmt", CheckFormat},
	{"files can be read in one sitting", CheckLength},
	{"no cgo", CheckCgo},
}

// engine is what others can import as a library and replay on a virtual clock.
var engine = []string{"bql", "qdisc", "qdisc/...", "dequeue"}

// shipped calls yield for all files of the packages that match and do not match
// testSupport, tests left out.
func shipped(pkgs []*Package, patterns []string, yield func(*Package, *File)) {
	for _, p := range pkgs {
		if !match(p.Path, patterns...) || match(p.Path, testSupport...) {
			continue
		}
		for _, f := range p.Files {
			if !f.Test() {
				yield(p, f)
			}
		}
	}
}

// CheckEngineImports complains where the engine needs more than itself and the
// standard library, and where one discipline knows another.
func CheckEngineImports(pkgs []*Package) (bad []string) {
	shipped(pkgs, engine, func(p *Package, f *File) {
		var may []string
		switch {
		case match(p.Path, "bql", "qdisc"):
		case p.Path == "dequeue":
			may = []string{"bql", "qdisc"}
		case p.Path == "qdisc/kinds":
			may = []string{"qdisc", "qdisc/..."}
		default:
			may = []string{"qdisc", "qdisc/internal/..."}
		}
		f.Imports(func(imp string, at token.Pos) {
			if target, ours := own(imp); !standard(imp) && !(ours && match(target, may...)) {
				bad = append(bad, f.At(at, "%s imports %s; it may import the standard library%s",
					p.Path, imp, strings.Join(append([]string{""}, may...), ", ")))
			}
		})
	})
	return bad
}

var (
	impure = []string{"os/...", "net/...", "log/...", "sync/...", "syscall", "time/...", "unsafe"}
	clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}
	errno  = regexp.MustCompile(`^(Errno|E[A-Z0-9]+)$`)
)

// CheckEngine complains where the engine reads a clock, starts a goroutine,
// locks, logs or touches a device. Instants as plain numbers (time.Duration),
// addresses as plain numbers (net/netip) and the names of errors
// (syscall.EINVAL) are fine.
func CheckEngine(pkgs []*Package) (bad []string) {
	shipped(pkgs, engine, func(p *Package, f *File) {
		f.Imports(func(imp string, at token.Pos) {
			switch {
			case imp == "time", imp == "net/netip":
			case imp == "syscall" && match(p.Path, "qdisc", "qdisc/..."):
			case match(imp, impure...):
				bad = append(bad, f.At(at, "the engine imports %s", imp))
			}
		})
		f.Uses("syscall", func(name string, at token.Pos) {
			if !errno.MatchString(name) {
				bad = append(bad, f.At(at, "the engine uses syscall.%s", name))
			}
		})
		bad = append(bad, clockReads(f, "the engine")...)
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				bad = append(bad, f.At(g.Pos(), "the engine starts a goroutine"))
			}
			return true
		})
	})
	return bad
}

func clockReads(f *File, who string) (bad []string) {
	f.Uses("time", func(name string, at token.Pos) {
		if slices.Contains(clocks, name) {
			bad = append(bad, f.At(at, "%s uses time.%s", who, name))
		}
	})
	return bad
}

// modules are those that not everybody may import, and who may. Tests too.
var modules = []struct{ module, rooms []string }{
	{
		[]string{"github.com/florianl/go-tc/...", "github.com/vishvananda/...", "github.com/mdlayher/..."},
		[]string{"shaper/kernel", "tests/..."},
	},
	{[]string{"github.com/BurntSushi/toml/..."}, []string{"shaper/config"}},
}

// CheckModules complains about an import of a module outside its room.
func CheckModules(pkgs []*Package) (bad []string) {
	for _, p := range pkgs {
		for _, f := range p.Files {
			f.Imports(func(imp string, at token.Pos) {
				for _, m := range modules {
					if match(imp, m.module...) && !match(p.Path, m.rooms...) {
						bad = append(bad, f.At(at, "%s imports %s; only %s may",
							p.Path, imp, strings.Join(m.rooms, ", ")))
					}
				}
			})
		}
	}
	return bad
}

// rawRooms may make raw system calls; so may the rawFiles of other rooms.
var (
	rawRooms = []string{"shaper/nic/...", "shaper/kernel", "shaper/worker", "tests/lab/..."}
	rawFiles = []string{
		"shaper/control/peer_linux.go", // credentials of who calls
		"cmd/sluiced/fdstore_linux.go", // descriptors kept by systemd
	}
)

// CheckRaw complains about raw system calls and unsafe outside their rooms, and
// about unsafe in a file whose name does not say so.
func CheckRaw(pkgs []*Package) (bad []string) {
	for _, p := range pkgs {
		for _, f := range p.Files {
			if f.Test() {
				continue
			}
			f.Imports(func(imp string, at token.Pos) {
				if imp != "unsafe" && imp != "golang.org/x/sys/unix" {
					return
				}
				if !match(p.Path, rawRooms...) && !slices.Contains(rawFiles, f.Name) {
					bad = append(bad, f.At(at, "%s imports %s; only %s may, and %s", p.Path, imp,
						strings.Join(rawRooms, ", "), strings.Join(rawFiles, ", ")))
				}
				if imp == "unsafe" && !strings.Contains(f.Name, "_unsafe") {
					bad = append(bad, f.At(at, "unsafe in a file that is not named *_unsafe.go"))
				}
			})
		}
	}
	return bad
}

// packetPath finds the mark of a file, which only a build constraint may precede.
var packetPath = regexp.MustCompile(`^(?://go:build .*\n\n)?// Packet path(.*)`)

// CheckPacketPath complains about what is not plain in files that say in their
// first line that they are packet path. "// Packet path, except A and B." takes
// the functions A and B out, and what only they need to import.
func CheckPacketPath(pkgs []*Package) (bad []string) {
	for _, p := range pkgs {
		for _, f := range p.Files {
			mark := packetPath.FindSubmatch(f.Src)
			if mark == nil || f.Test() {
				continue
			}
			says := string(mark[1])
			if says == "." {
				f.Imports(func(imp string, at token.Pos) {
					if match(imp, "fmt", "log/...", "sync/...", "errors") {
						bad = append(bad, f.At(at, "the packet path imports %s", imp))
					}
				})
			}
			except := regexp.MustCompile(`\w+`).FindAllString(says, -1)
			for _, d := range f.AST.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && slices.Contains(except, fn.Name.Name) {
					continue
				}
				bad = append(bad, notPlain(f, d)...)
			}
			if says == "." {
				bad = append(bad, clockReads(f, "the packet path")...)
			}
		}
	}
	return bad
}

func notPlain(f *File, d ast.Decl) (bad []string) {
	ast.Inspect(d, func(n ast.Node) bool {
		what := ""
		switch n := n.(type) {
		case *ast.GoStmt:
			what = "starts a goroutine"
		case *ast.DeferStmt:
			what = "defers"
		case *ast.SelectStmt:
			what = "selects"
		case *ast.ChanType:
			what = "has a channel"
		case *ast.MapType:
			if _, ok := n.Value.(*ast.StarExpr); ok {
				what = "has a map of pointers"
			}
		}
		if what != "" {
			bad = append(bad, f.At(n.Pos(), "the packet path %s", what))
		}
		return true
	})
	return bad
}

// CheckDoc complains about a package without a doc comment, or with one that
// does not begin as Go's do.
func CheckDoc(pkgs []*Package) (bad []string) {
	for _, p := range pkgs {
		documented, onlyTests := false, true
		for _, f := range p.Files {
			if f.Test() {
				continue
			}
			onlyTests = false
			text, name := f.AST.Doc.Text(), f.AST.Name.Name
			if strings.HasPrefix(text, "Package "+name+" ") || name == "main" && text != "" {
				documented = true
			}
		}
		if !documented && !onlyTests {
			bad = append(bad, fmt.Sprintf("%s: no doc comment that begins with its name and says its purpose", p.Path))
		}
	}
	return bad
}

// CheckFormat complains about files that gofmt would change.
func CheckFormat(pkgs []*Package) (bad []string) {
	for _, p := range pkgs {
		for _, f := range p.Files {
			if out, err := format.Source(f.Src); err != nil || !bytes.Equal(out, f.Src) {
				bad = append(bad, f.Name+": not as gofmt writes it")
			}
		}
	}
	return bad
}

const maxLines = 800

// CheckLength complains about files of more than 800 lines.
func CheckLength(pkgs []*Package) (bad []string) {
	for _, p := range pkgs {
		for _, f := range p.Files {
			if n := bytes.Count(f.Src, []byte("\n")); n > maxLines {
				bad = append(bad, fmt.Sprintf("%s: %d lines; at most %d", f.Name, n, maxLines))
			}
		}
	}
	return bad
}

// CheckCgo complains about C.
func CheckCgo(pkgs []*Package) (bad []string) {
	for _, p := range pkgs {
		for _, f := range p.Files {
			f.Imports(func(imp string, at token.Pos) {
				if imp == "C" {
					bad = append(bad, f.At(at, "%s uses cgo", p.Path))
				}
			})
		}
	}
	return bad
}

// Fixed are the modules this project is built on.
var Fixed = []string{
	"github.com/florianl/go-tc",
	"github.com/vishvananda/netlink",
	"github.com/mdlayher/netlink",
	"github.com/BurntSushi/toml",
}

// CheckFixed complains about a fixed module that go.mod does not require, or
// that nothing shipped imports.
func CheckFixed(gomod string, pkgs []*Package) (bad []string) {
	for _, m := range Fixed {
		if !regexp.MustCompile(`(?m)^(require)?\s+` + regexp.QuoteMeta(m) + ` v`).MatchString(gomod) {
			bad = append(bad, "go.mod does not require "+m)
		}
		used := false
		shipped(pkgs, []string{"shaper/...", "cmd/..."}, func(_ *Package, f *File) {
			f.Imports(func(imp string, _ token.Pos) { used = used || match(imp, m+"/...") })
		})
		if !used {
			bad = append(bad, "nothing that is shipped imports "+m)
		}
	}
	return bad
}
