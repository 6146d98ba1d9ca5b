package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/kinds"
	"sluice/shaper/classify"
	"sluice/shaper/classify/nearest"
)

// read goes through the document.
func (d *decoder) read(c *Config, known []*qdisc.Kind) {
	t := &table{d: d, m: d.root}
	d.readVersion(t)
	d.readEngine(t, &c.Engine)
	d.readControl(t, &c.Control)
	d.readLinks(t, c)
	for _, q := range t.tables("qdisc") {
		d.readQdisc(q, c, known)
	}
	for _, cl := range t.tables("class") {
		d.readClass(cl, c, known)
	}
	for _, f := range t.tables("filter") {
		d.readFilter(f, c)
	}
	t.close()
}

func (d *decoder) readVersion(t *table) {
	v, ok := t.get("version")
	switch {
	case !ok:
		d.fail(Pos{1, 1}, "version", "", problemf(fmt.Sprintf("Begin the file with version = %d.", Version), "the file has no version"))
	case v != int64(Version):
		t.fail("version", problemf(fmt.Sprintf("Write version = %d.", Version), "version %s is not known", describe(v)))
	}
}

func (d *decoder) readEngine(root *table, e *Engine) {
	t := root.table("engine", "[engine]")
	if t == nil {
		t = &table{d: d, path: "engine", title: "[engine]"}
	}
	*e = Engine{
		Weight:          t.integer("weight", 64, 1, 1<<16),
		Quota:           t.word("quota", "packets", "packets", "budget", "restarts"),
		Doorbell:        t.word("doorbell", "turn", "turn", "list", "packet"),
		TxFlushInterval: t.time("tx_flush_interval", 0, time.Second),
		BusyPoll:        t.time("busy_poll", 50*time.Microsecond, time.Second),
		RxCoalesce:      t.time("rx_coalesce", 0, 300*time.Microsecond),
		Packets:         int(t.amount("packets", packets, 8192, 64, 1<<22)),
		FrameSize:       int(t.amount("frame_size", sizes, 2048, 512, math.MaxUint16)),
		CPU:             t.integer("cpu", -1, 0, 1023),
		Priority:        t.word("priority", "dscp", "dscp", "none"),
	}
	t.close()
}

func (d *decoder) readControl(root *table, c *Control) {
	c.Socket = DefaultSocket
	t := root.table("control", "[control]")
	if t == nil {
		return
	}
	if s, ok := t.text("socket", strconv.Quote(DefaultSocket)); ok {
		switch {
		case !strings.HasPrefix(s, "/"):
			t.fail("socket", problemf(`Write a path that begins with "/".`, "the path of the socket, %q, is not absolute", s))
		case len(s) > 107: // sun_path
			t.fail("socket", problemf("At most 107 are possible.", "the path of the socket is %d bytes long", len(s)))
		}
		c.Socket = s
	}
	if s, ok := t.text("group", `"adm"`); ok {
		if s == "" {
			t.fail("group", problemf("Name a group, or remove the key.", "the group is empty"))
		}
		c.Group = s
	}
	t.close()
}

const defaultTxQueueLen = 1000

var drivers = []string{"auto", "afpacket", "tap", "mem", "pcap"}

func (d *decoder) readLinks(root *table, c *Config) {
	t := root.table("link", "[link.NAME]")
	if t == nil {
		return
	}
	for name, v := range t.m {
		if _, ok := v.(map[string]any); !ok {
			t.known = append(t.known, name)
			d.fail(d.keyPos(child(t.path, name)), child(t.path, name), "",
				problemf("Write [link.NAME], with a name of your choice, above it.", "%q stands in [link], where only links are", name))
			continue
		}
		if l := t.table(name, fmt.Sprintf("[%s]", child("link", name))); l != nil {
			c.Links = append(c.Links, d.readLink(l, name))
		}
	}
	slices.SortFunc(c.Links, func(a, b Link) int {
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Col, b.Pos.Col))
	})
}

