package dequeue_test

import (
	"testing"

	"sluice/dequeue"
	"sluice/dequeue/dequeuetest"
	"sluice/qdisc"
)

// The traps of kernel-semantics.md §7.1, as far as they can exist where one
// goroutine owns a queue. Of the others:
//
//   - 3, double validation: nothing is segmented or checksummed on the way out.
//     What is left of the rule is TestTrap03.
//   - 7a, the missing fence: there is one goroutine.
//   - 9, stuck packets of a lockless qdisc: there is none. Its counterpart, a
//     packet that comes from below while the runner runs, is TestTrap09.
//   - 10's race under the seqlock: there is no seqlock; its effect, a bypass that
//     overtakes, is TestTrap10.
//   - 11's DEACTIVATED: a closed runner is off the scheduler's list (TestTrap11).

func TestTrap01RequeueKeepsTheOrder(t *testing.T)               { runScript(t, "trap01") }
func TestTrap02RequeueHeadOfLineIsOneShortList(t *testing.T)    { runScript(t, "trap02") }
func TestTrap04ListHasOneQueueAndTheStrangerWaits(t *testing.T) { runScript(t, "trap04") }
func TestTrap05NoHugeBulkAfterAStall(t *testing.T)              { runScript(t, "trap05") }
func TestTrap06QuotaCountedInBulksStarvesSiblings(t *testing.T) { runScript(t, "trap06") }
func TestTrap07BQLQueueDoesNotStayStopped(t *testing.T)         { runScript(t, "trap07") }
func TestTrap08ResetLeavesNoStaleLimit(t *testing.T)            { runScript(t, "trap08") }
func TestTrap10BypassDoesNotOvertakeRequeued(t *testing.T)      { runScript(t, "trap10") }
func TestTrap12BurstIsRunAlsoWhenPartsWereDropped(t *testing.T) { runScript(t, "trap12") }
func TestTrap13WatchdogCountsFromTheStop(t *testing.T)          { runScript(t, "trap13") }
func TestTrap14BellIsRungWhenTheListEndsEarly(t *testing.T)     { runScript(t, "trap14") }

func TestTrap03RequeuedPacketIsUntouchedAndCountedOnce(t *testing.T) {
	rig := dequeuetest.NewRig(16)
	d := &dequeuetest.Driver{Size: 8, Kind: dequeue.CompleteDevice}
	dev := rig.AddDevice("tx", d, dequeue.TxqConfig{})
	lane := rig.AddLane("A", &dequeuetest.Queue{}, dequeue.RunnerConfig{Txqs: []*dequeue.Txq{dev.Txq}})
	d.Refuse(0, 3)
	lane.Send(1, dequeuetest.Packet{Len: 100})
	for range 10 {
		rig.Turn()
		rig.Ctx.Now += 1e6
	}
	if got := lane.Queue.Stats; got.Packets != 1 || got.Bytes != 100 || got.Requeues != 3 {
		t.Errorf("root counts %d packets, %d bytes, %d requeues; sent once after three refusals: 1, 100, 3",
			got.Packets, got.Bytes, got.Requeues)
	}
	if got := dev.Txq.Stats(); got.Packets != 1 || got.Bytes != 100 || got.Refused != 3 {
		t.Errorf("txq counts %d packets, %d bytes, %d refusals", got.Packets, got.Bytes, got.Refused)
	}
}

// 7d: a driver that completes more bytes than were posted, because it counts the
// padding of short frames, is found out at once; the kernel's BUG_ON. The other
// way round the queue would drift towards standing still, and in flight shows it.
func TestTrap07PaddedCompletionIsFoundOut(t *testing.T) {
	rig := dequeuetest.NewRig(16)
	d := &dequeuetest.Driver{Size: 8, Kind: dequeue.CompleteDevice, Pad: 4}
	dev := rig.AddDevice("tx", d, dequeue.TxqConfig{MinLimit: 3000})
	lane := rig.AddLane("A", &dequeuetest.Queue{}, dequeue.RunnerConfig{Txqs: []*dequeue.Txq{dev.Txq}})
	lane.Send(1, dequeuetest.Packet{Len: 60})
	rig.Turn()
	d.Complete(1)
	defer func() {
		if recover() == nil {
			t.Error("64 bytes completed of 60 posted, and nobody minds")
		}
	}()
	rig.Reap()
}

