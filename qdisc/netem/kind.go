// Admin path.

package netem

import (
	"math"
	"syscall"
	"time"

	"sluice/qdisc"
)

// params are the parameters in force. Probabilities are parts of 2³²−1, the rhos
// how much a draw depends on the last.
type params struct {
	limit        uint32
	delay        time.Duration
	jitter       time.Duration
	table        []int16 // nil: evenly
	distribution string

	loss, duplicate, reorder, corrupt                       uint32
	delayRho, lossRho, duplicateRho, reorderRho, corruptRho uint32
	gap                                                     uint32
	ecn                                                     bool
	model                                                   lossModel
	chain                                                   chain

	rate         uint64
	overhead     int32
	cell         uint32
	cellOverhead int32
	slotted      bool
	slot         slot
	seed         uint64
}

// chain are the chances of the loss models.
type chain struct {
	p13, p31, p32, p23, p14 uint32
	p, r, lossBad, lossGood uint32 // Gilbert and Elliott's p, r, 1-h, 1-k
}

type slot struct {
	min, max       time.Duration
	packets, bytes int64 // in one slot at most
	delay, jitter  time.Duration
	table          []int16
	distribution   string
}

// unlimited are the packets or bytes of a slot without a bound.
const unlimited = math.MaxInt32

// wire returns what a packet of n bytes takes at the rate: with its overhead, and
// cut into cells (packet_time_ns).
func (m *params) wire(n uint32) uint64 {
	w := max(0, int64(n)+int64(m.overhead))
	if m.cell > 0 {
		cells := (w + int64(m.cell) - 1) / int64(m.cell)
		w = max(0, cells*(int64(m.cell)+int64(m.cellOverhead)))
	}
	return uint64(w)
}

// with applies v on top of m. What tc always sends is replaced; what it leaves
// out when it is not asked for stays: rate, slot, reorder, corrupt, ecn and the
// correlations.
func (m params) with(v qdisc.Values) (params, error) {
	invalid := &qdisc.Error{Errno: syscall.EINVAL}
	fits := true
	u32 := func(name string, def uint32) uint32 {
		n := v.N(name, uint64(def))
		fits = fits && n <= math.MaxUint32
		return uint32(n)
	}
	span := func(name string, def time.Duration) time.Duration {
		n := v.N(name, uint64(def))
		fits = fits && n < 1<<60
		return time.Duration(n)
	}
	signed := func(name string) int32 {
		n := int64(v.N(name, 0))
		fits = fits && n == int64(int32(n))
		return int32(n)
	}
	m.limit = u32("limit", 1000)
	m.delay, m.jitter = span("delay.delay", 0), span("delay.jitter", 0)
	m.loss, m.duplicate, m.gap = u32("loss.loss", 0), u32("duplicate.duplicate", 0), u32("gap", 0)
	if v.Has("delay.correlation") || v.Has("loss.correlation") || v.Has("duplicate.correlation") {
		m.delayRho, m.lossRho = u32("delay.correlation", 0), u32("loss.correlation", 0)
		m.duplicateRho = u32("duplicate.correlation", 0)
	}
	if v.Has("reorder.reorder") {
		m.reorder, m.reorderRho = u32("reorder.reorder", 0), u32("reorder.correlation", 0)
	} else if m.gap > 0 {
		m.reorder = math.MaxUint32 // from the time before there was a probability
	}
	if v.Has("corrupt.corrupt") {
		m.corrupt, m.corruptRho = u32("corrupt.corrupt", 0), u32("corrupt.correlation", 0)
	}
	if v.Has("ecn") {
		m.ecn = v.N("ecn", 0) != 0
	}
	if v.Has("distribution") {
		m.distribution = v["distribution"].Word
	}
	if v.Has("rate.rate") {
		m.rate = v.N("rate.rate", 0)
		m.overhead, m.cell = signed("rate.packetoverhead"), u32("rate.cellsize", 0)
		m.cellOverhead = signed("rate.celloverhead")
		fits = fits && m.rate < 1<<60
	}
	const whole = math.MaxUint32
	m.model, m.chain = random, chain{}
	c := &m.chain
	switch {
	case v.Has("loss-state.p13"):
		m.model = fourStates
		c.p13 = u32("loss-state.p13", 0)
		c.p31, c.p32 = u32("loss-state.p31", whole-c.p13), u32("loss-state.p32", 0)
		c.p23, c.p14 = u32("loss-state.p23", whole), u32("loss-state.p14", 0)
	case v.Has("loss-gemodel.p"):
		m.model = gilbertElliott
		c.p = u32("loss-gemodel.p", 0)
		c.r, c.lossBad, c.lossGood = u32("loss-gemodel.r", whole-c.p), u32("loss-gemodel.1-h", whole), u32("loss-gemodel.1-k", 0)
	}
	for _, group := range []string{"slot", "slot-distribution"} {
		first := map[string]string{"slot": "slot.min-delay", "slot-distribution": "slot-distribution.name"}[group]
		if !v.Has(first) {
			continue
		}
		s := slot{packets: int64(u32(group+".packets", 0)), bytes: int64(u32(group+".bytes", 0))}
		if s.packets == 0 {
			s.packets = unlimited
		}
		if s.bytes == 0 {
			s.bytes = unlimited
		}
		if group == "slot" {
			s.min = span(first, 0)
			s.max = span("slot.max-delay", s.min)
		} else {
			s.delay, s.jitter, s.distribution = span(group+".delay", 0), span(group+".jitter", 0), v[first].Word
		}
		fits = fits && s.min <= s.max
		m.slot, m.slotted = s, s.max > 0 || s.jitter > 0
	}
	m.seed = v.N("seed", m.seed)

	table, known := tables[m.distribution]
	slotTable, slotKnown := tables[m.slot.distribution]
	if !fits || !known && m.distribution != "" || !slotKnown && m.slot.distribution != "" {
		return params{}, invalid
	}
	if m.table = nil; known {
		m.table = table()
	}
	if slotKnown {
		m.slot.table = slotTable()
	}
	return m, nil
}

