// Admin path, except configure and allocate, which autorate-ingress and the first
// packet call.

package cake

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"
	"time"

	"sluice/qdisc"
)

// params are cake's parameters. A change keeps those that it does not name.
type params struct {
	bandwidth uint64 // bytes a second; 0: unlimited
	autorate  bool
	mode      tinMode
	flows     flowMode
	nat       bool
	wash      bool
	ingress   bool
	acks      ackMode
	splitGSO  bool
	rtt       time.Duration
	raw       bool // count the frame as it is; else from the network header on
	link      link
	overhead  int
	mpu       int
	memlimit  uint64 // 0: by rate and rtt
	fwmark    uint32
}

var defaults = params{
	mode: diffserv3, flows: bySrc | byDst | byFlow, splitGSO: true, rtt: 100 * time.Millisecond, raw: true,
}

// Words of tc for the values of a parameter. Of such a group the last one given
// holds.
var (
	tinWords  = []string{"diffserv3", "diffserv4", "diffserv8", "besteffort", "precedence"} // by tinMode
	flowWords = []string{                                                                   // by flowMode
		"flowblind", "srchost", "dsthost", "hosts", "flows", "dual-srchost", "dual-dsthost", "triple-isolate",
	}
	natWords     = []string{"nonat", "nat"}
	washWords    = []string{"nowash", "wash"}
	ingressWords = []string{"egress", "ingress"}
	ackWords     = []string{"no-ack-filter", "ack-filter", "ack-filter-aggressive"} // by ackMode
	gsoWords     = []string{"no-split-gso", "split-gso"}
	linkWords    = []string{"noatm", "atm", "ptm"} // by link
	rateWords    = []string{"unlimited", "autorate-ingress"}
)

