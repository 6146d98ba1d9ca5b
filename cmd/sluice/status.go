package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"sluice/dequeue"
	"sluice/shaper"
)

// writeStatus prints a status for a person.
func writeStatus(w io.Writer, s *shaper.Status) {
	edited := ""
	if s.Edited {
		edited = ", edited by hand since"
	}
	fmt.Fprintf(w, "policy %s%s, up %v\n", s.Config, edited, s.Uptime.Round(time.Second))
	b := s.Balance
	fmt.Fprintf(w, "packets received %d = sent %d + dropped %d + queued %d", b.Received, b.Sent, b.Dropped, b.Queued)
	if !b.Even() {
		fmt.Fprint(w, " (DOES NOT ADD UP)")
	}
	fmt.Fprintln(w)
	for _, reason := range slices.Sorted(maps.Keys(s.Worker.Drops)) {
		fmt.Fprintf(w, "  dropped %s %d\n", reason, s.Worker.Drops[reason])
	}
	fmt.Fprintf(w, "worker turns %d wakes %d (empty %d) frames %d of %d free\n",
		s.Worker.Turns, s.Worker.Wakes, s.Worker.EmptyWakes, s.Worker.PoolFree, s.Worker.PoolSize)
	for _, p := range s.Ports {
		state := ""
		if p.Down {
			state = " DOWN"
		}
		fmt.Fprintf(w, "port %s link %s driver %s mtu %d%s\n", p.Name, p.Link, p.Driver, p.MTU, state)
		for i, rx := range p.Rx {
			fmt.Fprintf(w, "  rx %d packets %d bytes %d dropped %d errors %d\n", i, rx.Packets, rx.Bytes, rx.Drops, rx.Errors)
		}
		r := p.Runner
		fmt.Fprintf(w, "  qdisc backlog %db %dp runs %d restarts %d requeues %d quota exhausted %d bypassed %d\n",
			p.Backlog, p.Qlen, r.Runs, r.Restarts, r.Requeues, r.QuotaExhausted, r.Bypassed)
		for i, t := range p.Txqs {
			fmt.Fprintf(w, "  txq %d packets %d bytes %d lost %d bells %d packets/bell %.1f stops driver %d bql %d timeouts %d%s\n",
				i, t.Packets, t.Bytes, t.Lost, t.Bells, perBell(t), t.DriverStops, t.StackStops, t.Timeouts, bqlText(t))
		}
	}
}

func perBell(t dequeue.TxqStats) float64 {
	if t.Bells == 0 {
		return 0
	}
	return float64(t.Packets) / float64(t.Bells)
}

func bqlText(t dequeue.TxqStats) string {
	if !t.Limited {
		return " bql none"
	}
	return fmt.Sprintf(" bql limit %d inflight %d", t.BQL.Limit, t.BQL.Inflight)
}