// set makes m the parameters in force.
func (q *netem) set(m params) {
	q.params = m
	if m.jitter > 0 {
		q.waiting.grow(int(min(m.limit, 1<<14)))
	}
}

// Change replaces the parameters; packets that wait keep their time. The random
// numbers go on, unless there is a new seed.
func (q *netem) Change(_ *qdisc.Context, v qdisc.Values) error {
	m, err := q.params.with(v)
	if err != nil {
		return err
	}
	seed := q.params.seed
	q.set(m)
	q.counter, q.state = 0, gapSent
	q.slotNext, q.slotPackets, q.slotBytes = 0, m.slot.packets, m.slot.bytes
	if m.seed != seed {
		q.begin()
	}
	return nil
}

func (q *netem) class() qdisc.ClassID { return qdisc.MakeID(q.handle, 1) }

// Walk shows the one class, which is hidden while it has no child.
func (q *netem) Walk(f func(qdisc.Class) bool) {
	c := qdisc.Class{ID: q.class(), Parent: qdisc.MakeID(q.handle, 0), Hidden: !q.nested}
	if q.nested {
		c.Leaf, c.Len, c.Bytes = q.child.Qdisc(), q.child.Len(), q.child.Backlog()
	}
	f(c)
}

// Graft makes child the qdisc that packets go to when their time has come; nil
// lets them leave.
func (q *netem) Graft(ctx *qdisc.Context, class qdisc.ClassID, child qdisc.Qdisc) (old qdisc.Qdisc, err error) {
	if class != q.class() {
		return nil, &qdisc.Error{Errno: syscall.ENOENT}
	}
	if q.nested {
		old = q.child.Qdisc()
		q.child.Purge(ctx, &q.Base)
	}
	if q.nested = child != nil; q.nested {
		q.child = qdisc.NewChild(child)
	} else {
		q.child = qdisc.Child{}
	}
	return old, nil
}

