// Packet path.

package sfq

import "sluice/qdisc"

// early is how flows detect congestion before they are full (struct red_parms).
type early struct {
	on       bool
	ecn      bool // marks instead of dropping
	harddrop bool // but not above max
	min, max uint32
	wlog     uint8
	maxP     uint32 // probability at max, in 2⁻³²
}

// red is what one flow knows (struct red_vars). Averages are scaled by 2^wlog.
type red struct {
	avg   uint64
	count int32  // packets since the last mark; −1: not between min and max
	draw  uint32 // count × excess at which the next one comes
}

var newRED = red{count: -1}

type redStats struct {
	probMark, probMarkHead, probDrop       uint64
	forcedMark, forcedMarkHead, forcedDrop uint64
}

// average takes a flow's backlog into its average (red_calc_qavg_no_idle_time; a
// flow is never idle here: it ends).
func (r *red) average(e *early, backlog int) {
	r.avg += uint64(backlog) - r.avg>>e.wlog
}

// congested says whether the flow of s has to drop a packet on p's arrival, and
// marks one instead where it may.
func (q *sfq) congested(ctx *qdisc.Context, s *slot, p *qdisc.Packet) bool {
	e, r := &q.early, &s.red
	r.average(e, s.Bytes())
	switch {
	case r.avg < uint64(e.min)<<e.wlog:
		r.count = -1
		return false
	case r.avg >= uint64(e.max)<<e.wlog:
		r.count = -1
		q.Overlimits++
		switch {
		case !e.ecn || e.harddrop:
		case q.headdrop && s.Len() > 0 && qdisc.SetCE(s.Front()):
			q.stats.forcedMarkHead++
			return false
		case qdisc.SetCE(p):
			q.stats.forcedMark++
			return false
		}
		q.stats.forcedDrop++
		return true
	}
	r.count++
	if r.count == 0 {
		r.draw = e.random(ctx)
		return false
	}
	excess := r.avg>>e.wlog - uint64(e.min)
	if excess*uint64(r.count) < uint64(r.draw) {
		return false
	}
	r.count, r.draw = 0, e.random(ctx)
	q.Overlimits++
	switch {
	case !e.ecn:
	case q.headdrop && s.Len() > 0 && qdisc.SetCE(s.Front()):
		q.stats.probMarkHead++
		return false
	case qdisc.SetCE(p):
		q.stats.probMark++
		return false
	}
	q.stats.probDrop++
	return true
}

// random draws when the next mark comes: evenly, so that marks come evenly spaced
// rather than as a lone die would fall (red_random; Floyd and Jacobson 1993 §7).
func (e *early) random(ctx *qdisc.Context) uint32 {
	step := max(e.maxP/max(e.max-e.min, 1), 1)
	return uint32(ctx.Rand.Uint64()>>32) / step
}
