// Package arch holds the house rules that a compiler does not know, as checks
// on the source: who may import whom, what the engine and the packet path must
// not touch, which room may make raw system calls.
//
// The rules say what ARCHITECTURE.md explains. Each is a function from packages
// to complaints, so that the tests can show that it complains. A package in a
// room that the table of layers (layers.go) does not know is a complaint too:
// add the room there, on the layer where it belongs.
package arch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Module is the path of the module that the rules are about.
const Module = "sluice"

// Package is the source of one package, for all systems, tests included.
type Package struct {
	Path  string // import path without the module: "qdisc/fifo"
	Files []*File
}

// File is one source file.
type File struct {
	Name string // path from the root of the module
	Src  []byte
	AST  *ast.File
	fset *token.FileSet
}

// Parse reads one source file.
func Parse(name string, src []byte) (*File, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &File{name, src, tree, fset}, nil
}

// Load reads all packages of the module at root.
func Load(root string) ([]*Package, error) {
	if err := visit(root); err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,CgoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var pkgs []*Package
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var l struct {
			ImportPath, Dir                                              string
			GoFiles, CgoFiles, IgnoredGoFiles, TestGoFiles, XTestGoFiles []string
		}
		if err := dec.Decode(&l); err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		p := &Package{Path: strings.TrimPrefix(strings.TrimPrefix(l.ImportPath, Module), "/")}
		for _, name := range slices.Concat(l.GoFiles, l.CgoFiles, l.IgnoredGoFiles, l.TestGoFiles, l.XTestGoFiles) {
			src, err := os.ReadFile(filepath.Join(l.Dir, name))
			if err != nil {
				return nil, err
			}
			f, err := Parse(path.Join(p.Path, name), src)
			if err != nil {
				return nil, err
			}
			p.Files = append(p.Files, f)
		}
		pkgs = append(pkgs, p)
	}
	return pkgs, nil
}

// visit opens every directory below root. That is all: go test keeps the result
// of a test as long as what it opened is the same, and does not see what go list
// opens; so a new file or package has to be noticed here.
func visit(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return filepath.SkipDir
		}
		return nil
	})
}

// Test reports whether the file is built for tests only.
func (f *File) Test() bool { return strings.HasSuffix(f.Name, "_test.go") }

// Imports calls yield for each import path, and where it stands.
func (f *File) Imports(yield func(path string, at token.Pos)) {
	for _, s := range f.AST.Imports {
		if p, err := strconv.Unquote(s.Path.Value); err == nil {
			yield(p, s.Pos())
		}
	}
}

// Has reports whether the file imports path.
func (f *File) Has(path string) bool {
	found := false
	f.Imports(func(p string, _ token.Pos) { found = found || p == path })
	return found
}

// Uses calls yield for each name that the file takes from the package at path,
// whatever it calls the package.
func (f *File) Uses(path string, yield func(name string, at token.Pos)) {
	local := path[strings.LastIndexByte(path, '/')+1:]
	if !f.Has(path) {
		return
	}
	for _, s := range f.AST.Imports {
		if s.Path.Value == strconv.Quote(path) && s.Name != nil {
			local = s.Name.Name
		}
	}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == local {
				yield(s.Sel.Name, s.Pos())
			}
		}
		return true
	})
}

// At prints a complaint about a place in the file.
func (f *File) At(pos token.Pos, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", f.Name, f.fset.Position(pos).Line, fmt.Sprintf(format, args...))
}

// standard reports whether an import path belongs to the standard library.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return first != Module && !strings.Contains(first, ".")
}

// own returns an import path within the module, and whether it is one.
func own(path string) (string, bool) {
	if path == Module {
		return "", true
	}
	return strings.CutPrefix(path, Module+"/")
}

// match reports whether path fits one of the patterns: "a/b" is that package,
// "a/b/..." that and all below, "a/*" each directly below.
func match(p string, patterns ...string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if base, ok := strings.CutSuffix(pattern, "/..."); ok {
			return p == base || strings.HasPrefix(p, base+"/")
		}
		ok, _ := path.Match(pattern, p)
		return ok
	})
}
