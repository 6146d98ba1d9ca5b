package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"sluice/qdisc"
	"sluice/shaper/classify"
	"sluice/shaper/config"
)

const minimal = "version = 1\n"

const full = `version = 1

[engine]
weight = 32
quota = "budget"
doorbell = "list"
tx_flush_interval = "50 us"
busy_poll = "0 us"
rx_coalesce = "100 us"
packets = "4096 packets"
frame_size = "4 KiB"
cpu = 1
priority = "none"

[control]
socket = "/tmp/s"
group = "adm"

[link.home]
inside = "lan0"
outside = "wan0"
driver = "afpacket"
inside_driver = "tap"
queues = 2
txqueuelen = "500 packets"
bql_min = "2 KiB"
bql_max = "64 KiB"

[link."a wire"]
inside = "m0"
outside = "m1"
driver = "mem"
mem = { rate = "1 Gbit/s", latency = "1.5 ms", ring = "64 packets" }

[link.file]
inside = "f0"
outside = "f1"
driver = "pcap"
[link.file.pcap]
inside_read = "in.pcap"
outside_write = "out.pcap"

[[qdisc]]
dev = "wan0"
root = true
handle = "1:"
kind = "tbf"
rate = "50 Mbit/s"
burst = "16 KiB"
latency = "20 ms"

[[qdisc]]
dev = "wan0"
parent = "1:1"
handle = "a:"
kind = "prio"
bands = 2
priomap = [1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]

[[filter]]
dev = "wan0"
parent = "a:"
match = ["dscp ef", "udp port 5060"]
class = "a:1"

[[filter]]
dev = "wan0"
parent = "a:"
prio = 7
match = "arp"
drop = true
`

func parse(t *testing.T, src string) *config.Config {
	t.Helper()
	c, err := config.Parse("f.toml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEveryKeyArrives(t *testing.T) {
	c := parse(t, full)
	want := config.Engine{Weight: 32, Quota: "budget", Doorbell: "list", TxFlushInterval: 50 * time.Microsecond,
		RxCoalesce: 100 * time.Microsecond, Packets: 4096, FrameSize: 4096, CPU: 1, Priority: "none"}
	if diff := cmp.Diff(want, c.Engine); diff != "" {
		t.Errorf("engine:\n%s", diff)
	}
	if diff := cmp.Diff(config.Control{Socket: "/tmp/s", Group: "adm"}, c.Control); diff != "" {
		t.Errorf("control:\n%s", diff)
	}
	links := []config.Link{
		{Name: "home", Inside: config.Port{Dev: "lan0", Driver: "tap", Pos: config.Pos{20, 10}},
			Outside: config.Port{Dev: "wan0", Driver: "afpacket", Pos: config.Pos{21, 11}},
			Queues:  2, TxQueueLen: 500, BQLMin: 2048, BQLMax: 65536, Mem: config.Mem{Ring: 256}, Pos: config.Pos{19, 1}},
		{Name: "a wire", Inside: config.Port{Dev: "m0", Driver: "mem", Pos: config.Pos{30, 10}},
			Outside:    config.Port{Dev: "m1", Driver: "mem", Pos: config.Pos{31, 11}},
			TxQueueLen: 1000, Mem: config.Mem{Rate: 125e6, Latency: 1500 * time.Microsecond, Ring: 64}, Pos: config.Pos{29, 1}},
		{Name: "file", Inside: config.Port{Dev: "f0", Driver: "pcap", Read: "in.pcap", Pos: config.Pos{36, 10}},
			Outside:    config.Port{Dev: "f1", Driver: "pcap", Write: "out.pcap", Pos: config.Pos{37, 11}},
			TxQueueLen: 1000, Mem: config.Mem{Ring: 256}, Pos: config.Pos{35, 1}},
	}
	if diff := cmp.Diff(links, c.Links); diff != "" {
		t.Errorf("links:\n%s", diff)
	}
	qdiscs := []config.QdiscSpec{
		{Dev: "wan0", Root: true, Handle: qdisc.MakeID(1, 0), Kind: "tbf", Pos: config.Pos{43, 1},
			Values: qdisc.Values{"rate": {N: 6250000}, "burst": {N: 16384}, "latency": {N: 20e6},
				"limit": {N: 141384}}}, // tc's sum: rate·latency + burst
		{Dev: "wan0", Parent: qdisc.MakeID(1, 1), Handle: qdisc.MakeID(10, 0), Kind: "prio", Pos: config.Pos{52, 1},
			Values: qdisc.Values{"bands": {N: 2}, "priomap": {List: []uint64{1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}}}},
	}
	if diff := cmp.Diff(qdiscs, c.Qdiscs); diff != "" {
		t.Errorf("qdiscs:\n%s", diff)
	}
	var filters []string
	for _, f := range c.Filters {
		filters = append(filters, fmt.Sprintf("%s %s prio %d: %s: class %s drop %v, at %s", f.Dev, f.Parent, f.Prio, f.Match, f.Class, f.Drop, f.Pos))
	}
	if diff := cmp.Diff([]string{
		"wan0 a: prio 7: arp: class 0: drop true, at 66:1",
		"wan0 a: prio 0: dscp ef or udp and port 5060: class a:1 drop false, at 60:1",
	}, filters); diff != "" {
		t.Errorf("filters:\n%s", diff)
	}
}

func TestDefaults(t *testing.T) {
	c := parse(t, minimal)
	want := &config.Config{
		Engine: config.Engine{Weight: 64, Quota: "packets", Doorbell: "turn", BusyPoll: 50 * time.Microsecond,
			Packets: 8192, FrameSize: 2048, CPU: -1, Priority: "dscp"},
		Control: config.Control{Socket: "/run/sluice/control.sock"},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
}

// testdata: a file, and every mistake in it.
func TestErrors(t *testing.T) {
	datadriven.Walk(t, "testdata/errors", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			_, err := config.Parse("sluice.toml", []byte(d.Input+"\n"))
			if err == nil {
				return "accepted\n"
			}
			checkErrors(t, d.Input+"\n", err)
			return err.Error() + "\n"
		})
	})
}

