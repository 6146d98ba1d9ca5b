//go:build linux

package appliance_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sluice/tests/lab"
)

// Sessions of tc, and of sluice in its place. Times are whole microseconds: older
// tc cut them to that, sluice and iproute2 7 do not.
var sessions = map[string]string{
	"tbf": `
qdisc add dev out0 root handle 1: tbf rate 8mbit burst 16kb latency 50ms
qdisc show dev out0
-d qdisc show dev out0
-s qdisc show dev out0
-j qdisc show dev out0
-s -j qdisc show dev out0
qdisc add dev out0 root handle 1: tbf rate 8mbit burst 16kb latency 50ms
qdisc change dev out0 root handle 1: tbf rate 80mbit burst 20000b limit 30kb
qdisc show dev out0
class show dev out0
qdisc add dev out0 parent 1:1 handle 10: pfifo limit 77
qdisc show dev out0
class show dev out0
qdisc del dev out0 parent 1:1
qdisc replace dev out0 root handle 2: tbf rate 1gbit burst 250000b latency 10ms peakrate 2gbit mtu 2000
qdisc show dev out0
qdisc add dev out0 root tbf latency 1ms limit 3kb rate 1mbit burst 2kb
qdisc add dev out0 root tbf rate zz burst 2kb limit 3kb`,
	"pfifo": `
qdisc add dev out0 root handle 1: pfifo limit 50
qdisc show dev out0
-s qdisc show dev out0
-j qdisc show dev out0
qdisc change dev out0 root pfifo limit 60
qdisc replace dev out0 root handle 3: bfifo limit 10k
qdisc show dev out0
qdisc replace dev out0 root handle 4: pfifo
qdisc show dev out0
class show dev out0
qdisc change dev out0 root pfifo limit abc
qdisc del dev out0 root handle 9:
qdisc add dev out0 parent 7:1 pfifo
qdisc add dev out0 root handle zz: pfifo
qdisc add dev nosuch root pfifo
qdisc add dev out0 root nosuchq`,
	"prio": `
qdisc add dev out0 root handle 1: prio bands 4
qdisc show dev out0
class show dev out0
qdisc add dev out0 parent 1:1 handle 10: pfifo limit 10
qdisc add dev out0 parent 1:9 handle 11: pfifo limit 10
qdisc show dev out0
-s class show dev out0
-j class show dev out0
class add dev out0 parent 1: classid 1:7 prio
qdisc change dev out0 root handle 1: prio bands 2 priomap 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0
qdisc show dev out0
class show dev out0`,
	"ets": `
qdisc add dev out0 root handle 1: ets strict 1 quanta 4542 1514
qdisc show dev out0
-j qdisc show dev out0
class show dev out0
-s class show dev out0
class change dev out0 classid 1:2 ets quantum 3000
class show dev out0
class change dev out0 classid 1:1 ets quantum 3000
class del dev out0 classid 1:1
qdisc add dev out0 parent 1:2 handle 20: pfifo
qdisc show dev out0`,
	"drr": `
qdisc add dev out0 root handle 1: drr
class add dev out0 parent 1: classid 1:1 drr quantum 1500
class add dev out0 parent 1: classid 1:2 drr
class add dev out0 parent 1: classid 1:2 drr
class show dev out0
-s class show dev out0
class replace dev out0 parent 1: classid 1:2 drr quantum 5000
class change dev out0 parent 1: classid 1:3 drr quantum 5000
class show dev out0
class del dev out0 classid 1:1
class show dev out0
qdisc show dev out0`,
}

