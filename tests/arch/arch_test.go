package arch_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/tests/arch"
)

const root = "../.."

func load(t *testing.T) []*arch.Package {
	t.Helper()
	pkgs, err := arch.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	return pkgs
}

func TestHouse(t *testing.T) {
	pkgs := load(t)
	for _, r := range arch.Rules {
		t.Run(r.Name, func(t *testing.T) {
			for _, complaint := range r.Check(pkgs) {
				t.Error(complaint)
			}
		})
	}
}

func TestFixedModulesAreUsed(t *testing.T) {
	pkgs := load(t)
	if !slices.ContainsFunc(pkgs, func(p *arch.Package) bool { return p.Path == "shaper/kernel" }) {
		t.Skip("shaper/kernel, which needs most of them, does not exist yet")
	}
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, complaint := range arch.CheckFixed(string(gomod), pkgs) {
		t.Error(complaint)
	}
}

// Each case is a file, and the complaint that its rule must have about it; or
// none, where the rule must not be too eager.
func TestRulesComplain(t *testing.T) {
	layers, imports, engine := arch.CheckLayers, arch.CheckEngineImports, arch.CheckEngine
	modules, raw, path := arch.CheckModules, arch.CheckRaw, arch.CheckPacketPath
	const packet = "// Packet path.\n\npackage x\n"
	for _, c := range []struct {
		check      func([]*arch.Package) []string
		file, src  string
		complaints []string
	}{
		{layers, "qdisc/x/x.go", `package x; import "sluice/qdisc"`, nil},
		{layers, "qdisc/x/x.go", `package x; import "sluice/qdisc/internal/rate"`, nil},
		{layers, "qdisc/x/x.go", `package x; import "sluice/qdisc/y"`, []string{"not on a lower layer"}},
		{layers, "qdisc/x/x.go", `package x; import "sluice/qdisc/kinds"`, []string{"not on a lower layer"}},
		{layers, "qdisc/x/x_test.go", `package x_test; import "sluice/qdisc/qdisctest"`, nil},
		{layers, "qdisc/kinds/x.go", `package kinds; import "sluice/qdisc/y"`, nil},
		{layers, "bql/x.go", `package bql; import "sluice/qdisc"`, []string{"not on a lower layer"}},
		{layers, "qdisc/x.go", `package qdisc; import "sluice/dequeue"`, []string{"not on a lower layer"}},
		{layers, "dequeue/x.go", `package dequeue; import "sluice/shaper/nic"`, []string{"not on a lower layer"}},
		{layers, "shaper/tree/x.go", `package tree; import "sluice/qdisc/kinds"`, nil},
		{layers, "shaper/tree/x.go", `package tree; import "sluice/shaper/policy"`, []string{"not on a lower layer"}},
		{layers, "shaper/nic/mem/x.go", `package mem; import "sluice/shaper/nic"`, nil},
		{layers, "shaper/nic/x.go", `package nic; import "sluice/shaper/classify"`, []string{"not on a lower layer"}},
		{layers, "shaper/worker/x.go", `package worker; import "sluice/shaper"`, []string{"not on a lower layer"}},
		{layers, "shaper/worker/x.go", `package worker; import "sluice/qdisc/qdisctest"`, []string{"is for tests"}},
		{layers, "cmd/sluice/x.go", `package main; import "sluice/cmd/sluice/top"`, nil},
		{layers, "cmd/sluice/x.go", `package main; import "sluice/tests/lab"`, []string{"not on a lower layer"}},
		{layers, "tests/lab/demo/x.go", `package main; import "sluice/tests/lab"; import "sluice/shaper"`, nil},
		{layers, "shaper/attic/x.go", `package attic`, []string{"add it to Layers"}},
		{layers, "pkg/x.go", `package pkg`, []string{"add it to Layers"}},

		{imports, "bql/x.go", `package bql; import "sluice/qdisc"`, []string{"bql imports sluice/qdisc"}},
		{imports, "qdisc/x.go", `package qdisc; import "golang.org/x/sys/cpu"`, []string{"imports golang.org/x/sys/cpu"}},
		{imports, "qdisc/x/x.go", `package x; import "sluice/qdisc/y"`, []string{"imports sluice/qdisc/y"}},
		{imports, "qdisc/x/x.go", `package x; import "sluice/bql"`, []string{"imports sluice/bql"}},
		{imports, "qdisc/x/x.go", `package x; import ("fmt"; "sluice/qdisc"; "sluice/qdisc/internal/rate")`, nil},
		{imports, "qdisc/kinds/x.go", `package kinds; import "sluice/qdisc/y"`, nil},
		{imports, "dequeue/x.go", `package dequeue; import ("sluice/bql"; "sluice/qdisc")`, nil},
		{imports, "dequeue/x.go", `package dequeue; import "sluice/qdisc/prio"`, []string{"imports sluice/qdisc/prio"}},
		{imports, "qdisc/qdisctest/x.go", `package qdisctest; import "pgregory.net/rapid"`, nil},

		{engine, "qdisc/x.go", `package qdisc; import "os"`, []string{"imports os"}},
		{engine, "qdisc/x.go", `package qdisc; import "os/exec"`, []string{"imports os/exec"}},
		{engine, "qdisc/x/x.go", `package x; import "net"`, []string{"imports net"}},
		{engine, "qdisc/x/x.go", `package x; import "net/netip"`, nil},
		{engine, "dequeue/x.go", `package dequeue; import "log/slog"`, []string{"imports log/slog"}},
		{engine, "bql/x.go", `package bql; import "sync/atomic"`, []string{"imports sync/atomic"}},
		{engine, "bql/x.go", `package bql; import "syscall"`, []string{"imports syscall"}},
		{engine, "qdisc/x/x.go", `package x; import "syscall"; var e syscall.Errno = syscall.EINVAL`, nil},
		{engine, "qdisc/x/x.go", `package x; import s "syscall"; var p = s.Getpid()`, []string{"syscall.Getpid"}},
		{engine, "qdisc/x/x.go", `package x; import "time"; var t = time.Now()`, []string{"time.Now"}},
		{engine, "qdisc/x/x.go", `package x; import t "time"; var now = t.Now`, []string{"time.Now"}},
		{engine, "qdisc/x/x.go", `package x; import "time"; func f() { time.Sleep(1); <-time.After(1) }`, []string{"time.Sleep", "time.After"}},
		{engine, "qdisc/x/x.go", `package x; import "time"; var d = 5 * time.Second`, nil},
		{engine, "dequeue/x.go", `package dequeue; func f() { go f() }`, []string{"goroutine"}},
		{engine, "dequeue/x_test.go", `package dequeue; func f() { go f() }`, nil},
		{engine, "shaper/worker/x.go", `package worker; import "time"; var t = time.Now()`, nil},

		{modules, "shaper/kernel/x.go", `package kernel; import "github.com/florianl/go-tc"`, nil},
		{modules, "shaper/policy/x.go", `package policy; import "github.com/florianl/go-tc/core"`, []string{"only shaper/kernel"}},
		{modules, "shaper/worker/x.go", `package worker; import "github.com/vishvananda/netns"`, []string{"only shaper/kernel"}},
		{modules, "shaper/nic/x_test.go", `package nic; import "github.com/mdlayher/netlink"`, []string{"only shaper/kernel"}},
		{modules, "tests/lab/x.go", `package lab; import "github.com/vishvananda/netlink"`, nil},
		{modules, "shaper/config/x.go", `package config; import "github.com/BurntSushi/toml"`, nil},
		{modules, "shaper/x.go", `package shaper; import "github.com/BurntSushi/toml"`, []string{"only shaper/config"}},

		{raw, "shaper/nic/tap/x_unsafe.go", `package tap; import "unsafe"`, nil},
		{raw, "shaper/nic/tap/x.go", `package tap; import "unsafe"`, []string{"*_unsafe.go"}},
		{raw, "shaper/worker/x.go", `package worker; import "golang.org/x/sys/unix"`, nil},
		{raw, "shaper/policy/x.go", `package policy; import "golang.org/x/sys/unix"`, []string{"imports golang.org/x/sys/unix"}},
		{raw, "qdisc/x_unsafe.go", `package qdisc; import "unsafe"`, []string{"imports unsafe"}},
		{raw, "shaper/control/peer_linux.go", `package control; import "golang.org/x/sys/unix"`, nil},
		{raw, "shaper/control/server.go", `package control; import "golang.org/x/sys/unix"`, []string{"imports golang.org"}},

		{path, "shaper/x.go", packet + `func f() { go f() }`, []string{"starts a goroutine"}},
		{path, "shaper/x.go", packet + `func f() { defer f() }`, []string{"defers"}},
		{path, "shaper/x.go", "//go:build linux\n\n" + packet + `func f() { defer f() }`, []string{"defers"}},
		{path, "shaper/x.go", packet + `func f() { select {} }`, []string{"selects"}},
		{path, "shaper/x.go", packet + `type t struct { c chan int }`, []string{"has a channel"}},
		{path, "shaper/x.go", packet + `var m map[int]*int`, []string{"map of pointers"}},
		{path, "shaper/x.go", packet + `var m map[int]int`, nil},
		{path, "shaper/x.go", packet + `import "fmt"`, []string{"imports fmt"}},
		{path, "shaper/x.go", packet + `import "sync"`, []string{"imports sync"}},
		{path, "shaper/x.go", packet + `import "errors"`, []string{"imports errors"}},
		{path, "shaper/x.go", packet + `import "log"`, []string{"imports log"}},
		{path, "shaper/x.go", packet + `import "time"; var t = time.Now()`, []string{"time.Now"}},
		{path, "shaper/x.go", "// Admin path.\n\npackage x; import \"fmt\"; func f() { go f() }", nil},
		{path, "shaper/x.go", "// Packet path, except New and Stop.\n\npackage x; import \"fmt\"\nfunc New() { defer New() }\nfunc (t) Stop() { go New() }\nfunc f() { defer New() }", []string{"x.go:6: the packet path defers"}},

		{arch.CheckDoc, "x/x.go", `package x`, []string{"x: no doc comment"}},
		{arch.CheckDoc, "x/x.go", "// Utilities.\npackage x", []string{"x: no doc comment"}},
		{arch.CheckDoc, "x/x.go", "// Package x does it.\npackage x", nil},
		{arch.CheckDoc, "x/x_test.go", `package x`, nil},
		{arch.CheckFormat, "x/x.go", "package  x\n", []string{"x/x.go: not as gofmt"}},
		{arch.CheckFormat, "x/x.go", "package x\n", nil},
		{arch.CheckLength, "x/x.go", "package x" + strings.Repeat("\n", 801), []string{"x/x.go: 801 lines"}},
		{arch.CheckLength, "x/x.go", "package x" + strings.Repeat("\n", 800), nil},
		{arch.CheckCgo, "x/x.go", `package x; import "C"`, []string{"uses cgo"}},
	} {
		f, err := arch.Parse(c.file, []byte(c.src))
		if err != nil {
			t.Fatal(err)
		}
		p := &arch.Package{Path: filepath.ToSlash(filepath.Dir(c.file)), Files: []*arch.File{f}}
		got := c.check([]*arch.Package{p})
		if len(got) != len(c.complaints) {
			t.Errorf("%s: %.200s\nhas complaints %q, want %q", c.file, c.src, got, c.complaints)
			continue
		}
		for i, want := range c.complaints {
			if !strings.Contains(got[i], want) {
				t.Errorf("%s: %.200s\nhas complaint %q, want one with %q", c.file, c.src, got[i], want)
			}
		}
	}
}

func TestFixedModulesComplain(t *testing.T) {
	const gomod = "module sluice\n\nrequire github.com/florianl/go-tc v0.4.8\n\nrequire (\n" +
		"\tgithub.com/vishvananda/netlink v1.3.1\n\tgithub.com/BurntSushi/toml v1.6.0 // indirect\n)\n"
	f, err := arch.Parse("shaper/kernel/x.go", []byte(`package kernel
		import ("github.com/florianl/go-tc/core"; "github.com/vishvananda/netlink"; "github.com/mdlayher/netlink")`))
	if err != nil {
		t.Fatal(err)
	}
	got := arch.CheckFixed(gomod, []*arch.Package{{Path: "shaper/kernel", Files: []*arch.File{f}}})
	want := []string{
		"go.mod does not require github.com/mdlayher/netlink",
		"nothing that is shipped imports github.com/BurntSushi/toml",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
