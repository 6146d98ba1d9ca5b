package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Qdiscs returns the qdiscs of an interface, in the kernel's order; of all
// interfaces when ifindex is 0.
func Qdiscs(ifindex int) ([]Object, error) {
	return dump("list qdiscs", unix.RTM_GETQDISC, ifindex)
}

// Classes returns the classes of an interface.
func Classes(ifindex int) ([]Object, error) {
	return dump("list classes", unix.RTM_GETTCLASS, ifindex)
}

// dump asks until an answer is complete: the kernel marks one during which the
// set changed.
func dump(op string, get netlink.HeaderType, ifindex int) ([]Object, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, opError(op, "", "", err)
	}
	defer conn.Close()
	request := netlink.Message{
		Header: netlink.Header{Type: get, Flags: netlink.Request | netlink.Dump},
		Data:   tcmsg(ifindex, 0, 0),
	}
	for range 10 {
		msgs, err := conn.Execute(request)
		if err != nil {
			return nil, opError(op, "", "", err)
		}
		objects, complete, err := parseDump(msgs, ifindex)
		if complete {
			return objects, opError(op, "", "", err)
		}
	}
	return nil, opError(op, "", "", errors.New("the kernel's tc objects kept changing; try again"))
}

func parseDump(msgs []netlink.Message, ifindex int) (objects []Object, complete bool, err error) {
	for _, m := range msgs {
		if m.Header.Flags&netlink.DumpInterrupted != 0 {
			return nil, false, nil
		}
		o, err := parseObject(m.Data)
		if err != nil {
			return nil, true, err
		}
		// Kernels don't filter qdiscs by interface.
		if ifindex == 0 || o.Ifindex == ifindex {
			objects = append(objects, o)
		}
	}
	return objects, true, nil
}

// sizeofTcmsg is the fixed part of a tc message: family and padding, ifindex,
// handle, parent, info.
const sizeofTcmsg = 20

func tcmsg(ifindex int, handle, parent uint32) []byte {
	b := make([]byte, 4, sizeofTcmsg)
	b = binary.NativeEndian.AppendUint32(b, uint32(int32(ifindex)))
	b = binary.NativeEndian.AppendUint32(b, handle)
	b = binary.NativeEndian.AppendUint32(b, parent)
	return binary.NativeEndian.AppendUint32(b, 0)
}

// parseObject reads one qdisc or class message. Attributes it doesn't know are
// passed over.
func parseObject(b []byte) (Object, error) {
	if len(b) < sizeofTcmsg {
		return Object{}, fmt.Errorf("tc object: %w", errShort)
	}
	ne := binary.NativeEndian
	o := Object{
		Ifindex: int(int32(ne.Uint32(b[4:]))),
		Handle:  ne.Uint32(b[8:]),
		Parent:  ne.Uint32(b[12:]),
		Leaf:    ne.Uint32(b[16:]),
	}
	ad, err := netlink.NewAttributeDecoder(b[sizeofTcmsg:])
	if err != nil {
		return Object{}, fmt.Errorf("tc object: %w", err)
	}
	stats2 := false
	for ad.Next() {
		switch ad.Type() {
		case unix.TCA_KIND:
			o.Kind = ad.String()
		case unix.TCA_OPTIONS:
			o.Options = ad.Bytes()
		case unix.TCA_XSTATS:
			o.XStats = ad.Bytes()
		case unix.TCA_STATS2:
			stats2 = true
			ad.Nested(o.parseStats2)
		case unix.TCA_STATS:
			if !stats2 {
				o.parseStats(ad.Bytes())
			}
		}
	}
	if err := ad.Err(); err != nil {
		return Object{}, fmt.Errorf("tc object: %w", err)
	}
	return o, nil
}

// parseStats reads struct tc_stats, which kernels before 2.6.10 sent alone.
func (o *Object) parseStats(b []byte) {
	if len(b) < 36 {
		return
	}
	ne := binary.NativeEndian
	o.Stats.Bytes = ne.Uint64(b)
	o.Stats.Packets = uint64(ne.Uint32(b[8:]))
	o.Stats.Drops = ne.Uint32(b[12:])
	o.Stats.Overlimits = ne.Uint32(b[16:])
	o.Stats.Qlen = ne.Uint32(b[28:])
	o.Stats.Backlog = ne.Uint32(b[32:])
}

// Attributes nested in TCA_STATS2 (linux/gen_stats.h).
const (
	statsBasic = 1 // struct gnet_stats_basic
	statsQueue = 3 // struct gnet_stats_queue
	statsApp   = 4 // the kind's own
	statsPkt64 = 8 // packets, where 32 bits are not enough
)

func (o *Object) parseStats2(ad *netlink.AttributeDecoder) error {
	ne := binary.NativeEndian
	wide := false
	for ad.Next() {
		b := ad.Bytes()
		switch t := ad.Type(); {
		case t == statsBasic && len(b) >= 12:
			o.Stats.Bytes = ne.Uint64(b)
			if !wide {
				o.Stats.Packets = uint64(ne.Uint32(b[8:]))
			}
		case t == statsPkt64 && len(b) >= 8:
			o.Stats.Packets, wide = ne.Uint64(b), true
		case t == statsQueue && len(b) >= 20:
			o.Stats.Qlen = ne.Uint32(b)
			o.Stats.Backlog = ne.Uint32(b[4:])
			o.Stats.Drops = ne.Uint32(b[8:])
			o.Stats.Requeues = ne.Uint32(b[12:])
			o.Stats.Overlimits = ne.Uint32(b[16:])
		case t == statsApp:
			o.XStats = b
		}
	}
	return ad.Err()
}
