package golden_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/qdisc"
	"sluice/qdisc/kinds"
)

// The engine does with the frames of every trace what the kernel did: the same
// leave in the same order (and at the same time), the same are refused, all
// counters agree, and tc prints the same.
func TestTraces(t *testing.T) {
	all := load(t, "*")
	if len(all) == 0 {
		t.Fatal("there are no traces")
	}
	for _, tr := range all {
		t.Run(tr.Name, func(t *testing.T) {
			if why := tr.reason(); why != "" {
				t.Skip(why)
			}
			replay(t, tr)
		})
	}
}

// reporter is what a comparison needs of *testing.T.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

func replay(t reporter, tr *trace) {
	b := newBench(t, tr)
	exact := tr.Deterministic && !tr.aqm()
	var want, got []departure
	for i := range tr.Steps {
		s := &tr.Steps[i]
		switch s.Op {
		case "inject":
			refused := b.inject(s)
			if diff := cmp.Diff(s.Refused, refused, cmpopts.EquateEmpty()); diff != "" && exact {
				t.Errorf("step %d: refused (-want +got):\n%s", i, diff)
			}
		case "release":
			b.flow(s.N)
		case "drain":
			b.flow(b.ctx.Pool.Size())
		case "open":
			b.open(-1)
		case "run":
			b.advance(b.ctx.Now+time.Duration(s.MS)*time.Millisecond, func() bool { return b.all >= s.N })
		case "sleep":
			b.advance(b.ctx.Now+time.Duration(s.MS)*time.Millisecond, never)
		case "tc":
			for _, r := range s.CmdResults {
				b.command(r)
			}
		case "stats":
			if exact {
				b.compareStats(i, s)
			}
		default:
			t.Fatalf("step %d: unknown operation %q", i, s.Op)
		}
		left := b.take()
		if !tr.Timing && exact {
			if diff := cmp.Diff(ids(s.Out), ids(left), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("step %d, %s: departures (-want +got):\n%s", i, s.Op, diff)
			}
		}
		want, got = append(want, s.Out...), append(got, left...)
	}
	switch {
	case tr.Timing && exact:
		compareTimes(t, want, got)
	case tr.aqm() && tr.Deterministic:
		compareLaw(t, want, got)
	}
	if exact {
		compareEnd(t, tr, b, got)
	}
	held := b.root.Len()
	b.runner.Close(b.ctx)
	if err := b.port.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if free := b.ctx.Pool.Available(); free != b.ctx.Pool.Size() {
		t.Errorf("%d packets are lost (%d were queued at the end)", b.ctx.Pool.Size()-free, held)
	}
}

// compareEnd looks at what never left.
func compareEnd(t reporter, tr *trace, b *bench, got []departure) {
	t.Helper()
	if n := b.root.Len(); n != tr.FinalQlen {
		t.Errorf("%d packets queued at the end, want %d", n, tr.FinalQlen)
	}
	left := map[int]bool{}
	for _, d := range got {
		left[d.ID] = true
	}
	var missing []int
	for _, s := range tr.Steps {
		for _, f := range s.Frames {
			if !left[f.ID] {
				missing = append(missing, f.ID)
			}
		}
	}
	slices.Sort(missing)
	if diff := cmp.Diff(tr.NotDeparted, missing, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("not departed (-want +got):\n%s", diff)
	}
}

const (
	slack    = 150 * time.Microsecond
	due      = 100 * time.Microsecond // what follows sooner was due already
	dueCost  = 25 * time.Microsecond  // and would have left at once, but for the recorder
	ratePart = 500                    // ±0.2 %
)

