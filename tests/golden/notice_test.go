package golden_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// complaints collects what a replay finds.
type complaints []string

func (c *complaints) Helper() {}

func (c *complaints) Errorf(format string, args ...any) {
	*c = append(*c, fmt.Sprintf(format, args...))
}

func (c *complaints) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// A replay notices every kind of difference: a trace that was tampered with does
// not pass.
func TestReplayNoticesADifference(t *testing.T) {
	stats := func(tr *trace) *step {
		for i := range tr.Steps {
			if tr.Steps[i].Op == "stats" {
				return &tr.Steps[i]
			}
		}
		return nil
	}
	drain := func(tr *trace) *step {
		for i := range tr.Steps {
			if len(tr.Steps[i].Out) > 1 {
				return &tr.Steps[i]
			}
		}
		return nil
	}
	for _, c := range []struct {
		name, trace string
		tamper      func(*trace)
		complaint   string
	}{
		{"nothing", "prio_leaf_limits", func(*trace) {}, ""},
		{"nothing, in time", "t_tbf_peak", func(*trace) {}, ""},
		{"order", "prio_leaf_limits", func(tr *trace) {
			out := drain(tr).Out
			out[0], out[1] = out[1], out[0]
		}, "departures"},
		{"refusal", "prio_leaf_limits", func(tr *trace) { tr.Steps[0].Refused = tr.Steps[0].Refused[1:] }, "refused"},
		{"counter", "prio_leaf_limits", func(tr *trace) { stats(tr).Stats[0].Drops++ }, "counters"},
		{"class counter", "drr_equal", func(tr *trace) {
			rows := stats(tr).Stats
			rows[len(rows)-1].Packets++
		}, "counters"},
		{"JSON", "prio_leaf_limits", func(tr *trace) {
			stats(tr).QdiscJSON[0].(map[string]any)["refcnt"] = 3.
		}, "-j qdisc"},
		{"text", "drr_equal", func(tr *trace) {
			s := stats(tr)
			s.ClassText = strings.Replace(s.ClassText, "quantum", "Quantum", 1)
		}, "tc -s class"},
		{"bucket", "t_htb_8m", func(tr *trace) {
			s := stats(tr).ClassJSON[0].(map[string]any)["stats"].(map[string]any)
			s["tokens"] = s["tokens"].(float64) + 5000
		}, "-j class"},
		{"answer", "prio_leaf_limits", func(tr *trace) { tr.Setup[0].RC = 2 }, "exit 0"},
		{"left over", "tbf_limit", func(tr *trace) { tr.FinalQlen++ }, "queued at the end"},
		{"lost", "tbf_limit", func(tr *trace) { tr.NotDeparted = tr.NotDeparted[1:] }, "not departed"},
		{"time", "t_tbf_peak", func(tr *trace) { drain(tr).Out[1].At += 200 * time.Microsecond }, "left at"},
		{"order in time", "t_tbf_peak", func(tr *trace) { drain(tr).Out[1].ID = 99 }, "order"},
		{"rate", "t_tbf_peak", func(tr *trace) {
			for i := range tr.Steps {
				for j := range tr.Steps[i].Out {
					tr.Steps[i].Out[j].At += tr.Steps[i].Out[j].At / 200
				}
			}
		}, "all left in"},
	} {
		t.Run(c.name, func(t *testing.T) {
			traces := load(t, c.trace)
			if len(traces) == 0 {
				t.Skipf("no trace %s in this folder", c.trace)
			}
			tr := traces[0]
			if why := tr.reason(); why != "" {
				t.Skip(why)
			}
			c.tamper(tr)
			var found complaints
			replay(&found, tr)
			all := strings.Join(found, "\n")
			if c.complaint == "" && all != "" || !strings.Contains(all, c.complaint) {
				t.Errorf("found %q, want something about %q", all, c.complaint)
			}
		})
	}
}
