package tc_test

import (
	"strings"
	"testing"
)

// Parameters in groups: members without a keyword in their order, as far as the
// next word is a number; members with one in any order; groups of two words.
func TestGroups(t *testing.T) {
	for _, c := range []struct{ args, shown string }{
		{"netem delay 10ms 1ms 25% loss 1% 50%", "delay 10ms  1ms 25% loss 1% 50%"},
		{"netem loss random 1% delay 1.5us", "delay 1.5us loss 1%"},
		{"netem latency 10ms delay 20ms", "delay 20ms"},
		{"netem drop 5", "loss 5%"},
		{"netem loss gemodel 1% 10% ecn", "loss gemodel p 1% r 10% 1-h 100% 1-k 0% seed 7 ecn "},
		{"netem rate 1mbit -4", "rate 1Mbit packetoverhead -4"},
		{"netem rate 1mbit 4 48 5 limit 9", "rate 1Mbit packetoverhead 4 cellsize 48 celloverhead 5"},
		{"netem slot 10ms bytes 1500 packets 2", "slot 10ms 10ms packets 2 bytes 1500"},
		{"netem slot distribution pareto 10ms 1ms packets 3", "slot distribution 10ms 1ms packets 3"},
		{"netem delay 1ms 1ms distribution paretonormal corrupt 0.1% 1%", "delay 1ms  1ms corrupt 0.1% 1%"},
	} {
		m := newMachine(t, "dummy1")
		out := m.tc(strings.Fields("qdisc add dev dummy1 root handle 1: " + c.args + " seed 7")...)
		if out += m.tc("qdisc", "show", "dev", "dummy1"); !strings.Contains(out, c.shown) {
			t.Errorf("%s: %q, want %q in it", c.args, out, c.shown)
		}
	}
	for _, c := range []struct{ args, said string }{
		{"netem delay", "Command line is not complete. Try option \"help\"\n[exit 255]\n"},
		{"netem delay abc", "Illegal \"delay\"\n[exit 1]\n"},
		{"netem loss 101%", "Illegal \"loss\"\n[exit 1]\n"},
		{"netem loss state", "Command line is not complete. Try option \"help\"\n[exit 255]\n"},
		{"netem nosuch", "What is \"nosuch\"?\nUsage: ... netem"},
		{"netem gap 3", "gap specified without reorder probability\nUsage: ... netem"},
		{"hfsc default 12345", "HFSC: Illegal \"default\"\n[exit 1]\n"},
		{"hfsc nosuch", "HFSC: What is \"nosuch\" ?\nUsage: ... hfsc"},
	} {
		if out := newMachine(t, "dummy1").tc(strings.Fields("qdisc add dev dummy1 root " + c.args)...); !strings.HasPrefix(out, c.said) {
			t.Errorf("%s: %q, want %q", c.args, out, c.said)
		}
	}
	for _, c := range []struct{ args, said string }{
		{"sc", "HFSC: Illegal \"sc\"\n"},
		{"sc m1 1mbit", "HFSC: Illegal \"sc\"\n"},
		{"sc rate", "Command line is not complete."},
		{"rt umax 1500 rate 1mbit", "HFSC: umax given but dmax is zero.\n"},
		{"ul m2 1mbit", "RTNETLINK answers: Invalid argument\n"},
		{"sc m2 1mbit nosuch", "HFSC: What is \"nosuch\" ?\n"},
		{"ul d 1ms m1 1mbit m2 2mbit rt rate 1mbit", ""},
	} {
		m := newMachine(t, "dummy1")
		m.tc(strings.Fields("qdisc add dev dummy1 root handle 1: hfsc")...)
		out := m.tc(strings.Fields("class add dev dummy1 parent 1: classid 1:1 hfsc " + c.args)...)
		if !strings.HasPrefix(out, c.said) || c.said == "" && out != "" {
			t.Errorf("%s: %q, want %q", c.args, out, c.said)
		}
	}
}