// compareTimes compares departures one by one: the same frames, each at its time.
// The recorder's own cost adds up while frames are due.
func compareTimes(t reporter, want, got []departure) {
	t.Helper()
	if diff := cmp.Diff(ids(want), ids(got), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
		return
	}
	late := time.Duration(0)
	for i := range want {
		if i > 0 && want[i].At-want[i-1].At < due {
			late += dueCost
		} else {
			late = 0
		}
		if off := (want[i].At - got[i].At).Abs(); off > slack+late {
			t.Errorf("frame %d left at %v, want %v", got[i].ID, got[i].At, want[i].At)
		}
		if want[i].ECN != got[i].ECN {
			t.Errorf("frame %d left with ECN %d, want %d", got[i].ID, got[i].ECN, want[i].ECN)
		}
	}
	if n := len(want) - 1; n > 0 {
		whole, ours := want[n].At-want[0].At, got[n].At-got[0].At
		if off := (whole - ours).Abs(); off > slack && off > whole/ratePart {
			t.Errorf("all left in %v, want %v", ours, whole)
		}
	}
}

// compareLaw compares what a control law did: how many it let pass and how many
// it marked, one more or less, and the distance between marks.
func compareLaw(t reporter, want, got []departure) {
	t.Helper()
	marks := func(all []departure) (at []time.Duration) {
		for _, d := range all {
			if d.ECN == 3 {
				at = append(at, d.At)
			}
		}
		return at
	}
	if d := len(want) - len(got); d < -1 || d > 1 {
		t.Errorf("%d frames left, want %d", len(got), len(want))
	}
	w, g := marks(want), marks(got)
	if d := len(w) - len(g); d < -1 || d > 1 {
		t.Errorf("%d frames were marked, want %d", len(g), len(w))
	}
	for i := 1; i < min(len(w), len(g)); i++ {
		a, b := w[i]-w[i-1], g[i]-g[i-1]
		if (a - b).Abs() > max(a/20, 300*time.Microsecond) {
			t.Errorf("mark %d comes %v after the one before, want %v", i, b, a)
		}
	}
}

// compareStats compares counters, and what tc prints of them.
func (b *bench) compareStats(i int, s *step) {
	b.t.Helper()
	var want []row
	for _, r := range s.Stats {
		if r.What == "class" && hashed(r.Kind) {
			r.Handle = "" // random
		}
		if r.What == "qdisc" || ours(r.Kind) || hashed(r.Kind) {
			want = append(want, r)
		}
	}
	byName := cmpopts.SortSlices(func(a, b row) bool {
		return fmt.Sprint(a) < fmt.Sprint(b)
	})
	if diff := cmp.Diff(want, b.rows(), byName, cmpopts.EquateEmpty()); diff != "" {
		b.t.Errorf("step %d: counters (-want +got):\n%s", i, diff)
	}
	for _, x := range []struct {
		object string
		json   []any
		text   string
	}{{"qdisc", s.QdiscJSON, s.QdiscText}, {"class", s.ClassJSON, s.ClassText}} {
		var out bytes.Buffer
		if code := b.tc(&out, "-s", "-j", x.object, "show", "dev", "st0"); code != 0 {
			b.t.Errorf("step %d: tc -j %s show: exit %d", i, x.object, code)
		}
		var got []any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			b.t.Fatalf("tc -j %s: %v", x.object, err)
		}
		if diff := cmp.Diff(canonical(x.json), canonical(got), cmpopts.EquateEmpty(), cmp.FilterPath(isTokens, b.tokens())); diff != "" {
			b.t.Errorf("step %d: tc -s -j %s (-want +got):\n%s", i, x.object, diff)
		}
		if x.text == "" {
			continue
		}
		out.Reset()
		b.tc(&out, "-s", x.object, "show", "dev", "st0")
		if diff := cmp.Diff(blocks(x.text), blocks(out.String()), cmpopts.EquateEmpty()); diff != "" {
			b.t.Errorf("step %d: tc -s %s (-want +got):\n%s", i, x.object, diff)
		}
	}
}

// isTokens finds the members that say how full a bucket is.
func isTokens(path cmp.Path) bool {
	key, is := path.Last().(cmp.MapIndex)
	return is && (key.Key().String() == "tokens" || key.Key().String() == "ctokens")
}

// tokens compares buckets. They fill with time, which a trace without times does
// not know, and one with times knows as well as it knows those.
func (b *bench) tokens() cmp.Option {
	return cmp.Comparer(func(x, y any) bool {
		m, ok := x.(float64)
		n, too := y.(float64)
		const tick = 64 * time.Nanosecond
		return ok && too && (!b.timing || math.Abs(m-n) <= float64(slack/tick))
	})
}

