// Packet path.

package sfq

import (
	"sluice/qdisc"
	"sluice/qdisc/internal/aqm"
)

// early is how flows detect congestion before they are full.
type early struct {
	on       bool
	ecn      bool // marks instead of dropping
	harddrop bool // but not above max
	law      aqm.RED
}

// redStats are struct tc_sfqred_stats.
type redStats struct {
	probMark, probMarkHead, probDrop       uint64
	forcedMark, forcedMarkHead, forcedDrop uint64
}

// congested says whether the flow of s has to drop a packet on p's arrival, and
// marks one instead where it may: with headdrop the oldest, whose sender hears of
// it first. A flow is never idle, it ends.
func (q *sfq) congested(ctx *qdisc.Context, s *slot, p *qdisc.Packet) bool {
	e, n := &q.early, &q.stats
	mark, markHead, drop := &n.probMark, &n.probMarkHead, &n.probDrop
	may := e.ecn
	switch e.law.Arrives(ctx, &s.red, s.Bytes()) {
	case aqm.Pass:
		return false
	case aqm.Hard:
		mark, markHead, drop = &n.forcedMark, &n.forcedMarkHead, &n.forcedDrop
		may = e.ecn && !e.harddrop
	}
	q.Overlimits++
	switch {
	case may && q.headdrop && s.Len() > 0 && qdisc.SetCE(s.Front()):
		*markHead++
		return false
	case may && qdisc.SetCE(p):
		*mark++
		return false
	}
	*drop++
	return true
}
