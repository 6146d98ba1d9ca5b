// Packet path, except compile.

package classify

import (
	"encoding/binary"
	"net/netip"

	"sluice/qdisc"
)

// field is a number in a packet.
type field uint8

const (
	fieldNone field = iota
	fieldDSCP
	fieldECN
	fieldVLAN
	fieldPCP
	fieldEtherType
	fieldProto
	fieldPort // either; compiled to the two below
	fieldSrcPort
	fieldDstPort
	fieldLength
	fieldPriority
	fieldMark
	fieldFragment

	numFields

	// Not numbers: tests of an address against networks, by instr.lo.
	fieldSrcNet
	fieldDstNet
)

// instr tests one field against one range and says where to go on. Jumps lead
// forward only; one past the last instruction is yes, two past it no.
type instr struct {
	lo, hi  uint32
	yes, no uint16
	field   field
}

// network is a prefix as two words, IPv4 in the upper half of the first.
type network struct {
	addr, mask [2]uint64
	is4        bool
}

// Match says whether p fulfils the condition.
//
// Preconditions: p is parsed.
func (m *Match) Match(p *qdisc.Packet) bool {
	pc := 0
	for pc < len(m.prog) {
		in := &m.prog[pc]
		var yes bool
		if in.field >= fieldSrcNet {
			yes = m.nets[in.lo].has(p, in.field)
		} else {
			n, ok := load(p, in.field)
			yes = ok && in.lo <= n && n <= in.hi
		}
		pc = int(in.no)
		if yes {
			pc = int(in.yes)
		}
	}
	return pc == len(m.prog)
}

// load reads a field, and says whether the packet has it.
func load(p *qdisc.Packet, f field) (uint32, bool) {
	switch f {
	case fieldNone:
		return 0, true
	case fieldDSCP:
		return uint32(p.DSCP()), isIP(p)
	case fieldECN:
		return uint32(p.ECN()), isIP(p)
	case fieldVLAN:
		return uint32(p.VLAN & 0xfff), p.Flags&qdisc.VLANSet != 0
	case fieldPCP:
		return uint32(p.VLAN >> 13), p.Flags&qdisc.VLANSet != 0
	case fieldEtherType:
		return uint32(p.EtherType), true
	case fieldProto:
		return uint32(p.L4Proto), isIP(p)
	case fieldSrcPort:
		return port(p, 0)
	case fieldDstPort:
		return port(p, 2)
	case fieldLength:
		return uint32(p.Len()), true
	case fieldPriority:
		return p.Priority, true
	case fieldMark:
		return p.Mark, true
	case fieldFragment:
		return 1, p.Flags&qdisc.Fragment != 0
	}
	return 0, false
}

// isIP says whether p has an IP header that could be read.
func isIP(p *qdisc.Packet) bool {
	return p.L3 != 0 && (p.EtherType == EtherIPv4 || p.EtherType == EtherIPv6)
}

func port(p *qdisc.Packet, off int) (uint32, bool) {
	if p.L4 == 0 {
		return 0, false
	}
	switch p.L4Proto {
	case ProtoTCP, ProtoUDP, ProtoSCTP, ProtoDCCP, ProtoUDPLite:
		return uint32(binary.BigEndian.Uint16(p.Bytes()[int(p.L4)+off:])), true
	}
	return 0, false
}

// has says whether the source or destination address of p lies in n.
func (n *network) has(p *qdisc.Packet, f field) bool {
	if !isIP(p) || n.is4 != (p.EtherType == EtherIPv4) {
		return false
	}
	off := int(p.L3)
	if n.is4 {
		off += 12
		if f == fieldDstNet {
			off += 4
		}
		return uint64(binary.BigEndian.Uint32(p.Bytes()[off:]))<<32&n.mask[0] == n.addr[0]
	}
	off += 8
	if f == fieldDstNet {
		off += 16
	}
	a := p.Bytes()[off : off+16]
	return binary.BigEndian.Uint64(a)&n.mask[0] == n.addr[0] && binary.BigEndian.Uint64(a[8:])&n.mask[1] == n.addr[1]
}

// compile turns the expression into instructions. The source is short enough
// (maxSource) for every jump to fit.
func (m *Match) compile() {
	var c compiler
	yes, no := c.label(), c.label()
	c.emit(m.root, yes, no)
	c.at[yes], c.at[no] = len(c.prog), len(c.prog)+1
	for i := range c.prog {
		in := &c.prog[i]
		in.yes, in.no = uint16(c.at[in.yes]), uint16(c.at[in.no])
	}
	m.prog, m.nets = c.prog, c.nets
}

type compiler struct {
	prog []instr // yes and no are labels
	nets []network
	at   []int // instruction that a label stands before
}

func (c *compiler) label() uint16 {
	c.at = append(c.at, 0)
	return uint16(len(c.at) - 1)
}

func (c *compiler) emit(n *node, yes, no uint16) {
	switch n.op {
	case opAny:
		c.prog = append(c.prog, instr{yes: yes, no: no})
	case opNot:
		c.emit(n.kids[0], no, yes)
	case opAnd:
		c.chain(len(n.kids), func(i int, next uint16, last bool) {
			if last {
				next = yes
			}
			c.emit(n.kids[i], next, no)
		})
	case opOr:
		c.chain(len(n.kids), func(i int, next uint16, last bool) {
			if last {
				next = no
			}
			c.emit(n.kids[i], yes, next)
		})
	case opTest, opNet:
		c.tests(n, yes, no)
	}
}

// chain calls emit for 0 to n-1, each with a label for what comes after it.
func (c *compiler) chain(n int, emit func(i int, next uint16, last bool)) {
	for i := range n {
		next := c.label()
		emit(i, next, i == n-1)
		c.at[next] = len(c.prog)
	}
}

// tests emits one instruction for every value, of either direction where both
// will do; one that holds is enough.
func (c *compiler) tests(n *node, yes, no uint16) {
	var tests []instr
	switch {
	case n.op == opTest && n.field == fieldPort:
		for _, s := range n.spans {
			tests = append(tests, instr{field: fieldSrcPort, lo: s.lo, hi: s.hi}, instr{field: fieldDstPort, lo: s.lo, hi: s.hi})
		}
	case n.op == opTest:
		for _, s := range n.spans {
			tests = append(tests, instr{field: n.field, lo: s.lo, hi: s.hi})
		}
	default:
		for _, p := range n.nets {
			index := uint32(len(c.nets))
			c.nets = append(c.nets, newNetwork(p))
			if n.dir != destination {
				tests = append(tests, instr{field: fieldSrcNet, lo: index})
			}
			if n.dir != source {
				tests = append(tests, instr{field: fieldDstNet, lo: index})
			}
		}
	}
	c.chain(len(tests), func(i int, next uint16, last bool) {
		if last {
			next = no
		}
		tests[i].yes, tests[i].no = yes, next
		c.prog = append(c.prog, tests[i])
	})
}

func newNetwork(p netip.Prefix) network {
	n := network{is4: p.Addr().Is4()}
	bits := p.Bits()
	if n.is4 {
		a := p.Addr().As4()
		n.addr[0] = uint64(binary.BigEndian.Uint32(a[:])) << 32
	} else {
		a := p.Addr().As16()
		n.addr[0], n.addr[1] = binary.BigEndian.Uint64(a[:]), binary.BigEndian.Uint64(a[8:])
	}
	n.mask[0] = ^uint64(0) << (64 - min(bits, 64))
	n.mask[1] = ^uint64(0) << (128 - max(bits, 64))
	return n
}
