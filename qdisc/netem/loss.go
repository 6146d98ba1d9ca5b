// Packet path, except newTable and what it needs.

package netem

import "math"

// lossState is where a loss model stands. The zero state is the good one.
type lossState uint8

const (
	gapSent lossState = iota // 1: no loss; also the good state of Gilbert and Elliott
	burstSent
	burstLost // also the bad state
	gapLost
)

// lossModel is how it is decided which packets are lost.
type lossModel uint8

const (
	random lossModel = iota
	fourStates
	gilbertElliott
)

// loses draws whether the next packet is lost (loss_event).
func (q *netem) loses() bool {
	m := &q.params
	switch m.model {
	case fourStates:
		return q.fourStates()
	case gilbertElliott:
		return q.gilbertElliott()
	}
	return q.hits(m.loss, &q.last.loss, m.lossRho)
}

// fourStates goes one step in the chain: a packet is lost that arrives in a
// state of loss (loss_4state).
func (q *netem) fourStates() bool {
	c := &q.params.chain
	x := uint64(q.rand.Uint64() >> 32)
	switch q.state {
	case gapSent:
		switch {
		case x < uint64(c.p14):
			q.state = gapLost
		case x < uint64(c.p14)+uint64(c.p13):
			q.state = burstLost
		}
	case burstSent:
		if x < uint64(c.p23) {
			q.state = burstLost
		}
	case burstLost:
		switch {
		case x < uint64(c.p32):
			q.state = burstSent
		case x < uint64(c.p32)+uint64(c.p31):
			q.state = gapSent
		}
	case gapLost: // a single one
		q.state = gapSent
	}
	return q.state == burstLost || q.state == gapLost
}

// gilbertElliott goes one step between a good and a bad state, each with its
// chance of a loss (loss_gilb_ell).
func (q *netem) gilbertElliott() bool {
	c := &q.params.chain
	if q.state == gapSent {
		if q.below(c.p) {
			q.state = burstLost
		}
		return q.below(c.lossGood)
	}
	if q.below(c.r) {
		q.state = gapSent
	}
	return q.below(c.lossBad)
}

// scale is the standard deviation in the unit of a table (NETEM_DIST_SCALE).
const scale = 8192

// tableSize is how many equally probable values a table has.
const tableSize = 4096

// tables make the distributions by their names; uniform needs none. They have
// mean 0 and deviation 1 before they are cut at ±4: entry i is the value below
// which a part (i + ½) / tableSize of the distribution lies.
var tables = map[string]func() []int16{
	"uniform":      func() []int16 { return nil },
	"normal":       func() []int16 { return newTable(normalAt) },
	"pareto":       func() []int16 { return newTable(paretoAt) },
	"paretonormal": func() []int16 { return newTable(paretonormalAt) },
}

func newTable(at func(part float64) float64) []int16 {
	t := make([]int16, tableSize)
	for i := range t {
		x := math.Round(scale * at((float64(i)+0.5)/tableSize))
		t[i] = int16(min(max(x, -math.MaxInt16), math.MaxInt16))
	}
	return t
}

func normalAt(part float64) float64 { return math.Sqrt2 * math.Erfinv(2*part-1) }

// shape is that of the Pareto distribution: the smallest whole one that has a
// variance. Its least value is 1, its mean 3/2, its variance 3/4.
const shape = 3

func paretoAt(part float64) float64 {
	return (math.Pow(1-part, -1./shape) - 1.5) / math.Sqrt(0.75)
}

// paretonormalAt is for a quarter of the packets normal, and Pareto for the
// others: it looks for the value with so much of the mixture below it.
func paretonormalAt(part float64) float64 {
	below := func(x float64) float64 {
		n := 0.5 * math.Erfc(-x/math.Sqrt2)
		p := 0.0
		if y := x*math.Sqrt(0.75) + 1.5; y > 1 {
			p = 1 - math.Pow(y, -shape)
		}
		return 0.25*n + 0.75*p
	}
	// To the grain of the table, and no further than it reaches.
	lo, hi := -math.MaxInt16, math.MaxInt16
	for lo < hi {
		if mid := (lo + hi) >> 1; below(float64(mid)/scale) < part {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return float64(lo) / scale
}
