// Command bench measures what the engine costs a packet, and writes the figures
// that the issues name: a table to standard output, and bench.json.
//
//	bench [-o FILE] [-runs N] [-only REGEXP]
//
// Each figure is the median of several runs. The runs of all figures, and of the
// baseline that each is compared with, are interleaved, so that a noisy
// neighbour meets them alike. The baseline is a plain ring of the same packets:
// what moving them costs when nothing is decided.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
)

// Result is one figure, as bench.json has it.
type Result struct {
	Name     string  `json:"name"`
	Unit     string  `json:"unit"`
	Value    float64 `json:"value"`
	Baseline float64 `json:"baseline"`
	Ratio    float64 `json:"ratio"`
}

// measurement is a figure in the making.
type measurement struct {
	name, unit string
	run        func() float64
	baseline   func() float64 // nil: none
	got, base  []float64
}

func main() {
	out := flag.String("o", "bench.json", "`file` to write the figures to")
	runs := flag.Int("runs", 5, "runs of each figure; the median counts")
	only := flag.String("only", "", "`regexp` of the figures to measure")
	flag.Parse()
	pick, err := regexp.Compile(*only)
	if err != nil || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: bench [-o FILE] [-runs N] [-only REGEXP]")
		os.Exit(2)
	}
	all := slices.DeleteFunc(figures(), func(m *measurement) bool { return !pick.MatchString(m.name) })
	for range *runs {
		for _, m := range all {
			m.got = append(m.got, m.run())
			if m.baseline != nil {
				m.base = append(m.base, m.baseline())
			}
		}
	}
	results := []Result{}
	fmt.Printf("%-40s %10s %10s %7s\n", "", "median", "baseline", "ratio")
	for _, m := range all {
		r := Result{Name: m.name, Unit: m.unit, Value: median(m.got)}
		if m.baseline != nil {
			r.Baseline = median(m.base)
			r.Ratio = r.Value / r.Baseline
		}
		results = append(results, r)
		fmt.Printf("%-40s %10.1f %10.1f %7.2f  %s, %.1f to %.1f\n",
			r.Name, r.Value, r.Baseline, r.Ratio, r.Unit, slices.Min(m.got), slices.Max(m.got))
	}
	text, err := json.MarshalIndent(results, "", " ")
	if err == nil {
		err = os.WriteFile(*out, append(text, '\n'), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}
