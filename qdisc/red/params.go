// Admin path.

package red

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"syscall"

	"sluice/qdisc"
	"sluice/qdisc/internal/aqm"
)

// params are red's parameters as people give them.
type params struct {
	limit, min, max, avpkt, burst   uint32
	bandwidth                       uint64 // bytes a second
	probability                     float64
	ecn, harddrop, nodrop, adaptive bool
}

// with reads v. All of red's parameters travel in one structure: what is not in
// v is at its default afterwards.
func with(v qdisc.Values) (params, error) {
	var p params
	for _, f := range []struct {
		to   *uint32
		name string
	}{{&p.limit, "limit"}, {&p.min, "min"}, {&p.max, "max"}, {&p.avpkt, "avpkt"}, {&p.burst, "burst"}} {
		n := v.N(f.name, 0)
		if n > math.MaxUint32 {
			return p, invalid
		}
		*f.to = uint32(n)
	}
	p.bandwidth = v.N("bandwidth", 0)
	if p.bandwidth == 0 {
		p.bandwidth = 10e6 / 8
	}
	p.probability = 0.02
	if v.Has("probability") {
		p.probability = math.Float64frombits(v.N("probability", 0))
	}
	for name, on := range map[string]*bool{"ecn": &p.ecn, "harddrop": &p.harddrop, "nodrop": &p.nodrop, "adaptive": &p.adaptive} {
		*on = v.N(name, 0) != 0
	}
	if p.max == 0 {
		if p.max = p.limit / 4; p.min != 0 {
			p.max = p.min * 3
		}
	}
	if p.min == 0 {
		p.min = p.max / 3
	}
	if p.avpkt == 0 || p.limit == 0 {
		return p, invalid
	}
	if p.burst == 0 {
		p.burst = (2*p.min + p.max) / (3 * p.avpkt)
	}
	if p.nodrop && !p.ecn {
		return p, qdisc.Refuse(syscall.EINVAL, "nodrop mode is only meaningful with ECN")
	}
	return p, nil
}

// invalid is the kernel's refusal of what it has no words for.
var invalid = &qdisc.Error{Errno: syscall.EINVAL}

// maxProb is the probability at max, of 2³².
func (p *params) maxProb() uint32 {
	return uint32(min(max(p.probability, 0)*(1<<32), math.MaxUint32))
}

// law computes what tc does for the kernel, and checks what the kernel does.
func (p *params) law() (aqm.RED, error) {
	c := aqm.RED{Min: p.min, Max: p.max, MaxProb: p.maxProb(), Adaptive: p.adaptive}
	wlog, ok := aqm.REDWeight(p.min, p.burst, p.avpkt)
	if !ok {
		return c, invalid
	}
	c.Wlog = wlog
	if !c.Damp(p.avpkt, p.bandwidth) {
		return c, invalid
	}
	if bits.Len32(p.min)+int(wlog) >= 32 || bits.Len32(p.max)+int(wlog) >= 32 || p.max < p.min {
		return c, invalid
	}
	if c.MaxProb == 0 { // the kernel falls back on a power of two, here the smallest there is
		c.MaxProb = 1
	}
	c.Set()
	return c, nil
}

// failed is tc's refusal of parameters that something cannot be derived from.
func failed(what string) error { return errors.New("RED: failed to calculate " + what + ".") }

// check is what tc refuses by itself.
func check(v qdisc.Values) error {
	for _, name := range []string{"limit", "avpkt"} {
		if v.N(name, 0) == 0 {
			return fmt.Errorf("RED: Required parameter (%s) is missing", name)
		}
	}
	if p := math.Float64frombits(v.N("probability", 0)); !(p >= 0 && p <= 1) {
		return fmt.Errorf("%s %q", "Illegal", "probability")
	}
	p, err := with(v)
	if err != nil {
		return nil // the kernel's to say
	}
	wlog, ok := aqm.REDWeight(p.min, p.burst, p.avpkt)
	if !ok {
		return failed("EWMA constant")
	}
	if p.max < p.min {
		return failed("probability")
	}
	if c := (aqm.RED{Wlog: wlog}); !c.Damp(p.avpkt, p.bandwidth) {
		return failed("idle damping table")
	}
	return nil
}

// dump shows the parameters as they were given, and as they follow.
func (p *params) dump() qdisc.Values {
	v := qdisc.Values{}.Set("limit", uint64(p.limit)).Set("min", uint64(p.min)).Set("max", uint64(p.max)).
		Set("avpkt", uint64(p.avpkt)).Set("burst", uint64(p.burst)).Set("bandwidth", p.bandwidth).
		Set("probability", math.Float64bits(p.probability))
	for name, on := range map[string]bool{"ecn": p.ecn, "harddrop": p.harddrop, "nodrop": p.nodrop, "adaptive": p.adaptive} {
		v[name] = qdisc.Value{}
		if on {
			v.Set(name, 1)
		}
	}
	return v
}
