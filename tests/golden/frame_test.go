package golden_test

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"sluice/qdisc"
	"sluice/shaper/classify"
)

// frame is an injected frame. Len is the whole Ethernet frame without FCS.
type frame struct {
	ID, Len      int
	Prio, Mark   uint32
	DSCP, ECN    uint8
	Proto        string
	Src, Dst     string
	Sport, Dport uint16
	Eth, VLAN    uint16
}

var transports = map[string]struct {
	number   uint8
	v6, port bool
	header   int
}{
	"udp": {classify.ProtoUDP, false, true, 8}, "udp6": {classify.ProtoUDP, true, true, 8},
	"tcp": {classify.ProtoTCP, false, true, 20}, "tcp6": {classify.ProtoTCP, true, true, 20},
	"icmp": {classify.ProtoICMP, false, false, 8}, "icmp6": {classify.ProtoICMPv6, true, false, 8},
}

// packet builds the frame. Its number is in the source address of the link
// layer, where nobody looks for it but number.
func (f *frame) packet(t reporter, pool *qdisc.Pool) *qdisc.Packet {
	t.Helper()
	p := pool.Get()
	if p == nil {
		t.Fatalf("out of packets")
	}
	p.SetLen(f.Len)
	b := p.Bytes()
	clear(b)
	binary.BigEndian.PutUint32(b[8:], uint32(f.ID))
	f.network(t, b)
	classify.ParseHeaders(p)
	p.Priority, p.Mark = f.Prio, f.Mark
	return p
}

func (f *frame) network(t reporter, b []byte) {
	t.Helper()
	eth := b[12:]
	if f.VLAN != 0 {
		binary.BigEndian.PutUint16(eth, classify.EtherVLAN)
		binary.BigEndian.PutUint16(eth[2:], f.VLAN)
		eth = eth[4:]
	}
	network := eth[2:]
	l4, isIP := transports[f.Proto]
	switch {
	case f.Proto == "arp":
		binary.BigEndian.PutUint16(eth, classify.EtherARP)
		return
	case !isIP:
		binary.BigEndian.PutUint16(eth, f.Eth)
		return
	case l4.v6:
		binary.BigEndian.PutUint16(eth, classify.EtherIPv6)
		binary.BigEndian.PutUint32(network, 6<<28|uint32(f.DSCP<<2|f.ECN)<<20)
		binary.BigEndian.PutUint16(network[4:], uint16(len(network)-40))
		network[6], network[7] = l4.number, 64
		f.addresses(t, network[8:40], "fd00::1", "fd00::2")
		network = network[40:]
	default:
		binary.BigEndian.PutUint16(eth, classify.EtherIPv4)
		network[0], network[1] = 0x45, f.DSCP<<2|f.ECN
		binary.BigEndian.PutUint16(network[2:], uint16(len(network)))
		network[8], network[9] = 64, l4.number
		f.addresses(t, network[12:20], "10.0.0.1", "10.0.0.2")
		network = network[20:]
	}
	if l4.port && len(network) >= 4 {
		binary.BigEndian.PutUint16(network, f.Sport)
		binary.BigEndian.PutUint16(network[2:], f.Dport)
	}
	if strings.HasPrefix(f.Proto, "tcp") && len(network) >= 13 {
		network[12] = 5 << 4
	}
	if strings.HasPrefix(f.Proto, "udp") && len(network) >= 6 {
		binary.BigEndian.PutUint16(network[4:], uint16(len(network)))
	}
}

func (f *frame) addresses(t reporter, b []byte, src, dst string) {
	t.Helper()
	for i, given := range []string{f.Src, f.Dst} {
		if given == "" {
			given = []string{src, dst}[i]
		}
		a, err := netip.ParseAddr(given)
		if err != nil {
			t.Fatalf("frame %d: %v", f.ID, err)
		}
		copy(b[i*len(b)/2:], a.AsSlice())
	}
}

// number returns the ID of the frame in p.
func number(p *qdisc.Packet) int { return int(binary.BigEndian.Uint32(p.Bytes()[8:])) }
