package lab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Wire is what a veth pair looks like, the same at both ends.
type Wire struct {
	Queues       int  // transmit and receive queues; 0 means 1
	MTU          int  // 0 means 1500
	TxQueueLen   int  // 0 means 1000
	KeepOffloads bool // leave checksum, segmentation and GRO offloads as they come
	NoQdisc      bool // leave noqueue: a full peer drops instead of stopping
}

// Wire connects interface aIf of a with interface bIf of b. Both are up and have
// carrier when it returns.
func (l *Lab) Wire(a *Host, aIf string, b *Host, bIf string, w Wire) error {
	if err := w.connect(a, aIf, b, bIf); err != nil {
		return fmt.Errorf("wire %s/%s to %s/%s: %w", a.name, aIf, b.name, bIf, err)
	}
	return nil
}

func (w Wire) connect(a *Host, aIf string, b *Host, bIf string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = aIf
	attrs.MTU = or(w.MTU, 1500)
	attrs.TxQLen = or(w.TxQueueLen, 1000)
	attrs.NumTxQueues = or(w.Queues, 1)
	attrs.NumRxQueues = or(w.Queues, 1)
	veth := netlink.NewVeth(attrs)
	veth.PeerName = bIf
	veth.PeerNamespace = netlink.NsFd(int(b.ns))
	if err := a.nl.LinkAdd(veth); err != nil {
		return err
	}
	for _, end := range []struct {
		h    *Host
		name string
	}{{a, aIf}, {b, bIf}} {
		if !w.KeepOffloads {
			if err := end.h.NoOffloads(end.name); err != nil {
				return err
			}
		}
		if !w.NoQdisc {
			if err := end.h.realQdisc(end.name, or(w.Queues, 1)); err != nil {
				return fmt.Errorf("attach a qdisc: %w", err)
			}
		}
		if err := end.h.Up(end.name); err != nil {
			return err
		}
	}
	return errors.Join(a.waitCarrier(aIf), b.waitCarrier(bIf))
}

func or(v, otherwise int) int {
	if v == 0 {
		return otherwise
	}
	return v
}

// realQdisc replaces noqueue by what a physical device would have: pfifo_fast,
// one for each transmit queue.
func (h *Host) realQdisc(ifname string, queues int) error {
	link, err := h.nl.LinkByName(ifname)
	if err != nil {
		return err
	}
	kind := "pfifo_fast"
	if queues > 1 {
		kind = "mq"
	}
	return h.nl.QdiscReplace(&netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index,
			Handle:    netlink.MakeHandle(1, 0),
			Parent:    netlink.HANDLE_ROOT,
		},
		QdiscType: kind,
	})
}

// offloads are what turns wire frames into something else on their way to or
// from a raw socket.
var offloads = []string{
	"tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6", "tx-checksum-sctp",
	"tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp6-segmentation",
	"tx-tcp-mangleid-segmentation", "tx-udp-segmentation",
	"tx-generic-segmentation", "rx-gro", "rx-gro-list", "rx-udp-gro-forwarding", "rx-lro",
	"tx-vlan-hw-insert", "rx-vlan-hw-parse", "tx-vlan-stag-hw-insert", "rx-vlan-stag-hw-parse",
}

// NoOffloads turns off the checksum, segmentation, receive aggregation and VLAN
// offloads that the device can turn off.
func (h *Host) NoOffloads(ifname string) error {
	return h.Do(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		have, err := e.FeaturesWithState(ifname)
		if err != nil {
			return fmt.Errorf("read the offloads of %s: %w", ifname, err)
		}
		change := map[string]bool{}
		for _, name := range offloads {
			if f, ok := have[name]; ok && f.Active && f.Available {
				change[name] = false
			}
		}
		if len(change) == 0 {
			return nil
		}
		if err := e.Change(ifname, change); err != nil {
			return fmt.Errorf("turn off the offloads of %s: %w", ifname, err)
		}
		return nil
	})
}

// Up sets an interface up.
func (h *Host) Up(ifname string) error {
	return h.withLink(ifname, h.nl.LinkSetUp)
}

// Down sets an interface down.
func (h *Host) Down(ifname string) error {
	return h.withLink(ifname, h.nl.LinkSetDown)
}

// Delete removes an interface; of a wire, both ends.
func (h *Host) Delete(ifname string) error {
	return h.withLink(ifname, h.nl.LinkDel)
}

