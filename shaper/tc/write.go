package tc

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"sluice/qdisc"
	"sluice/shaper/tree"
)

// WriteQdiscs prints what the show command c selects of all, as text or JSON.
func WriteQdiscs(w io.Writer, c *Command, all []tree.QdiscInfo, lookup func(kind string) *qdisc.Kind) error {
	p := printer{Options: c.Options}
	for i := range all {
		if c.selectsQdisc(&all[i]) {
			p.qdisc(&all[i], kindOf(lookup, all[i].Kind), c.Dev == "")
		}
	}
	return p.flush(w)
}

// WriteClasses prints what the show command c selects of all. Without a device
// tc shows no classes at all.
func WriteClasses(w io.Writer, c *Command, all []tree.ClassInfo, lookup func(kind string) *qdisc.Kind) error {
	p := printer{Options: c.Options}
	if c.Dev == "" {
		if c.Options.JSON {
			return p.flush(w)
		}
		return nil
	}
	for i := range all {
		if c.selectsClass(&all[i]) {
			p.class(&all[i], kindOf(lookup, all[i].Kind))
		}
	}
	return p.flush(w)
}

func (c *Command) selectsQdisc(q *tree.QdiscInfo) bool {
	s := &c.Show
	return (c.Dev == "" || c.Dev == q.Dev) &&
		(!q.Hidden || s.Invisible) &&
		(s.Parent == 0 || s.Parent == q.Parent) &&
		(s.Handle == 0 || s.Handle == q.Handle)
}

// selectsClass follows the kernel, which looks at no more of a parent than whose
// class it is, and has no classes to show for "root".
func (c *Command) selectsClass(q *tree.ClassInfo) bool {
	s := &c.Show
	return c.Dev == q.Dev &&
		(s.Parent == 0 || s.Parent.Major() == q.ID.Major()) &&
		(s.Handle == 0 || s.Handle.Major() == q.ID.Major()) &&
		(s.ClassID == 0 || s.ClassID == q.ID)
}

// kindOf finds a kind's table; one without parameters stands for an unknown.
func kindOf(lookup func(string) *qdisc.Kind, name string) *qdisc.Kind {
	if k := lookup(name); k != nil {
		return k
	}
	return &qdisc.Kind{Name: name}
}

// printer collects the output of one show command.
type printer struct {
	Options
	text    bytes.Buffer
	objects array
}

