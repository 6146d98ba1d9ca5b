package tc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/tests/lab"
)

// The same command lines through the machine's tc and kernel, and through ours:
// after each, both say the same and show the same. What iproute2 prints
// differently from version to version is not among the lines.
func TestIntegrationSameAsTheMachinesTc(t *testing.T) {
	path, err := exec.LookPath("tc")
	if err != nil {
		t.Skip("there is no tc on this machine")
	}
	for _, c := range []struct {
		name  string
		needs []string // kinds
		lines []string
	}{
		{"pfifo", []string{"pfifo", "bfifo"}, []string{
			"qdisc del dev d1 root",
			"qdisc change dev d1 root pfifo",
			"qdisc add dev d1 pfifo",
			"qdisc add dev d1 parent 1:1 pfifo",
			"qdisc del dev d1 ingress",
			"qdisc add dev d1 root handle 1: pfifo limit 5",
			"qdisc add dev d1 root handle 1: pfifo limit 6",
			"qdisc add dev d1 root handle 2: pfifo",
			"qdisc add dev d1 root bfifo",
			"qdisc change dev d1 root pfifo limit 7",
			"qdisc change dev d1 root handle 5: pfifo limit 7",
			"qdisc change dev d1 root handle 1: bfifo",
			"qdisc change dev d1 root bfifo limit 10k",
			"qdisc replace dev d1 root handle 7: pfifo limit 0x10",
			"qdisc link dev d1 root handle 7:",
			"qdisc link dev d1 root handle 8:",
			"qdisc link dev d1 root bfifo",
			"qdisc change dev d1 handle 7: pfifo limit 3",
			"qdisc del dev d1 root handle 9:",
			"qdisc del dev d1 root bfifo",
			"qdisc del dev d1 handle 7:",
			"qdisc add dev d1 parent 7:1 pfifo",
			"qdisc del dev d1 parent 7:1",
			"qdisc replace dev d1 root handle 1:1 bfifo limit 1mbit",
			"qdisc del dev d1 root",
			"qdisc add dev d1 root pfifo limit abc",
			"qdisc add dev d1 root pfifo limit 1k foo",
			"qdisc add dev d1 root pfifo limit",
			"qdisc add dev d1 root nosuch",
			"qdisc add dev d1 root nosuch x",
			"qdisc add dev d1 root",
			"qdisc add dev nosuch root pfifo",
			"qdisc add root pfifo",
			"class add dev d1 classid 1:1 pfifo",
			"class del dev d1 classid 1:1",
		}},
		{"pfifo_fast", []string{"pfifo_fast"}, []string{
			"qdisc add dev d1 root handle 1: pfifo_fast",
			"qdisc change dev d1 root handle 1: pfifo_fast",
			"qdisc replace dev d1 root handle 1: pfifo",
			"qdisc replace dev d1 root handle 2: pfifo",
		}},
		{"tbf", []string{"tbf", "pfifo", "bfifo"}, []string{
			"qdisc add dev d1 root handle 1: tbf rate 8mbit burst 10k limit 100k",
			"qdisc change dev d1 root handle 1: tbf rate 2mbit burst 10k limit 30k",
			"qdisc change dev d1 root handle 1: tbf rate 1mbit burst 10k limit 1k",
			"qdisc replace dev d1 root handle 1: tbf rate 8mbit burst 10kb latency 50ms",
			"qdisc replace dev d1 root handle 1: tbf rate 1gbit burst 1000 latency 1ms",
			"qdisc replace dev d1 root handle 1: tbf rate 12345678bit burst 3333 latency 7ms mpu 64 overhead 10",
			"qdisc add dev d1 parent 1:1 handle 2: bfifo limit 3000",
			"qdisc add dev d1 parent 1:1 handle 2: bfifo limit 3000",
			"qdisc add dev d1 parent 1:1 handle 3: pfifo",
			"qdisc replace dev d1 parent 1:1 handle 1: pfifo",
			"qdisc replace dev d1 parent 1:1 noqueue",
			"qdisc replace dev d1 parent 1:1 handle 3: pfifo limit 9",
			"qdisc del dev d1 parent 1:1 handle 2:",
			"qdisc del dev d1 parent 1:1",
			"qdisc del dev d1 parent 1:1",
			"qdisc del dev d1 parent 2:1",
			"class del dev d1 classid 1:1",
			"class add dev d1 parent 1: classid 1:2 tbf",
			"qdisc change dev d1 root handle 1: tbf rate 1mbit",
			"qdisc change dev d1 root handle 1: tbf rate 0 burst 2k limit 5k",
			"qdisc change dev d1 root handle 1: tbf rate zz",
			"qdisc change dev d1 root handle 1: tbf rate 1mbit burst 2k latency 1ms limit 5k",
			"qdisc change dev d1 root handle 1: tbf rate 1mbit burst 2k latency 1ms peakrate 500kbit mtu 2000",
			"qdisc del dev d1 root",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := lab.ForTest(t)
			real := newRealTc(t, l, path)
			for _, kind := range c.needs {
				if !real.has(kind) {
					t.Skipf("this kernel does not have %s", kind)
				}
			}
			m := newMachine(t, "d1")
			for _, line := range c.lines {
				args := strings.Fields(line)
				if diff := cmp.Diff(real.tc(args...), m.tc(args...)); diff != "" {
					t.Errorf("tc %s (-theirs +ours):\n%s", line, diff)
				}
				for _, show := range []string{"-s qdisc", "-s -d qdisc", "-s class", "qdisc"} {
					args := append(strings.Fields(show), "show", "dev", "d1")
					if diff := cmp.Diff(normal(real.tc(args...)), normal(m.tc(args...))); diff != "" {
						t.Errorf("after tc %s, tc %s (-theirs +ours):\n%s", line, strings.Join(args, " "), diff)
					}
				}
				args = strings.Fields("-s -j qdisc show dev d1")
				if diff := cmp.Diff(objects(t, real.tc(args...)), objects(t, m.tc(args...))); diff != "" {
					t.Errorf("after tc %s, tc %s (-theirs +ours):\n%s", line, strings.Join(args, " "), diff)
				}
			}
		})
	}
}

