package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

// near is how much later than on the idle path the voice class may be, at the
// 99th percentile, to count as undisturbed.
const near = 2 * time.Millisecond

// writeTraffic says what is sent.
func writeTraffic(out io.Writer, rate float64) {
	for _, c := range classes {
		text := "a probe"
		if c.load > 0 {
			text = fmt.Sprintf("a probe, and %.0f Mbit/s of UDP", c.load*rate/1e6)
		}
		fmt.Fprintf(out, "  %-7s dscp %-4s %s\n", c.name, c.dscp, text)
	}
	fmt.Fprintf(out, "\nA probe is a round trip of %d bytes every %d ms.\n\n", probePayload+headers, probeEvery.Milliseconds())
}

// writeTable prints one column for each phase.
func writeTable(out io.Writer, rs []result) {
	group := ""
	row := func(of, what, unit string, cell func(r *result) string) {
		shown := of
		if of == group {
			shown = ""
		}
		group = of
		fmt.Fprintf(out, "%-14s%-18s%-8s", shown, what, unit)
		for i := range rs {
			fmt.Fprintf(out, "%10s", cell(&rs[i]))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out)
	row("", "", "", func(r *result) string { return r.name })
	fmt.Fprintln(out, strings.Repeat("─", 40+10*len(rs)))
	for i, c := range classes {
		if c.load > 0 {
			row("goodput", c.name, "Mbit/s", func(r *result) string { return when(r.loaded, "%.1f", r.goodput[i]/1e6) })
		}
	}
	for i, c := range classes {
		row("round trip", c.name+" p50", "ms", func(r *result) string { return ms(r.rtts[i].Percentile(50)) })
		row("round trip", c.name+" p99", "ms", func(r *result) string { return ms(r.rtts[i].Percentile(99)) })
		row("round trip", c.name+" lost", "%", func(r *result) string {
			return when(r.rtts[i].Sent > 0, "%.1f", 100*float64(r.rtts[i].Lost())/float64(r.rtts[i].Sent))
		})
	}
	row("drops", "the one queue", "packets", func(r *result) string {
		_, bands := r.drops[classes[0].band]
		return when(!bands, "%d", r.drops["1:1"])
	})
	for _, c := range classes {
		row("drops", "band "+c.band+" "+c.name, "packets", func(r *result) string {
			n, there := r.drops[c.band]
			return when(there, "%d", n)
		})
	}
	row("doorbell", "packets for each", "", func(r *result) string { return fmt.Sprintf("%.2f", r.perBell) })
	row("BQL", "limit", "bytes", func(r *result) string { return when(r.limited, "%d", r.limit) })
	row("BQL", "in flight, peak", "bytes", func(r *result) string { return when(r.limited, "%d", r.peak) })
}

// when formats a value that not every phase has.
func when(there bool, format string, v any) string {
	if !there {
		return "·"
	}
	return fmt.Sprintf(format, v)
}

func ms(d time.Duration) string {
	return when(d > 0, "%.2f", float64(d)/float64(time.Millisecond))
}

// verdict says in one sentence what the numbers of the voice class show.
func verdict(rs []result) string {
	var p99 [3]time.Duration
	for i := range p99 {
		p99[i] = rs[i].rtts[0].Percentile(99)
		if p99[i] == 0 {
			return fmt.Sprintf("This run shows nothing: no probe of the voice class came back in the %s phase.", rs[i].name)
		}
	}
	idle, fifo, shaped := p99[0], p99[1], p99[2]
	lost, sent := rs[2].rtts[0].Lost(), rs[2].rtts[0].Sent
	numbers := fmt.Sprintf("p99 %s ms idle, %s ms behind the FIFO, %s ms shaped", ms(idle), ms(fifo), ms(shaped))
	busy := fmt.Sprintf("load average %s on %d processors", loadAverage(), runtime.NumCPU())
	limit := near.Milliseconds()
	switch {
	case idle > near:
		return fmt.Sprintf("This run shows little, because voice was late even on the idle path: %s (%s).", numbers, busy)
	case lost*100 > sent:
		return fmt.Sprintf("This run does not show what it should: voice lost %d of %d probes in the shaped phase (%s).", lost, sent, numbers)
	case shaped > idle+near:
		return fmt.Sprintf("This run does not show what it should: voice was more than %d ms slower shaped than idle (%s; %s).", limit, numbers, busy)
	case fifo <= idle+near:
		return fmt.Sprintf("This run does not show what it should: the FIFO did not delay voice by more than %d ms (%s).", limit, numbers)
	}
	return fmt.Sprintf("Under twice the load the FIFO makes voice wait; the shaped policy keeps it within %d ms of the idle path (%s).", limit, numbers)
}

// loadAverage is the machine's, of the last minute: what competes with the
// router and the hosts for processors.
func loadAverage() string {
	data, _ := os.ReadFile("/proc/loadavg")
	average, _, _ := strings.Cut(string(data), " ")
	return average
}