// ours says whether classes of a kind can be compared: those of hashed flows have
// random numbers.
func ours(kind string) bool {
	k := kinds.ByName(kind)
	return k != nil && k.Flags&qdisc.IsClassful != 0
}

// hashed says whether the classes of a kind are flows.
func hashed(kind string) bool {
	k := kinds.ByName(kind)
	return k != nil && k.Flags&qdisc.NoClassSent != 0
}

// rows are the engine's counters. What a class without statistics holds is
// nothing to tc, and so to the traces.
func (b *bench) rows() []row {
	var all []row
	for _, q := range b.tree.Qdiscs() {
		if q.Hidden {
			continue
		}
		r := row{What: "qdisc", Kind: q.Kind, Handle: q.Handle.String(), Root: q.RefCnt > 0,
			Bytes: q.Stats.Bytes, Packets: q.Stats.Packets, Drops: q.Stats.Drops, Overlimits: q.Stats.Overlimits,
			Requeues: q.Stats.Requeues, Backlog: uint64(q.Backlog), Qlen: uint64(q.Qlen)}
		if !r.Root {
			r.Parent = q.Parent.String()
		}
		all = append(all, r)
	}
	for _, c := range b.tree.Classes() {
		r := row{What: "class", Kind: c.Kind, Handle: c.ID.String(), Root: c.Parent == 0}
		if hashed(c.Kind) {
			r.Handle = ""
		}
		if !r.Root {
			r.Parent = c.Parent.String()
		}
		if kinds.ByName(c.Kind).Flags&qdisc.NoClassStats == 0 {
			r.Bytes, r.Packets, r.Drops, r.Overlimits = c.Stats.Bytes, c.Stats.Packets, c.Stats.Drops, c.Stats.Overlimits
			r.Requeues, r.Backlog, r.Qlen = c.Stats.Requeues, uint64(c.Backlog), uint64(c.Qlen)
		}
		all = append(all, r)
	}
	return all
}

// canonical puts a dump into an order of its own, and takes out what is about the
// kernel's buffers or random.
func canonical(dump []any) map[string]any {
	all := map[string]any{}
	for _, x := range dump {
		o, ok := x.(map[string]any)
		if !ok {
			continue
		}
		if class, isClass := o["class"].(string); isClass && !ours(class) {
			continue
		}
		if o["kind"] != "cake" { // which counts as the kernel does
			delete(o, "memory_used")
		}
		if o["kind"] == "codel" {
			delete(o, "ldelay") // of the recorder's hand
		}
		if o["kind"] == "fq" {
			delete(o, "latency") // of the recorder's timer
		}
		if options, ok := o["options"].(map[string]any); ok {
			delete(options, "seed")
		}
		tins, _ := o["tins"].([]any)
		for _, tin := range tins { // cake's delays are the recorder's
			for _, delay := range []string{"peak_delay_us", "avg_delay_us", "base_delay_us"} {
				delete(tin.(map[string]any), delay)
			}
		}
		handle, _ := o["handle"].(string)
		all[handle] = o
	}
	return all
}

var random = regexp.MustCompile(`\bc?tokens: -?\d+|memory_used \d+|memory used: \w+|seed \d+| l(atency|delay) [\d.]+[mun]?s|_delay +.*`)

// blocks cuts tc's text into one piece for each qdisc or class, in an order of
// its own.
func blocks(text string) []string {
	var all []string
	for _, line := range strings.SplitAfter(strings.TrimRight(text, "\n"), "\n") {
		if strings.HasPrefix(line, "qdisc ") || strings.HasPrefix(line, "class ") || len(all) == 0 {
			all = append(all, "")
		}
		all[len(all)-1] += strings.TrimRight(random.ReplaceAllString(line, ""), "\n") + "\n"
	}
	all = slices.DeleteFunc(all, func(s string) bool {
		words := strings.Fields(s)
		return len(words) == 0 || words[0] == "class" && !ours(words[1])
	})
	for i := range all {
		all[i] = strings.TrimRight(all[i], "\n")
	}
	slices.Sort(all)
	return all
}
