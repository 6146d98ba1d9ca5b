package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"sluice/qdisc"
	"sluice/shaper/classify/nearest"
)

// decoder reads one document and collects what is wrong with it.
type decoder struct {
	file string
	src  string
	scan *scanner
	line lines
	root map[string]any
	errs Errors

	// Of every [[qdisc]], by index: its kind, and one made on trial; nil when
	// that is not known or failed.
	kinds []*qdisc.Kind
	built []qdisc.Qdisc
}

// decode parses the document. A mistake in TOML itself is the only one
// reported: behind it nothing is certain.
func decode(file string, data []byte) (*decoder, error) {
	src := strings.TrimLeft(string(data), "\ufeff") // the module takes one more away
	d := &decoder{file: file, src: src, line: newLines(src)}
	if i := tooDeep(src); i >= 0 {
		at := d.line.pos(i)
		return nil, Errors{{File: file, Line: at.Line, Col: at.Col, Msg: fmt.Sprintf("this nests deeper than %d", maxNesting),
			Hint: "Nothing that a policy has needs that."}}
	}
	if _, err := toml.Decode(src, &d.root); err != nil {
		var syntax toml.ParseError
		if !errors.As(err, &syntax) {
			return nil, Errors{{File: file, Msg: err.Error(), Hint: "Correct the file.", err: err}}
		}
		// Line and Col of the module are off in places, the offset is not.
		at := d.line.pos(min(max(syntax.Position.Start, 0), len(src)))
		return nil, Errors{{File: file, Line: at.Line, Col: at.Col, Msg: "this is not TOML: " + sentence(syntax.Message),
			Hint: syntaxHint(src, d.line[at.Line-1]), err: err}}
	}
	d.scan = scan(src)
	return d, nil
}

// unquoted is a value with a unit, or a class id, without its quotes.
var unquoted = regexp.MustCompile(`^\s*([\w.-]+)\s*=\s*([\w.]+(?: [\w/]+|:[0-9a-f]*))\s*(?:#.*)?$`)

func syntaxHint(src string, start int) string {
	line, _, _ := strings.Cut(src[start:], "\n")
	if m := unquoted.FindStringSubmatch(line); m != nil {
		return fmt.Sprintf("Put the value in quotes: %s = %q.", m[1], m[2])
	}
	return "Correct it, then the rest of the file can be checked."
}

// sentence makes somebody else's message fit into one of ours.
func sentence(s string) string { return strings.TrimRight(strings.ReplaceAll(s, "\n", " "), ". ") }

// keyPos and valuePos return the places of a path; of one that is not in the
// document, the place of what it would be in.
func (d *decoder) keyPos(path string) Pos   { return d.line.pos(d.place(path).key) }
func (d *decoder) valuePos(path string) Pos { return d.line.pos(d.place(path).value) }

func (d *decoder) place(path string) place {
	for {
		if p, ok := d.scan.places[path]; ok {
			return p
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return place{}
		}
		path = path[:i]
	}
}

// fail notes a mistake at a place.
func (d *decoder) fail(at Pos, path, value string, p *problem) {
	d.errs = append(d.errs, &Error{File: d.file, Line: at.Line, Col: at.Col, Key: path, Value: value, Msg: p.msg, Hint: p.hint})
}

// table is a TOML table being read. Every key asked for is a key that it can
// have; close refuses the others.
type table struct {
	d     *decoder
	path  string
	title string // for messages: [engine]
	m     map[string]any
	known []string
}

// table returns a table inside t; nil when there is none or it is none.
func (t *table) table(key, title string) *table {
	v, ok := t.get(key)
	if !ok {
		return nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		t.fail(key, problemf(fmt.Sprintf("Write %s and the keys below it.", title), "%q is a table, not %s", key, describe(v)))
		return nil
	}
	return &table{d: t.d, path: child(t.path, key), title: title, m: m}
}

