// Admin path.

package aqm

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"sluice/qdisc"
)

// CoDelParams are the parameters that codel and fq_codel have in common, as they
// were given.
type CoDelParams struct {
	Target, Interval time.Duration
	CEThreshold      time.Duration // 0 and not HasCE: none
	HasCE            bool
	ECN              bool
	Selector, Mask   uint8
}

// With applies v on top of p.
func (p CoDelParams) With(v qdisc.Values) CoDelParams {
	p.Target = time.Duration(v.N("target", uint64(p.Target)))
	p.Interval = time.Duration(v.N("interval", uint64(p.Interval)))
	switch {
	case v.N("noecn", 0) != 0:
		p.ECN = false
	case v.Has("ecn"):
		p.ECN = v.N("ecn", 0) != 0
	}
	if v.Has("ce_threshold") {
		p.CEThreshold, p.HasCE = time.Duration(v.N("ce_threshold", 0)), true
	}
	if v.Has("ce_threshold_selector") {
		p.Selector, p.Mask, _ = selector(v["ce_threshold_selector"].Word)
	}
	return p
}

// selector reads "VALUE/MASK", in hexadecimal with or without 0x.
func selector(word string) (value, mask uint8, err error) {
	a, b, _ := strings.Cut(word, "/")
	x, err1 := strconv.ParseUint(strings.TrimPrefix(a, "0x"), 16, 8)
	y, err2 := strconv.ParseUint(strings.TrimPrefix(b, "0x"), 16, 8)
	if err1 != nil || err2 != nil {
		return 0, 0, illegal("ce_threshold_selector")
	}
	return uint8(x), uint8(y), nil
}

// illegal is tc's refusal of a value.
func illegal(name string) error { return fmt.Errorf("%s %q", "Illegal", name) }

// CheckCoDel is what tc refuses of v.
func CheckCoDel(v qdisc.Values) error {
	if !v.Has("ce_threshold_selector") {
		return nil
	}
	_, _, err := selector(v["ce_threshold_selector"].Word)
	return err
}

// Set puts the parameters in force; what c counted stays.
func (p CoDelParams) Set(c *CoDel, mtu int) {
	c.Target, c.Interval, c.CEThreshold = Span(p.Target), Span(p.Interval), Off
	if p.HasCE {
		c.CEThreshold = Span(p.CEThreshold)
	}
	c.ECN, c.Selector, c.Mask, c.MTU = p.ECN, p.Selector, p.Mask, mtu
}

// Dump adds the parameters to v: as they were given, and as tc shows them, after
// a round trip through ticks.
func (p CoDelParams) Dump(v qdisc.Values) {
	span := func(name string, d time.Duration) {
		v.Set(name, uint64(d)).Set(name+"/ticks", uint64(Span(d).Duration()))
	}
	span("target", p.Target)
	span("interval", p.Interval)
	if p.HasCE {
		span("ce_threshold", p.CEThreshold)
	}
	if p.Mask != 0 {
		v["ce_threshold_selector"] = qdisc.Value{Word: fmt.Sprintf("%#x/%#x", p.Selector, p.Mask)}
		v.Set("ce_threshold_selector/value", uint64(p.Selector)).Set("ce_threshold_selector/mask", uint64(p.Mask))
	}
	if p.ECN {
		v.Set("ecn", 1)
	}
}

// Parts of the tables of codel and fq_codel.
var (
	TargetParam      = qdisc.Param{Name: "target", Unit: qdisc.Time, Show: qdisc.Input, Default: "5ms", Doc: "delay that a standing queue may cause"}
	TargetShown      = qdisc.Param{Name: "target/ticks", JSON: "target", Unit: qdisc.Time, Text: "target %s "}
	IntervalParam    = qdisc.Param{Name: "interval", Unit: qdisc.Time, Show: qdisc.Input, Default: "100ms", Doc: "time that it may be exceeded; about the slowest round trip"}
	IntervalShown    = qdisc.Param{Name: "interval/ticks", JSON: "interval", Unit: qdisc.Time, Text: "interval %s "}
	CEThresholdParam = qdisc.Param{Name: "ce_threshold", Unit: qdisc.Time, Show: qdisc.Input, Default: "none", Doc: "delay above which every packet is marked"}
	CEThresholdShown = qdisc.Param{Name: "ce_threshold/ticks", JSON: "ce_threshold", Unit: qdisc.Time, Text: "ce_threshold %s "}
	SelectorParam    = qdisc.Param{Name: "ce_threshold_selector", Unit: qdisc.Word, Show: qdisc.TextOnly, Default: "every packet", Doc: "VALUE/MASK that the DS field must match for ce_threshold"}
	SelectorValue    = qdisc.Param{Name: "ce_threshold_selector/value", JSON: "ce_threshold_selector", Unit: qdisc.Number, Show: qdisc.JSONOnly}
	SelectorMask     = qdisc.Param{Name: "ce_threshold_selector/mask", JSON: "ce_threshold_mask", Unit: qdisc.Number, Show: qdisc.JSONOnly}
	NoECNParam       = qdisc.Param{Name: "noecn", Unit: qdisc.Flag, Show: qdisc.Input, Doc: "drop, never mark"}
)

// XStats adds what s shows: the state itself, and how far the next drop lies
// ahead of now while there will be one; behind, it is negative.
func (s *CoDelState) XStats(v qdisc.Values, now Ticks) {
	v.Set("count", uint64(s.Count)).Set("lastcount", uint64(s.LastCount))
	v.Set("ldelay", uint64(s.LastDelay.Duration()))
	if s.Dropping {
		v.Set("dropping", 1)
		if ahead := s.DropNext - now; !now.After(s.DropNext) {
			v.Set("drop_next", uint64(ahead.Duration()))
		} else {
			v.Set("drop_next", uint64(-(now - s.DropNext).Duration()))
		}
	}
}
