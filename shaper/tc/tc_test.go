package tc_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/qdisc"
	"sluice/shaper/tc"
	"sluice/shaper/tree"
)

func parse(t *testing.T, line string) *tc.Command {
	t.Helper()
	c, err := tc.Parse(strings.Fields(line), lookup)
	if err != nil {
		t.Fatalf("tc %s: %v", line, err)
	}
	return c
}

func TestCommandLines(t *testing.T) {
	id := qdisc.MakeID
	for line, want := range map[string]tc.Command{
		"q a dev d0 root handle 1:1 pfifo limit 0x10": {
			Object: "qdisc", Verb: "add", Dev: "d0",
			Request: tree.Request{Op: tree.Add, Parent: tree.Root, Handle: id(1, 0), Kind: "pfifo",
				Values: qdisc.Values{"limit": {N: 16}}},
		},
		"qdisc r dev d0 parent 1:2 bfifo limit 10k": {
			Object: "qdisc", Verb: "replace", Dev: "d0",
			Request: tree.Request{Op: tree.Replace, Parent: id(1, 2), Kind: "bfifo", Values: qdisc.Values{"limit": {N: 10240}}},
		},
		"qdisc l dev d0 parent 1:24 handle 26:": {
			Object: "qdisc", Verb: "link", Dev: "d0",
			Request: tree.Request{Op: tree.Link, Parent: id(1, 0x24), Handle: id(0x26, 0)},
		},
		"qdisc d dev d0 root prio": {
			Object: "qdisc", Verb: "del", Dev: "d0",
			Request: tree.Request{Op: tree.Delete, Parent: tree.Root, Kind: "prio"},
		},
		"-s -d -j -p -r -iec q ls dev d0 parent 1: handle 2: invisible": {
			Object: "qdisc", Verb: "show", Dev: "d0",
			Show:    tc.Show{Parent: id(1, 0), Handle: id(2, 0), Invisible: true},
			Options: tc.Options{Stats: true, Details: true, JSON: true, Pretty: true, Raw: true, IEC: true},
		},
		"c":                                 {Object: "class", Verb: "show"},
		"cl s dev d0 classid 1:1 qdisc 1:":  {Object: "class", Verb: "show", Dev: "d0", Show: tc.Show{ClassID: id(1, 1), Handle: id(1, 0)}},
		"class d dev d0 classid :2":         {Object: "class", Verb: "del", Dev: "d0", Request: tree.Request{Op: tree.Delete, ClassID: id(0, 2)}},
		"-n ns -force -b file":              {Options: tc.Options{Netns: "ns", Force: true, Batch: "file"}},
		"-br -o -N -nm -t -color q show":    {Object: "qdisc", Verb: "show", Options: tc.Options{Brief: true, Oneline: true, Numeric: true, Names: true, Timestamp: true, Color: true}},
		"-V whatever":                       {Options: tc.Options{Version: true}},
		"f del dev d0":                      {Object: "filter", Verb: "del", Dev: "d0", Request: tree.Request{Op: tree.Delete}},
		"filter show dev d0 ingress prio 3": {Object: "filter", Verb: "show", Dev: "d0", Request: tree.Request{Parent: tree.Ingress}, Filter: tc.Filter{Pref: 3}},
		"filter add dev d0 parent 1: protocol ip prio 1 handle 800::1 u32 match ip dport 80 0xffff flowid 1:1": {
			Object: "filter", Verb: "add", Dev: "d0",
			Request: tree.Request{Op: tree.Add, Parent: id(1, 0), Kind: "u32"},
			Filter: tc.Filter{Protocol: "ip", Pref: 1, Handle: "800::1",
				Words: strings.Fields("match ip dport 80 0xffff flowid 1:1")},
		},
	} {
		if diff := cmp.Diff(&want, parse(t, line)); diff != "" {
			t.Errorf("tc %s (-want +got):\n%s", line, diff)
		}
	}
}

// A burst may be followed by a cell size; what is no power of two, and what is no
// burst, is refused.
func TestCells(t *testing.T) {
	c := parse(t, "qdisc add dev d0 root tbf rate 1mbit burst 10k/8 latency 50ms peakrate 2mbit mtu 2000/16")
	if v := c.Request.Values; v.N("burst", 0) != 10240 || v.N("minburst", 0) != 2000 {
		t.Errorf("%+v", v)
	}
	for _, bad := range []string{"burst 10k/3", "burst 10k/", "burst /8", "burst 10k/8/8", "limit 10k/8", "rate 1mbit/8"} {
		line := "qdisc add dev d0 root tbf " + bad
		if _, err := tc.Parse(strings.Fields(line), lookup); err == nil || !strings.HasPrefix(err.Error(), "tbf: illegal value for") {
			t.Errorf("tc %s: %v", line, err)
		}
	}
}