// tables returns the elements of an array of tables.
func (t *table) tables(key string) []*table {
	v, ok := t.get(key)
	if !ok {
		return nil
	}
	title := "[[" + key + "]]"
	var maps []map[string]any
	switch v := v.(type) {
	case []map[string]any:
		maps = v
	case []any:
		for i, e := range v {
			m, ok := e.(map[string]any)
			if !ok {
				path := element(child(t.path, key), i)
				t.d.fail(t.d.valuePos(path), path, "", problemf(fmt.Sprintf("Write %s and the keys below it.", title),
					"%q is a list of tables, not of %s", key, describe(e)))
			}
			maps = append(maps, m)
		}
	default:
		t.fail(key, problemf(fmt.Sprintf("Write %s and the keys below it.", title), "%q is a list of tables, not %s", key, describe(v)))
	}
	var out []*table
	for i, m := range maps {
		if m != nil {
			out = append(out, &table{d: t.d, path: element(child(t.path, key), i), title: title, m: m})
		}
	}
	return out
}

// get returns the raw value of a key.
func (t *table) get(key string) (any, bool) {
	t.known = append(t.known, key)
	v, ok := t.m[key]
	return v, ok
}

// pos returns the place of the table, at its key or header.
func (t *table) pos() Pos { return t.d.keyPos(t.path) }

// fail notes a mistake in the value of a key.
func (t *table) fail(key string, p *problem) {
	path := child(t.path, key)
	value := ""
	v := t.m[key]
	if p.element > 0 {
		path = element(path, p.element-1)
		v = v.([]any)[p.element-1]
	}
	switch v := v.(type) {
	case string:
		value = v
	case bool, int64, float64:
		value = fmt.Sprint(v)
	}
	t.d.fail(t.d.valuePos(path), path, value, p)
}

// missing notes that a key is not there.
func (t *table) missing(key, example string) {
	t.d.fail(t.pos(), t.path, "", problemf(fmt.Sprintf("Add %s = %s.", key, example), "%s has no %q", t.title, key))
}

