// Packet path, except New, Change, Dump and what is above them for parameters.

// Package tbf is the token bucket filter: it slows traffic down to a rate
// (net/sched/sch_tbf.c).
//
// A bucket earns credit at the rate and holds at most a burst's worth. A packet
// leaves when the bucket has what it costs; else everything waits, for there is
// no look behind the head to a smaller one. So no more than burst + rate × t
// leaves in any time t, and an idle link lets a burst through at full speed.
// With a peakrate a second, shallower bucket limits how fast a burst goes; one
// packet deep (minburst = the largest frame), it spaces every packet.
//
//	rate      bytes a second in the long run; mandatory
//	burst     depth of the bucket, bytes; mandatory. The largest packet has to
//	          fit: what is larger is dropped on arrival
//	limit     bytes that may wait, or
//	latency   how long one may wait: limit = rate × latency + burst
//	peakrate  rate of the second bucket; greater than rate
//	minburst  its depth, bytes ("mtu" is the same); mandatory with peakrate
//	overhead  bytes added to every packet, for the link's framing
//	mpu       bytes that a packet counts at least
//	linklayer "atm" counts in cells of 48 bytes that take 53
//
// Packets wait in a child qdisc, class 1:1, by default a bfifo of limit bytes.
//
// Differences from the kernel:
//
//   - The fraction of a nanosecond that the kernel's arithmetic cuts off each
//     packet's cost is kept (see qdisc/internal/rate): at 10 Gbit/s it is 0.1 %
//     of the rate. Where costs are whole nanoseconds departures are the same.
//   - A change sets the limit of the default child only. The kernel does it to
//     whatever child is a fifo, also one whose limit the administrator chose.
//   - A packet queued before a change that made the bucket too small for it is
//     dropped when its turn comes. In the kernel it blocks the qdisc for ever.
package tbf

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"syscall"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/internal/rate"
)

type tbf struct {
	qdisc.Base
	child    qdisc.Child
	settled  time.Duration // instant of the last departure, to which both buckets are kept (t_c)
	bucket   rate.Bucket
	peak     rate.Bucket   // used when peaked
	window   time.Duration // what the peak bucket earns at most: the time in which the first one fills
	maxSize  uint32        // the largest packet that can ever pass
	peaked   bool
	ownChild bool // the child is the default one, whose limit follows ours

	params   params
	handle   uint32
	newChild func(limit int) qdisc.Qdisc
}

// Enqueue gives p to the child, unless it can never pass.
func (q *tbf) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	if p.PktLen > q.maxSize {
		q.Refuse(ctx, p, qdisc.TooBig)
		return qdisc.Dropped
	}
	return q.child.Enqueue(ctx, &q.Base, p)
}

// Dequeue gives the packet that Peek parked, else the child's next if it
// conforms.
func (q *tbf) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Unpark(); p != nil {
		return p
	}
	return q.next(ctx)
}

func (q *tbf) next(ctx *qdisc.Context) *qdisc.Packet {
	for {
		p := q.child.Peek(ctx, &q.Base)
		if p == nil {
			q.SetNextAt(q.child.NextAt())
			return nil
		}
		if p.PktLen > q.maxSize {
			q.giveUp(ctx)
			continue
		}

		// Nothing is stored unless the packet leaves: what was earned counts
		// from the last departure, and no rounding adds up.
		elapsed := ctx.Now - q.settled
		left, peakLeft := q.bucket.After(elapsed, p.PktLen), int64(0)
		if q.peaked {
			peakLeft = q.peak.After(min(elapsed, q.window), p.PktLen)
		}
		if left|peakLeft < 0 {
			wait := q.bucket.Wait(-left)
			if q.peaked {
				wait = max(wait, q.peak.Wait(-peakLeft))
			}
			q.Overlimits++
			q.SetNextAt(ctx.Now + wait)
			return nil
		}
		q.settled = ctx.Now
		q.bucket.Settle(left)
		q.peak.Settle(peakLeft)
		return q.child.Dequeue(ctx, &q.Base)
	}
}

// giveUp drops the child's next packet, which was let in while the bucket was
// deeper.
func (q *tbf) giveUp(ctx *qdisc.Context) {
	p := q.child.Dequeue(ctx, &q.Base)
	q.Packets--
	q.Bytes -= uint64(p.PktLen)
	q.Drops++
	ctx.Drop(p, qdisc.TooBig)
}