// Dump shows what is in force.
func (q *netem) Dump() qdisc.Values {
	m := &q.params
	v := qdisc.Values{}.Set("limit", uint64(m.limit)).Set("seed", m.seed).Set("gap", uint64(m.gap)).Set("ecn", 0)
	if m.ecn {
		v.Set("ecn", 1)
	}
	pair := func(name string, p, rho uint32) {
		if p != 0 {
			v.Set(name+"."+name, uint64(p)).Set(name+".correlation", uint64(rho))
		}
	}
	if m.delay > 0 || m.jitter > 0 {
		v.Set("delay.delay", uint64(m.delay)).Set("delay.jitter", uint64(m.jitter)).Set("delay.correlation", uint64(m.delayRho))
	}
	c := &m.chain
	switch m.model {
	case random:
		pair("loss", m.loss, m.lossRho)
	case fourStates:
		v.Set("loss-state.p13", uint64(c.p13)).Set("loss-state.p31", uint64(c.p31)).Set("loss-state.p32", uint64(c.p32))
		v.Set("loss-state.p23", uint64(c.p23)).Set("loss-state.p14", uint64(c.p14))
	case gilbertElliott:
		v.Set("loss-gemodel.p", uint64(c.p)).Set("loss-gemodel.r", uint64(c.r))
		v.Set("loss-gemodel.1-h", uint64(c.lossBad)).Set("loss-gemodel.1-k", uint64(c.lossGood))
	}
	pair("duplicate", m.duplicate, m.duplicateRho)
	pair("reorder", m.reorder, m.reorderRho)
	pair("corrupt", m.corrupt, m.corruptRho)
	if m.rate > 0 {
		v.Set("rate.rate", m.rate).Set("rate.packetoverhead", uint64(m.overhead))
		v.Set("rate.cellsize", uint64(m.cell)).Set("rate.celloverhead", uint64(m.cellOverhead))
	}
	if m.distribution != "" {
		v["distribution"] = qdisc.Value{Word: m.distribution}
	}
	if m.slotted {
		s, group := &m.slot, "slot"
		if s.jitter > 0 {
			group = "slot-distribution"
			v[group+".name"] = qdisc.Value{Word: s.distribution}
			v.Set(group+".delay", uint64(s.delay)).Set(group+".jitter", uint64(s.jitter))
		} else {
			v.Set("slot.min-delay", uint64(s.min)).Set("slot.max-delay", uint64(s.max))
		}
		if s.packets != unlimited {
			v.Set(group+".packets", uint64(s.packets))
		}
		if s.bytes != unlimited {
			v.Set(group+".bytes", uint64(s.bytes))
		}
	}
	return v
}

// said is what tc says, word for word.
type said string

func (s said) Error() string { return string(s) }

// check is what tc refuses by itself.
func check(v qdisc.Values) error {
	for _, name := range []string{"distribution", "slot-distribution.name"} {
		if word := v[name].Word; v.Has(name) && tables[word] == nil {
			return said("No distribution data for " + word)
		}
	}
	if v.Has("slot-distribution.name") && !v.Has("slot-distribution.jitter") {
		return qdisc.Misuse(`Illegal "slot delay and jitter"`)
	}
	if v.N("slot.min-delay", 0) > v.N("slot.max-delay", math.MaxUint64) {
		return qdisc.Misuse(`Illegal "slot min delay" > "slot max delay"`)
	}
	switch {
	case v.N("reorder.reorder", 0) > 0:
		if v.N("delay.delay", 0) == 0 {
			return qdisc.Misuse("reordering not possible without specifying some delay")
		}
		if v.N("gap", 0) == 0 {
			v.Set("gap", 1)
		}
	case v.N("gap", 0) > 0:
		return qdisc.Misuse("gap specified without reorder probability")
	}
	if v.Has("distribution") && (v.N("delay.delay", 0) == 0 || v.N("delay.jitter", 0) == 0) {
		return qdisc.Misuse("distribution specified but no latency and jitter values")
	}
	models := 0
	for _, name := range []string{"loss.loss", "loss-state.p13", "loss-gemodel.p"} {
		if v.Has(name) {
			models++
		}
	}
	if models > 1 {
		return said("netem: one loss model at a time")
	}
	return nil
}

// pair is a probability with a correlation.
func pair(name, json, doc string, aliases ...string) []qdisc.Param {
	return []qdisc.Param{
		{Name: name, JSON: json, Aliases: aliases, Unit: qdisc.Group, Doc: doc},
		{Name: name + "." + name, Unit: qdisc.Percent, Bare: true, Text: " " + name + " %s", Default: "0 %", Doc: doc},
		{Name: name + ".correlation", Unit: qdisc.Percent, Bare: true, Show: qdisc.Nonzero, Text: " %s", Default: "0 %",
			Doc: "how much it depends on the packet before"},
	}
}

