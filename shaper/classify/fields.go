// Admin path.

package classify

import (
	"fmt"
	"math"
	"strconv"
)

// fieldInfo is what the match language knows of a number in a packet.
type fieldInfo struct {
	word  string // keyword
	max   uint32
	noun  string // for "… is expected"
	hex   bool   // printed in hexadecimal
	names []name
}

type name struct {
	word string
	n    uint32
}

var fields = [numFields]fieldInfo{
	fieldDSCP:      {word: "dscp", max: 63, noun: "a DSCP (0 to 63, or a name such as ef, af41, cs6)", names: dscpNames},
	fieldECN:       {word: "ecn", max: 3, noun: "an ECN code point (not-ect, ect1, ect0, ce)", names: ecnNames},
	fieldVLAN:      {word: "vlan", max: 4095, noun: "a VLAN number (0 to 4095)"},
	fieldPCP:       {word: "pcp", max: 7, noun: "a VLAN priority (0 to 7)"},
	fieldEtherType: {word: "ethertype", max: math.MaxUint16, noun: "an EtherType (such as 0x8863)", hex: true},
	fieldProto:     {word: "proto", max: math.MaxUint8, noun: "an IP protocol (0 to 255, or a name such as icmp)", names: protoNames},
	fieldPort:      {word: "port", max: math.MaxUint16, noun: "a port (0 to 65535)"},
	fieldSrcPort:   {word: "src port", max: math.MaxUint16, noun: "a port (0 to 65535)"},
	fieldDstPort:   {word: "dst port", max: math.MaxUint16, noun: "a port (0 to 65535)"},
	fieldLength:    {word: "length", max: math.MaxUint16, noun: "a length in bytes (0 to 65535)"},
	fieldPriority:  {word: "priority", max: math.MaxUint32, noun: "a priority (a number)"},
	fieldMark:      {word: "mark", max: math.MaxUint32, noun: "a mark (a number)", hex: true},
}

// Code points by their names in RFC 2474 (cs), 2597 (af), 3246 (ef), 5865 (va)
// and 8622 (le).
var dscpNames = []name{
	{"cs0", 0}, {"cs1", 8}, {"cs2", 16}, {"cs3", 24}, {"cs4", 32}, {"cs5", 40}, {"cs6", 48}, {"cs7", 56},
	{"af11", 10}, {"af12", 12}, {"af13", 14}, {"af21", 18}, {"af22", 20}, {"af23", 22},
	{"af31", 26}, {"af32", 28}, {"af33", 30}, {"af41", 34}, {"af42", 36}, {"af43", 38},
	{"ef", 46}, {"va", 44}, {"le", 1}, {"be", 0}, {"df", 0},
}

var ecnNames = []name{{"not-ect", 0}, {"ect1", 1}, {"ect0", 2}, {"ce", 3}}

var protoNames = []name{
	{"icmp", ProtoICMP}, {"igmp", 2}, {"ipip", 4}, {"tcp", ProtoTCP}, {"udp", ProtoUDP}, {"dccp", ProtoDCCP},
	{"ip6ip", 41}, {"gre", 47}, {"esp", ProtoESP}, {"icmp6", ProtoICMPv6}, {"ospf", 89}, {"pim", 103},
	{"vrrp", 112}, {"l2tp", 115}, {"sctp", ProtoSCTP}, {"udplite", ProtoUDPLite},
}

// bare are the words that are a whole test by themselves.
var bare = []struct {
	word  string
	field field
	n     uint32
}{
	{"ip", fieldEtherType, EtherIPv4}, {"ip6", fieldEtherType, EtherIPv6}, {"arp", fieldEtherType, EtherARP},
	{"tcp", fieldProto, ProtoTCP}, {"udp", fieldProto, ProtoUDP}, {"sctp", fieldProto, ProtoSCTP},
	{"icmp", fieldProto, ProtoICMP}, {"icmp6", fieldProto, ProtoICMPv6}, {"fragment", fieldFragment, 1},
}

// DSCP returns the code point of a name such as ef, af41, cs6, or of a number.
func DSCP(s string) (uint8, bool) {
	n, ok := fields[fieldDSCP].number(s)
	return uint8(n), ok
}

// DSCPName returns the name of a code point, or its number when it has none.
func DSCPName(dscp uint8) string { return fields[fieldDSCP].text(uint32(dscp)) }

// ECNName returns the name of an ECN code point.
func ECNName(ecn uint8) string { return fields[fieldECN].text(uint32(ecn & 3)) }

// number reads a name or a decimal or 0x number that the field can have.
func (f *fieldInfo) number(s string) (uint32, bool) {
	for _, n := range f.names {
		if n.word == s {
			return n.n, true
		}
	}
	base := 10
	if len(s) > 2 && s[:2] == "0x" {
		s, base = s[2:], 16
	}
	n, err := strconv.ParseUint(s, base, 32)
	return uint32(n), err == nil && uint32(n) <= f.max
}

// text is the inverse of number.
func (f *fieldInfo) text(n uint32) string {
	for _, x := range f.names {
		if x.n == n {
			return x.word
		}
	}
	if f.hex {
		return fmt.Sprintf("%#x", n)
	}
	return strconv.FormatUint(uint64(n), 10)
}
