package golden_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/qdisc/kinds"
)

// trace is one recording.
type trace struct {
	Name          string
	Timing        bool
	Deterministic bool
	Env           struct{ Kernel string }
	Device        struct {
		TxQueueLen int
		MTU        int
		Plug       bool
	}
	Setup       []result
	Steps       []step
	NotDeparted []int `json:"not_departed"`
	FinalQlen   int   `json:"final_qlen"`
}

// result is a command and what came of it.
type result struct {
	Cmd string
	RC  int
	Out string
}

type step struct {
	Op string

	Frames  []frame            // inject
	TIn     map[string]float64 `json:"t_in_us"`
	Refused []int

	N   int // release, run
	MS  int // run, sleep
	Out []departure

	CmdResults []result `json:"cmd_results"` // tc

	Stats     []row  // stats
	QdiscJSON []any  `json:"tc_qdisc_json"`
	ClassJSON []any  `json:"tc_class_json"`
	QdiscText string `json:"tc_qdisc_text"`
	ClassText string `json:"tc_class_text"`
}

// row is the counters of one qdisc or class.
type row struct {
	What, Kind, Handle, Parent                                 string
	Root                                                       bool
	Bytes, Packets, Drops, Overlimits, Requeues, Backlog, Qlen uint64
}

// departure is a frame that left; the time and the ECN mark are there in timing
// traces only, where they matter.
type departure struct {
	ID  int
	At  time.Duration
	ECN int
}

func (d *departure) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &d.ID) == nil {
		return nil
	}
	var x struct {
		ID  int
		US  float64 `json:"t_us"`
		ECN int
	}
	err := json.Unmarshal(b, &x)
	*d = departure{x.ID, micros(x.US), x.ECN}
	return err
}

func micros(us float64) time.Duration { return time.Duration(us * 1000) }

// load reads the traces of TRACES, or of testdata. A relative TRACES may also be
// meant from the root of the module, where go test is usually called.
func load(t *testing.T, name string) []*trace {
	t.Helper()
	dir := os.Getenv("TRACES")
	if dir == "" {
		dir = "testdata"
	}
	if _, err := os.Stat(dir); err != nil {
		dir = filepath.Join("../..", dir)
	}
	files, err := filepath.Glob(filepath.Join(dir, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []*trace
	for _, f := range files {
		if filepath.Base(f) == "INDEX.json" {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var tr trace
		if err := json.Unmarshal(text, &tr); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		all = append(all, &tr)
	}
	return all
}

// commands lists all tc commands of the trace, in order.
func (tr *trace) commands() []string {
	var all []string
	for _, r := range tr.Setup {
		all = append(all, r.Cmd)
	}
	for _, s := range tr.Steps {
		for _, r := range s.CmdResults {
			all = append(all, r.Cmd)
		}
	}
	return all
}

// reason says why a trace cannot be replayed yet, or ever; empty when it can.
func (tr *trace) reason() string {
	if strings.HasPrefix(tr.Env.Kernel, "6.1.") {
		return "recorded on kernel 6.1, whose fq differs from the one we follow"
	}
	for _, c := range tr.commands() {
		words := strings.Fields(c)
		kind := kindOf(words)
		switch {
		case slices.Contains(words, "filter"):
			return fmt.Sprintf("filter %s does not exist yet", kind)
		case kind != "" && kinds.ByName(kind) == nil:
			return fmt.Sprintf("kind %s does not exist yet", kind)
		}
	}
	return ""
}

// kindOf finds the kind in "tc OBJECT VERB dev X ... KIND ...": the first word
// that is neither a keyword nor the value of one.
func kindOf(words []string) string {
	for i := 3; i < len(words); i++ {
		switch word := words[i]; {
		case word == "root" || word == "ingress" || word == "egress":
		case word == "dev" || word == "parent" || word == "handle" || word == "classid",
			words[1] == "filter" && (word == "protocol" || word == "prio" || word == "pref"):
			i++
		default:
			return word
		}
	}
	return ""
}

// aqm says whether the trace's drops and marks come from a control law, which
// two implementations follow only about.
func (tr *trace) aqm() bool {
	for _, c := range tr.commands() {
		switch kindOf(strings.Fields(c)) {
		case "codel", "fq_codel", "cake", "pie", "fq_pie", "red":
			return tr.Timing
		}
	}
	return false
}
