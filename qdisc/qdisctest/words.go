package qdisctest

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"sluice/qdisc"
)

// given reads the parameters of a kind from the command's arguments, leaving
// out those that belong to the command.
func (s *script) given(params []qdisc.Param, skip ...string) qdisc.Values {
	v := qdisc.Values{}
	for _, a := range s.d.CmdArgs {
		if slices.Contains(skip, a.Key) {
			continue
		}
		i := slices.IndexFunc(params, func(p qdisc.Param) bool { return p.Name == a.Key })
		if i < 0 {
			s.fatalf("no parameter %q", a.Key)
		}
		if apply := params[i].Apply; apply != nil {
			apply(v)
			continue
		}
		v[a.Key] = s.value(params[i], a.Vals)
	}
	return v
}

func (s *script) value(p qdisc.Param, words []string) qdisc.Value {
	switch p.Unit {
	case qdisc.Flag:
		return qdisc.Value{N: 1}
	case qdisc.Word:
		return qdisc.Value{Word: words[0]}
	case qdisc.Numbers, qdisc.Sizes:
		v := qdisc.Value{List: []uint64{}}
		for _, w := range words {
			v.List = append(v.List, s.parse(w))
		}
		return v
	case qdisc.Time, qdisc.Time64:
		return qdisc.Value{N: uint64(s.duration(words[0]))}
	case qdisc.Float:
		x, err := strconv.ParseFloat(words[0], 64)
		if err != nil {
			s.fatalf("%v", err)
		}
		return qdisc.Value{N: math.Float64bits(x)}
	case qdisc.Percent:
		return qdisc.Value{N: s.percent(words[0])}
	case qdisc.Hex:
		return qdisc.Value{N: s.hex(words[0])}
	case qdisc.Signed:
		n, err := strconv.ParseInt(words[0], 0, 32)
		if err != nil {
			s.fatalf("%v", err)
		}
		return qdisc.Value{N: uint64(n)}
	case qdisc.Rate:
		return qdisc.Value{N: s.rate(words[0])}
	}
	return qdisc.Value{N: s.parse(words[0])}
}

func (s *script) parse(word string) uint64 {
	n, err := strconv.ParseUint(strings.TrimSpace(word), 0, 64)
	if err != nil {
		s.fatalf("%v", err)
	}
	return n
}

// rate reads bytes per second, or bits with a unit.
func (s *script) rate(word string) uint64 {
	for _, u := range []struct {
		suffix string
		bytes  uint64
	}{{"gbit", 125_000_000}, {"mbit", 125_000}, {"kbit", 125}} {
		if n, ok := strings.CutSuffix(word, u.suffix); ok {
			return s.parse(n) * u.bytes
		}
	}
	return s.parse(word)
}

// percent reads "25%" as 32 bits of fraction.
func (s *script) percent(word string) uint64 {
	n, err := strconv.ParseFloat(strings.TrimSuffix(word, "%"), 64)
	if err != nil {
		s.fatalf("%v", err)
	}
	return uint64(math.RoundToEven(n / 100 * math.MaxUint32))
}

func (s *script) duration(word string) time.Duration {
	d, err := time.ParseDuration(word)
	if err != nil {
		s.fatalf("%v", err)
	}
	return d
}

// word returns the argument key, which has to be there.
func (s *script) word(key string) string {
	for _, a := range s.d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return a.Vals[0]
		}
	}
	s.fatalf("%s= is missing", key)
	return ""
}

// number returns the argument key, or def. Handles are hexadecimal.
func (s *script) number(key string, def uint64) uint64 {
	for _, a := range s.d.CmdArgs {
		if a.Key != key {
			continue
		}
		if key == "handle" || key == "at" {
			return s.hex(strings.TrimSuffix(a.Vals[0], ":"))
		}
		return s.parse(a.Vals[0])
	}
	return def
}

func (s *script) hex(word string) uint64 {
	if word == "" {
		return 0
	}
	n, err := strconv.ParseUint(word, 16, 32)
	if err != nil {
		s.fatalf("%v", err)
	}
	return n
}

// class returns the argument key, a class id such as 1:a.
func (s *script) class(key string) qdisc.ClassID {
	major, minor, ok := strings.Cut(s.word(key), ":")
	if !ok {
		s.fatalf("%s=%s: a class id is MAJOR:MINOR", key, s.word(key))
	}
	return qdisc.MakeID(uint32(s.hex(major)), uint32(s.hex(minor)))
}

// priority reads prio=6, or prio=1:2 for the priority that names a class.
func (s *script) priority() uint32 {
	for _, a := range s.d.CmdArgs {
		if a.Key == "prio" && strings.Contains(a.Vals[0], ":") {
			h, _ := s.class("prio").TC()
			return h
		}
	}
	return uint32(s.number("prio", 0))
}

// values prints v in the order of params; what params does not name is an
// error of the discipline.
func (s *script) values(params []qdisc.Param, v qdisc.Values) string {
	var words []string
	known := map[string]bool{}
	for _, p := range params {
		known[p.Name] = true
		x, ok := v[p.Name]
		if !ok {
			continue
		}
		switch {
		case x.List != nil:
			words = append(words, p.Name, strings.Trim(fmt.Sprint(x.List), "[]"))
		case x.Word != "":
			words = append(words, p.Name, x.Word)
		case p.Unit == qdisc.Flag && x.N == 0:
		case p.Unit == qdisc.Flag:
			words = append(words, p.Name)
		case p.Unit == qdisc.Time || p.Unit == qdisc.Time64:
			words = append(words, p.Name, time.Duration(x.N).String())
		case p.Unit == qdisc.Signed:
			words = append(words, p.Name, strconv.FormatInt(int64(x.N), 10))
		case p.Unit == qdisc.Float:
			words = append(words, p.Name, strconv.FormatFloat(math.Float64frombits(x.N), 'g', 6, 64))
		case p.Unit == qdisc.Percent:
			words = append(words, p.Name, strconv.FormatFloat(100*float64(x.N)/math.MaxUint32, 'g', 6, 64)+"%")
		case p.Unit == qdisc.Hex:
			words = append(words, p.Name, "0x"+strconv.FormatUint(x.N, 16))
		case p.Unit == qdisc.Signed:
			words = append(words, p.Name, strconv.FormatInt(int64(x.N), 10))
		default:
			words = append(words, p.Name, strconv.FormatUint(x.N, 10))
		}
	}
	var strange []string
	for name := range v {
		if !known[name] {
			strange = append(strange, name)
		}
	}
	if len(strange) > 0 {
		sort.Strings(strange)
		s.fatalf("values that the kind's table does not name: %v", strange)
	}
	return strings.Join(words, " ")
}