// Peek parks what Dequeue gives (qdisc_peek_dequeued): a packet that was shown
// has paid.
func (q *tbf) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Parked(); p != nil {
		return p
	}
	return q.Park(q.next(ctx))
}

// Shed takes from the child.
func (q *tbf) Shed(ctx *qdisc.Context, n int) int { return q.child.Shed(ctx, &q.Base, n) }

// Reset empties the child and fills the buckets.
func (q *tbf) Reset(ctx *qdisc.Context) {
	q.child.Reset(ctx, &q.Base)
	q.ResetBase(ctx)
	q.fill(ctx.Now)
}

func (q *tbf) fill(now time.Duration) {
	q.settled = now
	q.bucket.Fill()
	q.peak.Fill()
}

// params are tbf's parameters as the kernel gets them.
type params struct {
	rate, peak       uint64 // bytes a second; peak 0: none
	burst, minburst  uint32
	limit            uint32
	overhead, mpu    uint16
	atm              bool
	bucket, peakRate rate.Rate
}

// with applies v on top of p. All of tbf's parameters travel in one structure:
// what is optional and not in v is off afterwards. The kernel gives no text for
// these refusals.
func (p params) with(v qdisc.Values) (params, error) {
	invalid := &qdisc.Error{Errno: syscall.EINVAL}
	n := params{rate: v.N("rate", p.rate), peak: v.N("peakrate", 0), atm: isATM(v["linklayer"].Word)}
	fits := true
	size := func(name string, def uint32, most uint64) uint32 {
		x := v.N(name, uint64(def))
		fits = fits && x <= most
		return uint32(x)
	}
	n.burst = size("burst", p.burst, math.MaxUint32)
	n.minburst = size("minburst", 0, math.MaxUint32)
	n.limit = size("limit", p.limit, math.MaxUint32)
	n.overhead = uint16(size("overhead", 0, math.MaxUint16))
	n.mpu = uint16(size("mpu", 0, math.MaxUint16))

	switch {
	case !fits, n.rate == 0, n.burst == 0:
		return p, invalid
	case n.peak != 0 && (n.peak <= n.rate || n.minburst == 0):
		return p, invalid
	}
	n.bucket = rate.New(rate.Config{Rate: n.rate, Overhead: n.overhead, MPU: n.mpu, ATM: n.atm})
	if n.peak != 0 {
		n.peakRate = rate.New(rate.Config{Rate: n.peak, Overhead: n.overhead, MPU: n.mpu, ATM: n.atm})
	}
	return n, nil
}

func isATM(word string) bool { return word == "atm" || word == "adsl" }

// set makes p the parameters in force, with full buckets.
func (q *tbf) set(p params) {
	q.params = p
	q.bucket = rate.NewBucket(p.bucket, p.burst)
	q.window = q.bucket.Window()
	q.maxSize = p.burst
	q.peak, q.peaked = rate.Bucket{}, p.peak != 0
	if q.peaked {
		q.peak = rate.NewBucket(p.peakRate, p.minburst)
		q.maxSize = min(p.burst, p.minburst)
	}
}

// Change replaces the parameters and fills the buckets. The child and what is
// in it stay.
func (q *tbf) Change(ctx *qdisc.Context, v qdisc.Values) error {
	p, err := q.params.with(v)
	if err != nil {
		return err
	}
	if q.ownChild && p.limit != q.params.limit {
		if err := q.limitChild(ctx, p.limit); err != nil {
			return err
		}
	}
	q.set(p)
	q.fill(ctx.Now)
	return nil
}

// limitChild sets the limit of the default child (fifo_set_limit).
func (q *tbf) limitChild(ctx *qdisc.Context, limit uint32) error {
	child, ok := q.child.Qdisc().(qdisc.Changer)
	if !ok {
		return nil
	}
	path := []qdisc.Step{{Qdisc: q, Class: q.class()}, {Qdisc: q.child.Qdisc()}}
	return qdisc.Edit(path, func() error {
		return child.Change(ctx, qdisc.Values{"limit": {N: uint64(limit)}})
	})
}

func (q *tbf) class() qdisc.ClassID { return qdisc.MakeID(q.handle, 1) }

