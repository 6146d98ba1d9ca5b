package tc_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/qdisc"
	"sluice/qdisc/kinds"
	"sluice/shaper/tc"
	"sluice/shaper/tree"
)

var lookup = kinds.ByName

func env(handle uint32) qdisc.Env { return kinds.Env(1000, 1500, handle) }

// machine is ports without a transmit side, and tc's command line in front.
type machine struct {
	ctx   *qdisc.Context
	ports []*tree.Tree
}

// newMachine makes ports as the kernel makes dummy devices: with noqueue.
func newMachine(t testing.TB, names ...string) *machine {
	t.Helper()
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 16})
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{ctx: qdisc.NewContext(pool, 1)}
	handle := uint32(0x8000)
	for _, name := range names {
		var root qdisc.Qdisc
		port, err := tree.New(tree.Config{
			Name:   name,
			Env:    env,
			Lookup: lookup,
			Install: func(ctx *qdisc.Context, q qdisc.Qdisc) qdisc.Qdisc {
				old := root
				if old != nil {
					old.Reset(ctx)
				}
				root = q
				return old
			},
			Default: func() (qdisc.Qdisc, *qdisc.Kind) {
				kind := lookup("noqueue")
				q, err := kind.New(env(0), nil)
				if err != nil {
					t.Fatal(err)
				}
				return q, kind
			},
			NextHandle: func() uint32 { handle++; return handle },
		})
		if err != nil {
			t.Fatal(err)
		}
		m.ports = append(m.ports, port)
	}
	return m
}

// tc runs a command line and returns all that appears on the terminal, the exit
// code in the last line when it is not 0.
func (m *machine) tc(args ...string) string {
	var out bytes.Buffer
	c, err := tc.Parse(args, lookup)
	if err == nil {
		err = tc.Run(m.ctx, &out, c, m.ports, lookup)
	}
	if err != nil {
		text, code := tc.KernelError(err)
		out.WriteString(text + "\n")
		if code != 0 {
			fmt.Fprintf(&out, "[exit %d]\n", code)
		}
	}
	return out.String()
}

// command is one line of a transcript and what it printed.
type command struct {
	line int
	args []string
	want string
}

// section is the commands of a transcript that share a machine.
type section struct {
	name     string
	commands []command
}

// readTranscript reads "$ tc ..." lines and what follows them. Sections begin with
// "### name".
func readTranscript(t testing.TB, path string) []section {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []section
	for i, line := range strings.Split(string(text), "\n") {
		name, isSection := strings.CutPrefix(line, "### ")
		args, isCommand := strings.CutPrefix(line, "$ tc ")
		switch {
		case isSection:
			all = append(all, section{name: name})
		case isCommand:
			if len(all) == 0 {
				all = append(all, section{name: filepath.Base(path)})
			}
			s := &all[len(all)-1]
			s.commands = append(s.commands, command{line: i + 1, args: strings.Fields(args)})
		case len(all) > 0 && len(all[len(all)-1].commands) > 0:
			s := &all[len(all)-1]
			s.commands[len(s.commands)-1].want += line + "\n"
		}
	}
	// What follows the last output of a section is the blank line before the next.
	for _, s := range all {
		last := &s.commands[len(s.commands)-1]
		if strings.HasSuffix(last.want, "\n\n") || last.want == "\n" {
			last.want = strings.TrimSuffix(last.want, "\n")
		}
	}
	return all
}

// missing returns a kind that a command needs and that is not built yet.
func missing(args []string) string {
	for _, kind := range []string{"drr", "ets"} {
		if slices.Contains(args, kind) && lookup(kind) == nil {
			return kind
		}
	}
	return ""
}

// Every command of every transcript prints what iproute2 printed, to the byte,
// and ends with its exit code.
func TestTranscripts(t *testing.T) {
	for _, file := range []string{"kinds.txt", "aqm.txt", "cake.txt", "choke.txt", "hfsc.txt", "htb.txt", "netem.txt", "classes.txt", "queues.txt", "semantics.txt"} {
		for _, s := range readTranscript(t, filepath.Join("testdata", file)) {
			t.Run(s.name, func(t *testing.T) {
				m := newMachine(t, "dummy1")
				for _, c := range s.commands {
					if kind := missing(c.args); kind != "" {
						t.Skipf("kind %s does not exist yet", kind)
					}
					if got := m.tc(c.args...); got != c.want {
						t.Errorf("%s:%d: tc %s\ngot:\n%swant:\n%s", file, c.line, strings.Join(c.args, " "), got, c.want)
					}
				}
			})
		}
	}
}

// Refusals have tc's words and tc's exit codes, each on a machine of its own.
func TestErrorCatalogue(t *testing.T) {
	for _, s := range readTranscript(t, "testdata/errors.txt") {
		for _, c := range s.commands {
			t.Run(strings.Join(c.args, " "), func(t *testing.T) {
				if kind := missing(c.args); kind != "" {
					t.Skipf("kind %s does not exist yet", kind)
				}
				if got := newMachine(t, "dummy1", "dummy2").tc(c.args...); got != c.want {
					t.Errorf("errors.txt:%d\ngot:\n%swant:\n%s", c.line, got, c.want)
				}
			})
		}
	}
}
