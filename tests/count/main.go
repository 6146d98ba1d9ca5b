// Count reads what go test -json writes, any number of runs one after the other,
// and prints what matters: a line for each package as it finishes, the
// output of what failed, each skip with its reason, and last one line with the
// totals. It exits with 1 when anything failed.
//
// A test with subtests is counted by its subtests. A test that several runs
// include (with and without the race detector) is counted once, by its worst
// outcome.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	failed, err := count(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		os.Exit(2)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build output
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// test names one test; an empty name is its package as a whole.
type test struct{ pkg, name string }

// outcome of a test; a greater one is worse.
type outcome int

const (
	running outcome = iota
	passed
	skipped
	failed
)

type counter struct {
	out     io.Writer
	results map[test]outcome
	output  map[test][]string // of what has not finished
	builds  map[string][]string
	reasons map[string][]string // why skipped, and what was
}

func count(in io.Reader, out io.Writer) (failures int, err error) {
	c := &counter{
		out: out, results: map[test]outcome{}, output: map[test][]string{},
		builds: map[string][]string{}, reasons: map[string][]string{},
	}
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				fmt.Fprint(out, line) // not go test's: pass it on
			} else {
				c.add(e)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	return c.finish(), nil
}

func (c *counter) add(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		c.builds[e.ImportPath] = append(c.builds[e.ImportPath], e.Output)
	case "output":
		c.output[t] = append(c.output[t], e.Output)
	case "run", "start":
		c.results[t] = max(c.results[t], running)
	case "pass":
		c.done(t, passed, e)
	case "skip":
		c.done(t, skipped, e)
	case "fail":
		c.done(t, failed, e)
	}
}

func (c *counter) done(t test, o outcome, e event) {
	c.results[t] = max(c.results[t], o)
	switch {
	case o == failed:
		c.fail(t, e.FailedBuild)
	case o == skipped && t.name != "":
		why := reason(c.output[t])
		if what := t.pkg + " " + t.name; !slices.Contains(c.reasons[why], what) {
			c.reasons[why] = append(c.reasons[why], what)
		}
	case o == passed && t.name == "":
		fmt.Fprintf(c.out, "ok    %s %.1fs\n", t.pkg, e.Elapsed)
	}
	delete(c.output, t)
}

// fail prints what a failed test wrote. A package that fails prints what is
// left: output that belongs to no test, and tests that never finished.
func (c *counter) fail(t test, build string) {
	if t.name != "" {
		fmt.Fprintf(c.out, "FAIL  %s %s\n", t.pkg, t.name)
		c.print(c.output[t])
		return
	}
	fmt.Fprintf(c.out, "FAIL  %s\n", t.pkg)
	c.print(c.builds[build])
	for o := range c.output {
		if o.pkg == t.pkg {
			c.print(c.output[o])
			if o.name != "" && c.results[o] == running {
				c.results[o] = failed
			}
			delete(c.output, o)
		}
	}
}

func (c *counter) print(lines []string) {
	for _, l := range lines {
		if !frame.MatchString(l) {
			fmt.Fprint(c.out, "      ", l)
		}
	}
}

var (
	frame = regexp.MustCompile(`^\s*(=== |--- |FAIL\b|exit status )`) // what go test says around a test's own output
	place = regexp.MustCompile(`^\w+\.go:\d+: `)
)

// reason takes out of a skipped test's output what it said.
func reason(output []string) string {
	for _, l := range slices.Backward(output) {
		if l = strings.TrimSpace(l); l != "" && !frame.MatchString(l) {
			return place.ReplaceAllString(l, "")
		}
	}
	return "no reason given"
}

// finish prints the skips and the totals.
func (c *counter) finish() (failures int) {
	parents, broken := map[test]bool{}, map[test]bool{} // have subtests; a subtest or test below failed
	for t, o := range c.results {
		if o == running && t.name != "" { // the run was cut off
			c.results[t] = failed
			fmt.Fprintf(c.out, "FAIL  %s %s: did not finish\n", t.pkg, t.name)
		}
		for name := t.name; name != ""; {
			i := strings.LastIndexByte(name, '/')
			name = name[:max(i, 0)]
			parents[test{t.pkg, name}] = true
			if c.results[t] == failed {
				broken[test{t.pkg, name}] = true
			}
		}
	}
	n := map[outcome]int{}
	for t, o := range c.results {
		switch {
		case o == failed && !broken[t]: // whatever it contains, this itself failed
			n[failed]++
		case t.name != "" && !parents[t]:
			n[o]++
		}
	}
	for _, why := range slices.Sorted(maps.Keys(c.reasons)) {
		fmt.Fprintf(c.out, "skip  %s\n", why)
		for _, what := range c.reasons[why] {
			fmt.Fprintf(c.out, "      %s\n", what)
		}
	}
	if len(n) == 0 {
		fmt.Fprintln(c.out, "FAIL  no test ran")
		n[failed]++
	}
	fmt.Fprintf(c.out, "%d passed, %d failed, %d skipped\n", n[passed], n[failed], n[skipped])
	return n[failed]
}
