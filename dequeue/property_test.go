package dequeue_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/bql"
	"sluice/dequeue"
	"sluice/dequeue/dequeuetest"
	"sluice/qdisc"
)

// world is a rig under random treatment, and what must be true of it.
type world struct {
	rig     *dequeuetest.Rig
	posted  map[string]uint64            // by device
	highest map[string]map[uint32]uint32 // by lane and flow: the last number posted
	limits  map[string]*bql.Limit        // by device: told of every packet and every round

	patience map[string]time.Duration // by device: its flush interval
	sent     uint64
	dropped  uint64
}

// laneShift numbers lanes in Packet.Mark's upper byte, so that a device's log
// tells whose packet it was.
const laneShift = 24

func newWorld(t *rapid.T) *world {
	w := &world{
		rig:     dequeuetest.NewRig(4096),
		posted:  map[string]uint64{},
		highest: map[string]map[uint32]uint32{},
		limits:  map[string]*bql.Limit{},

		patience: map[string]time.Duration{},
	}
	w.rig.Ctx.OnDrop = func(*qdisc.Packet, qdisc.Reason) { w.dropped++ }
	var txqs []*dequeue.Txq
	devices := rapid.IntRange(1, 3).Draw(t, "devices")
	for i := range devices {
		d := &dequeuetest.Driver{
			Size: rapid.SampledFrom([]int{1, 3, 16, 200}).Draw(t, "ring"),
			Kind: rapid.SampledFrom([]dequeue.Completions{dequeue.CompleteDevice, dequeue.CompletePeer, dequeue.CompleteNone}).Draw(t, "completions"),
			Part: 5,
		}
		c := dequeue.TxqConfig{
			NoBQL:         rapid.Bool().Draw(t, "nobql"),
			HoldTime:      rapid.SampledFrom([]time.Duration{0, time.Millisecond}).Draw(t, "hold"),
			MinLimit:      rapid.SampledFrom([]uint32{0, 1514, 20000}).Draw(t, "min"),
			Doorbell:      rapid.SampledFrom([]dequeue.Doorbell{dequeue.DoorbellTurn, dequeue.DoorbellList, dequeue.DoorbellPacket}).Draw(t, "bell"),
			FlushInterval: rapid.SampledFrom([]time.Duration{0, 0, 200 * time.Microsecond}).Draw(t, "interval"),
			FlushBatch:    rapid.SampledFrom([]int{0, 0, 4}).Draw(t, "batch"),
		}
		dev := w.rig.AddDevice(string(rune('a'+i)), d, c)
		txqs = append(txqs, dev.Txq)
		limit := new(bql.Limit)
		limit.Init(0)
		if err := limit.SetMin(c.MinLimit); err != nil {
			t.Fatal(err)
		}
		if c.HoldTime > 0 {
			limit.SetHoldTime(bql.Tick(c.HoldTime / time.Millisecond))
		}
		limit.Reset(0)
		w.limits[dev.Name] = limit
		w.patience[dev.Name] = c.FlushInterval
		log := d.Hook
		d.Hook = func(e dequeuetest.Event) {
			log(e)
			now := bql.Tick(w.rig.Ctx.Now / time.Millisecond)
			switch e.Op {
			case dequeuetest.Post:
				limit.Queued(uint32(size(e.ID)), now)
				w.post(t, dev, e.ID)
			case dequeuetest.Reap:
				limit.Completed(uint32(e.N), now)
			}
		}
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "lanes") {
		to := txqs
		if one := rapid.IntRange(0, devices).Draw(t, "tx"); one < devices {
			to = txqs[one : one+1]
		}
		q := &dequeuetest.Queue{
			Limit:  rapid.SampledFrom([]int{0, 30}).Draw(t, "limit"),
			Bypass: rapid.Bool().Draw(t, "bypass"),
			Direct: rapid.IntRange(0, 9).Draw(t, "direct") == 0,
		}
		lane := w.rig.AddLane(string(rune('A'+i)), q, dequeue.RunnerConfig{
			Txqs:  to,
			Quota: rapid.SampledFrom([]int{0, 1, 5}).Draw(t, "quota"),
			Mode: rapid.SampledFrom([]dequeue.QuotaMode{dequeue.QuotaPackets, dequeue.QuotaBudget,
				dequeue.QuotaRestarts, dequeue.QuotaUnlimited}).Draw(t, "mode"),
		})
		lane.Skip(uint32(i) << laneShift)
		w.highest[lane.Name] = map[uint32]uint32{}
	}
	return w
}