// close refuses the keys that nobody asked for.
func (t *table) close() {
	var unknown []string
	for key := range t.m {
		if !contains(t.known, key) {
			unknown = append(unknown, key)
		}
	}
	sort.Strings(unknown)
	for _, key := range unknown {
		in := t.title
		if in == "" {
			in = "the file"
		}
		var hint string
		if near := nearest.Word(key, t.known); near != "" {
			hint = fmt.Sprintf("Did you mean %q?", near)
		} else {
			hint = fmt.Sprintf("Known here: %s.", strings.Join(t.known, ", "))
		}
		path := child(t.path, key)
		t.d.fail(t.d.keyPos(path), path, "", problemf(hint, "%q is no key of %s", key, in))
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// text returns a string. ok is false when the key is missing or no string; the
// latter has been reported then, here and below.
func (t *table) text(key, example string) (string, bool) {
	v, ok := t.get(key)
	if !ok {
		return "", false
	}
	s, ok := v.(string)
	if !ok {
		hint := fmt.Sprintf("Write it as %s.", example)
		if n, isInt := v.(int64); isInt {
			hint = fmt.Sprintf("Did you mean \"%d\"?", n)
		}
		t.fail(key, problemf(hint, "%q takes a text, not %s", key, describe(v)))
	}
	return s, ok
}

// word returns one of a few words, def when the key is missing.
func (t *table) word(key, def string, words ...string) string {
	s, ok := t.text(key, strconv.Quote(words[0]))
	if !ok {
		return def
	}
	if !contains(words, s) {
		t.fail(key, oneOf(s, key, words))
		return def
	}
	return s
}

func oneOf(got, key string, words []string) *problem {
	hint := "Write one of " + strings.Join(words, ", ") + "."
	if near := nearest.Word(got, words); near != "" {
		hint = fmt.Sprintf("Did you mean %q?", near)
	}
	return problemf(hint, "%q is no %s", got, key)
}

// integer returns a plain number between lo and hi, def when the key is missing.
func (t *table) integer(key string, def, lo, hi int) int {
	v, ok := t.get(key)
	if !ok {
		return def
	}
	n, p := plain(v)
	switch {
	case p != nil:
		t.fail(key, p)
	case n < int64(lo):
		t.fail(key, problemf(fmt.Sprintf("The smallest value that works is %d.", lo), "%q is %d", key, n))
	case n > int64(hi):
		t.fail(key, problemf(fmt.Sprintf("The largest value that works is %d.", hi), "%q is %d", key, n))
	default:
		return int(n)
	}
	return def
}

// plain reads a number without unit.
func plain(v any) (int64, *problem) {
	switch v := v.(type) {
	case int64:
		return v, nil
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return 0, problemf(fmt.Sprintf("Write %d without quotes.", n), "a plain number is expected here, not %q", v)
		}
	}
	return 0, problemf("Write a whole number, without unit and quotes.", "a plain number is expected here, not %s", describe(v))
}

func (t *table) boolean(key string) bool {
	v, ok := t.get(key)
	if !ok {
		return false
	}
	b, ok := v.(bool)
	if !ok {
		t.fail(key, problemf("Write true or false, without quotes.", "%q is a yes or no, not %s", key, describe(v)))
	}
	return b
}

// amount returns a value with unit between lo and hi, def when it is missing.
func (t *table) amount(key string, q *quantity, def, lo, hi uint64) uint64 {
	v, ok := t.get(key)
	if !ok {
		return def
	}
	n, p := q.value(v)
	switch {
	case p != nil:
		t.fail(key, p)
	case n < lo:
		t.fail(key, problemf(fmt.Sprintf("The smallest value that works is %q.", q.format(lo)), "%q is %q", key, v))
	case n > hi:
		t.fail(key, problemf(fmt.Sprintf("The largest value that works is %q.", q.format(hi)), "%q is %q", key, v))
	default:
		return n
	}
	return def
}

func (t *table) time(key string, def, hi time.Duration) time.Duration {
	return time.Duration(t.amount(key, times, uint64(def), 0, uint64(hi)))
}

// id returns a handle or class id, 0 when it is missing or wrong.
func (t *table) id(key, example string) (qdisc.ClassID, bool) {
	if n, ok := t.m[key].(int64); ok && n > 0 && n < 0xffff {
		t.known = append(t.known, key)
		t.fail(key, problemf(fmt.Sprintf("Did you mean \"%d:\"?", n), "%q takes a handle, not %d", key, n))
		return 0, false
	}
	s, ok := t.text(key, strconv.Quote(example))
	if !ok {
		return 0, false
	}
	id, p := parseID(s)
	if p == nil && strings.HasSuffix(example, ":") && id.Minor() != 0 {
		p = problemf(fmt.Sprintf("Did you mean %q?", qdisc.MakeID(id.Major(), 0)), "%q is a class, %q takes a qdisc's handle", s, key)
	}
	if p != nil {
		t.fail(key, p)
		return 0, false
	}
	return id, true
}

// parseID reads tc's form of a handle or class id: hexadecimal, 16 bits each.
func parseID(s string) (qdisc.ClassID, *problem) {
	major, minor, colon := strings.Cut(s, ":")
	a, errA := strconv.ParseUint(major, 16, 16)
	b := uint64(0)
	var errB error
	if minor != "" {
		b, errB = strconv.ParseUint(minor, 16, 16)
	}
	switch {
	case errA == nil && !colon:
		return 0, problemf(fmt.Sprintf("Did you mean %q?", s+":"), "%q has no colon", s)
	case errA != nil || errB != nil || strings.HasPrefix(s, "+"):
		return 0, problemf(`Write it as "1:" for a qdisc and "1:2" for a class, in hexadecimal up to ffff.`, "%q is no handle", s)
	case a == 0 || a == 0xffff:
		return 0, problemf(`Use a number from 1 to fffe before the colon.`, "the handle %q is reserved", s)
	}
	return qdisc.MakeID(uint32(a), uint32(b)), nil
}

// params reads the parameters of a kind.
func (t *table) params(params []qdisc.Param) qdisc.Values {
	values := qdisc.Values{}
	for i := range params {
		p := &params[i]
		if !p.Taken() || p.Group() != "" {
			continue
		}
		given := ""
		for _, key := range append([]string{p.Name}, p.Aliases...) {
			if strings.Contains(key, " ") {
				continue // tc's two words for it
			}
			v, ok := t.get(key)
			if !ok {
				continue
			}
			if given != "" {
				t.d.fail(t.d.keyPos(child(t.path, key)), child(t.path, key), "",
					problemf("Keep one of them.", "%q and %q are the same parameter", given, key))
				continue
			}
			given = key
			if p.Unit == qdisc.Group {
				t.group(params, p, key, v, values)
				continue
			}
			value, prob := convert(p, v)
			if prob != nil {
				t.fail(key, prob)
			} else if p.Apply != nil && v == true {
				p.Apply(values)
			} else if p.Unit != qdisc.Flag || v == true {
				values[p.Name] = value
			}
		}
	}
	return values
}

// group reads the members of g: a table of them, or the first one alone.
func (t *table) group(params []qdisc.Param, g *qdisc.Param, key string, v any, values qdisc.Values) {
	var members []qdisc.Param
	for _, p := range params {
		if p.Group() == g.Name {
			p.Name = p.Name[len(g.Name)+1:]
			members = append(members, p)
		}
	}
	m, isTable := v.(map[string]any)
	if isTable {
		in := &table{d: t.d, path: child(t.path, key), title: "the table " + key, m: m}
		for name, value := range in.params(members) {
			values[g.Name+"."+name] = value
		}
		in.close()
		return
	}
	first := &members[0]
	if !first.Bare {
		t.fail(key, problemf(fmt.Sprintf("Write it as %s = { %s = %s }.", key, first.Name, example(first)),
			"%q is a table, not %s", key, describe(v)))
		return
	}
	value, prob := convert(first, v)
	if prob != nil {
		t.fail(key, prob)
		return
	}
	values[g.Name+"."+first.Name] = value
}

// quantities are the units of parameters that are quantities.
var quantities = map[qdisc.Unit]*quantity{
	qdisc.Packets: packets, qdisc.Size: sizes, qdisc.Sizes: sizes, qdisc.Rate: rates, qdisc.Time: times,
	qdisc.Time64: times, qdisc.Percent: percents,
}

// convert reads the value of a parameter.
func convert(p *qdisc.Param, v any) (qdisc.Value, *problem) {
	switch p.Unit {
	case qdisc.Flag:
		if _, ok := v.(bool); !ok {
			return qdisc.Value{}, problemf("Write true or false, without quotes.", "%q is a yes or no, not %s", p.Name, describe(v))
		}
		return qdisc.Value{}, nil
	case qdisc.Word:
		s, ok := v.(string)
		if !ok {
			return qdisc.Value{}, problemf("Write a word in quotes.", "%q takes a word, not %s", p.Name, describe(v))
		}
		return qdisc.Value{Word: s}, nil
	case qdisc.Numbers, qdisc.Sizes:
		list, ok := v.([]any)
		if !ok {
			return qdisc.Value{}, problemf(fmt.Sprintf("Write it as %s = %s.", p.Name, example(p)),
				"%q takes a list, not %s", p.Name, describe(v))
		}
		out := qdisc.Value{List: []uint64{}}
		for i, e := range list {
			n, prob := scalar(p, e)
			if prob != nil {
				prob.element = i + 1
				return qdisc.Value{}, prob
			}
			out.List = append(out.List, n)
		}
		return out, nil
	}
	n, prob := scalar(p, v)
	return qdisc.Value{N: n}, prob
}

func scalar(p *qdisc.Param, v any) (uint64, *problem) {
	if q := quantities[p.Unit]; q != nil {
		return q.value(v)
	}
	if text, ok := v.(string); ok && p.Unit == qdisc.Hex {
		n, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 32)
		if err != nil {
			return 0, problemf(fmt.Sprintf("Write it as %s.", example(p)), "%q is no hexadecimal number", text)
		}
		return n, nil
	}
	if p.Unit == qdisc.Float {
		switch x := v.(type) {
		case float64:
			return math.Float64bits(x), nil
		case int64:
			return math.Float64bits(float64(x)), nil
		}
	}
	n, prob := plain(v)
	switch {
	case prob != nil:
		return 0, prob
	case p.Unit == qdisc.Signed && n == int64(int32(n)), p.Unit == qdisc.Number64 && n >= 0:
	case n < 0 || n > math.MaxUint32:
		return 0, problemf(fmt.Sprintf("Write a number from 0 to %d.", uint32(math.MaxUint32)), "%q is %d", p.Name, n)
	}
	return uint64(n), nil
}

// example is a value that a parameter could have, as TOML.
func example(p *qdisc.Param) string {
	switch p.Unit {
	case qdisc.Flag:
		return "true"
	case qdisc.Word:
		return `"…"`
	case qdisc.Numbers:
		return "[0, 1]"
	case qdisc.Sizes:
		return `["1514 B"]`
	case qdisc.Hex:
		return `"0x10"`
	case qdisc.Group:
		return "{ … }"
	}
	if q := quantities[p.Unit]; q != nil {
		return strconv.Quote(q.example)
	}
	return "3"
}