// Walk shows the one class. It has no statistics of its own, and none of its
// child's either.
func (q *tbf) Walk(f func(qdisc.Class) bool) {
	f(qdisc.Class{
		ID:     q.class(),
		Parent: qdisc.MakeID(q.handle, 0),
		Leaf:   q.child.Qdisc(),
		Len:    q.child.Len(),
		Bytes:  q.child.Backlog(),
	})
}

// Graft makes child the qdisc that packets wait in.
func (q *tbf) Graft(ctx *qdisc.Context, class qdisc.ClassID, child qdisc.Qdisc) (qdisc.Qdisc, error) {
	if class != q.class() {
		return nil, &qdisc.Error{Errno: syscall.ENOENT}
	}
	q.ownChild = child == nil
	if child == nil {
		child = q.newChild(int(q.params.limit))
	}
	old := q.child.Qdisc()
	q.child.Purge(ctx, &q.Base)
	q.child = qdisc.NewChild(child)
	return old, nil
}

// Dump shows the parameters exactly, and beside them as tc prints them: sizes
// made a round trip through the kernel's ticks of 64 ns, and the limit has become
// a latency again unless it is smaller than the burst.
func (q *tbf) Dump() qdisc.Values {
	p := &q.params
	buffer := ticks(p.bucket.L2T(p.burst))
	shown := qdisc.Value{N: bytesIn(buffer, p.rate)}
	v := qdisc.Values{
		"rate":  {N: p.rate},
		"burst": {N: uint64(p.burst)}, "burst/brief": shown, "burst/cell": shown,
		"mpu":           {N: uint64(p.mpu)},
		"limit":         {N: uint64(p.limit)},
		"linklayer/all": {Word: "ethernet"},
	}
	lat := micros(p.limit, p.rate) - buffer
	if p.peak != 0 {
		mtu := ticks(p.peakRate.L2T(p.minburst))
		lat = max(lat, micros(p.limit, p.peak)-mtu)
		shown := qdisc.Value{N: bytesIn(mtu, p.peak)}
		v.Set("peakrate", p.peak)
		v.Set("minburst", uint64(p.minburst))
		v["minburst/brief"], v["mtu/cell"], v["mpu/peak"] = shown, shown, v["mpu"]
	}
	if lat >= 0 {
		v.Set("lat", uint64(lat)*uint64(time.Microsecond))
	} else {
		v["limit/shown"] = v["limit"]
	}
	if p.overhead != 0 {
		v.Set("overhead", uint64(p.overhead))
	}
	if p.atm {
		v["linklayer"] = qdisc.Value{Word: "atm"}
		v["linklayer/all"] = v["linklayer"]
	}
	return v
}

// ticks cuts ns to the kernel's 64 ns ticks and returns microseconds, in the
// floating point that tc computes in.
func ticks(ns uint64) float64 { return float64(ns>>6) / 15.625 }

// bytesIn returns how many bytes the rate carries in microseconds.
func bytesIn(us float64, rate uint64) uint64 { return uint64(float64(rate) * us / 1e6) }

// micros returns how many microseconds the rate takes for n bytes.
func micros(n uint32, rate uint64) float64 { return 1e6 * (float64(n) / float64(rate)) }

// check is what tc refuses by itself, all of it in one go, and how it gets a
// limit from a latency.
func check(v qdisc.Values) error {
	if v.Has("latency") && v.Has("limit") {
		return errors.New(`tbf: specifying both "latency" and "limit" is not allowed`)
	}
	switch word := v["linklayer"].Word; word {
	case "", "ethernet", "atm", "adsl":
	default:
		return fmt.Errorf(illegal, "linklayer", word)
	}
	var missing []string
	if v.N("rate", 0) == 0 {
		missing = append(missing, `tbf: the "rate" parameter is mandatory.`)
	}
	if v.N("burst", 0) == 0 {
		missing = append(missing, `tbf: the "burst" parameter is mandatory.`)
	}
	if v.N("peakrate", 0) != 0 && v.N("minburst", 0) == 0 {
		missing = append(missing, `tbf: when "peakrate" is specified, "mtu" must also be specified.`)
	}
	if v.N("limit", 0) == 0 && v.N("latency", 0) == 0 {
		missing = append(missing, `tbf: either "limit" or "latency" is required.`)
	}
	if missing != nil {
		return qdisc.Misuse(strings.Join(missing, "\n"))
	}
	// The kernel takes the burst as a time too, in 32 bits of ticks.
	if float64(v.N("burst", 0))/float64(v.N("rate", 0))*1e9/64 > math.MaxUint32 {
		return errors.New("tbf: burst out of range")
	}
	if v.N("limit", 0) == 0 {
		latency := float64(v.N("latency", 0)) / 1e9
		limit := float64(v.N("rate", 0))*latency + float64(v.N("burst", 0))
		if peak := v.N("peakrate", 0); peak != 0 {
			limit = min(limit, float64(peak)*latency+float64(v.N("minburst", 0)))
		}
		v.Set("limit", uint64(min(limit, math.MaxUint32)))
	}
	return nil
}

