// Package shaper is the appliance: the whole engine behind one small type.
//
// Open makes what a configuration describes: ports, a worker with its packet
// pool, and a tree of qdiscs on each port. Run forwards until it is told to
// stop. Apply exchanges the policy while it runs; Qdisc and Class edit a tree as
// tc would. Everything else is a view: Status, Qdiscs, Classes.
package shaper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/kinds"
	"sluice/shaper/config"
	"sluice/shaper/nic"
	"sluice/shaper/policy"
	"sluice/shaper/tree"
	"sluice/shaper/worker"
)

// drainTime is how long a stopping engine goes on sending what is queued.
const drainTime = time.Second

// ErrHalfApplied says that a policy was refused after a part of it was in force,
// although its rehearsal was not. It is a fault of ours; what runs counts as
// edited.
var ErrHalfApplied = errors.New("the policy is half applied")

// ErrEdited refuses to apply a policy over edits that tc commands made.
var ErrEdited = errors.New("the running qdiscs were edited by hand since the policy was applied; " +
	"apply with --discard-edits to throw the edits away")

// Options are what Open needs besides the configuration.
type Options struct {
	Name  string       // of the configuration's file, for messages
	Log   *slog.Logger // nil: silent
	Clock worker.Clock // nil: the real one

	// OpenPort opens the port of an interface; nil: as the configuration says.
	// Tests and the demo hand in memory ports.
	OpenPort func(l *config.Link, p *config.Port) (nic.Port, error)
}

// Engine is a running appliance. Its methods are safe for concurrent use.
type Engine struct {
	log     *slog.Logger
	worker  *worker.Worker
	ports   map[string]*port // by interface
	started time.Time

	mu     sync.Mutex // one change at a time
	name   string     // of the file in force
	cfg    *config.Config
	policy map[string]*policy.Port
	edited bool
	handle uint32 // last automatic qdisc handle
}

// Open opens every port of c and builds its policy. When it fails, whatever it
// had opened or changed is put back.
func Open(c *config.Config, o Options) (_ *Engine, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{log: o.Log, ports: map[string]*port{}, name: o.Name, cfg: c, handle: 0x8000, started: time.Now()}
	if o.OpenPort == nil {
		o.OpenPort = e.openPort
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.closePorts())
		}
	}()

	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: c.Engine.Packets, FrameSize: c.Engine.FrameSize})
	if err != nil {
		return nil, fmt.Errorf("%s: [engine]: %w", o.Name, err)
	}
	e.worker, err = worker.New(worker.Config{
		Name: "worker 0", Pool: pool, Clock: o.Clock, Seed: uint64(time.Now().UnixNano()),
		CPU: c.Engine.CPU, BusyPoll: c.Engine.BusyPoll, RxCoalesce: c.Engine.RxCoalesce,
		NoPriority: c.Engine.Priority == "none",
	})
	if err != nil {
		return nil, err
	}
	for i := range c.Links {
		if err := e.openLink(&c.Links[i], pool, o); err != nil {
			return nil, err
		}
	}
	e.policy = map[string]*policy.Port{}
	if err := e.install(e.worker.Context(), policy.Compile(c)); err != nil {
		return nil, err
	}
	return e, nil
}

// Run forwards packets until ctx is done. Then it stops receiving, sends what is
// queued for at most a second, and closes the ports. It returns the first error
// that kept it from running, or from putting back what it had changed.
func (e *Engine) Run(ctx context.Context) error {
	loop, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- e.worker.Run(loop) }()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		e.watch(loop)
	}()

	var err error
	select {
	case <-ctx.Done():
		e.drain()
		stop()
		err = <-ended
	case err = <-ended:
		stop()
	}
	<-watched
	return errors.Join(err, e.Close())
}

// drain stops receiving and waits until the queues are empty, those of the
// devices too: what a ring holds when it is taken away is lost.
func (e *Engine) drain() {
	if e.worker.Do(func(*qdisc.Context) { e.worker.Unplug() }) != nil {
		return
	}
	queued, inflight := 0, 0
	for end := time.Now().Add(drainTime); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		err := e.worker.Do(func(*qdisc.Context) { queued, inflight = e.worker.Queued(), e.worker.InFlight() })
		if err != nil || queued+inflight == 0 {
			return
		}
	}
	e.log.Warn("queues not empty after a second; the rest is dropped", "packets", queued, "in_flight", inflight)
}

