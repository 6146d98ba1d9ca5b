package dequeuetest

import (
	"time"

	"sluice/dequeue"
	"sluice/qdisc"
)

// Driver is a scripted transmit queue. Posted packets are hidden until a
// doorbell that takes them, stay on the ring until Complete, and are freed and
// reported by the Reap after that. Its fields may be changed at any time.
type Driver struct {
	Size  int                 // slots of the ring
	Lie   int                 // slots that Room claims beyond those: the race that refuses a packet
	Kind  dequeue.Completions // what Completions returns
	Lossy bool                // completed packets were lost
	Gone  bool                // no carrier: Down is true, and doorbells answer KickDown
	Auto  bool                // every Reap completes all that is visible first
	Swift bool                // a doorbell sends at once: the slots are free when Kick returns
	Pad   int                 // bytes added to each completed packet: a driver that counts wrong

	// Kicks are the outcomes of the next doorbells; after them KickAll. Part is
	// how many packets one that answers KickAgain takes.
	Kicks []dequeue.Kick
	Part  int

	// Hook, when set, sees every event as it happens.
	Hook func(Event)

	hidden, visible     qdisc.List
	packets, bytes      int // completed, not yet reaped
	lost                uint64
	refuseAfter, refuse int
}

var _ dequeue.Driver = (*Driver)(nil)

// Event is one thing that happened at the device.
type Event struct {
	Op Op
	ID uint32 // Post, Refuse: the packet's Mark
	N  int    // Bell: packets it made visible; Complete: packets completed; Reap: bytes told of
}

// Op says what an Event is.
type Op uint8

const (
	Post     Op = iota // a packet was taken
	Refuse             // a packet was refused
	Bell               // the doorbell rang
	Complete           // packets were completed
	Reap               // completions were told of
)

// Refuse makes the driver take after more packets, then refuse the next times
// attempts, whatever room there is.
func (d *Driver) Refuse(after, times int) { d.refuseAfter, d.refuse = after, times }

// OnRing returns the packets posted and not completed, and how many of them the
// device does not see.
func (d *Driver) OnRing() (all, hidden int) {
	return d.hidden.Len() + d.visible.Len(), d.hidden.Len()
}

// Complete ends the transmission of at most n visible packets, oldest first, and
// returns how many that were. Reap tells of them.
func (d *Driver) Complete(n int) int {
	done := 0
	for ; done < n; done++ {
		p := d.visible.Pop()
		if p == nil {
			break
		}
		d.packets++
		d.bytes += p.Len() + d.Pad
		if d.Lossy {
			d.lost++
		}
		p.Free()
	}
	if done > 0 {
		d.tell(Event{Op: Complete, N: done})
	}
	return done
}

// Lose completes everything on the ring, seen or not, as lost: what some devices
// do when they go down.
func (d *Driver) Lose() {
	d.visible.Append(&d.hidden)
	lossy := d.Lossy
	d.Lossy = true
	d.Complete(d.visible.Len())
	d.Lossy = lossy
}

// Flush empties the ring without a word, as a device reset does.
func (d *Driver) Flush() {
	d.visible.Append(&d.hidden)
	for p := d.visible.Pop(); p != nil; p = d.visible.Pop() {
		p.Free()
	}
	d.packets, d.bytes = 0, 0
}

// Room implements dequeue.Driver.
func (d *Driver) Room() int { return d.Size + d.Lie - d.hidden.Len() - d.visible.Len() }

// Post implements dequeue.Driver.
func (d *Driver) Post(p *qdisc.Packet) bool {
	if d.refuse > 0 {
		if d.refuseAfter == 0 {
			d.refuse--
			d.tell(Event{Op: Refuse, ID: p.Mark})
			return false
		}
		d.refuseAfter--
	}
	if d.hidden.Len()+d.visible.Len() >= d.Size {
		d.tell(Event{Op: Refuse, ID: p.Mark})
		return false
	}
	d.hidden.Push(p)
	d.tell(Event{Op: Post, ID: p.Mark})
	return true
}

// Kick implements dequeue.Driver.
func (d *Driver) Kick(time.Duration) dequeue.Kick {
	kick := dequeue.KickAll
	switch {
	case d.Gone:
		kick = dequeue.KickDown
	case len(d.Kicks) > 0:
		kick = d.Kicks[0]
		d.Kicks = d.Kicks[1:]
	}
	n := 0
	switch kick {
	case dequeue.KickAll:
		n = d.hidden.Len()
		d.visible.Append(&d.hidden)
	case dequeue.KickAgain:
		for ; n < d.Part && d.hidden.Len() > 0; n++ {
			d.visible.Push(d.hidden.Pop())
		}
	}
	d.tell(Event{Op: Bell, N: n})
	if d.Swift {
		d.Complete(n)
	}
	return kick
}

// Reap implements dequeue.Driver.
func (d *Driver) Reap(time.Duration) (packets, bytes int) {
	if d.Auto {
		d.Complete(d.visible.Len())
	}
	packets, bytes = d.packets, d.bytes
	d.packets, d.bytes = 0, 0
	if packets > 0 {
		d.tell(Event{Op: Reap, N: bytes})
	}
	return packets, bytes
}

// Lost implements dequeue.Driver.
func (d *Driver) Lost() uint64 { return d.lost }

// Completions implements dequeue.Driver.
func (d *Driver) Completions() dequeue.Completions { return d.Kind }

// Down implements dequeue.Driver.
func (d *Driver) Down() bool { return d.Gone }

func (d *Driver) tell(e Event) {
	if d.Hook != nil {
		d.Hook(e)
	}
}