// chanceDocs explain the chances of the loss models.
var chanceDocs = map[string]string{
	"p13": "from no loss to a burst of losses", "p31": "back from it", "p32": "from a burst to packets that pass within it",
	"p23": "back from there", "p14": "of a single loss",
	"p": "from good to bad", "r": "from bad to good", "1-h": "of loss while bad", "1-k": "of loss while good",
}

// chances are the members of a loss model.
func chances(group, text string, names ...string) (all []qdisc.Param) {
	for i, name := range names {
		lead := " "
		if i == 0 {
			lead = " " + text + " "
		}
		all = append(all, qdisc.Param{Name: group + "." + name, Unit: qdisc.Percent, Bare: true, Text: lead + name + " %s",
			Doc: chanceDocs[name]})
	}
	return all
}

func table() (all []qdisc.Param) {
	add := func(more ...qdisc.Param) { all = append(all, more...) }
	add(
		qdisc.Param{Name: "limit", Unit: qdisc.Size, Text: "limit %d", Default: "1000", Doc: "packets that may wait"},
		qdisc.Param{Name: "delay", Aliases: []string{"latency"}, Unit: qdisc.Group, Doc: "how long packets wait"},
		qdisc.Param{Name: "delay.delay", Unit: qdisc.Time64, Bare: true, Text: " delay %s", Default: "0", Doc: "mean delay"},
		qdisc.Param{Name: "delay.jitter", Unit: qdisc.Time64, Bare: true, Show: qdisc.Nonzero, Text: "  %s", Default: "0",
			Doc: "its standard deviation, or of uniform the most it differs by"},
		qdisc.Param{Name: "delay.correlation", Unit: qdisc.Percent, Bare: true, Show: qdisc.Nonzero, Text: " %s", Default: "0 %",
			Doc: "how much it depends on the packet before"},
		qdisc.Param{Name: "distribution", Unit: qdisc.Word, Show: qdisc.Input, Default: "uniform",
			Doc: "of the jitter: uniform, normal, pareto or paretonormal"},
	)
	add(pair("loss", "loss-random", "part of the packets that is lost", "drop", "loss random", "drop random")...)
	add(qdisc.Param{Name: "loss-state", Aliases: []string{"loss state", "drop state"}, Unit: qdisc.Group,
		Doc: "loss by a chain of four states"})
	add(chances("loss-state", "loss state", "p13", "p31", "p32", "p23", "p14")...)
	add(qdisc.Param{Name: "loss-gemodel", Aliases: []string{"loss gemodel", "drop gemodel"}, Unit: qdisc.Group,
		Doc: "loss by Gilbert and Elliott's chain"})
	add(chances("loss-gemodel", "loss gemodel", "p", "r", "1-h", "1-k")...)
	add(pair("duplicate", "", "part of the packets that comes twice")...)
	add(pair("reorder", "", "part of the packets that overtakes the others")...)
	add(pair("corrupt", "", "part of the packets in which a bit is flipped")...)
	add(
		qdisc.Param{Name: "rate", Unit: qdisc.Group, Doc: "rate of the link"},
		qdisc.Param{Name: "rate.rate", Unit: qdisc.Rate, Bare: true, Text: " rate %s", Default: "none", Doc: "rate of the link"},
		qdisc.Param{Name: "rate.packetoverhead", Unit: qdisc.Signed, Bare: true, Show: qdisc.Nonzero,
			Text: " packetoverhead %s", Default: "0", Doc: "bytes added to every packet"},
		qdisc.Param{Name: "rate.cellsize", Unit: qdisc.Number, Bare: true, Show: qdisc.Nonzero,
			Text: " cellsize %s", Default: "0", Doc: "bytes of a cell, if packets are cut into cells"},
		qdisc.Param{Name: "rate.celloverhead", Unit: qdisc.Signed, Bare: true, Show: qdisc.Nonzero,
			Text: " celloverhead %s", Default: "0", Doc: "bytes added to every cell"},
		qdisc.Param{Name: "slot", Unit: qdisc.Group, Doc: "packets leave in bunches"},
		qdisc.Param{Name: "slot.min-delay", Unit: qdisc.Time64, Bare: true, Text: " slot %s", Doc: "least time between bunches"},
		qdisc.Param{Name: "slot.max-delay", Unit: qdisc.Time64, Bare: true, Text: " %s", Doc: "most time between bunches"},
		qdisc.Param{Name: "slot.packets", Unit: qdisc.Number, Text: " packets %s", Default: "any", Doc: "packets in a bunch"},
		qdisc.Param{Name: "slot.bytes", Unit: qdisc.Number, Text: " bytes %s", Default: "any", Doc: "bytes in a bunch"},
		qdisc.Param{Name: "slot-distribution", Aliases: []string{"slot distribution"}, JSON: "slot", Unit: qdisc.Group,
			Doc: "packets leave in bunches, apart by a distribution"},
		qdisc.Param{Name: "slot-distribution.name", Unit: qdisc.Word, Bare: true, Show: qdisc.Input, Doc: "as of distribution"},
		qdisc.Param{Name: "slot-distribution.delay", JSON: "distribution-delay", Unit: qdisc.Time64, Bare: true,
			Text: " slot distribution %s", Doc: "mean time between bunches"},
		qdisc.Param{Name: "slot-distribution.jitter", JSON: "distribution-jitter", Unit: qdisc.Time64, Bare: true,
			Text: " %s", Doc: "its standard deviation"},
		qdisc.Param{Name: "slot-distribution.packets", Unit: qdisc.Number, Text: " packets %s", Default: "any", Doc: "packets in a bunch"},
		qdisc.Param{Name: "slot-distribution.bytes", Unit: qdisc.Number, Text: " bytes %s", Default: "any", Doc: "bytes in a bunch"},
		qdisc.Param{Name: "seed", Unit: qdisc.Number64, Text: " seed %s", Default: "by the handle", Doc: "of the random numbers"},
		qdisc.Param{Name: "ecn", Unit: qdisc.Flag, Text: " ecn ", Doc: "mark instead of losing"},
		qdisc.Param{Name: "gap", Unit: qdisc.Number, Show: qdisc.Nonzero, Text: " gap %s", Default: "0",
			Doc: "only every so manieth packet may be reordered"},
	)
	return all
}

