// Admin path.

package fq

import (
	"fmt"
	"math"
	"math/bits"
	"syscall"
	"time"

	"sluice/qdisc"
)

// params are fq's parameters as they are in force.
type params struct {
	limit, flowLimit        uint32
	quantum, initialQuantum uint32
	maxRate, lowRate        uint64 // bytes a second
	refillDelay             time.Duration
	ceThreshold             time.Duration
	orphanMask              uint32
	bucketsLog              uint8
	pacing                  bool
	horizonCap              bool
	priomap                 [priorities]uint8
	weights                 [nBands]uint32
	timerSlack, horizon     time.Duration
	offloadHorizon          time.Duration
}

const (
	maxQuantum = 1 << 20
	minWeight  = 1 << 14
	maxBuckets = 18      // log₂
	maxRate    = 1 << 60 // far above any link's; a higher one is none
)

func defaults(env qdisc.Env) params {
	frame := uint32(env.MTU + env.HeaderLen)
	return params{
		limit: 10000, flowLimit: 100, quantum: 2 * frame, initialQuantum: 10 * frame,
		maxRate: unlimited, lowRate: 550_000 / 8,
		refillDelay: 40 * time.Millisecond, ceThreshold: never,
		orphanMask: 1023, bucketsLog: 10, pacing: true,
		priomap:    [priorities]uint8{1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},
		weights:    [nBands]uint32{9 << 16, 3 << 16, 1 << 16},
		timerSlack: 10 * time.Microsecond, horizon: 10 * time.Second,
	}
}

// with applies v on top of p.
func (p params) with(v qdisc.Values) (params, error) {
	old := p
	number := func(name string, to *uint32) {
		*to = uint32(min(v.N(name, uint64(*to)), math.MaxUint32))
	}
	number("limit", &p.limit)
	number("flow_limit", &p.flowLimit)
	number("orphan_mask", &p.orphanMask)
	if n := v.N("quantum", 1); n < 1 || n > maxQuantum {
		return old, qdisc.Refuse(syscall.EINVAL, "invalid quantum")
	}
	number("quantum", &p.quantum)
	if v.N("initial_quantum", 0) > math.MaxInt32 {
		return old, qdisc.Refuse(syscall.ERANGE, "integer out of range")
	}
	number("initial_quantum", &p.initialQuantum)
	if n := v.N("buckets", 0); n != 0 {
		log := bits.Len64(n - 1)
		if log < 1 || log > maxBuckets {
			return old, &qdisc.Error{Errno: syscall.EINVAL}
		}
		p.bucketsLog = uint8(log)
	}
	p.maxRate = v.N("maxrate", p.maxRate)
	if p.maxRate >= maxRate {
		p.maxRate = unlimited
	}
	p.lowRate = v.N("low_rate_threshold", p.lowRate)
	instant := func(name string, to *time.Duration) {
		*to = time.Duration(min(v.N(name, uint64(*to)), uint64(never)))
	}
	instant("refill_delay", &p.refillDelay)
	instant("ce_threshold", &p.ceThreshold)
	instant("timer_slack", &p.timerSlack)
	instant("horizon", &p.horizon)
	instant("offload_horizon", &p.offloadHorizon)
	if p.offloadHorizon != 0 { // what the device could pace by itself
		return old, qdisc.Refuse(syscall.EINVAL, "invalid offload_horizon")
	}
	p.pacing = (p.pacing || v.Has("pacing")) && !v.Has("nopacing")
	p.horizonCap = (p.horizonCap || v.Has("horizon_cap")) && !v.Has("horizon_drop")

	if n := v.N("bands", nBands); n != nBands {
		return old, qdisc.Refuse(syscall.EINVAL, "FQ only supports 3 bands")
	}
	for i, b := range v["priomap"].List {
		if i >= len(p.priomap) || b >= nBands {
			return old, qdisc.Refuse(syscall.EINVAL, "FQ priomap field %d maps to a too high band %d", i, b)
		}
		p.priomap[i] = uint8(b)
	}
	for i, w := range v["weights"].List {
		switch {
		case i >= len(p.weights) || w > math.MaxInt32:
			return old, &qdisc.Error{Errno: syscall.EINVAL}
		case w < minWeight:
			return old, qdisc.Refuse(syscall.EINVAL, "Weight %d less that minimum allowed %d", w, minWeight)
		}
		p.weights[i] = uint32(w)
	}
	return p, nil
}

