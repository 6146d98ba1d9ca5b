package bql_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"sluice/bql"
)

// TestScripts plays the scripts of testdata. A script is a run on a fresh
// limit, which starts as its arguments say (limit=, min=, max=, hold=, stall=,
// at=), one step a line:
//
//	q BYTES ... @TICK     queue objects
//	c BYTES @TICK         complete
//	advance BYTES @TICK   let so many bytes pass through without moving the limit
//	set NAME=VALUE ... @TICK
//	reset @TICK
//	clear                 forget the longest stall
//
// A step that names no tick happens at the tick of the step before.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				if d.Cmd != "run" {
					d.Fatalf(t, "unknown command %q", d.Cmd)
				}
				p := newPlayer(t, d)
				for line := range strings.Lines(d.Input) {
					p.step(strings.Fields(line))
				}
				return p.out.String()
			})
		})
	}
}

type player struct {
	bql.Limit
	t   *testing.T
	now bql.Tick
	out strings.Builder
}

func newPlayer(t *testing.T, d *datadriven.TestData) *player {
	p := &player{t: t}
	var limit uint32
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "at":
			p.now = bql.Tick(p.number(a.Vals[0]))
		case "limit":
			limit = p.number(a.Vals[0])
		}
	}
	p.Init(p.now)
	// Reset starts from the least limit, and makes it available.
	p.must(p.SetMin(limit))
	p.Reset(p.now)
	p.must(p.SetMin(0))
	for _, a := range d.CmdArgs {
		if a.Key != "at" && a.Key != "limit" {
			p.set(a.Key, a.Vals[0])
		}
	}
	return p
}

func (p *player) step(words []string) {
	verb, args := words[0], words[1:]
	if n := len(args); n > 0 && args[n-1][0] == '@' {
		p.now = bql.Tick(p.number(args[n-1][1:]))
		args = args[:n-1]
	}
	switch verb {
	case "q":
		for _, a := range args {
			p.Queued(p.number(a), p.now)
			p.printf("q %-14s avail %d\n", a, p.Avail())
		}
	case "c":
		p.Completed(p.number(args[0]), p.now)
		p.show(fmt.Sprintf("c %s @%d", args[0], p.now))
	case "advance":
		p.advance(p.number(args[0]))
		p.show(fmt.Sprintf("advance @%d", p.now))
	case "set":
		for _, a := range args {
			key, value, _ := strings.Cut(a, "=")
			p.set(key, value)
		}
		p.show("set")
	case "reset":
		p.Reset(p.now)
		p.show(fmt.Sprintf("reset @%d", p.now))
	case "clear":
		p.ClearStallMax()
		p.show("clear")
	default:
		p.t.Fatalf("unknown step %q", verb)
	}
}

func (p *player) set(key, value string) {
	var err error
	switch key {
	case "limit":
		err = p.SetLimit(p.number(value))
	case "min":
		err = p.SetMin(p.number(value))
	case "max":
		err = p.SetMax(p.number(value))
	case "hold":
		p.SetHoldTime(bql.Tick(p.number(value)))
	case "stall":
		err = p.SetStallThreshold(bql.Tick(p.number(value)), p.now)
	default:
		p.t.Fatalf("unknown setting %q", key)
	}
	p.must(err)
}

func (p *player) advance(n uint32) {
	limit := p.Snapshot().Limit
	p.must(p.SetLimit(bql.MaxLimit))
	for n > limit {
		part := min(n-limit, bql.MaxObject)
		p.Queued(part, p.now)
		p.Completed(part, p.now)
		n -= part
	}
	p.must(p.SetLimit(limit))
	p.Queued(n, p.now)
	p.Completed(n, p.now)
}

func (p *player) show(what string) {
	s := p.Snapshot()
	over, slack, ok := p.Memory()
	least := "-"
	if ok {
		least = fmt.Sprint(slack)
	}
	p.printf("%-16s avail %-6d limit %-6d adj %-10d done %-10d over %-5d slack %s",
		what, p.Avail(), s.Limit, s.AdjLimit, s.NumCompleted, over, least)
	if s.StallThreshold != 0 {
		p.printf("  stalls %d max %d", s.StallCount, s.StallMax)
	}
	p.printf("\n")
}

func (p *player) printf(format string, args ...any) { fmt.Fprintf(&p.out, format, args...) }

func (p *player) number(s string) uint32 {
	n, err := strconv.ParseUint(s, 10, 32)
	p.must(err)
	return uint32(n)
}

func (p *player) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}
