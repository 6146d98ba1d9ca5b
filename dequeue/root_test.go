package dequeue_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"sluice/bql"
	"sluice/dequeue"
	"sluice/dequeue/dequeuetest"
	"sluice/qdisc"
)

// A root that is replaced gives up its packets and those that a driver gave back,
// and comes away empty; what the new one brought along is scheduled.
func TestReplacedRootIsPurgedWithWhatTheRunnerHolds(t *testing.T) {
	rig := dequeuetest.NewRig(64)
	d := &dequeuetest.Driver{Size: 16, Kind: dequeue.CompleteDevice}
	dev := rig.AddDevice("tx", d, dequeue.TxqConfig{MinLimit: 1000})
	lane := rig.AddLane("A", &dequeuetest.Queue{}, dequeue.RunnerConfig{Txqs: []*dequeue.Txq{dev.Txq}})
	d.Refuse(2, 1)
	lane.Send(20, dequeuetest.Packet{Len: 100})
	rig.Turn()
	if held, _ := lane.Queue.Held(); held != 8 {
		t.Fatalf("%d packets held; of a list of 10 two were taken", held)
	}

	next := &dequeuetest.Queue{Bypass: true}
	old := lane.Runner.SetRoot(rig.Ctx, next)
	if old != qdisc.Qdisc(lane.Queue) || old.Len() != 0 || old.Backlog() != 0 {
		t.Errorf("the old root holds %d packets, %d bytes", old.Len(), old.Backlog())
	}
	if got := rig.Ctx.Drops[qdisc.Purged]; got != 18 {
		t.Errorf("%d packets purged, want 18", got)
	}
	if lane.Queue.Drops != 0 {
		t.Errorf("%d drops: a reset does not count as drops", lane.Queue.Drops)
	}

	d.Complete(2)
	rig.Turn()
	rig.Log()
	lane.Send(1, dequeuetest.Packet{Len: 100})
	if got := lane.Runner.Stats().Bypassed; got != 1 {
		t.Errorf("%d packets have skipped the new root, which allows it; want 1", got)
	}
	if got, want := rig.Log(), "tx: [21]\n"; got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}

func TestRootWithPacketsIsScheduled(t *testing.T) {
	rig := dequeuetest.NewRig(64)
	d := &dequeuetest.Driver{Size: 8, Kind: dequeue.CompleteDevice}
	dev := rig.AddDevice("tx", d, dequeue.TxqConfig{MinLimit: 1000})
	q := &dequeuetest.Queue{}
	p := rig.Ctx.Pool.Get()
	p.SetLen(100)
	q.Enqueue(rig.Ctx, p)
	rig.AddLane("A", q, dequeue.RunnerConfig{Txqs: []*dequeue.Txq{dev.Txq}})
	if !rig.Sched.Pending() {
		t.Fatal("a root brought a packet, and nobody will send it")
	}
}

// A discipline that cannot be skipped any longer, since it was changed, is not.
func TestRefreshAsksAgainWhetherARootMayBeSkipped(t *testing.T) {
	rig := dequeuetest.NewRig(64)
	d := &dequeuetest.Driver{Size: 8, Kind: dequeue.CompleteDevice}
	dev := rig.AddDevice("tx", d, dequeue.TxqConfig{MinLimit: 1000})
	lane := rig.AddLane("A", &dequeuetest.Queue{Bypass: true}, dequeue.RunnerConfig{Txqs: []*dequeue.Txq{dev.Txq}})
	lane.Send(1, dequeuetest.Packet{Len: 100})
	lane.Queue.Bypass = false
	lane.Runner.Refresh()
	lane.Send(1, dequeuetest.Packet{Len: 100})
	if got := lane.Runner.Stats().Bypassed; got != 1 {
		t.Errorf("%d packets skipped the root; only the first might", got)
	}
}