func (p *printer) flush(w io.Writer) error {
	if p.JSON {
		p.text.Reset()
		writeJSON(&p.text, p.objects, p.Pretty)
		p.text.WriteByte('\n')
	}
	out := p.text.Bytes()
	if p.Oneline && !p.JSON {
		out = bytes.ReplaceAll(out, []byte("\n"), []byte(`\`))
	}
	_, err := w.Write(out)
	return err
}

func (p *printer) qdisc(q *tree.QdiscInfo, kind *qdisc.Kind, withDev bool) {
	if p.JSON {
		o := object{{"kind", q.Kind}, {"handle", FormatHandle(q.Handle)}}
		if withDev {
			o.add("dev", q.Dev)
		}
		if q.Parent == tree.Root {
			o.add("root", true)
		} else {
			o.add("parent", FormatClassID(q.Parent))
		}
		if q.RefCnt > 1 {
			o.add("refcnt", q.RefCnt)
		}
		options := object{}
		p.members(&options, kind.Params, q.Options)
		o.add("options", options)
		if p.Stats {
			stats(&o, &q.Stats, q.Backlog, q.Qlen)
			p.members(&o, kind.XStats, q.XStats)
		}
		p.objects = append(p.objects, o)
		return
	}
	t := &p.text
	fmt.Fprintf(t, "qdisc %s %s", q.Kind, FormatHandle(q.Handle))
	if p.Raw {
		if h, ok := q.Handle.TC(); ok {
			fmt.Fprintf(t, "[%08x]", h)
		}
	}
	t.WriteByte(' ')
	if withDev {
		fmt.Fprintf(t, "dev %s ", q.Dev)
	}
	if q.Parent == tree.Root {
		t.WriteString("root ")
	} else {
		fmt.Fprintf(t, "parent %s ", FormatClassID(q.Parent))
	}
	if q.RefCnt > 1 {
		fmt.Fprintf(t, "refcnt %d ", q.RefCnt)
	}
	p.params(kind.Params, q.Options)
	t.WriteByte('\n')
	if !p.Stats {
		return
	}
	p.sent(&q.Stats)
	p.stats(&q.Stats, q.Backlog, q.Qlen)
	t.WriteByte('\n')
	if len(q.XStats) > 0 && len(kind.XStats) > 0 {
		p.params(kind.XStats, q.XStats)
		t.WriteByte('\n')
	}
}

func (p *printer) class(c *tree.ClassInfo, kind *qdisc.Kind) {
	counted := kind.Flags&qdisc.NoClassStats == 0
	if p.JSON {
		o := object{{"class", c.Kind}, {"handle", FormatClassID(c.ID)}}
		if c.Parent == 0 {
			o.add("root", true)
		} else {
			o.add("parent", FormatClassID(c.Parent))
		}
		if c.Leaf != 0 {
			o.add("leaf", fmt.Sprintf("0x%x", c.Leaf.Major()))
		}
		p.members(&o, kind.ClassParams, c.Options)
		if p.Stats {
			s := object{}
			if counted {
				stats(&s, &c.Stats, c.Backlog, c.Qlen)
				if kind.Flags&qdisc.NoClassSent != 0 {
					s = s[2:]
				}
				p.members(&s, kind.ClassXStats, c.XStats)
			}
			o.add("stats", s)
		}
		p.objects = append(p.objects, o)
		return
	}
	t := &p.text
	fmt.Fprintf(t, "class %s %s ", c.Kind, FormatClassID(c.ID))
	if c.Parent == 0 {
		t.WriteString("root ")
	} else {
		fmt.Fprintf(t, "parent %s ", FormatClassID(c.Parent))
	}
	if c.Leaf != 0 {
		fmt.Fprintf(t, "leaf %s ", FormatHandle(c.Leaf))
	}
	p.params(kind.ClassParams, c.Options)
	t.WriteByte('\n')
	if !p.Stats {
		return
	}
	if counted {
		if kind.Flags&qdisc.NoClassSent == 0 {
			p.sent(&c.Stats)
		}
		p.stats(&c.Stats, c.Backlog, c.Qlen)
		if len(c.XStats) > 0 && len(kind.ClassXStats) > 0 {
			t.WriteByte('\n')
			p.params(kind.ClassXStats, c.XStats)
		}
	}
	t.WriteByte('\n')
}

// sent begins the counters: what left.
func (p *printer) sent(s *qdisc.Stats) {
	fmt.Fprintf(&p.text, " Sent %d bytes %d pkt", s.Bytes, s.Packets)
}

// stats prints the other counters, without the last line end.
func (p *printer) stats(s *qdisc.Stats, backlog, qlen int) {
	fmt.Fprintf(&p.text, " (dropped %d, overlimits %d requeues %d) \n backlog %s %dp requeues %d",
		s.Drops, s.Overlimits, s.Requeues, FormatSize(uint64(backlog)), qlen, s.Requeues)
}

func stats(o *object, s *qdisc.Stats, backlog, qlen int) {
	o.add("bytes", s.Bytes)
	o.add("packets", s.Packets)
	o.add("drops", s.Drops)
	o.add("overlimits", s.Overlimits)
	o.add("requeues", s.Requeues)
	o.add("backlog", backlog)
	o.add("qlen", qlen)
}

// shows says whether a parameter is printed.
func (p *printer) shows(s qdisc.Show) bool {
	switch s {
	case qdisc.Input:
		return false
	case qdisc.TextOnly:
		return !p.JSON
	case qdisc.JSONOnly:
		return p.JSON
	case qdisc.Counter:
		return p.Stats
	case qdisc.Details:
		return p.Details
	case qdisc.Brief:
		return !p.Details
	}
	return true
}

// params prints the text of what v has of a table.
func (p *printer) params(table []qdisc.Param, v qdisc.Values) {
	for i := range table {
		param := &table[i]
		x, has := v[param.Name]
		if !has || !p.shows(param.Show) || x.N == 0 && (param.Unit == qdisc.Flag || param.Show == qdisc.Nonzero) {
			continue
		}
		format := param.Text
		switch {
		case format != "":
		case param.Unit == qdisc.Flag:
			format = param.Name + " "
		default:
			format = param.Name + " %s "
		}
		if param.Unit == qdisc.Table {
			p.table(param.Columns, x.Rows)
			continue
		}
		p.text.WriteString(fill(format, p.format(param.Unit, x), strconv.FormatUint(x.N, 10)))
	}
}

// fill puts a value into the verbs of a format: s for %s, d for %d, each with a
// width if the format says so.
func fill(format, s, d string) string {
	var b strings.Builder
	for {
		before, verb, found := strings.Cut(format, "%")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		i := strings.IndexAny(verb, "sd")
		if i < 0 {
			return b.String() + "%" + verb
		}
		text := s
		if verb[i] == 'd' {
			text = d
		}
		width, _ := strconv.Atoi(verb[:i])
		fmt.Fprintf(&b, "%*s", width, text)
		format = verb[i+1:]
	}
}

// table prints rows as columns, one line for each of their members, below an
// empty line.
func (p *printer) table(columns []qdisc.Param, rows []qdisc.Values) {
	p.text.WriteByte('\n')
	for i := range columns {
		c := &columns[i]
		if !p.shows(c.Show) {
			continue
		}
		fmt.Fprintf(&p.text, "%-10s", "  "+c.Text)
		for _, row := range rows {
			fmt.Fprintf(&p.text, "%13s", p.format(c.Unit, row[c.Name]))
		}
		p.text.WriteByte('\n')
	}
}

// format prints a value as its unit has it.
func (p *printer) format(u qdisc.Unit, x qdisc.Value) string {
	switch u {
	case qdisc.Packets:
		return strconv.FormatUint(x.N, 10) + "p"
	case qdisc.Size:
		return FormatSize(x.N)
	case qdisc.Rate:
		if p.IEC {
			return FormatRateIEC(x.N)
		}
		return FormatRate(x.N)
	case qdisc.Time:
		if d := time.Duration(x.N); d < 0 {
			return "-" + FormatTime(-d)
		}
		return FormatTime(time.Duration(x.N))
	case qdisc.Word:
		return x.Word
	case qdisc.Numbers, qdisc.Sizes:
		return strings.Trim(fmt.Sprint(x.List), "[]")
	case qdisc.Hex:
		if x.N == 0 { // as C has it
			return "0"
		}
		return fmt.Sprintf("%#x", x.N)
	case qdisc.Time64:
		return FormatTime64(time.Duration(x.N))
	case qdisc.Percent:
		return FormatPercent(x.N)
	case qdisc.Float:
		return strconv.FormatFloat(math.Float64frombits(x.N), 'g', 6, 64)
	case qdisc.Signed:
		return strconv.FormatInt(int64(x.N), 10)
	}
	return strconv.FormatUint(x.N, 10)
}

// members adds what v has of a table to o, a group's members as an object of
// their own.
func (p *printer) members(o *object, table []qdisc.Param, v qdisc.Values) {
	whole := o
	var group *qdisc.Param
	for i := range table {
		param := &table[i]
		if o != whole && param.Group() != group.Name {
			whole.add(group.Key(), *o)
			o = whole
		}
		if param.Unit == qdisc.Group {
			group = param
			continue
		}
		x, has := v[param.Name]
		if !has || !p.shows(param.Show) {
			continue
		}
		if o == whole && param.Group() != "" {
			o = &object{}
		}
		switch param.Unit {
		case qdisc.Null:
			o.add(param.Key(), nil)
		case qdisc.Table:
			rows := array{}
			for _, row := range x.Rows {
				one := object{}
				p.members(&one, param.Columns, row)
				rows = append(rows, one)
			}
			o.add(param.Key(), rows)
		case qdisc.Flag:
			o.add(param.Key(), x.N != 0)
		case qdisc.Word:
			o.add(param.Key(), x.Word)
		case qdisc.Time:
			o.add(param.Key(), int64(x.N)/1000)
		case qdisc.Numbers, qdisc.Sizes:
			list := array{}
			for _, n := range x.List {
				list = append(list, n)
			}
			o.add(param.Key(), list)
		case qdisc.Hex:
			o.add(param.Key(), p.format(param.Unit, x))
		case qdisc.Time64:
			o.add(param.Key(), short(time.Duration(x.N).Seconds()))
		case qdisc.Percent:
			o.add(param.Key(), short(float64(x.N)/math.MaxUint32))
		case qdisc.Float:
			o.add(param.Key(), short(math.Float64frombits(x.N)))
		case qdisc.Signed:
			o.add(param.Key(), int64(x.N))
		default:
			o.add(param.Key(), x.N)
		}
	}
	if o != whole {
		whole.add(group.Key(), *o)
	}
}
