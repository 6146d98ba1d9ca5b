// Admin path.

package htb

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"sluice/qdisc"
)

// Dump shows the parameters, and among them, as tc does, a counter.
func (q *htb) Dump() qdisc.Values {
	v := qdisc.Values{
		"r2q":                 {N: uint64(q.r2q)},
		"default":             {N: uint64(q.defaultID.Minor())},
		"direct_packets_stat": {N: uint64(q.directPkts)},
		"ver/shown":           {Word: "3.17"},
		"direct_qlen":         {N: uint64(q.directQlen)},
	}
	if q.hysteresis {
		v.Set("hysteresis", 1)
	}
	return v
}

func newHTB(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
	for _, x := range []string{"default", "r2q", "direct_qlen"} {
		if v.N(x, 0) > math.MaxUint32 {
			return nil, &qdisc.Error{Errno: syscall.EINVAL}
		}
	}
	if v.N("offload", 0) != 0 {
		return nil, &qdisc.Error{Errno: syscall.EOPNOTSUPP}
	}
	q := &htb{
		handle:     env.Handle,
		r2q:        uint32(max(v.N("r2q", 10), 1)),
		directQlen: int(v.N("direct_qlen", uint64(env.TxQueueLen))),
		hysteresis: v.N("hysteresis", 0) != 0,
		newChild:   func() qdisc.Qdisc { return env.Pfifo(env.TxQueueLen) },
	}
	if minor := v.N("default", 0); minor != 0 {
		q.defaultID = qdisc.MakeID(env.Handle, uint32(minor))
	}
	q.leaves = *q.newTier()
	return q, nil
}

// checkClass is what tc refuses by itself, and the defaults that it fills in.
func checkClass(v qdisc.Values) error {
	if v.N("rate", 0) == 0 {
		return errors.New(`"rate" is required.`)
	}
	for _, name := range []string{"mpu", "overhead"} {
		if v.N(name, 0) > math.MaxUint16 {
			return illegal(name)
		}
	}
	switch v["linklayer"].Word {
	case "", "ethernet", "atm", "adsl":
	default:
		return illegal("linklayer")
	}
	return nil
}

func illegal(keyword string) error { return qdisc.Misuse(fmt.Sprintf(`Illegal "%s"`, keyword)) }

const usage = `Usage: ... qdisc add ... htb [default N] [r2q N]
                      [direct_qlen P] [offload]
 default  minor id of class to which unclassified packets are sent {0}
 r2q      DRR quantums are computed as rate in Bps/r2q {10}
 debug    string of 16 numbers each 0-3 {0}

 direct_qlen  Limit of the direct queue {in packets}
 offload  enable hardware offload
... class add ... htb rate R1 [burst B1] [mpu B] [overhead O]
                      [prio P] [slot S] [pslot PS]
                      [ceil R2] [cburst B2] [mtu MTU] [quantum Q]
 rate     rate allocated to this class (class can still borrow)
 burst    max bytes burst which can be accumulated during idle period {computed}
 mpu      minimum packet size used in rate computations
 overhead per-packet size overhead used in rate computations
 linklay  adapting to a linklayer e.g. atm
 ceil     definite upper class rate (no borrows) {rate}
 cburst   burst but for ceil {computed}
 mtu      max packet size we create rate map for {1600}
 prio     priority of leaf; lower are served first {0}
 quantum  how much bytes to serve from leaf at once {use r2q}

TC HTB version 3.3`

// The abilities of a htb.
var (
	_ qdisc.Dumper       = (*htb)(nil)
	_ qdisc.Filtered     = (*htb)(nil)
	_ qdisc.Finder       = (*htb)(nil)
	_ qdisc.ClassEditor  = (*htb)(nil)
	_ qdisc.QlenNotifier = (*htb)(nil)
	_ qdisc.Warner       = (*htb)(nil)
)

