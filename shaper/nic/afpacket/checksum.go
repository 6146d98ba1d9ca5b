// Packet path.

package afpacket

import "encoding/binary"

// complete does what VIRTIO_NET_HDR_F_NEEDS_CSUM asks for: it sums everything
// from start, where the checksum field holds the sum of the pseudo header, and
// stores the result in that field. Frames of a local stack come unfinished when
// the device promised to finish them. It returns false when the field is not in
// the frame.
func complete(frame []byte, start, offset int) bool {
	at := start + offset
	if at+2 > len(frame) {
		return false
	}
	var s uint64
	b := frame[start:]
	for ; len(b) >= 4; b = b[4:] {
		s += uint64(binary.BigEndian.Uint32(b))
	}
	switch len(b) {
	case 3:
		s += uint64(binary.BigEndian.Uint16(b))<<16 + uint64(b[2])<<8
	case 2:
		s += uint64(binary.BigEndian.Uint16(b)) << 16
	case 1:
		s += uint64(b[0]) << 24
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	check := ^uint16(s)
	if check == 0 {
		check = 0xffff // 0 means "none" in UDP (RFC 768)
	}
	binary.BigEndian.PutUint16(frame[at:], check)
	return true
}