// realTc is the machine's own tc in a namespace with one veth, d1.
type realTc struct {
	t    *testing.T
	host *lab.Host
	path string
}

func newRealTc(t *testing.T, l *lab.Lab, path string) *realTc {
	t.Helper()
	a, err := l.Host("a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Host("b")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Wire(a, "d1", b, "d2", lab.Wire{NoQdisc: true}); err != nil {
		t.Fatal(err)
	}
	return &realTc{t, a, path}
}

// tc runs a command line as machine.tc does.
func (r *realTc) tc(args ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := r.host.Command(ctx, r.path, args...)
	out, err := cmd.CombinedOutput()
	text := string(out)
	if code := cmd.ProcessState.ExitCode(); err != nil {
		text += fmt.Sprintf("[exit %d]\n", code)
	}
	return text
}

// has says whether the kernel knows a kind: an unknown one is refused before
// anything else is looked at.
func (r *realTc) has(kind string) bool {
	args := "qdisc add dev d1 root handle 99: " + kind
	if kind == "tbf" {
		args += " rate 1mbit burst 10k limit 10k"
	}
	out := r.tc(strings.Fields(args)...)
	r.tc(strings.Fields("qdisc del dev d1 root")...)
	return !strings.Contains(out, "kind is unknown")
}

var (
	refcnt = regexp.MustCompile(`refcnt \d+`)
	auto   = regexp.MustCompile(`\b[89a-f][0-9a-f]{3}:`) // the kernel's counter is never reset
)

func normal(text string) string {
	return auto.ReplaceAllString(refcnt.ReplaceAllString(text, "refcnt N"), "auto:")
}

func objects(t *testing.T, text string) []map[string]any {
	t.Helper()
	var all []map[string]any
	if err := json.Unmarshal([]byte(normal(text)), &all); err != nil {
		t.Errorf("%s: %v", text, err)
	}
	for _, o := range all {
		delete(o, "refcnt") // depends on the queues of the device
	}
	return all
}
