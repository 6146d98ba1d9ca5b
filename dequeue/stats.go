// Packet path: counters, and their copies for the admin side.

package dequeue

import (
	"math/bits"

	"sluice/bql"
)

// TxqStats are the counters of a [Txq]. Lists, packets and doorbells are counted
// apart: how many packets share a bell is what batching is about.
type TxqStats struct {
	Packets        uint64 `json:"packets"` // posted; bytes by Len
	Bytes          uint64 `json:"bytes"`
	Lists          uint64 `json:"lists"`     // lists handed over by runners
	Bells          uint64 `json:"bells"`     // doorbells rung, every repetition counted
	Completed      uint64 `json:"completed"` // reaped
	CompletedBytes uint64 `json:"completed_bytes"`
	Lost           uint64 `json:"lost"` // posted, then lost by the device

	Refused     uint64 `json:"refused"`      // Post said no (NETDEV_TX_BUSY)
	DriverStops uint64 `json:"driver_stops"` // times driver XOFF was set
	StackStops  uint64 `json:"stack_stops"`  // times BQL stopped the queue
	Wakes       uint64 `json:"wakes"`        // times a stopped queue became live
	Timeouts    uint64 `json:"timeouts"`     // trans_timeout

	Unrung   int `json:"unrung"`    // packets posted and invisible now
	InFlight int `json:"in_flight"` // packets posted and not completed now

	Limited bool         `json:"limited"` // it has BQL
	BQL     bql.Snapshot `json:"bql"`     // zero when not Limited

	PacketsPerBell Histogram `json:"packets_per_bell"` // packets a doorbell made visible
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
	Runs           uint64 `json:"runs"`     // __qdisc_run
	Restarts       uint64 `json:"restarts"` // lists dequeued and handed to a txq
	Packets        uint64 `json:"packets"`  // taken by a driver; bytes by PktLen
	Bytes          uint64 `json:"bytes"`
	Bypassed       uint64 `json:"bypassed"`        // packets among them that skipped the empty discipline
	Requeues       uint64 `json:"requeues"`        // packets put back
	QuotaExhausted uint64 `json:"quota_exhausted"` // runs that ended with work left
	Refused        uint64 `json:"refused"`         // dropped because there is no queue (noqueue)
	BulkMax        int    `json:"bulk_max"`        // packets of the longest list

	PacketsPerList Histogram `json:"packets_per_list"`
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
