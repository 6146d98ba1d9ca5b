package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/dequeue"
	"sluice/shaper"
	"sluice/shaper/tc"
)

// writeStatus prints a status for a person: what the engine did with its packets,
// then a table each of ports, what they received, and what they sent. Bands and
// classes are `class show`'s.
func writeStatus(w io.Writer, s *shaper.Status) error {
	var out bytes.Buffer
	edited := ""
	if s.Edited {
		edited = " (edited by hand since)"
	}
	fmt.Fprintf(&out, "policy   %s%s, up %v\n", s.Config, edited, s.Uptime.Round(time.Second))
	b := s.Balance
	fmt.Fprintf(&out, "packets  received %d = sent %d + dropped %d + queued %d", b.Received, b.Sent, b.Dropped, b.Queued)
	if !b.Even() {
		fmt.Fprint(&out, "  DOES NOT ADD UP")
	}
	drops := "none"
	if len(s.Worker.Drops) > 0 {
		drops = ""
		for _, reason := range slices.Sorted(maps.Keys(s.Worker.Drops)) {
			drops += fmt.Sprintf("%s %d  ", reason, s.Worker.Drops[reason])
		}
	}
	fmt.Fprintf(&out, "\ndrops    %s\n", strings.TrimSpace(drops))
	fmt.Fprintf(&out, "worker   turns %d  wakes %d (%d for nothing)  buffers free %d of %d  shed %d\n",
		s.Worker.Turns, s.Worker.Wakes, s.Worker.EmptyWakes, s.Worker.PoolFree, s.Worker.PoolSize, s.Worker.Shed)

	ports := table{{"port", "link", "driver", "state", "mtu", "backlog", "queued", "runs", "restarts", "requeues", "quota spent", "bypassed"}}
	rx := table{{"port", "rx", "packets", "bytes", "dropped", "errors"}}
	tx := table{{"port", "tx", "packets", "bytes", "lost", "bells", "pkts/bell", "in flight", "bql limit", "bql stops", "driver stops", "timeouts"}}
	for _, p := range s.Ports {
		state, r := "up", p.Runner
		if p.Down {
			state = "down"
		}
		ports.row(p.Name, p.Link, p.Driver, state, p.MTU, tc.FormatSize(uint64(p.Backlog)), p.Qlen,
			r.Runs, r.Restarts, r.Requeues, r.QuotaExhausted, r.Bypassed)
		for i, q := range p.Rx {
			rx.row(p.Name, i, q.Packets, q.Bytes, q.Drops, q.Errors)
		}
		for i, t := range p.Txqs {
			tx.row(p.Name, i, t.Packets, t.Bytes, t.Lost, t.Bells, perBell(t), t.InFlight, bqlLimit(t),
				t.StackStops, t.DriverStops, t.Timeouts)
		}
	}
	ports.write(&out, 4)
	rx.write(&out, 1)
	tx.write(&out, 1)
	_, err := w.Write(out.Bytes())
	return err
}

func perBell(t dequeue.TxqStats) string {
	if t.Bells == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(t.Packets)/float64(t.Bells))
}

func bqlLimit(t dequeue.TxqStats) string {
	if !t.Limited {
		return "-"
	}
	return fmt.Sprint(t.BQL.Limit)
}

// table is rows of cells, the head first.
type table [][]string

func (t *table) row(cells ...any) {
	var r []string
	for _, c := range cells {
		r = append(r, fmt.Sprint(c))
	}
	*t = append(*t, r)
}

// write prints the table below a blank line, words to the left in the first
// columns, numbers to the right in the others.
func (t table) write(w *bytes.Buffer, words int) {
	width := make([]int, len(t[0]))
	for _, row := range t {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	w.WriteByte('\n')
	for _, row := range t {
		line := ""
		for i, cell := range row {
			if i < words {
				line += fmt.Sprintf("%-*s  ", width[i], cell)
			} else {
				line += fmt.Sprintf("%*s  ", width[i], cell)
			}
		}
		w.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}