// given returns which word of a group v has, def when none.
func given(v qdisc.Values, words []string, def int) int {
	for i, w := range words {
		if v.Has(w) {
			return i
		}
	}
	return def
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// with applies v on top of p.
func (p params) with(v qdisc.Values) params {
	p.bandwidth = v.N("bandwidth", p.bandwidth)
	switch given(v, rateWords, -1) {
	case 0:
		p.bandwidth, p.autorate = 0, false
	case 1:
		p.autorate = true
	}
	p.mode = tinMode(given(v, tinWords, int(p.mode)))
	p.flows = flowMode(given(v, flowWords, int(p.flows)))
	p.nat = given(v, natWords, index(p.nat)) == 1
	p.wash = given(v, washWords, index(p.wash)) == 1
	p.ingress = given(v, ingressWords, index(p.ingress)) == 1
	p.acks = ackMode(given(v, ackWords, int(p.acks)))
	p.splitGSO = given(v, gsoWords, index(p.splitGSO)) == 1
	p.rtt = max(time.Duration(v.N("rtt", uint64(p.rtt))), time.Microsecond)
	p.link = link(given(v, linkWords, int(p.link)))
	if v.Has("overhead") {
		p.overhead, p.raw = int(int64(v["overhead"].N)), false
	}
	if v.Has("raw") {
		p.raw = true
	}
	p.mpu = int(min(v.N("mpu", uint64(p.mpu)), math.MaxUint16))
	p.memlimit = v.N("memlimit", p.memlimit)
	p.fwmark = uint32(v.N("fwmark", uint64(p.fwmark)))
	return p
}

// target is the delay that the AQM aims for.
func (p *params) target() time.Duration {
	us := p.rtt / time.Microsecond / 20
	return max(us, 1) * time.Microsecond
}

// configure sets everything that follows from the parameters and the rate.
func (q *cake) configure(rate uint64) {
	p := &q.params
	m := &modes[p.mode]
	q.n = len(m.tins)
	if q.cur >= q.n {
		q.cur = 0
	}
	for i := range m.tins {
		t := &q.tins[i]
		t.quantum = m.tins[i].quantum
		t.setRate(m.tins[i].rate(rate), uint64(q.frame), p.target(), p.rtt)
	}
	if r := q.tins[0].rate; r != q.rate {
		q.rate, q.fraction = r, 0
	}
	q.pick.mode, q.pick.wash = m, p.wash
	q.pick.setMask(p.fwmark)
	q.flows, q.acks, q.ingress = p.flows, p.acks, p.ingress
	s := &q.sizes
	s.network, s.overhead, s.mpu, s.link = !p.raw, p.overhead, p.mpu, p.link

	// Four times the product of bandwidth and delay, at least 4 MiB, and whatever
	// else 10240 full frames.
	limit := uint64(math.MaxUint32)
	switch {
	case p.memlimit > 0:
		limit = p.memlimit
	case rate > 0:
		product := float64(rate) * float64(p.rtt/time.Microsecond) / 250_000
		limit = uint64(min(max(product, 4<<20), math.MaxUint32))
	}
	q.memoryLimit = int(min(limit, max(10240*uint64(q.frame), p.memlimit)))
}

// setRate sets a tin's rate and what the AQM derives from it: a target of at least
// one and a half full frames.
func (t *tin) setRate(rate, frame uint64, target, rtt time.Duration) {
	t.threshold = rate
	t.rate = perByteAt(rate)
	t.flowQuantum = 1514
	if rate > 0 {
		t.flowQuantum = uint32(max(min(rate>>12, 1514), 300))
	}
	full := t.rate.of(uint32(frame))
	l := &t.law
	l.mtuTime = full
	l.target = max(full*3/2, target)
	l.interval = max(rtt+l.target-target, 2*l.target)
}

// allocate makes the table of a tin.
func (q *cake) allocate(ctx *qdisc.Context, t *tin) {
	t.table = newTable()
	if q.byBacklog.heap == nil {
		q.byBacklog.heap = make([]flowID, 0, maxTins*queues)
	}
}

// Change applies v; what it does not name stays. Packets stay where they are,
// except those of tins that are no more.
func (q *cake) Change(ctx *qdisc.Context, v qdisc.Values) error {
	p := q.params.with(v)
	if p.autorate && !q.params.autorate {
		q.auto = autorate{last: ctx.Now, begin: ctx.Now, applied: ctx.Now}
	}
	if v.Has("overhead") || v.Has("mpu") || v.Has("raw") || given(v, linkWords, -1) >= 0 {
		q.sizes.forget()
	}
	rate := p.bandwidth
	if p.autorate && !v.Has("bandwidth") && q.tins[0].threshold > 0 {
		rate = q.tins[0].threshold // go on from what was learnt
	}
	hosts := p.flows != q.params.flows
	q.params = p
	q.configure(rate)
	if hosts {
		for i := range q.tins {
			q.tins[i].recountHosts(p.flows)
		}
	}
	for i := q.n; i < maxTins; i++ {
		q.purge(ctx, &q.tins[i])
	}
	q.byBacklog.reset()
	return nil
}

// recountHosts makes the counters of the hosts anew; their names come with their
// next flows.
func (t *tin) recountHosts(m flowMode) {
	if t.table == nil {
		return
	}
	clear(t.src[:])
	clear(t.dst[:])
	for i := range t.flows {
		t.count(m, &t.flows[i], 1)
	}
}

func newCake(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
	q := &cake{handle: env.Handle, frame: uint32(env.MTU + env.HeaderLen), params: defaults.with(v)}
	q.sizes.forget()
	q.configure(q.params.bandwidth)
	q.capacity = q.params.bandwidth
	return q, nil
}

var errNoClass = qdisc.Refuse(syscall.EINVAL, "cake takes filters for itself, not for a class")

// Dump shows the parameters. Those with a word of their own show it.
func (q *cake) Dump() qdisc.Values {
	p := &q.params
	v := qdisc.Values{
		"bandwidth":       {N: p.bandwidth},
		"diffserv/json":   {Word: tinWords[p.mode]},
		"flowmode/json":   {Word: flowWords[p.flows]},
		"nat/json":        {N: uint64(index(p.nat))},
		"wash/json":       {N: uint64(index(p.wash))},
		"ingress/json":    {N: uint64(index(p.ingress))},
		"ack-filter/json": {Word: []string{"disabled", "enabled", "aggressive"}[p.acks]},
		"split-gso/json":  {N: uint64(index(p.splitGSO))},
		"rtt":             {N: uint64(p.rtt)},
		"raw/json":        {N: uint64(index(p.raw))},
		"overhead":        {N: uint64(p.overhead)},
		"fwmark/json":     {Word: "0"},
	}
	if p.bandwidth > 0 {
		v["bandwidth/shown"] = v["bandwidth"]
	} else {
		v["bandwidth/word"] = qdisc.Value{Word: "unlimited"}
		v.Set("unlimited", 1)
	}
	if p.autorate {
		v.Set("autorate-ingress", 1)
		v["autorate/json"] = qdisc.Value{Word: "autorate-ingress"}
		delete(v, "unlimited") // it would end it
	}
	for _, word := range []string{
		tinWords[p.mode], flowWords[p.flows], natWords[index(p.nat)], washWords[index(p.wash)],
		ackWords[p.acks], gsoWords[index(p.splitGSO)],
	} {
		v.Set(word, 1)
	}
	if p.ingress {
		v.Set("ingress", 1)
	}
	if p.raw {
		v.Set("raw", 1)
	}
	if p.link != linkPlain || !p.raw {
		v.Set(linkWords[p.link], 1)
		v["atm/json"] = qdisc.Value{Word: linkWords[p.link]}
	}
	if p.mpu > 0 {
		v.Set("mpu", uint64(p.mpu))
	}
	if p.memlimit > 0 {
		v.Set("memlimit", p.memlimit)
	}
	if p.fwmark > 0 {
		hex := fmt.Sprintf("0x%x", p.fwmark)
		v.Set("fwmark", uint64(p.fwmark))
		v["fwmark/text"], v["fwmark/json"] = qdisc.Value{Word: hex}, qdisc.Value{Word: hex}
	}
	return v
}

// check is what tc refuses.
func check(v qdisc.Values) error {
	if x, ok := v["overhead"]; ok {
		if n := int64(x.N); n < -64 || n > 256 {
			return errors.New(`Illegal "overhead", valid range is -64 to 256`)
		}
	}
	if v.N("mpu", 0) > 256 {
		return errors.New(`Illegal "mpu", valid range is 0 to 256`)
	}
	return nil
}

// one returns the parameters of a group of words, of which the last one given
// holds, with what each means.
func one(words []string, docs ...string) []qdisc.Param {
	var all []qdisc.Param
	for i, w := range words {
		all = append(all, qdisc.Param{Name: w, Unit: qdisc.Flag, Show: qdisc.TextOnly, Doc: docs[i], Apply: func(v qdisc.Values) {
			for _, other := range words {
				delete(v, other)
			}
			v.Set(w, 1)
		}})
	}
	return all
}

// rtts are words for an rtt.
var rtts = []struct {
	word string
	rtt  time.Duration
}{
	{"datacentre", 100 * time.Microsecond}, {"lan", time.Millisecond}, {"metro", 10 * time.Millisecond},
	{"regional", 30 * time.Millisecond}, {"internet", 100 * time.Millisecond}, {"oceanic", 300 * time.Millisecond},
	{"satellite", time.Second}, {"interplanetary", 1000 * time.Second},
}

// framings are words for the overhead of a link; overheads add up.
var framings = []struct {
	word     string
	overhead int
	mpu      uint64 // 0: not a word about it
	link     string // empty: not a word about it
}{
	{"conservative", 48, 0, "atm"},
	{"ipoa-vcmux", 8, 0, "atm"}, {"ipoa-llcsnap", 16, 0, "atm"},
	{"bridged-vcmux", 24, 0, "atm"}, {"bridged-llcsnap", 32, 0, "atm"},
	{"pppoa-vcmux", 10, 0, "atm"}, {"pppoa-llc", 14, 0, "atm"},
	{"pppoe-vcmux", 32, 0, "atm"}, {"pppoe-llcsnap", 40, 0, "atm"},
	{"pppoe-ptm", 30, 0, "ptm"}, {"bridged-ptm", 22, 0, "ptm"},
	{"docsis", 18, 64, "noatm"},
	{"ethernet", 38, 84, ""}, {"ether-vlan", 4, 0, ""},
}

func setLink(v qdisc.Values, word string) {
	for _, other := range linkWords {
		delete(v, other)
	}
	v.Set(word, 1)
}

func parameters() []qdisc.Param {
	flag := func(name, doc string, apply func(qdisc.Values)) qdisc.Param {
		return qdisc.Param{Name: name, Unit: qdisc.Flag, Show: qdisc.Input, Doc: doc, Apply: apply}
	}
	var all []qdisc.Param
	add := func(more ...qdisc.Param) { all = append(all, more...) }
	json := func(key string, unit qdisc.Unit) {
		add(qdisc.Param{Name: strings.ReplaceAll(key, "_", "-") + "/json", JSON: key, Unit: unit, Show: qdisc.JSONOnly})
	}

	add(qdisc.Param{Name: "bandwidth", Unit: qdisc.Rate, Show: qdisc.Input, Default: "unlimited", Doc: "rate of the shaper"},
		flag("unlimited", "no shaper", func(v qdisc.Values) {
			delete(v, "bandwidth")
			delete(v, "autorate-ingress")
			v.Set("unlimited", 1)
		}),
		qdisc.Param{Name: "bandwidth/shown", JSON: "bandwidth", Unit: qdisc.Rate, Text: "bandwidth %s "},
		qdisc.Param{Name: "bandwidth/word", JSON: "bandwidth", Unit: qdisc.Word, Text: "bandwidth %s "},
		qdisc.Param{Name: "autorate-ingress", Unit: qdisc.Flag, Show: qdisc.TextOnly,
			Doc: "follow the rate of what arrives"})
	json("autorate", qdisc.Word)
	add(one(tinWords, "three tins by DSCP: bulk, the rest, voice (the default)", "four: bulk, the rest, video, voice",
		"eight by DSCP", "a single tin", "eight by the upper three bits of the TOS byte")...)
	all[slices.Index(tinWords, "diffserv4")+len(all)-len(tinWords)].Aliases = []string{"diffserv"}
	json("diffserv", qdisc.Word)
	add(one(flowWords, "one queue for all", "a queue for each source host", "a queue for each destination host",
		"a queue for each pair of hosts", "a queue for each flow", "fair between source hosts, then their flows",
		"fair between destination hosts, then their flows", "fair between hosts at both ends, then flows (the default)")...)
	json("flowmode", qdisc.Word)
	add(one(natWords, "use the addresses in the packet", "taken, without effect: there is no connection tracking to ask")...)
	json("nat", qdisc.Flag)
	add(one(washWords, "leave the DSCP", "clear the DSCP once it is read")...)
	json("wash", qdisc.Flag)
	add(one(ingressWords, "we are the bottleneck", "we stand behind it: what is dropped here has taken its time there")...)
	json("ingress", qdisc.Flag)
	add(one(ackWords, "leave acknowledgements alone", "drop acknowledgements that two later ones repeat",
		"drop acknowledgements that the next one repeats")...)
	json("ack-filter", qdisc.Word)
	add(one(gsoWords, "taken, without effect: a packet is always one frame", "taken; it is always so")...)
	json("split_gso", qdisc.Flag)
	add(qdisc.Param{Name: "rtt", Unit: qdisc.Time, Default: "100ms", Doc: "a normal round trip; the AQM's target is a twentieth"})
	for _, r := range rtts {
		add(flag(r.word, "rtt of "+r.rtt.String(), func(v qdisc.Values) { v.Set("rtt", uint64(r.rtt)) }))
	}
	add(qdisc.Param{Name: "raw", Unit: qdisc.Flag, Show: qdisc.TextOnly, Doc: "count frames as they are",
		Apply: func(v qdisc.Values) {
			setLink(v, "noatm")
			v.Set("overhead", 0).Set("raw", 1)
		}})
	json("raw", qdisc.Flag)
	add(one(linkWords, "the link does not cut packets", "it does, into cells of 53 bytes for 48", "it takes 65 bytes for 64")...)
	json("atm", qdisc.Word)
	add(qdisc.Param{Name: "overhead", Unit: qdisc.Signed,
		Doc: "bytes that the link adds to each packet, counted from the network header on"})
	for _, f := range framings {
		doc := fmt.Sprintf("overhead %+d", f.overhead)
		if f.mpu != 0 {
			doc += fmt.Sprintf(" mpu %d", f.mpu)
		}
		add(flag(f.word, strings.TrimSpace(doc+" "+f.link), func(v qdisc.Values) {
			v.Set("overhead", uint64(int64(v.N("overhead", 0))+int64(f.overhead)))
			if f.mpu != 0 {
				v.Set("mpu", f.mpu)
			}
			if f.link != "" {
				setLink(v, f.link)
			}
		}))
	}
	add(flag("via-ethernet", "of old, without effect", func(qdisc.Values) {}))
	add(qdisc.Param{Name: "mpu", Unit: qdisc.Number, Doc: "bytes that a packet counts at least"},
		qdisc.Param{Name: "memlimit", Unit: qdisc.Size, Default: "by rate and rtt", Doc: "memory for packets"},
		qdisc.Param{Name: "fwmark", Unit: qdisc.Number, Show: qdisc.Input, Default: "0",
			Doc: "mask of the mark's bits that name a tin, counted from 1"},
		qdisc.Param{Name: "fwmark/text", Unit: qdisc.Word, Show: qdisc.TextOnly, Text: "fwmark %s "})
	json("fwmark", qdisc.Word)
	return all
}

const usage = `Usage: ... cake [ bandwidth RATE | unlimited* | autorate-ingress ]
                [ rtt TIME | datacentre | lan | metro | regional |
                  internet* | oceanic | satellite | interplanetary ]
                [ besteffort | diffserv8 | diffserv4 | diffserv3* ]
                [ flowblind | srchost | dsthost | hosts | flows |
                  dual-srchost | dual-dsthost | triple-isolate* ]
                [ nat | nonat* ]
                [ wash | nowash* ]
                [ split-gso* | no-split-gso ]
                [ ack-filter | ack-filter-aggressive | no-ack-filter* ]
                [ memlimit LIMIT ]
                [ fwmark MASK ]
                [ ptm | atm | noatm* ] [ overhead N | conservative | raw* ]
                [ mpu N ] [ ingress | egress* ]
                (* marks defaults)`

// Kind is the table of cake.
var Kind = qdisc.Kind{
	Name:   "cake",
	Doc:    "shaper, flow and host isolation, and AQM in one",
	Usage:  usage,
	Params: parameters(),
	XStats: statistics,

	ClassXStats: classStatistics,

	Flags: qdisc.NoClassSent,
	Check: check,
	New:   newCake,
}
