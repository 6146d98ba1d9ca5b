// Packet path.

package classify

import "sluice/qdisc"

// Priorities (linux/pkt_sched.h TC_PRIO_*).
const (
	PrioBestEffort      = 0
	PrioFiller          = 1
	PrioBulk            = 2
	PrioInteractiveBulk = 4
	PrioInteractive     = 6
	PrioControl         = 7
)

// tosPriority is the kernel's TOS-to-priority map as tc-prio(8) documents it, by
// the four TOS bits of RFC 1349.
var tosPriority = [16]uint8{
	PrioBestEffort, PrioBestEffort, PrioBestEffort, PrioBestEffort,
	PrioBulk, PrioBulk, PrioBulk, PrioBulk,
	PrioInteractive, PrioInteractive, PrioInteractive, PrioInteractive,
	PrioInteractiveBulk, PrioInteractiveBulk, PrioInteractiveBulk, PrioInteractiveBulk,
}

// TOSPriority maps a TOS octet to a priority as the kernel does when it
// forwards (rt_tos2priority).
//
// The map is older than DSCP and reads bits 1 to 4 only, the lower half of a
// code point. So EF (0xb8) and AF13 come out as interactive bulk, AF11 and AF12
// as bulk and interactive, and every class selector, network control (CS6)
// included, as best effort: by prio's default map EF is in the middle band.
// Whoever wants code points by name filters on them.
func TOSPriority(tos uint8) uint32 { return uint32(tosPriority[tos>>1&15]) }

// SetPriority derives p.Priority from the TOS octet. What is not IP or is
// malformed gets 0.
//
// Preconditions: p is parsed.
func SetPriority(p *qdisc.Packet) {
	if p.Flags&qdisc.Malformed != 0 {
		p.Priority = PrioBestEffort
		return
	}
	p.Priority = TOSPriority(p.TOS)
}