// Close releases the ports and puts back what was changed for them. Run does it
// by itself; Close is for an engine that never ran. Whoever asks for something
// afterwards, or while it waits for its turn, is told [worker.ErrStopped].
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.worker.Purge()
	return errors.Join(e.closePorts(), e.worker.Close())
}

func (e *Engine) closePorts() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(e.ports)) {
		errs = append(errs, e.ports[name].close())
	}
	return errors.Join(errs...)
}

// Apply puts the policy c into force: whole, or not at all. Queues that both
// policies have are kept, with their packets. Ports are opened at start, so a
// configuration that wants other ports is refused.
func (e *Engine) Apply(name string, c *config.Config, discardEdits bool) (*Report, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.samePorts(name, c); err != nil {
		return nil, err
	}
	if e.edited && !discardEdits {
		return nil, ErrEdited
	}
	next := policy.Compile(c)
	if err := e.rehearse(name, next); err != nil {
		return nil, err
	}
	was := e.policy
	if e.edited {
		was = nil // what runs is not what the policy made: build all anew
	}
	r := &Report{}
	var failed error
	err := e.worker.Do(func(ctx *qdisc.Context) {
		for _, dev := range slices.Sorted(maps.Keys(next)) {
			if failed = e.commit(ctx, r, e.ports[dev], was[dev], next[dev]); failed != nil {
				return
			}
		}
	})
	if errors.Is(err, worker.ErrStopped) {
		return nil, err // before the first step
	}
	if err = errors.Join(err, failed); err != nil {
		e.edited = true
		return nil, fmt.Errorf("%w: %w", ErrHalfApplied, err)
	}
	e.name, e.cfg, e.policy, e.edited = name, c, next, false
	e.log.Info("policy applied", "file", name, "steps", len(r.Steps))
	return r, nil
}

// Report says what Apply did.
type Report struct {
	Steps []string `json:"steps"` // in tc's words, with what each did to queued packets
}

// samePorts refuses a configuration whose ports or engine differ.
func (e *Engine) samePorts(name string, c *config.Config) error {
	was, is := *e.cfg, *c
	is.Qdiscs, is.Classes, is.Filters = was.Qdiscs, was.Classes, was.Filters
	if !was.Equal(&is) {
		return fmt.Errorf("%s: %s differs from what runs; ports are opened and sized at start, "+
			"so restart sluiced to change it", name, differs(&was, &is))
	}
	return nil
}

// differs names the first table that is not the same in both.
func differs(was, is *config.Config) string {
	switch {
	case was.Engine != is.Engine:
		return "[engine]"
	case was.Control != is.Control:
		return "[control]"
	}
	for i, l := range is.Links {
		one := config.Config{Links: []config.Link{l}}
		if i >= len(was.Links) || !one.Equal(&config.Config{Links: was.Links[i : i+1]}) {
			return "[link." + l.Name + "]"
		}
	}
	return "[link." + was.Links[len(is.Links)].Name + "]"
}

// rehearse builds a policy on trees that carry nothing, so that a refusal comes
// before the running ones are touched.
func (e *Engine) rehearse(name string, ports map[string]*policy.Port) error {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 1})
	if err != nil {
		return err
	}
	ctx := qdisc.NewContext(pool, 0)
	for _, dev := range slices.Sorted(maps.Keys(ports)) {
		t, err := tree.New(e.treeConfig(dev, e.ports[dev].env, func(_ *qdisc.Context, q qdisc.Qdisc) qdisc.Qdisc { return nil }, nil))
		if err != nil {
			return err
		}
		if err := carryOut(ctx, t, &Report{}, policy.Plan(nil, ports[dev]), ports[dev]); err != nil {
			return fmt.Errorf("%s: dev %s: %w", name, dev, err)
		}
	}
	return nil
}

// install rehearses and commits the first policy, before the worker runs.
func (e *Engine) install(ctx *qdisc.Context, next map[string]*policy.Port) error {
	if err := e.rehearse(e.name, next); err != nil {
		return err
	}
	for _, dev := range slices.Sorted(maps.Keys(next)) {
		if err := e.commit(ctx, &Report{}, e.ports[dev], nil, next[dev]); err != nil {
			return fmt.Errorf("%s: dev %s: %w", e.name, dev, err)
		}
	}
	e.policy = next
	return nil
}