func TestFilterErrors(t *testing.T) {
	for line, want := range map[string]tc.Error{
		"filter add dev d0 protocol xx u32":       {Msg: `Error: argument "xx" is wrong: invalid protocol`, Code: 255},
		"filter add dev d0 prio 70000 matchall":   {Msg: `Error: argument "70000" is wrong: invalid priority value`, Code: 255},
		"filter add dev d0 parent zz matchall":    {Msg: `Error: argument "zz" is wrong: invalid parent ID`, Code: 255},
		"filter add dev d0 protocol":              {Msg: `Command line is not complete. Try option "help"`, Code: 255},
		"monitor":                                 {Msg: `Object "monitor" is not supported here: qdisc, class and filter are.`, Code: 255},
		"qdisc add dev d0 root estimator 1 2 tbf": {Msg: `"estimator" is not supported here: leave it out`, Code: 1},
	} {
		_, err := tc.Parse(strings.Fields(line), lookup)
		if e, ok := err.(*tc.Error); !ok || *e != want {
			t.Errorf("tc %s: %#v, want %#v", line, err, want)
		}
	}
	text, code := tc.KernelError(tc.NotYet(parse(t, "filter add dev d0 parent 1: u32 match u32 0 0")))
	if want := `Error: filter kind "u32" is not supported yet.`; text != want || code != 2 {
		t.Errorf("%s, %d; want %s, 2", text, code, want)
	}
}

func TestHelpIsNoFailure(t *testing.T) {
	for _, line := range []string{"", "help", "-h", "-help", "h", "qdisc help", "class help", "q h", "filter help", "qdisc add help", "class show help"} {
		_, err := tc.Parse(strings.Fields(line), lookup)
		if e, ok := err.(*tc.Error); !ok || e.Code != 0 || e.Msg != "" || !strings.HasPrefix(e.Usage, "Usage:") {
			t.Errorf("tc %s: %#v", line, err)
		}
	}
}

func TestPercentOfTheSpeedOfThePort(t *testing.T) {
	p := tc.Parser{Lookup: lookup, Speed: func(dev string) (uint64, error) {
		if dev != "d0" {
			return 0, errors.New("no such port")
		}
		return 125_000_000, nil
	}}
	c, err := p.Parse(strings.Fields("qdisc add dev d0 root tbf rate 10% burst 10k limit 30k"))
	if err != nil || c.Request.Values.N("rate", 0) != 12_500_000 {
		t.Errorf("10%% of 1 Gbit: %+v, %v", c, err)
	}
	for _, line := range []string{"qdisc add dev d1 root tbf rate 10%", "qdisc add dev d0 root tbf rate 101%"} {
		if _, err := p.Parse(strings.Fields(line)); err == nil || !strings.Contains(err.Error(), `tbf: illegal value for "rate"`) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestKernelErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		text string
		code int
	}{
		{nil, "", 0},
		{qdisc.Refuse(syscall.EINVAL, "Invalid handle"), "Error: Invalid handle.", 2},
		{&qdisc.Error{Errno: syscall.EEXIST}, "RTNETLINK answers: File exists", 2},
		{&qdisc.Error{Errno: syscall.EOPNOTSUPP}, "RTNETLINK answers: Operation not supported", 2},
		{syscall.ENOENT, "RTNETLINK answers: No such file or directory", 2},
		{errors.New("port d0: no room"), "Error: port d0: no room.", 2},
		{tc.NoDevice("x"), `Cannot find device "x"`, 1},
	} {
		if text, code := tc.KernelError(c.err); text != c.text || code != c.code {
			t.Errorf("%v: %q, %d; want %q, %d", c.err, text, code, c.text, c.code)
		}
	}
}