func newTBF(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
	p, err := params{}.with(v)
	if err != nil {
		return nil, err
	}
	q := &tbf{handle: env.Handle, newChild: env.Bfifo, ownChild: true}
	q.set(p)
	q.child = qdisc.NewChild(q.newChild(int(p.limit)))
	return q, nil
}

// illegal words the refusal of a value.
const illegal = `tbf: illegal value for "%s": "%s"`

// Kind is the table of tbf.
var Kind = qdisc.Kind{
	Name: "tbf",
	Doc:  "slows traffic down to a rate, with a token bucket",
	Usage: "Usage: ... tbf limit BYTES burst BYTES[/BYTES] rate KBPS [ mtu BYTES[/BYTES] ]\n" +
		"\t[ peakrate KBPS ] [ latency TIME ] [ overhead BYTES ] [ linklayer TYPE ]",
	Params: []qdisc.Param{
		{Name: "rate", Unit: qdisc.Rate, Doc: "rate in the long run"},
		{Name: "burst", Aliases: []string{"buffer", "maxburst"}, Unit: qdisc.Size, Show: qdisc.Input,
			Doc: "depth of the bucket; the largest packet has to fit"},
		{Name: "burst/brief", JSON: "burst", Unit: qdisc.Size, Show: qdisc.Brief, Text: "burst %s "},
		{Name: "burst/cell", JSON: "burst", Unit: qdisc.Size, Show: qdisc.Details, Text: "burst %s/1 "},
		{Name: "mpu", Unit: qdisc.Size, Show: qdisc.Details, Default: "0", Doc: "bytes that a packet counts at least"},
		{Name: "peakrate", Unit: qdisc.Rate, Show: qdisc.TextOnly, Default: "none", Doc: "how fast a burst may go"},
		{Name: "minburst", Aliases: []string{"mtu"}, Unit: qdisc.Size, Show: qdisc.Input,
			Doc: "depth of the bucket of peakrate; the largest packet has to fit"},
		{Name: "minburst/brief", JSON: "minburst", Unit: qdisc.Size, Show: qdisc.Brief, Text: "minburst %s "},
		{Name: "mtu/cell", JSON: "mtu", Unit: qdisc.Size, Show: qdisc.Details, Text: "mtu %s/1 "},
		{Name: "mpu/peak", JSON: "mpu", Unit: qdisc.Size, Show: qdisc.Details, Text: "mpu %s "},
		{Name: "latency", Unit: qdisc.Time, Show: qdisc.Input, Doc: "how long a packet may wait; sets limit"},
		{Name: "lat", Unit: qdisc.Time, Show: qdisc.Output},
		{Name: "limit", Unit: qdisc.Size, Show: qdisc.Input, Doc: "bytes that may wait"},
		{Name: "limit/shown", JSON: "limit", Unit: qdisc.Size, Text: "limit %s "},
		{Name: "overhead", Unit: qdisc.Number, Default: "0", Doc: "bytes added to every packet"},
		{Name: "linklayer", Unit: qdisc.Word, Show: qdisc.Brief, Default: "ethernet", Doc: "ethernet, or atm to count in cells"},
		{Name: "linklayer/all", JSON: "linklayer", Unit: qdisc.Word, Show: qdisc.Details, Text: "linklayer %s "},
	},
	Flags:         qdisc.IsClassful | qdisc.NoClassStats,
	IllegalFormat: illegal,
	UnknownFormat: `tbf: unknown parameter "%s"`,
	Check:         check,
	New:           newTBF,
}
