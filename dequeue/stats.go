// Packet path: counters, and their copies for the admin side.

package dequeue

import (
	"math/bits"

	"sluice/bql"
)

// TxqStats are the counters of a [Txq]. Lists, packets and doorbells are counted
// apart: how many packets share a bell is what batching is about.
type TxqStats struct {
	Packets, Bytes            uint64 // posted; bytes by Len
	Lists                     uint64 // lists handed over by runners
	Bells                     uint64 // doorbells rung, every repetition counted
	Completed, CompletedBytes uint64 // reaped
	Lost                      uint64 // posted, then lost by the device

	Refused     uint64 // Post said no (NETDEV_TX_BUSY)
	DriverStops uint64 // times driver XOFF was set
	StackStops  uint64 // times BQL stopped the queue
	Wakes       uint64 // times a stopped queue became live
	Timeouts    uint64 // trans_timeout

	Unrung   int // packets posted and invisible now
	InFlight int // packets posted and not completed now

	Limited bool         // it has BQL
	BQL     bql.Snapshot // zero when not Limited

	PacketsPerBell Histogram // packets a doorbell made visible
}

// Stats returns a copy of the counters. The owning worker only.
func (t *Txq) Stats() TxqStats {
	s := t.stats
	s.Lost = t.driver.Lost()
	s.Unrung, s.InFlight = t.unrung, t.inflight
	if s.Limited = t.limited; t.limited {
		s.BQL = t.bql.Snapshot()
	}
	return s
}

// RunnerStats are the counters of a [Runner].
type RunnerStats struct {
	Runs           uint64 // __qdisc_run
	Restarts       uint64 // lists dequeued and handed to a txq
	Packets, Bytes uint64 // taken by a driver; bytes by PktLen
	Bypassed       uint64 // packets among them that skipped the empty discipline
	Requeues       uint64 // packets put back
	QuotaExhausted uint64 // runs that ended with work left
	Refused        uint64 // dropped because there is no queue (noqueue)
	BulkMax        int    // packets of the longest list

	PacketsPerList Histogram
}

// Stats returns a copy of the counters. The owning worker only.
func (r *Runner) Stats() RunnerStats { return r.stats }

// Histogram counts values by powers of two: bucket i has those from 2^i to
// 2^(i+1)-1, the last one all above, too.
type Histogram [12]uint64

// add counts n, which is at least 1.
func (h *Histogram) add(n int) {
	h[min(bits.Len(uint(n))-1, len(h)-1)]++
}
