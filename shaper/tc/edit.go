package tc

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"sluice/qdisc"
	"sluice/shaper/tree"
)

// edit takes an add, change, replace, link or del of a qdisc or a class: where,
// then the kind, then whatever its table allows.
func (s *parse) edit(usage string) error {
	class := s.c.Object == "class"
	r := &s.c.Request
	for len(s.args) > 0 {
		word := s.next()
		switch {
		case word == "help":
			return &Error{Usage: usage}
		case word == "dev":
			v, err := s.value()
			if err != nil {
				return err
			}
			if s.c.Dev != "" {
				return duplicate("dev", v)
			}
			s.c.Dev = v
		case word == "root":
			if r.Parent != 0 {
				return &Error{Msg: `Error: "root" is duplicate parent ID`, Code: ExitUsage}
			}
			r.Parent = tree.Root
		case !class && (word == "ingress" || word == "clsact"):
			if r.Parent != 0 {
				return &Error{Msg: fmt.Sprintf(`Error: "%s" is a duplicate parent ID`, word), Code: ExitUsage}
			}
			r.Parent = tree.Ingress
			r.Handle = qdisc.MakeID(0xffff, 0)
			return s.kind(word)
		case word == "parent":
			if err := s.once(word, &r.Parent, s.classID(&r.Parent, "invalid parent ID")); err != nil {
				return err
			}
		case !class && word == "handle":
			if r.Handle != 0 {
				return duplicate(word, word) // tc names the keyword, not the value
			}
			if err := s.once(word, &r.Handle, s.handle(&r.Handle, "invalid qdisc ID")); err != nil {
				return err
			}
		case class && (word == "classid" || word == "handle"):
			if err := s.once("classid", &r.ClassID, s.classID(&r.ClassID, "invalid class ID")); err != nil {
				return err
			}
		case word == "estimator" || !class && (word == "stab" || word == "ingress_block" || word == "egress_block"):
			return parseError(`"%s" is not supported here: leave it out`, word)
		default:
			return s.kind(word)
		}
	}
	return nil
}

// once takes the value of a keyword that may be given once.
func (s *parse) once(word string, to *qdisc.ClassID, set func(string) error) error {
	given := *to != 0
	v, err := s.value()
	if err != nil {
		return err
	}
	if given {
		return duplicate(word, v)
	}
	return set(v)
}

// kind takes the kind's name and its parameters, which end the command.
func (s *parse) kind(name string) error {
	class := s.c.Object == "class"
	s.c.Request.Kind = name
	kind := s.Lookup(name)
	var params []qdisc.Param
	switch {
	case kind != nil && class:
		params = kind.ClassParams
	case kind != nil:
		params = kind.Params
	}
	if class && !taken(params) && (kind == nil || kind.Flags&qdisc.HasClasses == 0) {
		return parseError(`Error: Qdisc "%s" is classless.`, name)
	}
	if s.c.Request.Op == tree.Delete && len(s.args) == 0 {
		return nil
	}
	if kind == nil {
		if len(s.args) > 0 {
			return parseError(`Unknown qdisc "%s", hence option "%s" is unparsable`, name, s.args[0])
		}
		return nil
	}
	v, err := s.values(kind, params)
	if err != nil {
		return err
	}
	check := kind.Check
	if class {
		check = kind.CheckClass
	}
	if check != nil && s.c.Request.Op != tree.Delete {
		if v == nil {
			v = qdisc.Values{}
		}
		if err := check(v); err != nil {
			return refused(kind, err)
		}
	}
	s.c.Request.Values = v
	return nil
}

// taken says whether one of params can be given.
func taken(params []qdisc.Param) bool {
	for i := range params {
		if params[i].Taken() {
			return true
		}
	}
	return false
}

// refused words what a kind's Check found.
func refused(kind *qdisc.Kind, err error) error {
	if m, ok := err.(qdisc.Misuse); ok {
		return &Error{Msg: string(m), Usage: kind.Usage, Code: ExitParse}
	}
	return &Error{Msg: err.Error(), Code: ExitParse}
}