// Change sets what v names. Packets beyond the new limit are dropped in the order
// in which they would have left, the one that Peek parked first.
func (q *fq) Change(ctx *qdisc.Context, v qdisc.Values) error {
	p, err := q.params.with(v)
	if err != nil {
		return err
	}
	q.params = p
	if n := places(p.orphanMask); q.flows != nil && n > len(q.flows) {
		q.flows = append(make([]flow, 0, n), q.flows...)[:n]
	}
	q.room()
	for q.Len() > int(min(p.limit, math.MaxInt32)) {
		p := q.Unpark()
		if p != nil { // it stays counted as sent
			q.Drops++
			ctx.Drop(p, qdisc.Overlimit)
			continue
		}
		if p = q.take(ctx); p == nil {
			break // all wait for their time
		}
		q.Discard(ctx, p, qdisc.Overlimit)
	}
	return nil
}

// Dump shows the parameters.
func (q *fq) Dump() qdisc.Values {
	p := &q.params
	v := qdisc.Values{
		"limit": {N: uint64(p.limit)}, "flow_limit": {N: uint64(p.flowLimit)},
		"buckets": {N: 1 << p.bucketsLog}, "orphan_mask": {N: uint64(p.orphanMask)},
		"bands": {N: nBands}, "priomap": {}, "weights": {},
		"quantum": {N: uint64(p.quantum)}, "initial_quantum": {N: uint64(p.initialQuantum)},
		"low_rate_threshold": {N: p.lowRate}, "refill_delay": {N: uint64(p.refillDelay)},
		"timer_slack": {N: uint64(p.timerSlack)}, "timer_slack/json": {N: uint64(p.timerSlack)},
		"horizon": {N: uint64(p.horizon)},
	}
	v["priomap"], v["weights"] = list64(p.priomap[:]), list64(p.weights[:])
	if !p.pacing {
		v.Set("pacing", 0).Set("nopacing", 1)
	}
	if p.maxRate != unlimited {
		v.Set("maxrate", p.maxRate)
	}
	if p.lowRate == 0 {
		delete(v, "low_rate_threshold")
	}
	if p.ceThreshold != never {
		v.Set("ce_threshold", uint64(p.ceThreshold))
	}
	if p.horizonCap {
		v.Set("horizon_cap", 1).Set("horizon_cap/json", 1)
	} else {
		v.Set("horizon_drop", 1).Set("horizon_drop/json", 1)
	}
	return v
}

func list64[T uint8 | uint32](list []T) (v qdisc.Value) {
	for _, n := range list {
		v.List = append(v.List, uint64(n))
	}
	return v
}

// XStats shows what fq counts (struct tc_fq_qd_stats).
func (q *fq) XStats() qdisc.Values {
	s := &q.stats
	v := qdisc.Values{
		"flows": {N: uint64(q.known)}, "inactive": {N: uint64(q.idle)}, "delayed": {N: uint64(len(q.delayed.heap))},
		"gc": {N: s.gc}, "highprio": {}, "throttled": {N: s.throttled},
	}
	some := func(name string, n uint64) {
		if n != 0 {
			v.Set(name, n)
		}
	}
	if at := q.delayed.next(); at != qdisc.Never && at > q.lastEmpty {
		v.Set("next_packet_delay", uint64(at-q.lastEmpty)).Set("next_packet_delay/text", uint64(at-q.lastEmpty))
	}
	for i := range q.bands {
		v.Set(fmt.Sprintf("band%d_pkts", i), uint64(q.bands[i].packets))
		some(fmt.Sprintf("band%d_drops", i), s.bandDrops[i])
	}
	some("fastpath", s.fastpath)
	some("latency", s.latency)
	some("latency/text", s.latency)
	some("ce_mark", s.ceMark)
	some("flows_plimit", s.flowsPlimit)
	some("pkts_too_long", s.tooBig)
	return v
}

