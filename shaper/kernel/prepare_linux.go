package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// Prepared is an interface fit to be a port, and what it was before. It keeps
// to the namespace it was made in, whatever thread calls.
type Prepared struct {
	Link Link // as it is now

	// Warnings are sentences for the log: what could not be arranged, and what
	// that means.
	Warnings []string

	links  *links
	tc     *TC
	dev    netlink.Link
	divert link.Link
	undo   []func() error // in the order of doing
}

// Prepare makes an interface fit to be a port: offloads off that would turn wire
// frames into something else, a real qdisc in place of noqueue, promiscuous, up,
// and its ingress closed to the kernel while this process lives. What it changed
// is put back by Restore, and by Prepare itself when it fails.
//
// A device with noqueue drops what a full peer cannot take; with a qdisc it stops
// its queue and says so. Raw sockets that bypass the qdisc profit as well.
//
// The ingress is closed by a bpf program behind the packet taps: raw sockets see
// every frame, the stack and the clsact of the fail-open path none, and when the
// process ends, however it ends, the kernel has them again.
func Prepare(ifname string, o Options) (*Prepared, error) {
	p := &Prepared{}
	err := p.prepare(ifname, o)
	if err != nil {
		err = errors.Join(err, p.Restore())
		return nil, err
	}
	return p, nil
}

func (p *Prepared) prepare(ifname string, o Options) (err error) {
	if p.links, err = openLinks(); err != nil {
		return err
	}
	if p.tc, err = OpenTC(); err != nil {
		return err
	}
	if p.dev, err = p.links.byName(ifname); err != nil {
		return err
	}
	before := p.links.describe(p.dev)
	if !o.KeepOffloads {
		if err := p.offloadsOff(ifname, !o.KeepTxOffloads); err != nil {
			return err
		}
	}
	if !o.KeepIngress {
		if err := p.closeIngress(before); err != nil {
			return err
		}
	}
	if !o.KeepPromisc && !before.Promisc {
		if err := p.links.nl.SetPromiscOn(p.dev); err != nil {
			return opError("set promiscuous", ifname, "", err)
		}
		p.onRestore(func() error { return p.links.nl.SetPromiscOff(p.dev) })
	}
	if !before.Up {
		if err := p.links.nl.LinkSetUp(p.dev); err != nil {
			return opError("set up", ifname, "", err)
		}
		p.onRestore(func() error { return p.links.nl.LinkSetDown(p.dev) })
	}
	// A device has its default qdisc only once it is up.
	if !o.KeepQdisc && p.links.rootKind(p.dev) == "noqueue" {
		if err := p.realQdisc(before); err != nil {
			return err
		}
	}
	if p.dev, err = p.links.nl.LinkByIndex(before.Index); err != nil {
		return opError("find interface", ifname, "", err)
	}
	p.Link = p.links.describe(p.dev)
	return nil
}

func (p *Prepared) onRestore(f func() error) { p.undo = append(p.undo, f) }

func (p *Prepared) warn(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

// realQdisc replaces noqueue: by pfifo, or mq when there are several transmit
// queues, so that the host's own traffic doesn't meet at one lock.
func (p *Prepared) realQdisc(l Link) error {
	root := Where{Ifindex: l.Index, Parent: HandleRoot}
	var err error
	if l.TxQueues > 1 {
		err = p.tc.ReplaceMq(l.Index)
	} else {
		err = p.tc.ReplacePfifo(root, Pfifo{Limit: max(l.TxQLen, 1000)})
	}
	if err != nil {
		return on(l.Name, err)
	}
	p.onRestore(func() error { return p.tc.DeleteQdisc(root) })
	return nil
}

func (p *Prepared) closeIngress(l Link) error {
	divert, err := attachDrop(l.Index)
	if errors.Is(err, ErrNotSupported) {
		p.warn("%s: this kernel has no tcx (Linux 6.6 has), so it also gets the frames that sluice receives: turn off its forwarding between the ports, or frames are sent twice", l.Name)
		return nil
	}
	if err != nil {
		return on(l.Name, err)
	}
	p.divert = divert
	p.onRestore(divert.Close)
	return nil
}

// OpenIngress gives the frames that arrive to the kernel again, before Restore:
// for a hand-over to the fail-open path. It does nothing the second time.
func (p *Prepared) OpenIngress() error {
	if p.divert == nil {
		return nil
	}
	divert := p.divert
	p.divert = nil
	return opError("open ingress", p.Link.Name, "", divert.Close())
}

// Restore puts back what Prepare changed, last change first, and goes on after
// an error. A device that is gone has nothing to restore. It does nothing the
// second time.
func (p *Prepared) Restore() error {
	var errs []error
	for _, undo := range slices.Backward(p.undo) {
		err := opError("restore", p.Link.Name, "", undo())
		if !errors.Is(err, ErrNoSuchLink) {
			errs = append(errs, err)
		}
	}
	p.undo, p.divert = nil, nil
	if p.tc != nil {
		errs = append(errs, p.tc.Close())
		p.tc = nil
	}
	if p.links != nil {
		p.links.Close()
		p.links = nil
	}
	return errors.Join(errs...)
}

// on says of which device an error of this package is.
func on(dev string, err error) error {
	var e *OpError
	if errors.As(err, &e) {
		e.Dev = dev
	}
	return err
}
