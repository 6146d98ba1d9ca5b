package golden_test

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"sluice/dequeue"
	"sluice/qdisc"
	"sluice/qdisc/kinds"
	"sluice/shaper/classify"
	"sluice/shaper/nic/mem"
	"sluice/shaper/tc"
	"sluice/shaper/tree"
)

// bench is the engine that a trace runs on: one port in memory whose transmitter
// opens by credits, one txq, one runner, a tree and tc.
type bench struct {
	t      reporter
	ctx    *qdisc.Context
	port   *mem.Port
	txq    *dequeue.Txq
	runner *dequeue.Runner
	sched  dequeue.Scheduler
	root   *root
	tree   *tree.Tree

	timing  bool          // the trace knows when things happened
	reason  qdisc.Reason  // of the last drop
	epoch   time.Duration // instant of the first injection
	started bool
	plugged bool        // the plug has not left
	left    []departure // since the last look
	all     int         // frames that left since the start
}

// root stands between the runner and the root qdisc to see the verdicts.
type root struct {
	qdisc.Qdisc
	last qdisc.Verdict
}

func (r *root) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	r.last = r.Qdisc.Enqueue(ctx, p)
	return r.last
}

func (r *root) CanBypass() bool {
	b, ok := r.Qdisc.(qdisc.Bypasser)
	return ok && b.CanBypass()
}

func newBench(t reporter, tr *trace) *bench {
	t.Helper()
	packets := 64
	for i := range tr.Steps {
		packets += 2 * len(tr.Steps[i].Frames) // twice, should all be duplicated
	}
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: packets, FrameSize: 1024 + tr.Device.MTU})
	if err != nil {
		t.Fatalf("setup: %v", err)
	}
	b := &bench{t: t, ctx: qdisc.NewContext(pool, 1), timing: tr.Timing}
	b.ctx.Hasher = func(p *qdisc.Packet) uint32 { return classify.FlowHash(p, 1) }
	b.ctx.OnDrop = func(_ *qdisc.Packet, r qdisc.Reason) { b.reason = r }
	b.ctx.Now = time.Second // the recorder did not start at boot either
	b.port, _ = mem.Pair("st0", "wire", mem.Config{Ring: 4096, MTU: tr.Device.MTU})
	b.port.Sink(func(p *qdisc.Packet, start, _ time.Duration) {
		d := departure{ID: number(p), At: start - b.epoch}
		if p.Bytes()[15]&3 == 3 && p.EtherType == 0x0800 {
			d.ECN = 3
		}
		if d.ID != 0 { // the plug
			b.left = append(b.left, d)
			b.all++
		}
	})
	// The recording device knows no byte queue limits, so the kernel sent packets
	// one by one: a quota of one.
	b.txq = dequeue.NewTxq(dequeue.TxqConfig{Driver: b.port.TxQueue(0), NoBQL: true})
	b.tree, err = tree.New(tree.Config{
		Name:   "st0",
		Env:    func(h uint32) qdisc.Env { return kinds.Env(tr.Device.TxQueueLen, tr.Device.MTU, h) },
		Lookup: kinds.ByName,
		Install: func(ctx *qdisc.Context, q qdisc.Qdisc) qdisc.Qdisc {
			r := &root{Qdisc: q}
			old := b.root
			b.root = r
			if b.runner == nil {
				b.runner = dequeue.NewRunner(dequeue.RunnerConfig{
					Root: r, Txqs: []*dequeue.Txq{b.txq}, Scheduler: &b.sched, Quota: 1,
				})
				return nil
			}
			b.runner.SetRoot(ctx, r)
			return old.Qdisc
		},
		Default: func() (qdisc.Qdisc, *qdisc.Kind) {
			kind := kinds.ByName("pfifo_fast")
			q, err := kind.New(kinds.Env(tr.Device.TxQueueLen, tr.Device.MTU, 0), nil)
			if err != nil {
				t.Fatalf("setup: %v", err)
			}
			return q, kind
		},
		Changed: func() { b.runner.Refresh() },
	})
	if err != nil {
		t.Fatalf("setup: %v", err)
	}
	for _, r := range tr.Setup {
		b.command(r)
	}
	if tr.Device.Plug {
		// The transmitter closes unseen: the frame is sent, refused and put back.
		b.port.TxQueue(0).Credits(0)
		b.plugged = true
		b.submit((&frame{Len: 60, Proto: "raw", Eth: 0x88b5}).packet(t, pool))
	}
	b.close()
	return b
}