func (d *decoder) readLink(t *table, name string) Link {
	l := Link{Name: name, Pos: t.pos()}
	if name == "" {
		d.fail(t.pos(), t.path, "", problemf("Write a name, as in [link.home].", "a link has no name"))
	}
	driver := t.word("driver", "auto", drivers...)
	l.Inside = d.readPort(t, "inside", driver)
	l.Outside = d.readPort(t, "outside", driver)
	if l.Inside.Dev != "" && l.Inside.Dev == l.Outside.Dev {
		t.fail("outside", problemf("Name the interface on the other side.", "inside and outside are both %q", l.Inside.Dev))
	}
	l.Queues = t.integer("queues", 0, 1, 256)
	l.TxQueueLen = int(t.amount("txqueuelen", packets, defaultTxQueueLen, 1, math.MaxInt32))
	l.BQLMin = t.amount("bql_min", sizes, 0, 0, math.MaxInt32)
	l.BQLMax = t.amount("bql_max", sizes, 0, 1, math.MaxInt32)
	if l.BQLMax != 0 && l.BQLMin > l.BQLMax {
		t.fail("bql_min", problemf(fmt.Sprintf("At most %q, the value of bql_max, is possible.", FormatSize(l.BQLMax)),
			"bql_min is %q, more than bql_max", FormatSize(l.BQLMin)))
	}
	d.readMem(t, &l)
	d.readPcap(t, &l)
	t.close()
	return l
}

func (d *decoder) readPort(t *table, side, driver string) Port {
	p := Port{Driver: t.word(side+"_driver", driver, drivers...), Pos: d.valuePos(child(t.path, side))}
	s, ok := t.text(side, `"eth0"`)
	if !ok {
		if _, there := t.m[side]; !there {
			t.missing(side, `"eth0"`)
		}
		return p
	}
	if prob := checkDev(s); prob != nil {
		t.fail(side, prob)
		return p
	}
	p.Dev = s
	return p
}

// checkDev applies the kernel's rules for interface names (dev_valid_name).
func checkDev(s string) *problem {
	switch {
	case s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/: \t\r\n\v\f\x00"):
		return problemf("Write the name that `ip link` shows.", "%q is not the name of an interface", s)
	case len(s) > 15:
		return problemf("At most 15 are possible.", "the name %q has %d bytes", s, len(s))
	}
	return nil
}

func (d *decoder) readMem(link *table, l *Link) {
	l.Mem = Mem{Ring: 256}
	t := link.table("mem", strings.TrimSuffix(link.title, "]")+".mem]")
	if t == nil {
		return
	}
	if l.Inside.Driver != "mem" || l.Outside.Driver != "mem" {
		d.fail(t.pos(), t.path, "", problemf(`Write driver = "mem", or remove the table.`, "%s is for links between memory ports", t.title))
	}
	l.Mem.Rate = t.amount("rate", rates, 0, 1, math.MaxInt64)
	l.Mem.Latency = t.time("latency", 0, time.Minute)
	l.Mem.Ring = int(t.amount("ring", packets, 256, 2, 1<<16))
	if l.Mem.Ring&(l.Mem.Ring-1) != 0 {
		t.fail("ring", problemf("Take a power of two.", "a ring of %q is not possible", FormatPackets(uint64(l.Mem.Ring))))
	}
	t.close()
}

func (d *decoder) readPcap(link *table, l *Link) {
	t := link.table("pcap", strings.TrimSuffix(link.title, "]")+".pcap]")
	if t == nil {
		return
	}
	for _, f := range []struct {
		key  string
		port *Port
		file *string
	}{
		{"inside_read", &l.Inside, &l.Inside.Read}, {"inside_write", &l.Inside, &l.Inside.Write},
		{"outside_read", &l.Outside, &l.Outside.Read}, {"outside_write", &l.Outside, &l.Outside.Write},
	} {
		s, ok := t.text(f.key, `"lan.pcap"`)
		switch {
		case !ok:
		case s == "":
			t.fail(f.key, problemf("Name a capture, or remove the key.", "%q is empty", f.key))
		case f.port.Driver != "pcap":
			t.fail(f.key, problemf(`Write driver = "pcap", or remove the key.`, "%q is for a port that is a capture", f.key))
		default:
			*f.file = s
		}
	}
	t.close()
}

// dev reads the port that a table is about.
func (t *table) dev() string {
	s, ok := t.text("dev", `"eth0"`)
	if _, there := t.m["dev"]; !there {
		t.missing("dev", `"eth0"`)
	}
	if !ok {
		return ""
	}
	return s
}

// kind reads the kind of a table. Without a kind the table's other keys cannot
// be judged.
func (t *table) kind(known []*qdisc.Kind) *qdisc.Kind {
	s, ok := t.text("kind", `"tbf"`)
	if _, there := t.m["kind"]; !there {
		t.missing("kind", `"tbf"`)
	}
	if !ok {
		return nil
	}
	names := make([]string, len(known))
	for i, k := range known {
		if k.Name == s {
			return k
		}
		names[i] = k.Name
	}
	hint := "Known are " + strings.Join(names, ", ") + "."
	if near := nearest.Word(s, names); near != "" {
		hint = fmt.Sprintf("Did you mean %q?", near)
	}
	t.fail("kind", problemf(hint, "the kind %q is not known", s))
	return nil
}

