// Admin path.

package sfq

import (
	"math"
	"syscall"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/internal/aqm"
)

// params are sfq's parameters as they are in force. They never change: sfq has no
// change operation.
type params struct {
	limit    int // packets
	depth    int // packets a flow
	flows    int
	divisor  uint32
	quantum  uint32
	perturb  time.Duration // 0: never
	headdrop bool
	early    early
}

var invalid = &qdisc.Error{Errno: syscall.EINVAL}

// newParams are the kernel's checks. A value of 0 stands for the default. The
// limit is checked after all that bounds it (CVE-2024-57996, CVE-2025-37752).
func newParams(env qdisc.Env, v qdisc.Values) (params, error) {
	p := params{depth: maxDepth, flows: 128, divisor: 1024, quantum: uint32(env.MTU + env.HeaderLen)}
	given := func(name string) uint64 { return v.N(name, 0) }

	perturb := int64(given("perturb"))
	switch {
	case perturb < 0 || perturb > math.MaxInt32:
		return p, qdisc.Refuse(syscall.EINVAL, "invalid perturb period")
	case given("quantum") > math.MaxInt32:
		return p, qdisc.Refuse(syscall.EINVAL, "invalid quantum")
	}
	p.perturb = time.Duration(perturb) * time.Second
	if n := given("quantum"); n != 0 {
		p.quantum = uint32(n)
	}
	if n := given("divisor"); n != 0 {
		if n > maxDivisor || n&(n-1) != 0 {
			return p, invalid
		}
		p.divisor = uint32(n)
	}
	if n := given("flows"); n != 0 {
		p.flows = int(min(n, maxFlows))
	}
	p.flows = min(p.flows, int(p.divisor))
	if n := given("depth"); n != 0 {
		p.depth = int(min(n, maxDepth))
	}
	p.limit = maxDepth
	if n := given("limit"); n != 0 {
		p.limit = int(min(n, math.MaxInt32))
	}
	p.limit = min(p.limit, p.depth*p.flows)
	if p.limit == 1 {
		return p, qdisc.Refuse(syscall.EINVAL, "invalid limit")
	}
	if given("limit") != 0 {
		p.flows = min(p.flows, p.limit)
	}
	p.headdrop = v.Has("headdrop")

	if given("redflowlimit") != 0 {
		least, most, wlog := given("min"), given("max"), given("ewma")
		if most < least || wlog >= 32 || most<<wlog > math.MaxUint32 {
			return p, invalid
		}
		p.early = early{on: true, ecn: v.Has("ecn"), harddrop: v.Has("harddrop"), law: aqm.RED{
			Min: uint32(least), Max: uint32(most), Wlog: uint8(wlog), MaxProb: scaled(v["probability"]),
		}}
		p.early.law.Set()
	}
	return p, nil
}

// scaled returns a probability in 2⁻³².
func scaled(v qdisc.Value) uint32 {
	return uint32(min(math.Float64frombits(v.N)*(1<<32), math.MaxUint32))
}

// Dump shows the parameters, and with random early detection what it did: tc
// prints that with them.
func (q *sfq) Dump() qdisc.Values {
	p := &q.params
	v := qdisc.Values{
		"limit": {N: uint64(p.limit)}, "quantum": {N: uint64(p.quantum)}, "depth": {N: uint64(p.depth)},
		"flows": {N: uint64(p.flows)}, "divisor": {N: uint64(p.divisor)},
	}
	if p.headdrop {
		v.Set("headdrop", 1)
	}
	if p.perturb != 0 {
		v.Set("perturb", uint64(p.perturb/time.Second))
	}
	if e := &p.early; e.on {
		flag := map[bool]uint64{true: 1}
		v.Set("ewma", uint64(e.law.Wlog)).Set("min", uint64(e.law.Min)).Set("max", uint64(e.law.Max)).
			Set("probability", math.Float64bits(float64(e.law.MaxProb)/(1<<32))).
			Set("ecn", flag[e.ecn]).Set("harddrop", flag[e.harddrop]).Set("adaptive", 0).Set("nodrop", 0)
		s := &q.stats
		v.Set("prob_mark", s.probMark).Set("prob_mark_head", s.probMarkHead).Set("prob_drop", s.probDrop).
			Set("forced_mark", s.forcedMark).Set("forced_mark_head", s.forcedMarkHead).Set("forced_drop", s.forcedDrop)
	}
	return v
}

// refusal is tc's, in its words.
type refusal string

func (r refusal) Error() string { return string(r) }

