// Admin path.

package aqm

import (
	"time"

	"sluice/qdisc"
)

// PIEParams are the parameters that pie and fq_pie have in common.
type PIEParams struct {
	Target, Update time.Duration
	Alpha, Beta    uint32
	ECN            bool
	ByteMode       bool
	Estimate       bool
}

// DefaultPIE are the parameters of RFC 8033.
var DefaultPIE = PIEParams{Target: 15 * time.Millisecond, Update: 15 * time.Millisecond, Alpha: 2, Beta: 20}

// With applies v on top of p.
func (p PIEParams) With(v qdisc.Values) PIEParams {
	p.Target = time.Duration(v.N("target", uint64(p.Target)))
	p.Update = time.Duration(v.N("tupdate", uint64(p.Update)))
	p.Alpha = uint32(v.N("alpha", uint64(p.Alpha)))
	p.Beta = uint32(v.N("beta", uint64(p.Beta)))
	for _, f := range []struct {
		on    *bool
		name  string
		never string
	}{{&p.ECN, "ecn", "noecn"}, {&p.ByteMode, "bytemode", "nobytemode"}, {&p.Estimate, "dq_rate_estimator", "no_dq_rate_estimator"}} {
		switch {
		case v.N(f.never, 0) != 0:
			*f.on = false
		case v.Has(f.name):
			*f.on = v.N(f.name, 0) != 0
		}
	}
	return p
}

// CheckPIE is what tc refuses of v.
func CheckPIE(v qdisc.Values) error {
	for _, name := range []string{"alpha", "beta"} {
		if v.N(name, 0) > 32 {
			return illegal(name)
		}
	}
	return nil
}

// jiffy is the grain of the update interval.
const jiffy = time.Millisecond

// Set puts the parameters in force.
func (p PIEParams) Set(c *PIE, mtu int) {
	*c = PIE{
		Target: PIETicks(p.Target / time.Microsecond * time.Microsecond), Update: p.update(), Alpha: p.Alpha, Beta: p.Beta,
		MTU: mtu, ByteMode: p.ByteMode, Estimate: p.Estimate,
	}
}

// update is the update interval in whole jiffies.
func (p PIEParams) update() time.Duration { return (p.Update + jiffy - 1) / jiffy * jiffy }

// Dump adds the parameters to v: as they were given, and as tc shows them: the
// update interval in whole jiffies, and the target's nanoseconds cut to 32 bits.
func (p PIEParams) Dump(v qdisc.Values) {
	v.Set("target", uint64(p.Target)).Set("target/shown", uint64(uint32(PIETicks(p.Target)*tick)))
	v.Set("tupdate", uint64(p.Update)).Set("tupdate/shown", uint64(p.update()))
	v.Set("alpha", uint64(p.Alpha)).Set("beta", uint64(p.Beta))
	for name, on := range map[string]bool{"ecn": p.ECN, "bytemode": p.ByteMode, "dq_rate_estimator": p.Estimate} {
		if on {
			v.Set(name, 1)
		}
	}
}

// Parts of the tables of pie and fq_pie: the law's parameters, and its switches.
var (
	PIEParamTable = []qdisc.Param{
		{Name: "target", Unit: qdisc.Time, Show: qdisc.Input, Default: "15ms", Doc: "delay to hold the queue at"},
		{Name: "target/shown", JSON: "target", Unit: qdisc.Time, Text: "target %s "},
		{Name: "tupdate", Unit: qdisc.Time, Show: qdisc.Input, Default: "15ms", Doc: "how often the drop probability is set, in whole milliseconds"},
		{Name: "tupdate/shown", JSON: "tupdate", Unit: qdisc.Time, Text: "tupdate %s "},
		{Name: "alpha", Unit: qdisc.Number, Default: "2", Doc: "weight of the distance to the target, 0 to 32"},
		{Name: "beta", Unit: qdisc.Number, Default: "20", Doc: "weight of the delay's change, 0 to 32"},
	}
	PIESwitchTable = []qdisc.Param{
		{Name: "ecn", Unit: qdisc.Flag, Default: "noecn", Doc: "mark rather than drop while the probability is small"},
		{Name: "noecn", Unit: qdisc.Flag, Show: qdisc.Input, Doc: "drop, never mark"},
		{Name: "bytemode", Unit: qdisc.Flag, Default: "nobytemode", Doc: "drop small packets less"},
		{Name: "nobytemode", Unit: qdisc.Flag, Show: qdisc.Input, Doc: "drop packets of all sizes alike"},
		{Name: "dq_rate_estimator", Unit: qdisc.Flag, Default: "no_dq_rate_estimator", Doc: "derive the delay from the rate of departures, not from timestamps"},
		{Name: "no_dq_rate_estimator", Unit: qdisc.Flag, Show: qdisc.Input, Doc: "take the delay from timestamps"},
	}
)