// What comes from below while the runner runs (a mirrored packet, a re-entrant
// submit) is served by the run under way or by the next pass. It neither overtakes
// the list under way nor stays behind.
func TestTrap09PacketFromBelowIsNotStuck(t *testing.T) {
	rig := dequeuetest.NewRig(16)
	d := &dequeuetest.Driver{Size: 8, Kind: dequeue.CompleteDevice}
	dev := rig.AddDevice("tx", d, dequeue.TxqConfig{MinLimit: 10000})
	q := &dequeuetest.Queue{Bypass: true}
	lane := rig.AddLane("A", q, dequeue.RunnerConfig{Txqs: []*dequeue.Txq{dev.Txq}})
	q.OnDequeue = func() {
		if q.Len() > 0 {
			return
		}
		q.OnDequeue = nil // the last packet is taken and not sent yet
		lane.Send(1, dequeuetest.Packet{Len: 100})
		lane.Runner.Run(rig.Ctx)
	}
	lane.Send(2, dequeuetest.Packet{Len: 100})
	for rig.Sched.Pending() {
		rig.Sched.Pass(rig.Ctx)
	}
	if got, want := rig.Log(), "tx: [1-3]\n"; got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}

// 11: whatever schedules a runner while it runs is not taken for the schedule
// being served, and the pass keeps its place in the list.
func TestTrap11ScheduleDuringARunIsNotLost(t *testing.T) {
	rig := dequeuetest.NewRig(16)
	lanes := map[string]*dequeuetest.Lane{}
	for _, name := range []string{"A", "B", "C"} {
		d := &dequeuetest.Driver{Size: 8, Kind: dequeue.CompleteDevice}
		dev := rig.AddDevice(name, d, dequeue.TxqConfig{})
		lanes[name] = rig.AddLane(name, &dequeuetest.Queue{OpenAt: qdisc.Never}, dequeue.RunnerConfig{Txqs: []*dequeue.Txq{dev.Txq}})
	}
	var order []string
	again := true
	for name, l := range lanes {
		l.Queue.OnDequeue = func() {
			order = append(order, name)
			if again {
				rig.Sched.Schedule(l.Runner)
				rig.Sched.Schedule(l.Runner)
			}
		}
	}
	for _, name := range []string{"A", "B", "C"} {
		lanes[name].Send(1, dequeuetest.Packet{Len: 100})
	}
	pass := func(want string) {
		t.Helper()
		order = order[:0:0]
		n := rig.Sched.Pass(rig.Ctx)
		got := ""
		for _, name := range order {
			got += name
		}
		if got != want || n != len(want) {
			t.Errorf("a pass ran %d runners, %q; want %q", n, got, want)
		}
	}
	pass("ABC")
	if !rig.Sched.Pending() {
		t.Fatal("all three were scheduled while they ran, and nothing is pending")
	}
	lanes["B"].Runner.Close(rig.Ctx)
	again = false
	pass("AC")
	pass("")

	// A closed runner leaves the list in order wherever it stood.
	schedule := func(names ...string) {
		for _, name := range names {
			lanes[name].Send(1, dequeuetest.Packet{Len: 100})
		}
	}
	schedule("A", "B")
	lanes["B"].Runner.Close(rig.Ctx)
	schedule("C")
	lanes["A"].Runner.Close(rig.Ctx)
	pass("C")
	rig.Sched.Schedule(lanes["C"].Runner)
	lanes["C"].Runner.Close(rig.Ctx)
	if rig.Sched.Pending() {
		t.Error("all are closed, and something is pending")
	}
}