func (d *decoder) readQdisc(t *table, c *Config, known []*qdisc.Kind) {
	q := QdiscSpec{Pos: t.pos(), Dev: t.dev(), Root: t.boolean("root")}
	q.Parent, _ = t.id("parent", "1:2")
	q.Handle, _ = t.id("handle", "1:")
	_, rootGiven := t.m["root"]
	_, parentGiven := t.m["parent"]
	switch {
	case q.Root && parentGiven:
		t.fail("parent", problemf("Remove one of the two.", "a root qdisc has no parent"))
		q.Parent = 0
	case !rootGiven && !parentGiven:
		d.fail(t.pos(), t.path, "", problemf(`Add root = true, or parent = "1:2".`, "the qdisc has no place"))
	case q.Parent != 0 && q.Parent.Minor() == 0:
		t.fail("parent", problemf(fmt.Sprintf("Name a class, for example \"%s1\".", q.Parent),
			"%q is a qdisc, its children hang off its classes", q.Parent))
	}
	k := t.kind(known)
	var built qdisc.Qdisc
	if k != nil {
		q.Kind = k.Name
		q.Values, built = t.parameters(k, q.Handle)
	}
	c.Qdiscs = append(c.Qdiscs, q)
	d.kinds = append(d.kinds, k)
	d.built = append(d.built, built)
}

// parameters reads the parameters of a qdisc and judges them as tc and the
// kernel would: by the kind's Check, and by making one on trial.
func (t *table) parameters(k *qdisc.Kind, handle qdisc.ClassID) (qdisc.Values, qdisc.Qdisc) {
	before := len(t.d.errs)
	t.title = "[[qdisc]] of kind " + k.Name
	v := t.params(k.Params)
	t.close()
	if len(t.d.errs) > before {
		return v, nil
	}
	if k.Check != nil {
		if err := k.Check(v); err != nil {
			t.refused(k.Params, err)
			return v, nil
		}
	}
	if k.New == nil {
		return v, nil
	}
	env := kinds.Env(defaultTxQueueLen, 1500, handle.Major())
	env.TxQueues = 2 // how many the port has is seen when it is there
	q, err := k.New(env, maps.Clone(v))
	var bare *qdisc.Error
	switch {
	case err == nil:
	case errors.As(err, &bare) && bare.Ext == "":
		t.refusedBare(k, bare)
	default:
		t.refused(k.Params, err)
	}
	return v, q
}

// refusedBare reports a refusal that is nothing but an errno, with what the
// kind says of the parameters that were given.
func (t *table) refusedBare(k *qdisc.Kind, err *qdisc.Error) {
	var given, docs []string
	for i := range k.Params {
		if p := &k.Params[i]; p.Doc != "" && t.m[p.Name] != nil {
			given, docs = append(given, p.Name), append(docs, fmt.Sprintf("%q is the %s", p.Name, p.Doc))
		}
	}
	at, path, hint := t.pos(), t.path, "Correct the keys of this table."
	if len(given) == 1 {
		path = child(t.path, given[0])
		at = t.d.valuePos(path)
	}
	if len(docs) > 0 {
		hint = strings.Join(docs, "; ") + "."
	}
	t.d.fail(at, path, "", problemf(hint, "a %s with these values is not possible: %v", k.Name, err))
}

// refused reports what a kind's Check says, each of its lines, at the key it
// names.
func (t *table) refused(params []qdisc.Param, err error) {
	for _, line := range strings.Split(err.Error(), "\n") {
		at, path, hint := t.pos(), t.path, "Correct the keys of this table."
		for i, part := range strings.Split(line, `"`) {
			if i%2 == 0 {
				continue
			}
			p := param(params, part)
			if p == nil {
				continue
			}
			if _, there := t.m[part]; there {
				path = child(t.path, part)
				at, hint = t.d.valuePos(path), "Change or remove it."
			} else {
				hint = fmt.Sprintf("Add %s = %s.", part, example(p))
			}
			break
		}
		t.d.fail(at, path, "", &problem{msg: sentence(line), hint: hint})
	}
}

func param(params []qdisc.Param, name string) *qdisc.Param {
	for i := range params {
		if params[i].Name == name || contains(params[i].Aliases, name) {
			return &params[i]
		}
	}
	return nil
}