// commit carries out the plan from one policy of a port to another. Between two
// turns, or before the first.
func (e *Engine) commit(ctx *qdisc.Context, r *Report, p *port, was, is *policy.Port) error {
	steps := policy.Plan(was, is)
	if byHand := p.tree.Qdiscs()[0].Handle != 0; was == nil && byHand {
		root := policy.Step{Request: tree.Request{Op: tree.Delete, Parent: tree.Root}, Effect: policy.Drops}
		root.Request.Handle, root.Request.Kind = p.tree.Qdiscs()[0].Handle, p.tree.Qdiscs()[0].Kind
		steps = append([]policy.Step{root}, steps...)
	}
	if was != nil {
		for parent := range was.Rules {
			if _, _, there := p.tree.Lookup(parent); there && is.Rules[parent] == nil {
				if err := p.tree.Attach(parent, nil); err != nil {
					return err
				}
			}
		}
	}
	return carryOut(ctx, p.tree, r, steps, is)
}

func carryOut(ctx *qdisc.Context, t *tree.Tree, r *Report, steps []policy.Step, is *policy.Port) error {
	for _, s := range steps {
		edit := t.Qdisc
		if s.Class {
			edit = t.Class
		}
		if err := edit(ctx, s.Request); err != nil && !qdisc.IsWarning(err) {
			return fmt.Errorf("%s: %w", s, err)
		}
		r.Steps = append(r.Steps, fmt.Sprintf("dev %s: %s (%s)", is.Dev, s, s.Effect))
	}
	for _, parent := range slices.Sorted(maps.Keys(is.Rules)) {
		if err := t.Attach(parent, is.Rules[parent]); err != nil {
			return fmt.Errorf("filters of %s: %w", parent, err)
		}
	}
	return nil
}

// Qdisc edits the qdiscs of a port as tc does. Errors are *qdisc.Error in the
// kernel's words, or ErrNoDevice.
func (e *Engine) Qdisc(dev string, r tree.Request) error {
	return e.edit(dev, func(ctx *qdisc.Context, t *tree.Tree) error { return t.Qdisc(ctx, r) })
}

// Class edits the classes of a port as tc does. Errors as with Qdisc.
func (e *Engine) Class(dev string, r tree.Request) error {
	return e.edit(dev, func(ctx *qdisc.Context, t *tree.Tree) error { return t.Class(ctx, r) })
}

func (e *Engine) edit(dev string, f func(*qdisc.Context, *tree.Tree) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.ports[dev]
	if p == nil {
		return &NoDeviceError{dev}
	}
	var failed error
	if err := e.worker.Do(func(ctx *qdisc.Context) { failed = f(ctx, p.tree) }); err != nil {
		return err
	}
	if failed == nil || qdisc.IsWarning(failed) {
		e.edited = true
	}
	return failed
}

// NoDeviceError names a port that the engine does not have.
type NoDeviceError struct{ Dev string }

func (e *NoDeviceError) Error() string { return fmt.Sprintf("Cannot find device %q", e.Dev) }

// treeConfig describes a tree for a port.
func (e *Engine) treeConfig(dev string, env func(uint32) qdisc.Env,
	install func(*qdisc.Context, qdisc.Qdisc) qdisc.Qdisc, changed func()) tree.Config {
	return tree.Config{
		Name: dev, Env: env, Lookup: kinds.ByName, Install: install, Changed: changed,
		Default: func() (qdisc.Qdisc, *qdisc.Kind) {
			k := kinds.ByName(defaultKind)
			q, err := k.New(env(0), nil)
			if err != nil {
				panic("default qdisc: " + err.Error()) // it takes no parameters
			}
			return q, k
		},
		NextHandle: e.nextHandle,
	}
}

// defaultKind is the root of a port that the policy does not mention.
const defaultKind = "pfifo_fast"

// nextHandle counts automatic handles, one counter for all ports.
func (e *Engine) nextHandle() uint32 {
	if e.handle++; e.handle > 0xfffe {
		e.handle = 0x8001
	}
	return e.handle
}