// post checks the order: the packets of a lane, a band and a queue leave in the
// order in which they came, whatever was refused on the way.
func (w *world) post(t *rapid.T, dev *dequeuetest.Device, id uint32) {
	w.posted[dev.Name]++
	lane := w.rig.Lanes[id>>laneShift]
	flow := id % flows
	if last := w.highest[lane.Name][flow]; id <= last {
		t.Fatalf("%s: packet %d leaves after %d of the same flow", lane.Name, id, last)
	}
	w.highest[lane.Name][flow] = id
}

// flows is the number of flows of a lane: a packet's number modulo flows decides
// its band and its queue.
const flows = 6

// size returns the length of a packet by its number.
func size(id uint32) int { return 60 + int(id*97%1455) }

func (w *world) send(lane *dequeuetest.Lane, n int) {
	w.sent += uint64(n)
	lane.SendEach(n, func(id uint32) dequeuetest.Packet {
		return dequeuetest.Packet{Len: size(id), Priority: id % flows % 3, Queue: uint16(id % flows / 2)}
	})
}

// check is true after every turn.
func (w *world) check(t *rapid.T) {
	queued := 0
	for _, l := range w.rig.Lanes {
		held, _ := l.Queue.Held()
		if inside := l.Queue.Inside(); l.Runner.Len() != inside+held {
			t.Fatalf("%s: len %d, but %d inside and %d held", l.Name, l.Runner.Len(), inside, held)
		}
		queued += l.Runner.Len()
	}
	posted := uint64(0)
	for _, d := range w.rig.Devices {
		st := d.Txq.Stats()
		_, hidden := d.Driver.OnRing()
		if st.Unrung < hidden { // more, when it took a part and then stopped
			t.Fatalf("%s: %d packets unrung, the device does not see %d", d.Name, st.Unrung, hidden)
		}
		if hidden > 0 && !d.Txq.Frozen() {
			wait := d.Txq.NextFlush() - w.rig.Ctx.Now
			if (wait <= 0 || wait > w.patience[d.Name]) && !d.Txq.Stopped() || wait > 10*time.Millisecond {
				t.Fatalf("%s: %d packets without a bell for another %v", d.Name, hidden, wait)
			}
		}
		if want := w.limits[d.Name].Snapshot(); st.Limited && st.BQL != want {
			t.Fatalf("%s: BQL has %+v; told of every packet and round it would have %+v", d.Name, st.BQL, want)
		}
		if st.Packets != w.posted[d.Name] {
			t.Fatalf("%s counts %d packets, the device saw %d", d.Name, st.Packets, w.posted[d.Name])
		}
		posted += st.Packets
	}
	if w.sent != posted+w.dropped+uint64(queued) {
		t.Fatalf("sent %d; posted %d, dropped %d, queued %d", w.sent, posted, w.dropped, queued)
	}
}

// deadline is when a worker that trusts what it is told would turn again.
func (w *world) deadline() time.Duration {
	if w.rig.Sched.Pending() {
		return w.rig.Ctx.Now
	}
	at := qdisc.Never
	for _, l := range w.rig.Lanes {
		at = min(at, l.Runner.NextAt())
		if l.Runner.Waiting() {
			at = min(at, w.rig.Ctx.Now+50*time.Microsecond)
		}
	}
	for _, d := range w.rig.Devices {
		at = min(at, d.Txq.NextFlush())
	}
	return at
}

