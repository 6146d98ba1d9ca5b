package shaper

import (
	"maps"
	"slices"
	"time"

	"sluice/dequeue"
	"sluice/qdisc"
	"sluice/shaper/nic"
	"sluice/shaper/tree"
)

// Status is the whole engine at one instant, between two turns, so that its
// counters add up: received = sent + dropped + queued.
type Status struct {
	Config  string        `json:"config"` // name of the file in force
	Edited  bool          `json:"edited"` // tc commands changed the trees since
	Uptime  time.Duration `json:"uptime"` // ns
	Worker  WorkerStatus  `json:"worker"`
	Ports   []PortStatus  `json:"ports"`
	Balance Balance       `json:"balance"`
}

// Balance is where all packets are that were ever received.
type Balance struct {
	Received uint64 `json:"received"`
	Sent     uint64 `json:"sent"` // taken by a device
	Dropped  uint64 `json:"dropped"`
	Queued   uint64 `json:"queued"`
}

// Even reports that every packet is accounted for.
func (b Balance) Even() bool { return b.Received == b.Sent+b.Dropped+b.Queued }

// WorkerStatus is one worker's loop.
type WorkerStatus struct {
	Turns      uint64            `json:"turns"`
	Wakes      uint64            `json:"wakes"`
	EmptyWakes uint64            `json:"empty_wakes"`
	Shed       uint64            `json:"shed"`
	Drops      map[string]uint64 `json:"drops"` // by reason, without zeros
	PoolSize   int               `json:"pool_size"`
	PoolFree   int               `json:"pool_free"`
}

// PortStatus is one port.
type PortStatus struct {
	Name     string              `json:"name"`
	Link     string              `json:"link"`
	Driver   string              `json:"driver"`
	MTU      int                 `json:"mtu"`
	Down     bool                `json:"down"`
	Rx       []nic.RxStats       `json:"rx"`
	Qlen     int                 `json:"qlen"`
	Backlog  int                 `json:"backlog"`
	Runner   dequeue.RunnerStats `json:"runner"`
	Txqs     []dequeue.TxqStats  `json:"txqs"`
	Timeouts uint64              `json:"timeouts"`
}

// Status takes a snapshot.
func (e *Engine) Status() (*Status, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &Status{Config: e.name, Edited: e.edited, Uptime: time.Since(e.started)}
	err := e.worker.Do(func(ctx *qdisc.Context) {
		w := e.worker
		s.Worker = WorkerStatus{Turns: w.Turns, Wakes: w.Wakes, EmptyWakes: w.EmptyWakes, Shed: w.Shed,
			Drops: map[string]uint64{}, PoolSize: ctx.Pool.Size(), PoolFree: ctx.Pool.Available()}
		for r, n := range ctx.Drops {
			if n > 0 {
				s.Worker.Drops[qdisc.Reason(r).String()] = n
				s.Balance.Dropped += n
			}
		}
		s.Balance.Received = w.Received
		for _, name := range slices.Sorted(maps.Keys(e.ports)) {
			p := e.ports[name].status()
			s.Ports = append(s.Ports, p)
			s.Balance.Queued += uint64(p.Qlen)
			for _, t := range p.Txqs {
				s.Balance.Sent += t.Packets
			}
		}
	})
	return s, err
}

func (p *port) status() PortStatus {
	r := p.egress.Runner
	s := PortStatus{Name: p.dev, Link: p.link, Driver: p.nic.Driver(), MTU: p.nic.MTU(),
		Down: p.down.Load(), Qlen: r.Len(), Backlog: r.Backlog(), Runner: r.Stats(), Timeouts: p.egress.Timeouts}
	for _, rx := range p.nic.Rx() {
		s.Rx = append(s.Rx, rx.RxStats())
	}
	for _, t := range p.egress.Txqs {
		s.Down = s.Down || t.Down()
		s.Txqs = append(s.Txqs, t.Stats())
	}
	return s
}

// Qdiscs returns the qdiscs of one port, or of all when dev is empty.
func (e *Engine) Qdiscs(dev string) ([]tree.QdiscInfo, error) {
	var all []tree.QdiscInfo
	err := e.look(dev, func(t *tree.Tree) { all = append(all, t.Qdiscs()...) })
	return all, err
}

// Classes returns the classes of one port, or of all when dev is empty.
func (e *Engine) Classes(dev string) ([]tree.ClassInfo, error) {
	var all []tree.ClassInfo
	err := e.look(dev, func(t *tree.Tree) { all = append(all, t.Classes()...) })
	return all, err
}

func (e *Engine) look(dev string, f func(*tree.Tree)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	names := []string{dev}
	if dev == "" {
		names = slices.Sorted(maps.Keys(e.ports))
	} else if e.ports[dev] == nil {
		return &NoDeviceError{dev}
	}
	return e.worker.Do(func(*qdisc.Context) {
		for _, name := range names {
			f(e.ports[name].tree)
		}
	})
}
