// Packet path.

package cake

import (
	"encoding/binary"
	"math/bits"

	"sluice/qdisc"
)

// tinMode is a way to share the rate among tins.
type tinMode uint8

const (
	diffserv3 tinMode = iota
	diffserv4
	diffserv8
	besteffort
	precedence
)

// selector finds the tin of a packet.
type selector struct {
	mode  *mode
	mask  uint32 // of the mark; 0: the mark says nothing
	shift uint8  // lowest bit of mask
	wash  bool
}

func (s *selector) setMask(mask uint32) {
	s.mask, s.shift = mask, uint8(bits.TrailingZeros32(mask)%32)
}

// dscpARP is what ARP counts as: CS7, for nothing works without it.
const dscpARP = 56

// tinOf returns the tin of p: as the mark says, else as a priority that names one
// of ours says, else by DSCP.
func (q *cake) tinOf(p *qdisc.Packet) int {
	s := &q.pick
	dscp := p.DSCP()
	if p.EtherType == etherARP {
		dscp = dscpARP
	}
	if s.wash {
		wash(p)
	}
	if n := p.Mark & s.mask >> s.shift; n > 0 && n <= uint32(q.n) {
		return int(s.mode.order[n-1])
	}
	if n := p.Priority & 0xffff; p.Priority>>16 == q.handle && n > 0 && n <= uint32(q.n) {
		return int(s.mode.order[n-1])
	}
	return int(s.mode.tin[dscp])
}

// wash clears the DSCP of p and leaves ECN alone.
func wash(p *qdisc.Packet) {
	if p.L3 == 0 || p.DSCP() == 0 {
		return
	}
	h := p.Bytes()[p.L3:]
	switch p.EtherType {
	case etherIPv4:
		tos := h[1]
		h[1] = tos & 3
		// RFC 1624 eqn. 3, in ones' complement.
		sum := uint32(^binary.BigEndian.Uint16(h[10:])) + uint32(^uint16(tos)) + uint32(h[1])
		sum = sum&0xffff + sum>>16
		sum = sum&0xffff + sum>>16
		binary.BigEndian.PutUint16(h[10:], ^uint16(sum))
	case etherIPv6:
		h[0] &= 0xf0
		h[1] &= 0x3f
	default:
		return
	}
	p.TOS &= 3
}

// mode is the table of one tinMode.
type mode struct {
	name  string
	tins  []tinConfig
	order []uint8   // tins as they are numbered outside, and shown
	names []string  // in that order; nil: by number
	tin   [64]uint8 // of each DSCP
}

// tinConfig is a tin's part of the whole rate, and its weight where there is none.
type tinConfig struct {
	rate    func(whole uint64) uint64
	quantum int
}

func shifted(n uint, quantum int) tinConfig {
	return tinConfig{func(whole uint64) uint64 { return whole >> n }, quantum}
}

// eighths are eight tins of which each has 7/8 of the one before.
func eighths() []tinConfig {
	var all []tinConfig
	quantum := 256
	for i := range maxTins {
		all = append(all, tinConfig{func(whole uint64) uint64 {
			for range i {
				hi, lo := bits.Mul64(whole, 7)
				whole = hi<<61 | lo>>3
			}
			return whole
		}, quantum})
		quantum = quantum * 7 / 8
	}
	return all
}

// byDSCP makes a table in which everything not listed is def.
func byDSCP(def uint8, tins map[uint8][]uint8) (t [64]uint8) {
	for i := range t {
		t[i] = def
	}
	for tin, codes := range tins {
		for _, c := range codes {
			t[c] = tin
		}
	}
	return t
}

// modes are the tables, by tinMode. Code points: LE 1 (RFC 8622), CS0..CS7 8n,
// AF 10..38 (RFC 2597), VA 44 (RFC 5865), EF 46 (RFC 3246); 2 and 4 are TOS bits
// of old.
var modes = [...]mode{
	diffserv3: {
		name:  "diffserv3",
		tins:  []tinConfig{shifted(0, 1024), shifted(4, 64), shifted(2, 256)},
		order: []uint8{1, 0, 2},
		names: []string{"Bulk", "Best Effort", "Voice"},
		tin:   byDSCP(0, map[uint8][]uint8{1: {1, 8}, 2: {4, 44, 46, 48, 56}}),
	},
	diffserv4: {
		name:  "diffserv4",
		tins:  []tinConfig{shifted(0, 1024), shifted(4, 64), shifted(1, 512), shifted(2, 256)},
		order: []uint8{1, 0, 2, 3},
		names: []string{"Bulk", "Best Effort", "Video", "Voice"},
		tin: byDSCP(0, map[uint8][]uint8{
			1: {1, 8},
			2: {4, 16, 18, 20, 22, 24, 26, 28, 30, 34, 36, 38},
			3: {32, 40, 44, 46, 48, 56},
		}),
	},
	diffserv8: {
		name:  "diffserv8",
		tins:  eighths(),
		order: []uint8{0, 1, 2, 3, 4, 5, 6, 7},
		tin: byDSCP(2, map[uint8][]uint8{
			0: {1},
			1: {2, 8, 10, 12, 14},
			3: {24, 26, 28, 30, 34, 36, 38},
			4: {4, 18, 20, 22},
			5: {16},
			6: {32, 40, 44, 46},
			7: {48, 56},
		}),
	},
	besteffort: {
		name:  "besteffort",
		tins:  []tinConfig{shifted(0, 65535)},
		order: []uint8{0},
	},
	precedence: {
		name:  "precedence",
		tins:  eighths(),
		order: []uint8{0, 1, 2, 3, 4, 5, 6, 7},
		tin: func() (t [64]uint8) {
			for dscp := range t {
				t[dscp] = uint8(dscp >> 3)
			}
			return t
		}(),
	},
}