// The command says what tc says to the same lines, word for word, with the same
// exit codes: the one of this machine, to its own kernel.
func TestIntegrationCommandIsTc(t *testing.T) {
	tc, err := exec.LookPath("tc")
	if err != nil {
		t.Skip(err)
	}
	for name, lines := range sessions {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, lab.Wire{}, lab.Wire{})
			v := s.start("")
			// The kernel's own out0, of a router without us.
			theirs, peer := s.host("theirs"), s.host("peer")
			s.check(s.lab.Wire(theirs, "out0", peer, "eth0", lab.Wire{NoQdisc: true}))
			for i, line := range strings.Split(strings.TrimSpace(lines), "\n") {
				args := strings.Fields(line)
				cmd := theirs.Command(t.Context(), tc, args...)
				out, errs, code := output(t, cmd.Cmd, cmd.Run)
				if i == 0 && code != 0 {
					t.Skipf("this kernel or tc has no %s: %s", name, errs)
				}
				o, e, c := v.sluice(args...)
				if o != out || e != errs || c != code {
					t.Errorf("%s\ntc:     %d %q %q\nsluice: %d %q %q", line, code, out, errs, c, o, e)
				}
			}
		})
	}
}

// check and apply, and what they refuse.
func TestIntegrationCommandAppliesFiles(t *testing.T) {
	s := newSite(t, lab.Wire{}, lab.Wire{})
	v := s.start(shape(10).policy())
	expect := func(code int, out, errs string, args ...string) {
		t.Helper()
		o, e, c := v.sluice(args...)
		if c != code || !strings.Contains(o, out) || !strings.Contains(e, errs) || out == "" && o != "" || errs == "" && e != "" {
			t.Errorf("sluice %s: exit code %d, want %d\nout %q, want %q\nerr %q, want %q", strings.Join(args, " "), c, code, o, out, e, errs)
		}
	}
	good := s.write("good.toml", shape(20).policy())
	wrong := s.write("wrong.toml", strings.Replace(shape(20).policy(), "Mbit/s", "mbps", 1))
	ports := filepath.Join(s.dir, "ports.toml")
	s.check(os.WriteFile(ports, []byte("version = 1\n[link.test]\ninside = \"in0\"\noutside = \"wan0\"\n"), 0o644))

	expect(0, "", "", "check", good)
	expect(3, "", wrong+":15:8: ", "check", wrong)
	expect(1, "", "no such file", "check", filepath.Join(s.dir, "none.toml"))
	expect(2, "", "Usage: sluice check FILE", "check")

	expect(0, "change qdisc tbf", "", "apply", good)
	expect(0, "rate 20Mbit", "", "qdisc", "show", "dev", "out0")
	expect(0, "no qdisc or class to change", "", "apply", good)
	expect(3, "", "mbps", "apply", wrong)
	expect(3, "", "restart sluiced", "apply", ports)
	expect(2, "", "Usage: sluice apply FILE", "apply")
	expect(0, "rate 20Mbit", "", "qdisc", "show", "dev", "out0")

	expect(0, "", "", "qdisc", "replace", "dev", "out0", "root", "pfifo", "limit", "7")
	expect(3, "", "--discard-edits", "apply", good)
	expect(0, "edited by hand", "", "status")
	expect(0, "limit 7p", "", "qdisc", "show", "dev", "out0")
	expect(0, "tbf", "", "apply", "--discard-edits", good)
	expect(0, "rate 20Mbit", "", "qdisc", "show", "dev", "out0")
	expect(2, "", "Usage: sluice", "status", "now")

	cross(t, s.inside, s.outside, sizes(60, 159, flow4.Frame))
	out, _, _ := v.sluice("status")
	t.Logf("sluice status\n%s", out)
	expect(0, "received 100 = sent 100 + dropped 0 + queued 0", "", "status")
	out, _, _ = v.sluice("-s", "-j", "qdisc", "show", "dev", "out0")
	var qdiscs []struct {
		Kind    string
		Packets uint64
		Bytes   uint64
	}
	if err := json.Unmarshal([]byte(out), &qdiscs); err != nil || len(qdiscs) != 1 ||
		qdiscs[0].Packets != 100 || qdiscs[0].Bytes != (60+159)*100/2 {
		t.Errorf("-s -j qdisc show: %v, %+v\n%s", err, qdiscs, out)
	}

	v.stop(syscall.SIGTERM)
	expect(1, "", "no sluiced is listening at "+s.socket(), "status")
	expect(1, "", "no sluiced is listening at "+s.socket(), "qdisc", "show")
}
