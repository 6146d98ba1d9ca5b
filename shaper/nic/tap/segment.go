// Packet path.

package tap

import "encoding/binary"

// virtio_net_hdr, include/uapi/linux/virtio_net.h.
const (
	vnetLen = 10

	needsCsum = 1 // flags

	gsoNone  = 0 // gso_type
	gsoTCPv4 = 1
	gsoTCPv6 = 4
	gsoUDPL4 = 5
	gsoECN   = 0x80
)

// vnet is a virtio_net_hdr without its hint about the headers' length, which
// does not count a VLAN tag that the TAP put in.
type vnet struct {
	flags, gsoType                 uint8
	gsoSize, csumStart, csumOffset int
}

// readVnet reads the header in the machine's byte order, which is what a TAP
// uses unless told otherwise.
func readVnet(b *[vnetLen]byte) vnet {
	return vnet{
		flags:      b[0],
		gsoType:    b[1],
		gsoSize:    int(binary.NativeEndian.Uint16(b[4:])),
		csumStart:  int(binary.NativeEndian.Uint16(b[6:])),
		csumOffset: int(binary.NativeEndian.Uint16(b[8:])),
	}
}

const (
	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80
)

// cutter cuts one super-packet into wire frames, one at a time and whenever it
// is asked: TCP over IPv4 and IPv6, and UDP whose datagrams were glued together
// (UDP_SEGMENT), behind any VLAN tags, IP options and extension headers. What
// each frame's headers say is what tcp_gso_segment, __udp_gso_segment and
// inet_gso_segment make the kernel say.
type cutter struct {
	b        []byte // the super-packet; nil when there is none
	l3, l4   int    // where its network and transport headers start
	data     int    // where its payload starts
	check    int    // where the transport checksum is
	mss      int    // payload of every frame but the last
	v6, udp  bool
	pos      int    // payload before this has left
	seq      uint32 // of the next frame
	id       uint16 // of the next frame
	pseudo   uint64 // sum of the pseudo header without the length
	notFirst bool
}

// start takes a super-packet, which it will write to. It returns false, and has
// nothing to cut, when b is not what h says.
//
// The sum of the pseudo header is taken from the checksum field, where the
// kernel's stack left it, so no address is looked at: it is right behind a
// routing header, too. A super-packet without NEEDS_CSUM does not occur, for a
// device that segments must checksum, and is refused.
func (c *cutter) start(b []byte, h vnet) bool {
	*c = cutter{}
	switch h.gsoType &^ gsoECN {
	case gsoTCPv4:
	case gsoTCPv6:
		c.v6 = true
	case gsoUDPL4:
		c.udp = true
	default:
		return false
	}
	l3, etherType := network(b)
	switch {
	case etherType == 0x0800 && !c.v6:
	case etherType == 0x86dd && (c.v6 || c.udp):
		c.v6 = true
	default:
		return false
	}
	c.l3, c.l4, c.mss = l3, h.csumStart, h.gsoSize
	if h.flags&needsCsum == 0 || c.mss == 0 {
		return false
	}
	if c.v6 {
		if len(b) < l3+40 || b[l3]>>4 != 6 || c.l4 < l3+40 {
			return false
		}
	} else if len(b) < l3+20 || b[l3]>>4 != 4 || c.l4 < l3+20 || c.l4 != l3+int(b[l3]&15)*4 {
		return false
	}
	if len(b) < c.l4+8 {
		return false
	}
	if c.udp {
		c.data, c.check = c.l4+8, c.l4+6
	} else {
		if len(b) < c.l4+20 {
			return false
		}
		c.data, c.check = c.l4+int(b[c.l4+12]>>4)*4, c.l4+16
		if c.data < c.l4+20 {
			return false
		}
	}
	if len(b) <= c.data || c.check != h.csumStart+h.csumOffset {
		return false
	}
	c.pos = c.data

	// The length of the super-packet comes off the seed, as a ones' complement
	// subtraction. It is below 64 KiB, because maxSuper is.
	c.pseudo = uint64(binary.BigEndian.Uint16(b[c.check:])) + uint64(^uint16(len(b)-c.l4))
	binary.BigEndian.PutUint16(b[c.check:], 0)
	if !c.v6 {
		c.id = binary.BigEndian.Uint16(b[l3+4:])
		binary.BigEndian.PutUint16(b[l3+10:], 0)
	}
	if !c.udp {
		c.seq = binary.BigEndian.Uint32(b[c.l4+4:])
	}
	c.b = b
	return true
}

// more reports that there is a frame to cut.
func (c *cutter) more() bool { return c.pos < len(c.b) }

// stop forgets the rest.
func (c *cutter) stop() { c.b, c.pos = nil, 0 }

// size returns the length of the longest frame that is still to come.
func (c *cutter) size() int { return c.data + min(c.mss, len(c.b)-c.pos) }

// next writes the next frame to dst and returns its length.
//
// Preconditions: more() and len(dst) ≥ size().
func (c *cutter) next(dst []byte) int {
	n := min(c.mss, len(c.b)-c.pos)
	last := c.pos+n == len(c.b)
	dst = dst[:c.data+n]
	copy(dst, c.b[:c.data])
	copy(dst[c.data:], c.b[c.pos:c.pos+n])
	c.pos += n

	ip := dst[c.l3:]
	if c.v6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
	} else {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[4:], c.id)
		binary.BigEndian.PutUint16(ip[10:], ^fold(sum(ip[:c.l4-c.l3], 0)))
		c.id++
	}
	seg := dst[c.l4:]
	if c.udp {
		binary.BigEndian.PutUint16(seg[4:], uint16(len(seg)))
	} else {
		binary.BigEndian.PutUint32(seg[4:], c.seq)
		c.seq += uint32(n)
		if !last {
			seg[13] &^= tcpFIN | tcpPSH
		}
		if c.notFirst {
			seg[13] &^= tcpCWR
		}
	}
	c.notFirst = true
	binary.BigEndian.PutUint16(dst[c.check:], finish(sum(seg, c.pseudo+uint64(len(seg)))))
	return len(dst)
}

// network returns where the network header starts and its EtherType, behind
// at most two VLAN tags; 0 when the frame ends before.
func network(b []byte) (l3 int, etherType uint16) {
	for l3 = 14; l3 <= 14+2*4 && len(b) >= l3; l3 += 4 {
		etherType = binary.BigEndian.Uint16(b[l3-2:])
		if etherType != 0x8100 && etherType != 0x88a8 {
			return l3, etherType
		}
	}
	return 0, 0
}