// check is what tc refuses by itself, and how it gets what early detection needs
// from what is given.
func check(v qdisc.Values) error {
	early := false
	for _, name := range []string{"redflowlimit", "min", "max", "avpkt", "burst", "probability", "ecn", "harddrop"} {
		early = early || v.Has(name)
	}
	if !early {
		return nil
	}
	limit := v.N("redflowlimit", 0)
	if limit == 0 {
		return refusal("Required parameter (limit) is missing")
	}
	set := func(name string, n uint64) uint64 {
		if v.N(name, 0) == 0 {
			v.Set(name, n)
		}
		return v.N(name, 0)
	}
	most := set("max", limit/4)
	least := set("min", most/3)
	size := set("avpkt", 1000)
	burst := set("burst", (2*least+most)/(3*size))
	if most > limit {
		return refusal(`"max" is larger than "limit"`)
	}
	if least >= most {
		return refusal(`"min" is not smaller than "max"`)
	}
	wlog, ok := aqm.REDWeight(uint32(least), uint32(burst), uint32(size))
	if !ok {
		return refusal("SFQ: failed to calculate EWMA constant.")
	}
	v.Set("ewma", uint64(wlog))
	if !v.Has("probability") {
		v.Set("probability", math.Float64bits(0.02))
	}
	if p := math.Float64frombits(v.N("probability", 0)); !(p >= 0 && p <= 1) {
		return refusal(`Illegal "probability"`)
	}
	return nil
}

// Kind is the table of sfq.
var Kind = qdisc.Kind{
	Name: "sfq",
	Doc:  "flows, told apart by a hash, take turns",
	Usage: "Usage: ... sfq\t[ limit NUMBER ] [ perturb SECS ] [ quantum BYTES ]\n" +
		"\t\t[ divisor NUMBER ] [ flows NUMBER] [ depth NUMBER ]\n" +
		"\t\t[ headdrop ]\n" +
		"\t\t[ redflowlimit BYTES ] [ min BYTES ] [ max BYTES ]\n" +
		"\t\t[ avpkt BYTES ] [ burst PACKETS ] [ probability P ]\n" +
		"\t\t[ ecn ] [ harddrop ]",
	Params: []qdisc.Param{
		{Name: "limit", Unit: qdisc.Packets, Default: "127", Doc: "packets that may wait"},
		{Name: "quantum", Unit: qdisc.Size, Default: "a full frame", Doc: "bytes a flow may send per turn"},
		{Name: "depth", Unit: qdisc.Number, Default: "127", Doc: "packets that may wait in one flow"},
		{Name: "headdrop", Unit: qdisc.Flag, Doc: "a full flow gives its oldest packet"},
		{Name: "flows", Unit: qdisc.Number, Show: qdisc.Details, Default: "128", Doc: "flows that may be active"},
		{Name: "divisor", Unit: qdisc.Number, Default: "1024", Doc: "places of the hash table, a power of two"},
		{Name: "perturb", Unit: qdisc.Signed, Text: "perturb %ssec ", Default: "never", Doc: "seconds between changes of the hash"},
		{Name: "redflowlimit", Unit: qdisc.Number, Show: qdisc.Input, Default: "none", Doc: "bytes of a flow; turns early detection on"},
		{Name: "avpkt", Unit: qdisc.Number, Show: qdisc.Input, Default: "1000", Doc: "bytes of an average packet"},
		{Name: "burst", Unit: qdisc.Number, Show: qdisc.Input, Default: "(2 min + max) / (3 avpkt)", Doc: "packets that may come at once"},
		{Name: "ewma", Unit: qdisc.Number, Show: qdisc.Output},
		{Name: "min", Unit: qdisc.Size, Default: "max / 3", Doc: "average at which marks begin"},
		{Name: "max", Unit: qdisc.Size, Default: "redflowlimit / 4", Doc: "average at which all are marked"},
		{Name: "probability", Unit: qdisc.Float, Default: "0.02", Doc: "probability of a mark at max"},
		{Name: "ecn", Unit: qdisc.Flag, Doc: "marks instead of dropping"},
		{Name: "harddrop", Unit: qdisc.Flag, Doc: "drops above max all the same"},
		{Name: "adaptive", Unit: qdisc.Flag, Show: qdisc.Output},
		{Name: "nodrop", Unit: qdisc.Flag, Show: qdisc.Output},
		{Name: "prob_mark", Unit: qdisc.Number, Show: qdisc.Counter, Text: "\n  prob_mark %s"},
		{Name: "prob_mark_head", Unit: qdisc.Number, Show: qdisc.Counter, Text: " prob_mark_head %s"},
		{Name: "prob_drop", Unit: qdisc.Number, Show: qdisc.Counter, Text: " prob_drop %s"},
		{Name: "forced_mark", Unit: qdisc.Number, Show: qdisc.Counter, Text: "\n  forced_mark %s"},
		{Name: "forced_mark_head", Unit: qdisc.Number, Show: qdisc.Counter, Text: " forced_mark_head %s"},
		{Name: "forced_drop", Unit: qdisc.Number, Show: qdisc.Counter, Text: " forced_drop %s"},
	},
	ClassXStats: []qdisc.Param{
		{Name: "allot", Unit: qdisc.Signed, Text: "  allot %s", Doc: "bytes it may still send in its turn"},
	},
	Flags: qdisc.NoChange | qdisc.NoClassSent,
	Check: check,
	New: func(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
		p, err := newParams(env, v)
		if err != nil {
			return nil, err
		}
		return &sfq{params: p, handle: env.Handle, tail: none, rehash: qdisc.Never}, nil
	},
}
