package kernel

import (
	"errors"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Links returns the interfaces of the calling thread's namespace, by index.
func Links() ([]Link, error) {
	h, err := openLinks()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return h.list()
}

// LinkByName returns one interface; ErrNoSuchLink when there is none.
func LinkByName(name string) (Link, error) {
	h, err := openLinks()
	if err != nil {
		return Link{}, err
	}
	defer h.Close()
	l, err := h.byName(name)
	if err != nil {
		return Link{}, err
	}
	return h.describe(l), nil
}

// links talks to rtnetlink and ethtool in one namespace.
type links struct {
	nl      *netlink.Handle
	ethtool *ethtool.Ethtool // nil where it can't be had; only what it says is missing then
}

func openLinks() (*links, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, opError("open rtnetlink", "", "", err)
	}
	e, _ := ethtool.NewEthtool()
	return &links{nl, e}, nil
}

func (h *links) Close() {
	h.nl.Close()
	if h.ethtool != nil {
		h.ethtool.Close()
	}
}

// list retries when the kernel says that the set changed during the dump.
func (h *links) list() ([]Link, error) {
	var all []netlink.Link
	var err error
	for range 10 {
		all, err = h.nl.LinkList()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, opError("list interfaces", "", "", err)
	}
	out := make([]Link, 0, len(all))
	for _, l := range all {
		out = append(out, h.describe(l))
	}
	return out, nil
}

func (h *links) byName(name string) (netlink.Link, error) {
	l, err := h.nl.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil, noSuchLink(name)
	}
	return l, opError("find interface", name, "", err)
}

func (h *links) describe(l netlink.Link) Link {
	a := l.Attrs()
	return Link{
		Index: a.Index, Name: a.Name, Kind: l.Type(), MTU: a.MTU,
		HardwareAddr: a.HardwareAddr.String(),
		TxQueues:     a.NumTxQueues, RxQueues: a.NumRxQueues, TxQLen: a.TxQLen,
		Up:      a.RawFlags&unix.IFF_UP != 0,
		Carrier: a.RawFlags&unix.IFF_LOWER_UP != 0,
		Promisc: a.RawFlags&unix.IFF_PROMISC != 0,
		Speed:   h.speed(a.Name),
		Qdisc:   h.rootKind(l),
	}
}

// speed returns bits a second. Devices without a speed say 0 or -1 Mbit/s.
func (h *links) speed(name string) uint64 {
	if h.ethtool == nil {
		return 0
	}
	// Not GetLinkSettings, which talks to standard output.
	var cmd ethtool.EthtoolCmd
	speed, err := h.ethtool.CmdGet(&cmd, name)
	if err != nil || speed == ^uint32(0) || speed == 0xffff {
		return 0
	}
	return uint64(speed) * 1e6
}

func (h *links) rootKind(l netlink.Link) string {
	qdiscs, err := h.nl.QdiscList(l)
	if err != nil {
		return ""
	}
	for _, q := range qdiscs {
		if q.Attrs().Parent == netlink.HANDLE_ROOT {
			return q.Type()
		}
	}
	return ""
}
