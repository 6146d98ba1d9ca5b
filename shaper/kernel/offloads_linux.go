package kernel

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Offloads by their ethtool names. Received super-packets are not wire frames,
// and a tag beside the frame is lost by who doesn't look for it.
var rxOffloads = []string{
	"rx-lro", "rx-gro", "rx-gro-hw", "rx-gro-list", "rx-udp-gro-forwarding",
	"rx-vlan-hw-parse", "rx-vlan-stag-hw-parse",
}

// The host's own stack, at the other end of a veth or behind the device's
// fallback qdisc, hands over 64 KB packets and checksums that somebody else is
// to finish.
var txOffloads = []string{
	"tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation", "tx-tcp6-segmentation",
	"tx-udp-segmentation", "tx-generic-segmentation",
	"tx-checksum-ipv4", "tx-checksum-ip-generic", "tx-checksum-ipv6", "tx-checksum-sctp",
	"tx-vlan-hw-insert", "tx-vlan-stag-hw-insert",
}

// offloadsOff turns off those that are on and can be turned off.
func (p *Prepared) offloadsOff(ifname string, tx bool) error {
	e := p.links.ethtool
	if e == nil {
		p.warn("%s: ethtool is not available, offloads stay as they are: super-packets and unfinished checksums are counted as errors", ifname)
		return nil
	}
	have, err := e.FeaturesWithState(ifname)
	if err != nil {
		return opError("read offloads", ifname, "", err)
	}
	names := rxOffloads
	if tx {
		names = slices.Concat(rxOffloads, txOffloads)
	}
	off, back := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		if f := have[name]; f.Active && f.Available {
			off[name], back[name] = false, f.Requested
		}
	}
	if len(off) == 0 {
		return nil
	}
	if err := e.Change(ifname, off); err != nil {
		return opError("turn offloads off", ifname, "", err)
	}
	p.onRestore(func() error {
		// An ioctl names the device, which may have another name by now.
		now, err := p.links.nl.LinkByIndex(p.dev.Attrs().Index)
		if err != nil {
			return unix.ENODEV
		}
		return e.Change(now.Attrs().Name, back)
	})
	have, err = e.FeaturesWithState(ifname)
	if err != nil {
		return opError("read offloads", ifname, "", err)
	}
	var stuck []string
	for name := range off {
		if have[name].Active {
			stuck = append(stuck, name)
		}
	}
	if len(stuck) > 0 {
		slices.Sort(stuck)
		p.warn("%s: the driver keeps %s on", ifname, strings.Join(stuck, ", "))
	}
	return nil
}