// Kind is the table of htb.
var Kind = qdisc.Kind{
	Name:  "htb",
	Doc:   "classes with guaranteed rates that lend each other what they do not use",
	Usage: usage,
	Params: []qdisc.Param{
		{Name: "r2q", Unit: qdisc.Number, Default: "10", Doc: "quantum = rate / r2q where none is given"},
		{Name: "default", Unit: qdisc.Hex, Default: "0", Doc: "minor number of the class of packets that nobody claims; 0: the direct queue"},
		{Name: "direct_packets_stat", Unit: qdisc.Number, Show: qdisc.Output},
		{Name: "ver/shown", JSON: "ver", Unit: qdisc.Word, Show: qdisc.Details, Text: "ver %s "},
		{Name: "direct_qlen", Unit: qdisc.Number, Text: "direct_qlen %s", Default: "tx_queue_len", Doc: "packets that the direct queue holds"},
		{Name: "offload", Unit: qdisc.Flag, Show: qdisc.Input, Doc: "leave it to the hardware; not supported"},
		{Name: "hysteresis", Unit: qdisc.Flag, Show: qdisc.Input, Doc: "change modes less often, and send in bursts"},
	},
	ClassParams: []qdisc.Param{
		{Name: "prio", Unit: qdisc.Number, Default: "0", Doc: "0 to 7; lower is served first"},
		{Name: "quantum", Unit: qdisc.Number, Show: qdisc.Details, Default: "rate / r2q", Doc: "bytes a turn"},
		{Name: "rate", Unit: qdisc.Rate, Doc: "rate that the class has for itself"},
		{Name: "overhead", Unit: qdisc.Number, Default: "0", Doc: "bytes added to every packet"},
		{Name: "ceil", Unit: qdisc.Rate, Default: "rate", Doc: "rate that it may reach by borrowing"},
		{Name: "linklayer", Unit: qdisc.Word, Show: qdisc.Brief, Default: "ethernet", Doc: "ethernet, or atm to count in cells"},
		{Name: "linklayer/all", JSON: "linklayer", Unit: qdisc.Word, Show: qdisc.Details, Text: "linklayer %s "},
		{Name: "burst", Aliases: []string{"buffer", "maxburst"}, Unit: qdisc.Size, Show: qdisc.Input,
			Default: "mtu and a nanosecond's worth", Doc: "depth of the bucket of rate"},
		{Name: "burst/brief", JSON: "burst", Unit: qdisc.Size, Show: qdisc.Brief, Text: "burst %s "},
		{Name: "burst/cell", JSON: "burst", Unit: qdisc.Size, Show: qdisc.Details, Text: "burst %s/"},
		{Name: "burst/cells", JSON: "burst_cell", Unit: qdisc.Number, Show: qdisc.Details, Text: "%s"},
		{Name: "mpu", Unit: qdisc.Number, Show: qdisc.Input, Default: "0", Doc: "bytes that a packet counts at least"},
		{Name: "mpu/rate", JSON: "mpu_rate", Unit: qdisc.Size, Show: qdisc.Details, Text: "mpu %s "},
		{Name: "cburst", Aliases: []string{"cbuffer", "cmaxburst"}, Unit: qdisc.Size, Show: qdisc.Input,
			Default: "mtu and a nanosecond's worth", Doc: "depth of the bucket of ceil"},
		{Name: "cburst/brief", JSON: "cburst", Unit: qdisc.Size, Show: qdisc.Brief, Text: "cburst %s"},
		{Name: "cburst/cell", JSON: "cburst", Unit: qdisc.Size, Show: qdisc.Details, Text: "cburst %s/"},
		{Name: "cburst/cells", JSON: "cburst_cell", Unit: qdisc.Number, Show: qdisc.Details, Text: "%s"},
		{Name: "mpu/ceil", JSON: "mpu_ceil", Unit: qdisc.Size, Show: qdisc.Details, Text: "mpu %s "},
		{Name: "mtu", Unit: qdisc.Number, Show: qdisc.Input, Default: "1600", Doc: "burst where none is given"},
		{Name: "level/all", JSON: "level", Unit: qdisc.Number, Show: qdisc.Details, Text: "level %s "},
	},
	ClassXStats: []qdisc.Param{
		{Name: "lended", Unit: qdisc.Number, Text: " lended: %s ", Doc: "packets sent on its own account, or for others"},
		{Name: "borrowed", Unit: qdisc.Number, Text: "borrowed: %s ", Doc: "packets for which an ancestor lent"},
		{Name: "giants", Unit: qdisc.Number, Text: "giants: %s\n"},
		{Name: "tokens", Unit: qdisc.Signed, Text: " tokens: %s ", Doc: "what the bucket of rate holds, in 64 ns"},
		{Name: "ctokens", Unit: qdisc.Signed, Text: "ctokens: %s\n", Doc: "what the bucket of ceil holds, in 64 ns"},
	},
	Flags:        qdisc.IsClassful | qdisc.HasClasses | qdisc.NoChange,
	IllegalUsage: true,
	CheckClass:   checkClass,
	New:          newHTB,
}
