package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/tests/lab"
)

const short = 500 * time.Millisecond

var rows = []string{
	"goodput       normal", "bulk", "round trip    voice p50", "voice p99", "voice lost",
	"normal p50", "normal p99", "normal lost", "bulk p50", "bulk p99", "bulk lost",
	"drops         the one queue", "band 10:1 voice", "band 10:2 normal", "band 10:3 bulk",
	"doorbell      packets for each", "BQL           limit", "in flight, peak",
}

// checkOutput wants every row with three cells, and a closing sentence.
func checkOutput(t *testing.T, text string) {
	t.Helper()
	for _, row := range rows {
		line := regexp.MustCompile(`(?m)^.*` + regexp.QuoteMeta(row) + ` +(Mbit/s|ms|%|packets|bytes)?( +([0-9.]+|·)){3}$`)
		if !line.MatchString(text) {
			t.Errorf("the table has no complete row %q", row)
		}
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if last := lines[len(lines)-1]; !strings.HasSuffix(last, ".") || !strings.Contains(last, "voice") {
		t.Errorf("it closes with %q, not with what the table shows", last)
	}
	if t.Failed() {
		t.Logf("it printed\n%s", text)
	}
}

// build makes sluiced and sluice, and the demo when asked.
func build(t *testing.T, packages ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, p := range packages {
		if out, err := exec.Command("go", "build", "-o", dir+"/", p).CombinedOutput(); err != nil {
			t.Fatalf("go build %s: %v\n%s", p, err, out)
		}
	}
	return dir
}

// expectNothingLeft looks for what a demo could leave: files, processes run from
// bin, and network namespaces, which exist while somebody holds them.
func expectNothingLeft(t *testing.T, tmp, bin string, before []string) {
	t.Helper()
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v %v", left, err)
	}
	exes, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range exes {
		if to, err := os.Readlink(exe); err == nil && strings.HasPrefix(to, bin) {
			t.Errorf("%s still runs as %s", to, filepath.Dir(exe))
		}
	}
	for _, ns := range heldNamespaces() {
		if !slices.Contains(before, ns) {
			t.Errorf("this process still holds %s", ns)
		}
	}
}

// heldNamespaces are the network namespaces that this process has open.
func heldNamespaces() (held []string) {
	fds, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "net:[") {
			held = append(held, to)
		}
	}
	return held
}

func TestDemoInMemory(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	var out bytes.Buffer
	if err := run(t.Context(), options{memory: true, policy: "../../../etc/sluice.toml", time: short}, &out); err != nil {
		t.Fatal(err)
	}
	checkOutput(t, out.String())
	// By a virtual clock it always shows what it should.
	if !strings.Contains(out.String(), "keeps it within 2 ms of the idle path") {
		t.Errorf("the shaped policy does not protect voice:\n%s", &out)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v %v", left, err)
	}
}

func TestIntegrationDemo(t *testing.T) {
	lab.ForTest(t)
	bin := build(t, "sluice/cmd/sluiced", "sluice/cmd/sluice")
	before, tmp := heldNamespaces(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	o := options{bin: bin, policy: "../../../etc/sluice.toml", time: short}
	var out bytes.Buffer
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	checkOutput(t, out.String())
	expectNothingLeft(t, tmp, bin, before)

	o.bin = t.TempDir()
	if err := run(t.Context(), o, &out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without sluiced: %v", err)
	}
	expectNothingLeft(t, tmp, bin, before)
}

func TestIntegrationDemoInterrupted(t *testing.T) {
	lab.ForTest(t)
	bin := build(t, "sluice/cmd/sluiced", "sluice/cmd/sluice", "sluice/tests/lab/demo")
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		tmp := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "demo"), "-bin", bin, "-policy", "../../../etc/sluice.toml")
		cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Into the FIFO phase, when everything is running.
		for buf := make([]byte, 4096); !strings.Contains(out.String(), "  fifo "); {
			n, err := pipe.Read(buf)
			if out.Write(buf[:n]); err != nil {
				t.Fatalf("%v: ended early, after\n%s", signal, &out)
			}
		}
		cmd.Process.Signal(signal)
		err = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 130 {
			t.Errorf("%v: exit code %d (%v)", signal, code, err)
		}
		expectNothingLeft(t, tmp, bin, heldNamespaces())
	}
}