// values takes the words behind the kind by its table.
func (s *parse) values(kind *qdisc.Kind, params []qdisc.Param) (qdisc.Values, error) {
	var v qdisc.Values
	for len(s.args) > 0 {
		word := s.next()
		if word == "help" {
			return nil, &Error{Usage: kind.Usage, Code: ExitParse}
		}
		var p *qdisc.Param
		if len(s.args) > 0 {
			if p = param(params, word+" "+s.args[0]); p != nil {
				s.args = s.args[1:]
			}
		}
		if p == nil {
			p = param(params, word)
		}
		if p == nil {
			return nil, unknown(kind, word)
		}
		if v == nil {
			v = qdisc.Values{}
		}
		if p.Unit == qdisc.Group {
			if err := s.group(kind, params, p, word, v); err != nil {
				return nil, err
			}
			continue
		}
		x, err := s.paramValue(kind, params, p, word)
		if err != nil {
			return nil, err
		}
		if p.Apply != nil {
			p.Apply(v)
			continue
		}
		v[p.Name] = x
	}
	return v, nil
}

// group takes the members of g behind its keyword: first those that have none of
// their own, then the others, in any order.
func (s *parse) group(kind *qdisc.Kind, params []qdisc.Param, g *qdisc.Param, word string, v qdisc.Values) error {
	given := 0
	for i := range params {
		p := &params[i]
		if p.Group() != g.Name {
			continue
		}
		delete(v, p.Name) // a group that is given again replaces the first
		if !p.Bare || given > 0 && (len(s.args) == 0 || !beginsNumber(s.args[0], p.Unit)) {
			continue
		}
		x, err := s.paramValue(kind, params, p, word)
		if err != nil {
			return err
		}
		v[p.Name] = x
		given++
	}
	for len(s.args) > 0 {
		p := param(params, g.Name+"."+s.args[0])
		if p == nil || p.Bare {
			break
		}
		keyword := s.next()
		x, err := s.paramValue(kind, params, p, keyword)
		if err != nil {
			return err
		}
		v[p.Name] = x
		given++
	}
	if given == 0 {
		return illegal(kind, word, "")
	}
	return nil
}

// beginsNumber says whether a word is taken for the next of a group's values.
func beginsNumber(word string, u qdisc.Unit) bool {
	if u == qdisc.Word {
		return true
	}
	if u == qdisc.Signed {
		word = strings.TrimPrefix(word, "-")
	}
	return word != "" && word[0] >= '0' && word[0] <= '9'
}

// param finds the parameter of a keyword.
func param(params []qdisc.Param, word string) *qdisc.Param {
	for i := range params {
		p := &params[i]
		if !p.Taken() {
			continue
		}
		if p.Name == word {
			return p
		}
		for _, a := range p.Aliases {
			if a == word {
				return p
			}
		}
	}
	return nil
}

func unknown(kind *qdisc.Kind, word string) error {
	if kind.Usage == "" && kind.UnknownFormat == "" {
		return parseError(`Unknown qdisc "%s", hence option "%s" is unparsable`, kind.Name, word)
	}
	return &Error{Msg: worded(kind.UnknownFormat, `What is "%s"?`, word), Usage: kind.Usage, Code: ExitParse}
}

func illegal(kind *qdisc.Kind, keyword, text string) error {
	e := &Error{Msg: worded(kind.IllegalFormat, `Illegal "%s"`, keyword, text), Code: ExitParse}
	if kind.IllegalUsage {
		e.Usage = kind.Usage
	}
	return e
}

// worded fills as many of args into a kind's format, or tc's common one, as it
// has room for.
func worded(format, common string, args ...string) string {
	if format == "" {
		format = common
	}
	var fill []any
	for i := 0; i < len(format)-1 && len(fill) < len(args); i++ {
		if format[i] == '%' {
			fill = append(fill, args[len(fill)])
			i++
		}
	}
	return fmt.Sprintf(format, fill...)
}