func (d *decoder) readClass(t *table, c *Config, known []*qdisc.Kind) {
	cl := ClassSpec{Pos: t.pos(), Dev: t.dev()}
	cl.Parent, _ = t.id("parent", "1:2")
	cl.ID, _ = t.id("classid", "1:2")
	for _, key := range []string{"parent", "classid"} {
		if _, there := t.m[key]; !there {
			t.missing(key, map[string]string{"parent": `"1:"`, "classid": `"1:10"`}[key])
		}
	}
	if cl.ID != 0 && cl.ID.Minor() == 0 {
		t.fail("classid", problemf(fmt.Sprintf("Write a number behind the colon, for example \"%s10\".", cl.ID), "%q is a qdisc's handle", cl.ID))
		cl.ID = 0
	}
	if k := t.kind(known); k != nil {
		cl.Kind = k.Name
		t.title = "[[class]] of kind " + k.Name
		if k.Flags&qdisc.HasClasses == 0 {
			hint := "Choose a kind that has."
			if k.Flags&qdisc.IsClassful != 0 {
				hint = "Remove this table; the classes are there with the qdisc, and their parameters are its own."
			}
			t.fail("kind", problemf(hint, "the kind %q has no classes that are made one by one", k.Name))
		} else {
			cl.Values = t.params(k.ClassParams)
			t.close()
			if k.CheckClass != nil {
				if err := k.CheckClass(cl.Values); err != nil {
					t.refused(k.ClassParams, err)
				}
			}
		}
	}
	c.Classes = append(c.Classes, cl)
}

func (d *decoder) readFilter(t *table, c *Config) {
	f := FilterSpec{Pos: t.pos(), Dev: t.dev()}
	f.Parent, _ = t.id("parent", "1:2")
	if _, there := t.m["parent"]; !there {
		t.missing("parent", `"1:"`)
	}
	f.Match = t.match()
	f.Prio = t.integer("prio", 0, 1, math.MaxUint16)
	f.Drop = t.boolean("drop")
	f.Class, _ = t.id("class", "1:2")
	_, there := t.m["class"]
	switch {
	case there && f.Drop:
		t.fail("class", problemf("Remove one of the two.", "what is dropped has no class"))
	case !there && !f.Drop:
		d.fail(t.pos(), t.path, "", problemf(`Add class = "1:2", or drop = true.`, "the filter does not say what to do"))
	case f.Class != 0 && f.Class.Minor() == 0:
		t.fail("class", problemf(fmt.Sprintf("Name a class, for example \"%s1\".", f.Class), "%q is a qdisc's handle", f.Class))
		f.Class = 0
	}
	t.close()
	c.Filters = append(c.Filters, f)
}

// match reads one match, or a list of which one has to hold.
func (t *table) match() *classify.Match {
	const ex = `"dscp ef"`
	v, ok := t.get("match")
	if !ok {
		t.missing("match", ex)
		return nil
	}
	path := child(t.path, "match")
	var texts, paths []string
	switch v := v.(type) {
	case string:
		texts, paths = []string{v}, []string{path}
	case []any:
		for i, e := range v {
			s, ok := e.(string)
			if !ok {
				t.d.fail(t.d.valuePos(element(path, i)), element(path, i), "", problemf("Write it as "+ex+".", "a match is a text, not %s", describe(e)))
				continue
			}
			texts, paths = append(texts, s), append(paths, element(path, i))
		}
	}
	if len(texts) == 0 {
		t.fail("match", problemf("Write it as "+ex+".", "a match is a text or a list of texts, not %s", describe(v)))
		return nil
	}
	var m *classify.Match
	all := make([]string, len(texts))
	for i, s := range texts {
		one, err := classify.ParseMatch(s)
		var syntax *classify.SyntaxError
		if errors.As(err, &syntax) {
			t.d.fail(t.d.inside(paths[i], s, syntax.Offset), paths[i], syntax.Word, &problem{msg: syntax.Msg, hint: syntax.Hint})
			return nil
		}
		m, all[i] = one, "("+s+")"
	}
	if len(texts) > 1 {
		var err error
		if m, err = classify.ParseMatch(strings.Join(all, " or ")); err != nil {
			t.fail("match", problemf("Split it into several filters.", "%v", err))
		}
	}
	return m
}

// inside returns the place of a byte of a text, if the text stands in the file
// as it is; else where it begins.
func (d *decoder) inside(path, text string, off int) Pos {
	at := d.place(path).value
	if strings.HasPrefix(d.src[min(at+1, len(d.src)):], text) {
		return d.line.pos(at + 1 + off)
	}
	return d.line.pos(at)
}