// command runs tc and compares what it says and how it ends.
func (b *bench) command(want result) {
	b.t.Helper()
	var out bytes.Buffer
	code := b.tc(&out, strings.Fields(want.Cmd)[1:]...)
	if got := strings.TrimSpace(out.String()); code != want.RC || got != strings.TrimSpace(want.Out) {
		b.t.Errorf("%s: exit %d, %q; want %d, %q", want.Cmd, code, got, want.RC, want.Out)
	}
}

func (b *bench) tc(out *bytes.Buffer, args ...string) int {
	c, err := tc.Parse(args, kinds.ByName)
	if err == nil {
		err = tc.Run(b.ctx, out, c, []*tree.Tree{b.tree}, kinds.ByName)
	}
	text, code := tc.KernelError(err)
	out.WriteString(text)
	return code
}

// close stops the transmitter, and lets the txq see it.
func (b *bench) close() {
	q := b.port.TxQueue(0)
	q.Credits(-1)
	q.Credits(0)
	b.turn()
}

// open lets n frames leave; any number when n is negative.
func (b *bench) open(n int) {
	q := b.port.TxQueue(0)
	if b.plugged && n >= 0 {
		n++ // the plug is not among those that the trace counts
	}
	b.plugged = false
	q.Credits(-1)
	if n >= 0 {
		q.Credits(0)
		q.Credits(n)
	}
	if b.txq.Stopped() {
		b.ctx.Now += time.Millisecond // a stop that no completion ends is ended by time
	}
	b.turn()
}

// turn does what a worker's turn does, until nothing more happens at this
// instant.
func (b *bench) turn() {
	b.txq.Reap(b.ctx)
	for {
		b.sched.Pass(b.ctx)
		b.txq.Flush(b.ctx)
		b.txq.Reap(b.ctx)
		if !b.sched.Pending() {
			return
		}
	}
}

// advance lets time pass until an instant, with a turn whenever a throttled root
// wants one. It returns early when enough says so.
func (b *bench) advance(to time.Duration, enough func() bool) {
	for !enough() {
		at := b.runner.NextAt()
		if at > to {
			break
		}
		b.ctx.Now = max(b.ctx.Now, at)
		b.sched.Schedule(b.runner)
		b.turn()
	}
	if !enough() {
		b.ctx.Now = max(b.ctx.Now, to)
	}
}

func never() bool { return false }

// submit sends one packet and returns whether the sender hears that it was
// refused. Of a packet that no class wants, that a filter drops or netem loses, it does not:
// the kernel answers NET_XMIT_SUCCESS | __NET_XMIT_BYPASS.
func (b *bench) submit(p *qdisc.Packet) (refused bool) {
	var burst qdisc.List
	burst.Push(p)
	b.root.last = qdisc.Success
	b.runner.Submit(b.ctx, &burst)
	b.turn()
	return b.root.last == qdisc.Dropped && b.reason != qdisc.NoClass && b.reason != qdisc.Filter &&
		b.reason != qdisc.Lost
}

// inject sends frames, at their recorded instants when there are any, else one
// after the other, and returns the IDs of those that were refused.
func (b *bench) inject(s *step) (refused []int) {
	for i := range s.Frames {
		f := &s.Frames[i]
		if at, ok := s.TIn[strconv.Itoa(f.ID)]; ok {
			if !b.started {
				b.started, b.epoch = true, b.ctx.Now
			}
			b.advance(b.epoch+micros(at), never)
		} else {
			b.ctx.Now += 20 * time.Microsecond
		}
		if b.submit(f.packet(b.t, b.ctx.Pool)) {
			refused = append(refused, f.ID)
		}
	}
	return refused
}

// flow lets go of n frames, or of all that will leave, which includes those that
// a throttled root holds back for no longer than the recorder waited.
func (b *bench) flow(n int) {
	const quiet = 20 * time.Millisecond
	b.open(n)
	for before := -1; before != b.all; {
		before = b.all
		b.advance(b.ctx.Now+quiet, func() bool { return b.all > before })
	}
	b.close()
}

// take returns the departures since the last call.
func (b *bench) take() []departure {
	out := b.left
	b.left = nil
	return out
}

func ids(d []departure) []int {
	var all []int
	for _, x := range d {
		all = append(all, x.ID)
	}
	return all
}