// Bells, lists and packets are counted apart, and the histograms agree with them.
func TestCountersAddUp(t *testing.T) {
	rig := dequeuetest.NewRig(256)
	d := &dequeuetest.Driver{Size: 256, Kind: dequeue.CompleteDevice, Auto: true, Lossy: true}
	dev := rig.AddDevice("tx", d, dequeue.TxqConfig{MinLimit: 1000})
	lane := rig.AddLane("A", &dequeuetest.Queue{}, dequeue.RunnerConfig{Txqs: []*dequeue.Txq{dev.Txq}})
	for _, n := range []int{1, 2, 3, 12, 0} {
		lane.Send(n, dequeuetest.Packet{Len: 100})
		rig.Turn()
	}
	rig.Turn()
	st, rs := dev.Txq.Stats(), lane.Runner.Stats()
	want := dequeue.TxqStats{
		Packets: 18, Bytes: 1800, Lists: 6, Bells: 5, Completed: 18, CompletedBytes: 1800, Lost: 18,
		StackStops: 1, Wakes: 1, Limited: true, BQL: st.BQL,
	}
	want.PacketsPerBell = dequeue.Histogram{2, 2, 0, 1} // 1, 2, 3, 11 and 1
	if st.Packets != rs.Packets || rs.Bytes != 1800 || rs.Restarts != st.Lists {
		t.Errorf("runner counts %+v", rs)
	}
	if st != want {
		t.Errorf("txq counts %+v\nwant      %+v", st, want)
	}
}

// BQL is told as by a driver that reports each packet: the size of the last one is
// a candidate for the slack, so one sum for a list would teach it another limit.
func TestBQLLearnsAsFromSinglePackets(t *testing.T) {
	rig := dequeuetest.NewRig(1024)
	d := &dequeuetest.Driver{Size: 256, Kind: dequeue.CompleteDevice}
	dev := rig.AddDevice("tx", d, dequeue.TxqConfig{HoldTime: time.Millisecond})
	lane := rig.AddLane("A", &dequeuetest.Queue{}, dequeue.RunnerConfig{Txqs: []*dequeue.Txq{dev.Txq}})
	var each bql.Limit
	each.Init(0)
	each.SetHoldTime(1)
	length := func(id uint32) int { return []int{60, 1514, 700, 9000 / 7}[id%4] }
	d.Hook = func(e dequeuetest.Event) {
		now := bql.Tick(rig.Ctx.Now / time.Millisecond)
		switch e.Op {
		case dequeuetest.Post:
			each.Queued(uint32(length(e.ID)), now)
		case dequeuetest.Reap:
			each.Completed(uint32(e.N), now)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for turn := range 5000 {
		lane.SendEach(max(0, 60-lane.Runner.Len()), func(id uint32) dequeuetest.Packet {
			return dequeuetest.Packet{Len: length(id)}
		})
		d.Complete(1 + rng.IntN(12))
		rig.Turn()
		if got, want := dev.Txq.Stats().BQL, each.Snapshot(); got != want {
			t.Fatalf("turn %d: %+v\nwant %+v", turn, got, want)
		}
		rig.Ctx.Now += time.Millisecond
	}
	if dev.Txq.Stats().BQL.Limit == 0 {
		t.Error("it has learned nothing")
	}
}

// curious knows whether it was asked since it became empty.
type curious struct {
	dequeuetest.Queue
	asked   bool
	unasked int // packets that came before it was
}

func (q *curious) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	if q.Len() == 0 && !q.asked {
		q.unasked++
	}
	return q.Queue.Enqueue(ctx, p)
}

func (q *curious) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	p := q.Queue.Dequeue(ctx)
	q.asked = p == nil
	return p
}

// A root that became empty is asked once more, as the kernel's loop does: at once
// while the queue is open, and when it was stopped then, before the next packet.
func TestAnEmptyRootIsAskedOnceMore(t *testing.T) {
	for _, quota := range []int{1, 64} {
		rig := dequeuetest.NewRig(64)
		d := &dequeuetest.Driver{Size: 3, Kind: dequeue.CompleteDevice}
		dev := rig.AddDevice("tx", d, dequeue.TxqConfig{MinLimit: 100000})
		q := &curious{asked: true}
		r := dequeue.NewRunner(dequeue.RunnerConfig{Root: q, Txqs: []*dequeue.Txq{dev.Txq}, Scheduler: &rig.Sched, Quota: quota})
		send := func(n int) {
			var burst qdisc.List
			for range n {
				p := rig.Ctx.Pool.Get()
				p.SetLen(100)
				burst.Push(p)
			}
			r.Submit(rig.Ctx, &burst)
			rig.Turn()
			rig.Turn()
		}
		send(2)
		if !q.asked {
			t.Errorf("quota %d: not asked although the queue is open", quota)
		}
		send(1) // fills the ring: the queue stops
		if !dev.Txq.Stopped() || q.asked {
			t.Errorf("quota %d: stopped %v, asked %v", quota, dev.Txq.Stopped(), q.asked)
		}
		d.Complete(3)
		rig.Turn()
		send(2)
		if q.unasked != 0 {
			t.Errorf("quota %d: a packet came before it was asked", quota)
		}
	}
}