// refusal is tc's, in its words.
type refusal string

func (r refusal) Error() string { return string(r) }

// check is what tc refuses by itself.
func check(v qdisc.Values) error {
	if v.Has("priomap") && !v.Has("bands") {
		return refusal(`What is "priomap"?`)
	}
	if v.Has("bands") {
		switch n := v["priomap"].List; {
		case v.N("bands", 0) != nBands:
			return refusal(`"bands" must be 3`)
		case !v.Has("priomap"):
			return refusal(`"priomap" expected`)
		case len(n) < priorities:
			return refusal("Not enough elements in priomap")
		case len(n) > priorities:
			return refusal(fmt.Sprintf("What is \"%d\"?", n[priorities]))
		}
		for _, b := range v["priomap"].List {
			if b >= nBands {
				return refusal(fmt.Sprintf("\"priomap\" element %d too big", b))
			}
		}
	}
	if v.Has("weights") {
		n := v["weights"].List
		if len(n) < nBands {
			return refusal("Not enough elements in weights")
		}
		if len(n) > nBands {
			return refusal(fmt.Sprintf("What is \"%d\"?", n[nBands]))
		}
		for _, w := range n {
			if w < minWeight {
				return refusal(fmt.Sprintf("\"weights\" element %d too small", w))
			}
		}
	}
	return nil
}

