package shaper

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"sluice/dequeue"
	"sluice/qdisc"
	"sluice/qdisc/kinds"
	"sluice/shaper/config"
	"sluice/shaper/kernel"
	"sluice/shaper/nic"
	"sluice/shaper/nic/afpacket"
	"sluice/shaper/nic/mem"
	"sluice/shaper/nic/pcap"
	"sluice/shaper/nic/tap"
	"sluice/shaper/tree"
	"sluice/shaper/worker"
)

// linkHeaders is what a frame may have in front of the MTU: Ethernet and two
// VLAN tags.
const linkHeaders = 14 + 2*4

// port is one end of a link: the device, what leaves by it, and what has to be
// put back.
type port struct {
	dev    string
	link   string
	nic    nic.Port
	egress *worker.Egress
	in     []*worker.Ingress
	tree   *tree.Tree
	env    func(handle uint32) qdisc.Env
	undo   []func() error // in the order of doing

	index int         // of the interface, which may get another name; 0: has none
	down  atomic.Bool // it is gone or has no carrier, says the kernel
}

func (p *port) close() error {
	var errs []error
	if p.nic != nil {
		errs = append(errs, p.nic.Close())
	}
	for i := len(p.undo) - 1; i >= 0; i-- {
		errs = append(errs, p.undo[i]())
	}
	return errors.Join(errs...)
}

// openLink opens both ends of l: what arrives at one leaves by the other.
func (e *Engine) openLink(l *config.Link, pool *qdisc.Pool, o Options) error {
	var ends [2]*port
	for i, c := range []*config.Port{&l.Inside, &l.Outside} {
		dev := c.Dev
		p := &port{dev: dev, link: l.Name}
		ends[i], e.ports[dev] = p, p
		n, err := o.OpenPort(l, c)
		if err != nil {
			return fmt.Errorf("link %s: %w", l.Name, err)
		}
		p.nic = n // not before: with an error it may be a nil that is no nil interface
		if need := p.nic.MTU() + linkHeaders + pool.Headroom(); need > pool.FrameSize() {
			return fmt.Errorf("link %s: %s has an MTU of %d, and frames of that size need slots of %d bytes; "+
				"set [engine] frame_size to at least %q, or lower the MTU", l.Name, dev, p.nic.MTU(), need,
				fmt.Sprintf("%d KiB", (need+1023)/1024))
		}
		if err := e.openEgress(l, p); err != nil {
			return fmt.Errorf("link %s: %s: %w", l.Name, dev, err)
		}
	}
	for i, p := range ends {
		for q, rx := range p.nic.Rx() {
			p.in = append(p.in, e.worker.AddIngress(rx, len(e.ports)-2+i, q, ends[1-i].egress))
		}
	}
	return nil
}

// openEgress makes the transmit side of a port with its tree.
func (e *Engine) openEgress(l *config.Link, p *port) error {
	c := &e.cfg.Engine
	p.egress = &worker.Egress{}
	for _, d := range p.nic.Tx() {
		p.egress.Txqs = append(p.egress.Txqs, dequeue.NewTxq(dequeue.TxqConfig{
			Driver: d, MinLimit: uint32(l.BQLMin), MaxLimit: uint32(l.BQLMax),
			Doorbell: doorbells[c.Doorbell], FlushInterval: c.TxFlushInterval,
		}))
	}
	stopped := func(queue int) bool { return p.egress.Txqs[queue].Stopped() }
	p.env = func(handle uint32) qdisc.Env {
		env := kinds.Env(l.TxQueueLen, p.nic.MTU(), handle)
		env.TxQueues, env.Stopped = len(p.egress.Txqs), stopped
		return env
	}
	install := func(ctx *qdisc.Context, q qdisc.Qdisc) qdisc.Qdisc {
		if p.egress.Runner == nil { // the tree's first root
			p.egress.Runner = dequeue.NewRunner(dequeue.RunnerConfig{
				Root: q, Txqs: p.egress.Txqs, Scheduler: e.worker.Scheduler(),
				Quota: c.Weight, Mode: quotas[c.Quota],
			})
			return nil
		}
		return p.egress.Runner.SetRoot(ctx, q)
	}
	tc := e.treeConfig(p.dev, p.env, install, func() { p.egress.Runner.Refresh() })
	tc.TxQueues = len(p.egress.Txqs)
	var err error
	if p.tree, err = tree.New(tc); err != nil {
		return err
	}
	e.worker.AddEgress(p.egress)
	return nil
}

