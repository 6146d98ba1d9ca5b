package lab

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// Flow is what the frames of a UDP flow have in common. IPv4 or IPv6, by the
// addresses.
type Flow struct {
	SrcMAC, DstMAC net.HardwareAddr
	Src, Dst       netip.AddrPort
	TOS            uint8   // IPv4 TOS or IPv6 traffic class
	VLAN           *uint16 // 802.1Q tag control information
}

// Frame returns a UDP frame of the flow that is size bytes long without FCS,
// its payload zero, its checksums right. It panics when size cannot hold the
// headers.
func (f Flow) Frame(size int) []byte {
	return f.frame(size, nil)
}

// Payload returns a UDP frame of the flow that carries a payload.
func (f Flow) Payload(payload []byte) []byte {
	size := 14 + 20 + 8 + len(payload)
	if !f.Src.Addr().Is4() {
		size += 20
	}
	if f.VLAN != nil {
		size += 4
	}
	return f.frame(size, payload)
}

func (f Flow) frame(size int, payload []byte) []byte {
	b := make([]byte, 0, size)
	b = append(b, f.DstMAC...)
	b = append(b, f.SrcMAC...)
	if f.VLAN != nil {
		b = binary.BigEndian.AppendUint16(b, 0x8100)
		b = binary.BigEndian.AppendUint16(b, *f.VLAN)
	}
	src, dst := f.Src.Addr(), f.Dst.Addr()
	l3 := len(b) + 2
	l4 := l3 + 20
	if !src.Is4() {
		l4 = l3 + 40
	}
	udpLen := uint16(size - l4)
	if src.Is4() {
		b = append(b, 0x08, 0x00, 0x45, f.TOS)
		b = binary.BigEndian.AppendUint16(b, uint16(size-l3))
		b = append(b, 0, 0, 0x40, 0, 64, 17, 0, 0) // don't fragment, TTL 64, UDP
		b = append(b, src.AsSlice()...)
		b = append(b, dst.AsSlice()...)
		binary.BigEndian.PutUint16(b[l3+10:], ^fold(sum(0, b[l3:])))
	} else {
		b = append(b, 0x86, 0xdd)
		b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(f.TOS)<<20)
		b = binary.BigEndian.AppendUint16(b, udpLen)
		b = append(b, 17, 64) // UDP, hop limit 64
		b = append(b, src.AsSlice()...)
		b = append(b, dst.AsSlice()...)
	}
	b = binary.BigEndian.AppendUint16(b, f.Src.Port())
	b = binary.BigEndian.AppendUint16(b, f.Dst.Port())
	b = binary.BigEndian.AppendUint16(b, udpLen)
	b = append(b, 0, 0)
	b = append(b, payload...)
	b = b[:size]

	// The pseudo header's addresses, protocol and length (RFC 768, RFC 8200 §8.1).
	s := sum(0, src.AsSlice())
	s = sum(s, dst.AsSlice())
	s += 17 + uint32(udpLen)
	check := ^fold(sum(s, b[l4:]))
	if check == 0 {
		check = 0xffff // 0 would mean: no checksum
	}
	binary.BigEndian.PutUint16(b[l4+6:], check)
	return b
}

// sum adds b to a running Internet checksum (RFC 1071).
func sum(s uint32, b []byte) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}

func fold(s uint32) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