// Kind is the table of fq. The blanks behind two of its JSON keys are tc's.
var Kind = qdisc.Kind{
	Name: "fq",
	Doc:  "fair queueing with pacing: flows in turn, each at no more than a rate",
	Usage: "Usage: ... fq\t[ limit PACKETS ] [ flow_limit PACKETS ]\n" +
		"\t\t[ quantum BYTES ] [ initial_quantum BYTES ]\n" +
		"\t\t[ maxrate RATE  ] [ buckets NUMBER ]\n" +
		"\t\t[ [no]pacing ] [ refill_delay TIME ]\n" +
		"\t\t[ bands 3 priomap P0 P1 ... P14 P15 ]\n" +
		"\t\t[ weights W1 W2 W3 ]\n" +
		"\t\t[ low_rate_threshold RATE ]\n" +
		"\t\t[ orphan_mask MASK]\n" +
		"\t\t[ timer_slack TIME]\n" +
		"\t\t[ ce_threshold TIME ]\n" +
		"\t\t[ horizon TIME ]\n" +
		"\t\t[ horizon_{cap|drop} ]\n" +
		"\t\t[ offload_horizon TIME ]",
	Params: []qdisc.Param{
		{Name: "limit", Unit: qdisc.Packets, Default: "10000", Doc: "packets that may wait in each band"},
		{Name: "flow_limit", Unit: qdisc.Packets, Default: "100", Doc: "packets that may wait in one flow"},
		{Name: "buckets", Unit: qdisc.Number, Default: "1024", Doc: "half of how many flows are remembered"},
		{Name: "orphan_mask", Unit: qdisc.Number, Default: "1023", Doc: "bits of the flow hash that tell flows apart"},
		{Name: "pacing", Unit: qdisc.Flag, Show: qdisc.JSONOnly, Doc: "paces by maxrate"},
		{Name: "nopacing", Unit: qdisc.Flag, Show: qdisc.TextOnly, Doc: "does not"},
		{Name: "bands", Unit: qdisc.Number, Default: "3", Doc: "number of bands, always 3, with priomap behind it"},
		{Name: "priomap", JSON: "priomap ", Unit: qdisc.Numbers, Default: "1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1",
			Doc: "band of each of the 16 priorities, counted from 0"},
		{Name: "weights", JSON: "weights ", Unit: qdisc.Numbers, Default: "589824 196608 65536",
			Doc: "bytes that each band may send in turn, at least 16384"},
		{Name: "quantum", Unit: qdisc.Size, Default: "two full frames", Doc: "bytes a flow may send per turn"},
		{Name: "initial_quantum", Unit: qdisc.Size, Default: "ten full frames", Doc: "bytes a new flow may send"},
		{Name: "maxrate", Unit: qdisc.Rate, Default: "none", Doc: "rate of each flow"},
		{Name: "low_rate_threshold", Unit: qdisc.Rate, Default: "550kbit",
			Doc: "flows no faster are paced packet by packet"},
		{Name: "refill_delay", Unit: qdisc.Time, Default: "40ms", Doc: "a flow idle for longer gets a quantum"},
		{Name: "ce_threshold", Unit: qdisc.Time, Default: "never", Doc: "marks packets that leave so much late"},
		{Name: "timer_slack", Unit: qdisc.Time64, Show: qdisc.TextOnly, Default: "10us", Doc: "without effect"},
		{Name: "timer_slack/json", JSON: "timer_slack", Unit: qdisc.Number, Show: qdisc.JSONOnly},
		{Name: "horizon", Unit: qdisc.Time, Default: "10s", Doc: "without effect"},
		{Name: "horizon_cap", Unit: qdisc.Flag, Show: qdisc.TextOnly, Doc: "without effect"},
		{Name: "horizon_cap/json", JSON: "horizon_cap", Unit: qdisc.Null, Show: qdisc.JSONOnly},
		{Name: "horizon_drop", Unit: qdisc.Flag, Show: qdisc.TextOnly, Doc: "without effect"},
		{Name: "horizon_drop/json", JSON: "horizon_drop", Unit: qdisc.Null, Show: qdisc.JSONOnly},
		{Name: "offload_horizon", Unit: qdisc.Time, Show: qdisc.Input, Default: "0", Doc: "must be 0: no device paces for us"},
	},
	XStats: []qdisc.Param{
		{Name: "flows", Unit: qdisc.Number, Text: "  flows %s"},
		{Name: "inactive", Unit: qdisc.Number, Text: " (inactive %s"},
		{Name: "delayed", JSON: "throttled", Unit: qdisc.Number, Text: " throttled %s)"},
		{Name: "next_packet_delay", Unit: qdisc.Number, Show: qdisc.JSONOnly},
		{Name: "next_packet_delay/text", Unit: qdisc.Time64, Show: qdisc.TextOnly, Text: " next_packet_delay %s"},
		{Name: "band0_pkts", Unit: qdisc.Number, Text: " band0_pkts %s"},
		{Name: "band1_pkts", Unit: qdisc.Number, Text: " band1_pkts %s"},
		{Name: "band2_pkts", Unit: qdisc.Number, Text: " band2_pkts %s"},
		{Name: "gc", Unit: qdisc.Number, Text: "\n  gc %s"},
		{Name: "highprio", Unit: qdisc.Number, Text: " highprio %s"},
		{Name: "fastpath", Unit: qdisc.Number, Text: " fastpath %s"},
		{Name: "throttled", Unit: qdisc.Number, Text: " throttled %s"},
		{Name: "latency", Unit: qdisc.Number, Show: qdisc.JSONOnly},
		{Name: "latency/text", Unit: qdisc.Time64, Show: qdisc.TextOnly, Text: " latency %s"},
		{Name: "ce_mark", Unit: qdisc.Number, Text: " ce_mark %s"},
		{Name: "flows_plimit", Unit: qdisc.Number, Text: " flows_plimit %s"},
		{Name: "pkts_too_long", Unit: qdisc.Number, Text: "\n  pkts_too_long %s alloc_errors 0"},
		{Name: "band0_drops", Unit: qdisc.Number, Text: " band0_drops %s"},
		{Name: "band1_drops", Unit: qdisc.Number, Text: " band1_drops %s"},
		{Name: "band2_drops", Unit: qdisc.Number, Text: " band2_drops %s"},
	},
	Check: check,
	New: func(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
		p, err := defaults(env).with(v)
		if err != nil {
			return nil, err
		}
		return &fq{params: p}, nil
	},
}