// The sample that is shipped has to be right.
func TestTheSampleParses(t *testing.T) {
	c, err := config.Load(filepath.FromSlash("../../etc/sluice.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Links) == 0 || len(c.Qdiscs) == 0 || len(c.Filters) == 0 {
		t.Errorf("%d links, %d qdiscs, %d filters; the sample shows them all", len(c.Links), len(c.Qdiscs), len(c.Filters))
	}
}

// "What is not set has the value shown here, unless the line says otherwise."
func TestTheSampleShowsTheDefaults(t *testing.T) {
	sample, err := os.ReadFile(filepath.FromSlash("../../etc/sluice.toml"))
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	lines := strings.Split(string(sample), "\n")
	for i, line := range lines {
		setting, ok := strings.CutPrefix(line, "# ")
		if ok && strings.Contains(setting, " = ") && !strings.Contains(setting, "not set:") {
			lines[i] = setting
			shown++
		}
	}
	is, err := config.Parse("uncommented.toml", []byte(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("sluice.toml", sample)
	if err != nil {
		t.Fatal(err)
	}
	if !c.Equal(is) || shown == 0 {
		t.Errorf("with %d lines uncommented %+v, as it is %+v", shown, is, c)
	}
}

func TestAFileThatIsNotThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.toml")
	_, err := config.Load(path)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want ErrNotExist", err)
	}
	want := path + ": the file cannot be read: no such file or directory. Name a file that exists and may be read."
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Comments, blank lines and the way a value is written do not count; every
// value does.
func TestEqual(t *testing.T) {
	c := parse(t, full)
	same := strings.NewReplacer(`"50 Mbit/s"`, `"6.25 MB/s"`, `"4 KiB"`, `"4096 B"`, "version = 1", "# a comment\n\nversion = 1",
		`"arp"`, `"ethertype 0x806"`).Replace(full)
	if !c.Equal(parse(t, same)) {
		t.Error("the same, written differently, is not equal")
	}
	for _, change := range []string{
		`weight = 32|weight = 33`, `"adm"|"wheel"`, `"lan0"|"lan1"`, `latency = "1.5 ms"|latency = "1 ms"`, `in.pcap|im.pcap`,
		`"16 KiB"|"17 KiB"`, `bands = 2|bands = 3`, `0, 0, 1,|0, 0, 0,`, `"arp"|"ip"`, `prio = 7|prio = 8`, `class = "a:1"|class = "a:2"`,
		"\nbands = 2|", `link.home|link.office`,
	} {
		old, with, _ := strings.Cut(change, "|")
		if !strings.Contains(full, old) {
			t.Fatalf("%q is not there", old)
		}
		if c.Equal(parse(t, strings.Replace(full, old, with, 1))) {
			t.Errorf("%s: still equal", change)
		}
	}
}

// Every field counts, places do not.
func TestEqualLooksAtEveryField(t *testing.T) {
	src := full + `
[[qdisc]]
dev = "lan0"
root = true
handle = "1:"
kind = "drr"
[[class]]
dev = "lan0"
parent = "1:"
classid = "1:1"
kind = "drr"
quantum = "1514 B"
`
	c, changed := parse(t, src), parse(t, src)
	if len(c.Classes) != 1 {
		t.Fatalf("%d classes", len(c.Classes))
	}
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		old := reflect.ValueOf(v.Interface())
		switch {
		case v.Type() == reflect.TypeFor[config.Pos]():
			v.Set(reflect.ValueOf(config.Pos{Line: 1000, Col: 1}))
			if !c.Equal(changed) {
				t.Errorf("%s is looked at", path)
			}
			v.Set(old)
			return
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				walk(path+"."+v.Type().Field(i).Name, v.Field(i))
			}
			return
		case v.Kind() == reflect.Slice:
			for i := range v.Len() {
				walk(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
			}
			v.Set(v.Slice(0, v.Len()-1))
		case v.Type() == reflect.TypeFor[*classify.Match]():
			v.Set(reflect.ValueOf(classify.MustParseMatch("ip6 and length 7")))
		case v.Type() == reflect.TypeFor[qdisc.Values]():
			v.Set(reflect.ValueOf(qdisc.Values{"rate": {N: 7}}))
		case v.Kind() == reflect.String:
			v.SetString(v.String() + "x")
		case v.Kind() == reflect.Bool:
			v.SetBool(!v.Bool())
		case v.CanInt():
			v.SetInt(v.Int() + 1)
		case v.CanUint():
			v.SetUint(v.Uint() + 1)
		default:
			t.Fatalf("%s: no way to change a %s", path, v.Type())
		}
		if c.Equal(changed) {
			t.Errorf("%s does not count", path)
		}
		v.Set(old)
	}
	walk("config", reflect.ValueOf(changed).Elem())
	if !c.Equal(changed) {
		t.Error("the test left its changes behind")
	}
}