// The layout of -p is tc's own. What -p -j prints is the same document as -j.
func TestPrettyJSON(t *testing.T) {
	m := newMachine(t, "d0", "d1")
	m.tc(strings.Fields("qdisc add dev d0 root handle 1: prio")...)
	got := m.tc(strings.Fields("-j -p qdisc show")...)
	want := `[ {
        "kind": "prio",
        "handle": "1:",
        "dev": "d0",
        "root": true,
        "refcnt": 2,
        "options": {
            "bands": 3,
            "priomap": [ 1,2,2,2,1,2,0,0,1,1,1,1,1,1,1,1 ],
            "multiqueue": false
        }
    },{
        "kind": "noqueue",
        "handle": "0:",
        "dev": "d1",
        "root": true,
        "refcnt": 2,
        "options": {}
    } ]
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var pretty, plain any
	if err := json.Unmarshal([]byte(got), &pretty); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(m.tc("-j", "qdisc")), &plain); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain, pretty); diff != "" {
		t.Error(diff)
	}
	for args, want := range map[string]string{"-j class show": "[]\n", "class show": "", "-j qdisc show dev d1 handle 7:": "[]\n"} {
		if got := m.tc(strings.Fields(args)...); got != want {
			t.Errorf("tc %s prints %q, want %q", args, got, want)
		}
	}
}

func TestOneLine(t *testing.T) {
	m := newMachine(t, "d0")
	want := `qdisc noqueue 0: root refcnt 2 \ Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0) \ backlog 0b 0p requeues 0\`
	if got := m.tc(strings.Fields("-o -s qdisc show dev d0")...); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// Snapshots travel as JSON; what was printed from one is printed from its copy.
func TestSnapshotsSurviveTheSocket(t *testing.T) {
	m := newMachine(t, "d0")
	m.tc(strings.Fields("qdisc add dev d0 root handle 1: tbf rate 8mbit burst 10k limit 100k")...)
	m.tc(strings.Fields("qdisc add dev d0 parent 1:1 handle 2: prio")...)
	for _, line := range []string{"-s -d qdisc show dev d0 invisible", "-s -j class show dev d0"} {
		c := parse(t, line)
		var direct, copied bytes.Buffer
		qdiscs, classes := m.ports[0].Qdiscs(), m.ports[0].Classes()
		if c.Object == "qdisc" {
			_ = tc.WriteQdiscs(&direct, c, qdiscs, lookup)
			_ = tc.WriteQdiscs(&copied, c, roundTrip(t, qdiscs), lookup)
		} else {
			_ = tc.WriteClasses(&direct, c, classes, lookup)
			_ = tc.WriteClasses(&copied, c, roundTrip(t, classes), lookup)
		}
		if direct.Len() < 100 || direct.String() != copied.String() {
			t.Errorf("tc %s prints\n%safter the socket\n%s", line, &direct, &copied)
		}
	}
	r := parse(t, "qdisc change dev d0 root handle 1: tbf rate 1mbit burst 10k limit 30k").Request
	if diff := cmp.Diff(r, roundTrip(t, r)); diff != "" {
		t.Error(diff)
	}
}

func roundTrip[T any](t *testing.T, v T) T {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var back T
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

// No command line makes Parse fail in other than an orderly way, and what it
// accepted can be carried out or is refused in an orderly way, too.
func FuzzParse(f *testing.F) {
	for _, line := range []string{
		"qdisc add dev d0 root handle 1: prio bands 3 priomap 0 1 2",
		"q r dev d0 root tbf rate 1mbit burst 10k/8 latency 50ms overhead 24 linklayer atm",
		"class add dev d0 parent 1: classid 1:1 drr quantum 1500",
		"-s -j -p qdisc show dev d0 invisible",
		"filter add dev d0 parent 1: protocol ip prio 1 u32 match ip dport 80 0xffff flowid 1:1",
		"qdisc del dev d0 root", "-iec -b x", "qdisc change dev d0 parent 1:1 pfifo limit 1e3",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		c, err := tc.Parse(strings.Fields(line), lookup)
		if err != nil {
			if e, ok := err.(*tc.Error); !ok || e.Msg+e.Usage == "" {
				t.Fatalf("%q: %#v", line, err)
			}
			return
		}
		if c.Object == "" {
			return
		}
		m := newMachine(t, "d0")
		if out := m.tc(strings.Fields(line)...); c.Options.JSON && c.Verb == "show" && c.Object != "filter" &&
			!strings.HasPrefix(out, "Cannot find device") && !json.Valid([]byte(out)) {
			t.Errorf("%q prints %s", line, out)
		}
	})
}
