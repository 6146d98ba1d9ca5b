package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/bql"
	"sluice/dequeue"
	"sluice/qdisc/kinds"
	"sluice/shaper"
	"sluice/shaper/nic"
	"sluice/shaper/tc"
)

func TestStatusFitsAScreen(t *testing.T) {
	s := &shaper.Status{
		Config: "/etc/sluice/sluice.toml", Edited: true, Uptime: 3*time.Minute + 1400*time.Millisecond,
		Worker: shaper.WorkerStatus{Turns: 90210, Wakes: 70100, EmptyWakes: 12, PoolSize: 8192, PoolFree: 8000, Shed: 3,
			Drops: map[string]uint64{"overlimit": 117, "congestion": 3}},
		Balance: shaper.Balance{Received: 1204032, Sent: 1203900, Dropped: 120, Queued: 12},
		Ports: []shaper.PortStatus{{
			Name: "lan0", Link: "home", Driver: "afpacket", MTU: 1500,
			Rx:   []nic.RxStats{{Packets: 1204032, Bytes: 1806048000}},
			Txqs: []dequeue.TxqStats{{}, {}},
		}, {
			Name: "wan0", Link: "home", Driver: "tap", MTU: 1492, Down: true, Qlen: 12, Backlog: 18168,
			Rx:     []nic.RxStats{{}},
			Runner: dequeue.RunnerStats{Runs: 300000, Restarts: 310000, Requeues: 4, QuotaExhausted: 2},
			Txqs: []dequeue.TxqStats{{Packets: 1203900, Bytes: 1805850000, Bells: 300975, StackStops: 40, DriverStops: 1,
				Lost: 5, InFlight: 6, Timeouts: 1, Limited: true, BQL: bql.Snapshot{Limit: 9084}}},
		}},
	}
	const want = `policy   /etc/sluice/sluice.toml (edited by hand since), up 3m1s
packets  received 1204032 = sent 1203900 + dropped 120 + queued 12
drops    congestion 3  overlimit 117
worker   turns 90210  wakes 70100 (12 for nothing)  buffers free 8000 of 8192  shed 3

port  link  driver    state   mtu  backlog  queued    runs  restarts  requeues  quota spent  bypassed
lan0  home  afpacket  up     1500       0b       0       0         0         0            0         0
wan0  home  tap       down   1492   18168b      12  300000    310000         4            2         0

port  rx  packets       bytes  dropped  errors
lan0   0  1204032  1806048000        0       0
wan0   0        0           0        0       0

port  tx  packets       bytes  lost   bells  pkts/bell  in flight  bql limit  bql stops  driver stops  timeouts
lan0   0        0           0     0       0          -          0          -          0             0         0
lan0   1        0           0     0       0          -          0          -          0             0         0
wan0   0  1203900  1805850000     5  300975        4.0          6       9084         40             1         1
`
	var got bytes.Buffer
	if err := writeStatus(&got, s); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
	s.Balance.Queued++
	got.Reset()
	if err := writeStatus(&got, s); err != nil || !strings.Contains(got.String(), "queued 13  DOES NOT ADD UP\n") {
		t.Errorf("a balance that is off: %v\n%s", err, &got)
	}
}

func TestHelp(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		code int
		says []string
		not  string
	}{
		{"sluice", []string{"help"}, 0, []string{"sluice apply FILE", "OBJECT := { qdisc"}, "\x00"},
		{"sluice", []string{"-h"}, 0, []string{"sluice apply FILE", "OBJECT := { qdisc"}, "\x00"},
		{"sluice", nil, 0, []string{"sluice apply FILE", "| htb |", "OBJECT := { qdisc"}, "\x00"},
		{"sluice", []string{"help", "apply"}, 0, []string{"sluice apply FILE"}, "no qdisc"},
		{"sluice", []string{"qdisc", "help"}, 0, []string{"tc qdisc { show | list }"}, "own words"},
		{"sluice", []string{"help", "nosuch"}, exitUsage, []string{`no qdisc "nosuch"`, "pfifo", "tbf"}, "\x00"},
		{"tc", []string{"help"}, 0, []string{"OBJECT := { qdisc"}, "own words"},
		{"tc", []string{"help", "tbf"}, 0, []string{"OBJECT := { qdisc"}, "token bucket"},
		{"tc", []string{"apply", "f"}, tc.ExitUsage, []string{`Object "apply" is unknown`}, "own words"},
	} {
		var out, complaints bytes.Buffer
		cmd := &command{name: c.name, in: os.Stdin, out: &out, err: &complaints}
		code := cmd.run(c.args)
		if code != c.code || out.Len() > 0 || strings.Contains(complaints.String(), c.not) {
			t.Errorf("%s %q: exit %d, want %d\n%s%s", c.name, c.args, code, c.code, &out, &complaints)
		}
		for _, want := range c.says {
			if !strings.Contains(complaints.String(), want) {
				t.Errorf("%s %q does not say %q:\n%s", c.name, c.args, want, &complaints)
			}
		}
	}
}

func TestHelpOfAKindNamesWhatItTakes(t *testing.T) {
	for _, k := range kinds.All() {
		var out bytes.Buffer
		cmd := &command{name: "sluice", out: &out, err: &out}
		if code := cmd.run([]string{"help", k.Name}); code != 0 || !strings.HasPrefix(out.String(), k.Name+": "+k.Doc) {
			t.Errorf("help %s: exit %d\n%s", k.Name, code, &out)
		}
		for i := range k.Params {
			p := &k.Params[i]
			if said := strings.Contains(out.String(), "\n"+p.Name+" "); said != p.Taken() {
				t.Errorf("help %s: explains %s: %v; it can be given: %v", k.Name, p.Name, said, p.Taken())
			}
		}
	}
}