// The words of the configuration file.
var (
	quotas = map[string]dequeue.QuotaMode{
		"packets": dequeue.QuotaPackets, "budget": dequeue.QuotaBudget, "restarts": dequeue.QuotaRestarts}
	doorbells = map[string]dequeue.Doorbell{
		"turn": dequeue.DoorbellTurn, "list": dequeue.DoorbellList, "packet": dequeue.DoorbellPacket}
)

// openPort opens a port as the configuration says.
func (e *Engine) openPort(l *config.Link, p *config.Port) (nic.Port, error) {
	switch p.Driver {
	case "mem":
		// Nobody is at the other end: for trying things out without privileges.
		a, _, err := mem.NewPair(p.Dev, p.Dev+"-peer", mem.Config{
			Queues: l.Queues, Rate: l.Mem.Rate * 8, Latency: l.Mem.Latency, Ring: l.Mem.Ring})
		if err != nil {
			return nil, err
		}
		a.Sink(func(*qdisc.Packet, time.Duration, time.Duration) {})
		return a, nil
	case "pcap":
		return pcap.Open(p.Dev, pcap.Config{In: p.Read, Out: p.Write})
	case "tap":
		return tap.Open(tap.Config{Name: p.Dev, Queues: l.Queues})
	}
	return e.openRaw(l, p.Dev)
}

// openRaw makes an interface fit to be a port and opens its raw queues.
func (e *Engine) openRaw(l *config.Link, dev string) (nic.Port, error) {
	p := e.ports[dev]
	release, err := kernel.Claim(dev)
	if err != nil {
		return nil, err
	}
	p.undo = append(p.undo, func() error { release(); return nil })
	prepared, err := kernel.Prepare(dev, kernel.Options{KeepPromisc: true}) // the sockets see to that
	if err != nil {
		return nil, err
	}
	p.undo = append(p.undo, prepared.Restore)
	p.index = prepared.Link.Index
	p.down.Store(!prepared.Link.Carrier)
	for _, w := range prepared.Warnings {
		e.log.Warn(w)
	}
	return afpacket.Open(afpacket.Options{Interface: dev, Queues: l.Queues})
}

// watch logs what becomes of the ports' interfaces.
func (e *Engine) watch(ctx context.Context) {
	events, err := kernel.Watch(ctx)
	if err != nil {
		e.log.Warn("interfaces are not watched", "err", err)
		return
	}
	byIndex := map[int]*port{}
	for _, p := range e.ports {
		byIndex[p.index] = p
	}
	for ev := range events {
		p := byIndex[ev.Link.Index]
		if p == nil || ev.Link.Index == 0 {
			continue
		}
		name := p.dev
		switch ev.Kind {
		case kernel.LinkRemoved, kernel.LinkDown:
			p.down.Store(true)
		case kernel.LinkUp:
			p.down.Store(false)
		}
		switch ev.Kind {
		case kernel.LinkRemoved:
			e.log.Error("interface is gone; packets for it wait until their queue is full", "dev", name)
		case kernel.LinkDown:
			e.log.Warn("interface is down; packets for it wait", "dev", name)
		case kernel.LinkRenamed:
			e.log.Warn("interface was renamed; the port stays open", "dev", name, "to", ev.Link.Name)
		default:
			e.log.Info("interface "+ev.Kind.String(), "dev", name)
		}
	}
}