func newNetem(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
	// A number that looks drawn, and is the same in every run.
	seed := (uint64(env.Handle) + 1) * 0x9e3779b97f4a7c15
	m, err := params{seed: seed ^ seed>>29}.with(v)
	if err != nil {
		return nil, err
	}
	q := &netem{handle: env.Handle}
	q.set(m)
	q.begin()
	return q, nil
}

// Kind is the table of netem.
var Kind = qdisc.Kind{
	Name: "netem",
	Doc:  "delays, loses, repeats, damages and reorders packets like a bad network",
	Usage: "Usage: ... netem [ limit PACKETS ]\n" +
		"\t[ delay TIME [ JITTER [CORRELATION]]]\n" +
		"\t[ distribution {uniform|normal|pareto|paretonormal} ]\n" +
		"\t[ corrupt PERCENT [CORRELATION]]\n" +
		"\t[ duplicate PERCENT [CORRELATION]]\n" +
		"\t[ loss random PERCENT [CORRELATION]]\n" +
		"\t[ loss state P13 [P31 [P32 [P23 P14]]]\n" +
		"\t[ loss gemodel PERCENT [R [1-H [1-K]]]\n" +
		"\t[ seed SEED ] [ ecn ]\n" +
		"\t[ reorder PERCENT [CORRELATION] [ gap DISTANCE ]]\n" +
		"\t[ rate RATE [PACKETOVERHEAD] [CELLSIZE] [CELLOVERHEAD]]\n" +
		"\t[ slot MIN_DELAY [MAX_DELAY] [packets MAX_PACKETS] [bytes MAX_BYTES]]\n" +
		"\t[ slot distribution NAME DELAY JITTER [packets MAX_PACKETS] [bytes MAX_BYTES]]",
	Params: table(),
	Flags:  qdisc.IsClassful | qdisc.NoClassStats,
	Check:  check,
	New:    newNetem,
}

var (
	_ qdisc.Classful = (*netem)(nil)
	_ qdisc.Changer  = (*netem)(nil)
	_ qdisc.Dumper   = (*netem)(nil)
)