// paramValue takes the value of p from the words behind its keyword.
func (s *parse) paramValue(kind *qdisc.Kind, params []qdisc.Param, p *qdisc.Param, word string) (qdisc.Value, error) {
	switch p.Unit {
	case qdisc.Flag:
		return qdisc.Value{N: 1}, nil
	case qdisc.Numbers, qdisc.Sizes:
		return s.list(kind, params, p, word)
	}
	text, err := s.value()
	if err != nil {
		return qdisc.Value{}, err
	}
	if p.Unit == qdisc.Word {
		return qdisc.Value{Word: text}, nil
	}
	digits, cell, hasCell := strings.Cut(text, "/")
	if hasCell && !takesCell(params, p, cell) {
		return qdisc.Value{}, illegal(kind, word, text)
	}
	n, err := s.number(p.Unit, digits)
	if err != nil {
		return qdisc.Value{}, illegal(kind, word, text)
	}
	return qdisc.Value{N: n}, nil
}

// takesCell says whether "/cell" may follow the value of p: where the table has a
// KEYWORD/cell to print. A cell is a power of two, the grain of the kernel's old
// rate tables, and has no effect.
func takesCell(params []qdisc.Param, p *qdisc.Param, cell string) bool {
	n, err := strconv.ParseUint(cell, 0, 31)
	if err != nil || bits.OnesCount64(n) != 1 {
		return false
	}
	return slices.ContainsFunc(params, func(x qdisc.Param) bool {
		keyword, is := strings.CutSuffix(x.Name, "/cell")
		return is && (keyword == p.Name || slices.Contains(p.Aliases, keyword))
	})
}

// list takes numbers up to the next word that is none.
func (s *parse) list(kind *qdisc.Kind, params []qdisc.Param, p *qdisc.Param, word string) (qdisc.Value, error) {
	if len(s.args) == 0 {
		return qdisc.Value{}, incomplete()
	}
	unit := qdisc.Number
	if p.Unit == qdisc.Sizes {
		unit = qdisc.Size
	}
	var x qdisc.Value
	for len(s.args) > 0 && s.args[0] != "help" && param(params, s.args[0]) == nil {
		n, err := s.number(unit, s.args[0])
		if err != nil {
			return x, parseError(`Illegal "%s" element`, word)
		}
		x.List = append(x.List, n)
		s.args = s.args[1:]
	}
	return x, nil
}

// number reads one number in its unit's stored form.
func (s *parse) number(unit qdisc.Unit, text string) (uint64, error) {
	switch unit {
	case qdisc.Packets, qdisc.Size: // tc reads packet limits as sizes
		return parseSize(text, max32)
	case qdisc.Rate:
		return s.rate(text)
	case qdisc.Time:
		d, err := ParseTime(text)
		return uint64(d), err
	case qdisc.Time64:
		d, err := ParseTime64(text)
		return uint64(d), err
	case qdisc.Percent:
		return ParsePercent(text)
	case qdisc.Hex:
		return strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 32)
	case qdisc.Number64:
		return strconv.ParseUint(text, 0, 64)
	case qdisc.Float:
		x, err := strconv.ParseFloat(text, 64)
		return math.Float64bits(x), err
	case qdisc.Signed:
		n, err := strconv.ParseInt(text, 0, 32)
		return uint64(n), err
	}
	return strconv.ParseUint(text, 0, 32)
}

// rate reads a rate, which may be a part of the port's speed.
func (s *parse) rate(text string) (uint64, error) {
	n, suffix, ok := splitNumber(text)
	if !ok || suffix != "%" {
		return ParseRate(text)
	}
	if s.Speed == nil || n > 100 {
		return 0, errUnit{text}
	}
	speed, err := s.Speed(s.c.Dev)
	if err != nil {
		return 0, err
	}
	return uint64(n / 100 * float64(speed)), nil
}