// drain heals the devices and lets that worker turn until nothing is left.
func (w *world) drain(t *rapid.T) {
	for _, d := range w.rig.Devices {
		d.Driver.Gone, d.Driver.Lie, d.Driver.Kicks, d.Driver.Auto = false, 0, nil, true
		d.Driver.Refuse(0, 0)
		d.Txq.Unfreeze()
	}
	for turns := 0; ; turns++ {
		at := w.deadline()
		if at == qdisc.Never {
			break
		}
		if turns > 20000 {
			t.Fatal("it never ends")
		}
		w.rig.Ctx.Now = max(w.rig.Ctx.Now, at)
		w.rig.Turn()
		w.check(t)
	}
	w.rig.Reap()
	w.check(t)
	for _, l := range w.rig.Lanes {
		if l.Runner.Len() > 0 {
			t.Fatalf("%s: %d packets are stuck", l.Name, l.Runner.Len())
		}
	}
	for _, d := range w.rig.Devices {
		st := d.Txq.Stats()
		if st.Unrung != 0 || st.InFlight != 0 || st.BQL.Inflight != 0 {
			t.Fatalf("%s: %d unrung, %d packets and %d bytes in flight", d.Name, st.Unrung, st.InFlight, st.BQL.Inflight)
		}
	}
	if pool := w.rig.Ctx.Pool; pool.Available() != pool.Size() {
		t.Fatalf("%d packets are lost", pool.Size()-pool.Available())
	}
}

// Under random refusals, stops, completions, losses of carrier and throttling no
// packet is lost or overtaken, none is left without a bell, and none is stuck: a
// worker that turns only when it is told to gets everything out in the end.
func TestNothingIsLostReorderedOrStuck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		device := func(t *rapid.T) *dequeuetest.Device {
			return w.rig.Devices[rapid.IntRange(0, len(w.rig.Devices)-1).Draw(t, "device")]
		}
		lane := func(t *rapid.T) *dequeuetest.Lane {
			return w.rig.Lanes[rapid.IntRange(0, len(w.rig.Lanes)-1).Draw(t, "lane")]
		}
		turn := func(t *rapid.T) {
			w.rig.Turn()
			w.check(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				if w.rig.Ctx.Pool.Available() > 1000 {
					w.send(lane(t), rapid.SampledFrom([]int{1, 1, 2, 10, 70}).Draw(t, "n"))
				}
			},
			"turn":  turn,
			"turn2": turn,
			"time": func(t *rapid.T) {
				w.rig.Ctx.Now += rapid.SampledFrom([]time.Duration{time.Microsecond, 60 * time.Microsecond, 3 * time.Millisecond}).Draw(t, "d")
			},
			"complete": func(t *rapid.T) { device(t).Driver.Complete(rapid.IntRange(1, 20).Draw(t, "n")) },
			"refuse": func(t *rapid.T) {
				device(t).Driver.Refuse(rapid.IntRange(0, 5).Draw(t, "after"), rapid.IntRange(1, 3).Draw(t, "times"))
			},
			"lie": func(t *rapid.T) { device(t).Driver.Lie = rapid.IntRange(-3, 3).Draw(t, "lie") },
			"kick": func(t *rapid.T) {
				d := device(t).Driver
				d.Kicks = append(d.Kicks, rapid.SampledFrom([]dequeue.Kick{dequeue.KickAgain, dequeue.KickStopped}).Draw(t, "kick"))
			},
			"carrier": func(t *rapid.T) { d := device(t).Driver; d.Gone = !d.Gone },
			"freeze": func(t *rapid.T) {
				if q := device(t).Txq; q.Frozen() {
					q.Unfreeze()
				} else {
					q.Freeze()
				}
			},
			"throttle": func(t *rapid.T) { lane(t).Queue.OpenAt = w.rig.Ctx.Now + time.Millisecond },
			"reset": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "rarely") == 0 {
					lane(t).Runner.Reset(w.rig.Ctx)
				}
			},
		})
		w.drain(t)
	})
}
