// Packet path, except openDropCounter and close.

package afpacket

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// dropCounter reads an interface's tx_dropped by netlink. It is asked when a
// transmit queue doesn't get on, to tell a device that is stopped from one that
// drops the frame: a packet socket answers both with ENOBUFS, and keeps the
// frame.
type dropCounter struct {
	fd      int
	request [sizeofNlMsghdr + sizeofIfStats]byte
	reply   [1024]byte
}

const (
	sizeofNlMsghdr = unix.SizeofNlMsghdr
	sizeofIfStats  = 12    // struct if_stats_msg: family and padding, ifindex, filter mask
	statsLink64    = 1     // IFLA_STATS_LINK_64, and its bit in the filter mask
	txDroppedAt    = 7 * 8 // in struct rtnl_link_stats64
)

// openDropCounter returns a counter that always reads 0 where netlink is not to
// be had.
func openDropCounter(index int) *dropCounter {
	c := &dropCounter{}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		c.fd = -1
		return c
	}
	c.fd = fd
	ne := binary.NativeEndian
	ne.PutUint32(c.request[0:], uint32(len(c.request)))
	ne.PutUint16(c.request[4:], unix.RTM_GETSTATS)
	ne.PutUint16(c.request[6:], unix.NLM_F_REQUEST)
	ne.PutUint32(c.request[sizeofNlMsghdr+4:], uint32(index))
	ne.PutUint32(c.request[sizeofNlMsghdr+8:], 1<<(statsLink64-1))
	return c
}

// read returns tx_dropped, or 0. The kernel has answered when the write returns.
func (c *dropCounter) read() uint64 {
	if c.fd < 0 {
		return 0
	}
	if _, err := unix.Write(c.fd, c.request[:]); err != nil {
		return 0
	}
	n, err := unix.Read(c.fd, c.reply[:])
	if err != nil || n < sizeofNlMsghdr+sizeofIfStats {
		return 0
	}
	ne := binary.NativeEndian
	if ne.Uint16(c.reply[4:]) != unix.RTM_NEWSTATS {
		return 0
	}
	attrs := c.reply[sizeofNlMsghdr+sizeofIfStats : n]
	for len(attrs) >= unix.SizeofNlAttr {
		size := int(ne.Uint16(attrs))
		if size < unix.SizeofNlAttr || size > len(attrs) {
			return 0
		}
		if ne.Uint16(attrs[2:]) == statsLink64 && size >= unix.SizeofNlAttr+txDroppedAt+8 {
			return ne.Uint64(attrs[unix.SizeofNlAttr+txDroppedAt:])
		}
		attrs = attrs[min((size+3)&^3, len(attrs)):]
	}
	return 0
}

func (c *dropCounter) close() {
	if c.fd >= 0 {
		unix.Close(c.fd)
		c.fd = -1
	}
}
