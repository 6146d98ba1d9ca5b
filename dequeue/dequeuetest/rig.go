package dequeuetest

import (
	"fmt"
	"strings"

	"sluice/dequeue"
	"sluice/qdisc"
)

// Rig is a worker's transmit side without the worker: devices with their txqs,
// lanes with their runners, one scheduler, and a clock that stands still until
// Ctx.Now is set.
type Rig struct {
	Ctx     *qdisc.Context
	Sched   dequeue.Scheduler
	Devices []*Device
	Lanes   []*Lane
}

// Device is a scripted driver and the txq in front of it.
type Device struct {
	Name   string
	Driver *Driver
	Txq    *dequeue.Txq

	words []string // what happened since the last Log
	ids   []uint32 // posted from the list under way
	list  uint64   // its number
}

// Lane is a Queue and the runner that empties it. Its packets are numbered from
// 1, in Mark.
type Lane struct {
	Name   string
	Queue  *Queue
	Runner *dequeue.Runner

	rig   *Rig
	last  uint32
	burst qdisc.List
}

// NewRig returns a rig whose pool has so many packets.
func NewRig(packets int) *Rig {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: packets})
	if err != nil {
		panic(err)
	}
	return &Rig{Ctx: qdisc.NewContext(pool, 1)}
}

// AddDevice adds d behind a txq made of c.
func (r *Rig) AddDevice(name string, d *Driver, c dequeue.TxqConfig) *Device {
	c.Driver = d
	dev := &Device{Name: name, Driver: d, Txq: dequeue.NewTxq(c)}
	d.Hook = dev.note
	r.Devices = append(r.Devices, dev)
	return dev
}

// AddLane adds q with a runner made of c.
func (r *Rig) AddLane(name string, q *Queue, c dequeue.RunnerConfig) *Lane {
	c.Root, c.Scheduler = q, &r.Sched
	l := &Lane{Name: name, Queue: q, rig: r, Runner: dequeue.NewRunner(c)}
	r.Lanes = append(r.Lanes, l)
	return l
}

// Packet describes packets to be sent.
type Packet struct {
	Len      int
	Priority uint32 // the band
	Queue    uint16
}

// Send submits n packets in one burst.
func (l *Lane) Send(n int, kind Packet) {
	l.SendEach(n, func(uint32) Packet { return kind })
}

// SendEach is Send with a description for each packet, by its number.
func (l *Lane) SendEach(n int, describe func(id uint32) Packet) {
	for range n {
		p := l.rig.Ctx.Pool.Get()
		if p == nil {
			panic("dequeuetest: the pool has run out")
		}
		l.last++
		kind := describe(l.last)
		p.SetLen(kind.Len)
		p.Mark, p.Priority, p.Queue = l.last, kind.Priority, kind.Queue
		l.burst.Push(p)
	}
	l.Runner.Submit(l.rig.Ctx, &l.burst)
}

// Skip makes the next packet's number n+1.
func (l *Lane) Skip(n uint32) { l.last = n }

// Reap starts a turn on all devices.
func (r *Rig) Reap() {
	for _, d := range r.Devices {
		d.Txq.Reap(r.Ctx)
	}
}

// Flush ends a turn on all devices.
func (r *Rig) Flush() {
	for _, d := range r.Devices {
		d.Txq.Flush(r.Ctx)
	}
}

// Turn is one turn of a worker after its receiving: completions, the throttled
// runners whose time has come, one pass, doorbells.
func (r *Rig) Turn() {
	r.Reap()
	for _, l := range r.Lanes {
		if l.Runner.NextAt() <= r.Ctx.Now {
			r.Sched.Schedule(l.Runner)
		}
	}
	r.Sched.Pass(r.Ctx)
	r.Flush()
}

// Log tells what each device saw since the last Log, one line each: lists in
// brackets with the numbers of their packets, refusals, doorbells with the
// packets they made visible, completions. Empty when nothing happened.
func (r *Rig) Log() string {
	var b strings.Builder
	for _, d := range r.Devices {
		d.closeList()
		if len(d.words) > 0 {
			fmt.Fprintf(&b, "%s:", d.Name)
		}
		for i := 0; i < len(d.words); {
			j := i + 1
			for j < len(d.words) && d.words[j] == d.words[i] {
				j++
			}
			fmt.Fprintf(&b, " %s", d.words[i])
			if j-i > 1 {
				fmt.Fprintf(&b, "×%d", j-i)
			}
			i = j
		}
		if len(d.words) > 0 {
			b.WriteByte('\n')
		}
		d.words = d.words[:0]
	}
	return b.String()
}

func (d *Device) note(e Event) {
	if e.Op == Post {
		if n := d.Txq.Stats().Lists; n != d.list {
			d.closeList()
			d.list = n
		}
		d.ids = append(d.ids, e.ID)
		return
	}
	if e.Op == Reap {
		return
	}
	d.closeList()
	switch e.Op {
	case Refuse:
		d.words = append(d.words, fmt.Sprintf("refused %d", e.ID))
	case Bell:
		d.words = append(d.words, fmt.Sprintf("bell(%d)", e.N))
	case Complete:
		d.words = append(d.words, fmt.Sprintf("done(%d)", e.N))
	}
}

func (d *Device) closeList() {
	if len(d.ids) > 0 {
		d.words = append(d.words, "["+Ranges(d.ids)+"]")
		d.ids = d.ids[:0]
	}
}

// Ranges writes numbers with the ascending runs among them contracted: "1-3 7".
func Ranges(ids []uint32) string {
	var b strings.Builder
	for i := 0; i < len(ids); {
		j := i + 1
		for j < len(ids) && ids[j] == ids[j-1]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		if j-i == 1 {
			fmt.Fprint(&b, ids[i])
		} else {
			fmt.Fprintf(&b, "%d-%d", ids[i], ids[j-1])
		}
		i = j
	}
	return b.String()
}