// SetMTU sets an interface's MTU.
func (h *Host) SetMTU(ifname string, mtu int) error {
	return h.withLink(ifname, func(l netlink.Link) error { return h.nl.LinkSetMTU(l, mtu) })
}

// Rename gives an interface another name.
func (h *Host) Rename(ifname, to string) error {
	return h.withLink(ifname, func(l netlink.Link) error { return h.nl.LinkSetName(l, to) })
}

func (h *Host) withLink(ifname string, do func(netlink.Link) error) error {
	link, err := h.nl.LinkByName(ifname)
	if err == nil {
		err = do(link)
	}
	if err != nil {
		return fmt.Errorf("%s/%s: %w", h.name, ifname, err)
	}
	return nil
}

// MAC returns the hardware address of an interface.
func (h *Host) MAC(ifname string) (net.HardwareAddr, error) {
	link, err := h.nl.LinkByName(ifname)
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", h.name, ifname, err)
	}
	return link.Attrs().HardwareAddr, nil
}

// Index returns the number of an interface.
func (h *Host) Index(ifname string) (int, error) {
	link, err := h.nl.LinkByName(ifname)
	if err != nil {
		return 0, fmt.Errorf("%s/%s: %w", h.name, ifname, err)
	}
	return link.Attrs().Index, nil
}

func (h *Host) waitCarrier(ifname string) error {
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		link, err := h.nl.LinkByName(ifname)
		if err != nil {
			return err
		}
		if link.Attrs().RawFlags&unix.IFF_LOWER_UP != 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s/%s has no carrier after 2 s", h.name, ifname)
		}
	}
}

// Addr gives an interface an IPv4 address, written 10.0.0.1/24.
func (h *Host) Addr(ifname, cidr string) error { return h.addr(ifname, cidr, 0) }

// Addr6 turns IPv6 on at an interface and gives it an address that can be used
// at once, without duplicate address detection.
func (h *Host) Addr6(ifname, cidr string) error {
	for _, kv := range [][2]string{{"accept_dad", "0"}, {"router_solicitations", "0"}, {"disable_ipv6", "0"}} {
		err := h.Sysctl("net.ipv6.conf."+ifname+"."+kv[0], kv[1])
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s/%s: this kernel has no IPv6: %w", h.name, ifname, err)
		}
		if err != nil {
			return err
		}
	}
	if err := h.addr(ifname, cidr, unix.IFA_F_NODAD); err != nil {
		return err
	}
	return h.waitLocal(cidr)
}

// waitLocal waits for the address's own route, which the kernel inserts from a
// work queue: until then packets to it are dropped.
func (h *Host) waitLocal(cidr string) error {
	ip, _, err := net.ParseCIDR(cidr)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		routes, err := h.nl.RouteGet(ip)
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %s is not usable after 2 s (%v)", h.name, cidr, err)
		}
	}
}

func (h *Host) addr(ifname, cidr string, flags int) error {
	addr, err := netlink.ParseAddr(cidr)
	if err != nil {
		return fmt.Errorf("%s/%s: %w", h.name, ifname, err)
	}
	addr.Flags = flags
	return h.withLink(ifname, func(l netlink.Link) error { return h.nl.AddrAdd(l, addr) })
}

// Route sends what is for dst (a prefix, or "default") to the gateway via.
func (h *Host) Route(dst, via string) error {
	gw := net.ParseIP(via)
	if gw == nil {
		return fmt.Errorf("%s: gateway %q is not an address", h.name, via)
	}
	route := &netlink.Route{Gw: gw}
	if dst != "default" {
		_, prefix, err := net.ParseCIDR(dst)
		if err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
		route.Dst = prefix
	}
	if err := h.nl.RouteAdd(route); err != nil {
		return fmt.Errorf("%s: route %s via %s: %w", h.name, dst, via, err)
	}
	return nil
}

// Neighbor makes an address of the wire known without asking, so that no ARP
// or neighbour discovery frame mixes with the traffic.
func (h *Host) Neighbor(ifname, ip string, mac net.HardwareAddr) error {
	return h.withLink(ifname, func(l netlink.Link) error {
		return h.nl.NeighSet(&netlink.Neigh{
			LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: net.ParseIP(ip), HardwareAddr: mac,
		})
	})
}
