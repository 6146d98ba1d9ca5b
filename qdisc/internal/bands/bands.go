// Packet path.

// Package bands finds the band of a packet, for the disciplines whose classes
// are numbered bands: prio, ets.
package bands

import "sluice/qdisc"

// Priorities is how many a priomap tells apart (TC_PRIO_MAX + 1).
const Priorities = 16

// Map says which band a packet belongs to: the one that its class names, or its
// priority, if they are of this qdisc; else the one its filters name; else the
// one the priomap has for its priority (prio_classify, ets_classify).
type Map struct {
	Handle  uint32            // the qdisc's major number
	Bands   int               // bands there are
	Filter  qdisc.Classifier  // nil: none
	Priomap [Priorities]uint8 // priority to band, each below Bands
}

// Find returns p's band, or what else became of p. A class that does not exist
// means the band of priority 0.
func (m *Map) Find(ctx *qdisc.Context, p *qdisc.Packet) (band int, v qdisc.FilterVerdict) {
	var minor uint32
	switch {
	case p.Class != 0 && p.Class.Major() == m.Handle:
		minor = p.Class.Minor()
	case p.Priority>>16 == m.Handle:
		minor = p.Priority & 0xffff
	default:
		var class qdisc.ClassID
		if m.Filter != nil {
			v, class = m.Filter.Classify(ctx, p)
		}
		switch v {
		case qdisc.NoMatch:
			priority := p.Priority
			if priority>>16 != 0 { // a class of somebody else
				priority = 0
			}
			return int(m.Priomap[priority%Priorities]), qdisc.Match
		case qdisc.Match:
			minor = class.Minor()
		default:
			return 0, v
		}
	}
	if minor-1 >= uint32(m.Bands) { // 0 wraps
		return int(m.Priomap[0]), qdisc.Match
	}
	return int(minor - 1), qdisc.Match
}

// Class returns the index of the band that id names, and whether there is one.
func (m *Map) Class(id qdisc.ClassID) (band int, ok bool) {
	band = int(id.Minor()) - 1
	return band, id.Major() == m.Handle && band >= 0 && band < m.Bands
}

// Values returns the priomap for printing.
func (m *Map) Values() qdisc.Value {
	v := qdisc.Value{List: make([]uint64, Priorities)}
	for i, b := range m.Priomap {
		v.List[i] = uint64(b)
	}
	return v
}
