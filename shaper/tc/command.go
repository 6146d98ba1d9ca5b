// Package tc is tc's grammar, units, text and JSON, made from the tables of the
// kinds (qdisc.Kind). It follows iproute2 7: the same words are understood, the
// same bytes are printed, blanks at line ends included, and the same refusals
// come with the same exit codes.
//
// It neither talks to a kernel nor to an engine: Parse makes a [Command] of a
// command line, somebody else carries it out, and WriteQdiscs and WriteClasses
// print snapshots of a tree.
package tc

import (
	"fmt"
	"strings"
	"syscall"

	"sluice/qdisc"
	"sluice/shaper/tree"
)

// Command is a command line that was understood.
type Command struct {
	Object  string // "qdisc", "class" or "filter", in full
	Verb    string // "add", "change", "replace", "link", "del" or "show"
	Dev     string // port; empty for all, with show only
	Request tree.Request
	Show    Show
	Filter  Filter
	Options Options
}

// Options are tc's global options.
type Options struct {
	Stats, Details, Raw bool // -s -d -r
	JSON, Pretty        bool // -j -p
	IEC                 bool // -iec
	Graph               bool // -g
	Oneline             bool // -o
	Brief               bool // -br
	Numeric             bool // -N
	Names               bool // -nm
	Timestamp           bool // -t
	Color               bool // -color
	Echo                bool // -echo
	Version             bool // -V: print the version, nothing else was parsed
	Force               bool // -force
	Batch               string
	Netns               string
}

// Show says which of the qdiscs or classes to show; zero fields don't restrict.
type Show struct {
	Parent    qdisc.ClassID // tree.Root for "root"
	Handle    qdisc.ClassID // of a qdisc, or qdisc of a class
	ClassID   qdisc.ClassID
	Invisible bool
}

// Filter is the part of a filter command that is understood so far: where it
// hangs, its kind, and its words. Matching is not there yet, see [NotYet].
type Filter struct {
	Protocol string
	Pref     uint32
	Chain    uint32
	Handle   string
	Words    []string // options of the kind
}

// NotYet refuses a filter command that was understood and cannot be carried out.
func NotYet(c *Command) *Error {
	if kind := c.Request.Kind; kind != "" {
		return &Error{Msg: fmt.Sprintf(`Error: filter kind "%s" is not supported yet.`, kind), Code: ExitKernel}
	}
	return &Error{Msg: "Error: filters are not supported yet.", Code: ExitKernel}
}

// Parse understands a command line, without the program's name. The error is an
// [*Error]; asking for help is one, too, with code 0.
func Parse(args []string, lookup func(kind string) *qdisc.Kind) (*Command, error) {
	return Parser{Lookup: lookup}.Parse(args)
}

// Parser is Parse for callers that know more than kinds.
type Parser struct {
	Lookup func(kind string) *qdisc.Kind

	// Speed returns the speed of a port in bytes per second, for rates in
	// percent. Without it they are refused.
	Speed func(dev string) (uint64, error)
}

// parse is the state of understanding one command line.
type parse struct {
	Parser
	args []string
	c    *Command
}

// Parse understands a command line; see the function of this name.
func (p Parser) Parse(args []string) (*Command, error) {
	s := &parse{Parser: p, args: args, c: &Command{}}
	if err := s.options(); err != nil {
		return nil, err
	}
	if s.c.Options.Version || s.c.Options.Batch != "" {
		return s.c, nil
	}
	if len(s.args) == 0 {
		return nil, &Error{Usage: usageTC}
	}
	word := s.next()
	object := match(word, "qdisc", "class", "filter", "chain", "actions", "monitor", "exec", "help")
	var err error
	switch object {
	case "qdisc":
		err = s.object(object, usageQdisc, []string{"add", "change", "replace", "link", "delete", "show", "list", "lst", "help"})
	case "class":
		err = s.object(object, usageClass, []string{"add", "change", "replace", "delete", "show", "list", "lst", "help"})
	case "filter":
		err = s.object(object, usageFilter, []string{"add", "change", "replace", "delete", "get", "show", "list", "lst", "help"})
	case "help":
		err = &Error{Usage: usageTC}
	case "":
		err = &Error{Msg: fmt.Sprintf(`Object "%s" is unknown, try "tc help".`, word), Code: ExitUsage}
	default:
		err = &Error{Msg: fmt.Sprintf(`Object "%s" is not supported here: qdisc, class and filter are.`, object), Code: ExitUsage}
	}
	if err != nil {
		return nil, err
	}
	return s.c, nil
}

// next takes the next word, which must be there.
func (s *parse) next() string {
	w := s.args[0]
	s.args = s.args[1:]
	return w
}

// value takes the word behind a keyword.
func (s *parse) value() (string, error) {
	if len(s.args) == 0 {
		return "", incomplete()
	}
	return s.next(), nil
}

// match returns the first of names that word is a prefix of.
func match(word string, names ...string) string {
	for _, n := range names {
		if word != "" && strings.HasPrefix(n, word) {
			return n
		}
	}
	return ""
}

// options takes the global options in front of the object.
func (s *parse) options() error {
	o := &s.c.Options
	flags := []struct {
		name string
		set  *bool
	}{
		{"-statistics", &o.Stats}, {"-stats", &o.Stats}, {"-details", &o.Details}, {"-raw", &o.Raw},
		{"-pretty", &o.Pretty}, {"-graph", &o.Graph}, {"-iec", &o.IEC}, {"-json", &o.JSON},
		{"-oneline", &o.Oneline}, {"-timestamp", &o.Timestamp}, {"-tshort", &o.Timestamp},
		{"-Numeric", &o.Numeric}, {"-names", &o.Names}, {"-nm", &o.Names}, {"-color", &o.Color},
		{"-force", &o.Force}, {"-Version", &o.Version}, {"-brief", &o.Brief}, {"-echo", &o.Echo},
	}
	values := []struct {
		name, what string
		set        *string
	}{
		{"-batch", "batch file", &o.Batch}, {"-netns", "network namespace", &o.Netns},
	}
next:
	for len(s.args) > 0 && strings.HasPrefix(s.args[0], "-") {
		word := s.next()
		if word == "-h" || match(word, "-help") != "" && len(word) > 1 {
			return &Error{Usage: usageTC}
		}
		for _, v := range values { // before the flags: "-b" is batch, not brief
			if len(word) > 1 && strings.HasPrefix(v.name, word) {
				if len(s.args) == 0 {
					return &Error{Msg: fmt.Sprintf(`Error: argument "%s" is required`, v.what), Code: ExitUsage}
				}
				*v.set = s.next()
				continue next
			}
		}
		for _, f := range flags {
			if len(word) > 1 && strings.HasPrefix(f.name, word) {
				*f.set = true
				continue next
			}
		}
		return &Error{Msg: fmt.Sprintf(`Option "%s" is unknown, try "tc -help".`, word), Code: ExitUsage}
	}
	return nil
}

// object takes the command of an object and what follows.
func (s *parse) object(object, usage string, verbs []string) error {
	s.c.Object = object
	verb := "show"
	if len(s.args) > 0 {
		word := s.next()
		switch verb = match(word, verbs...); verb {
		case "":
			return &Error{Msg: fmt.Sprintf(`Command "%s" is unknown, try "tc %s help".`, word, object), Code: ExitUsage}
		case "help":
			return &Error{Usage: usage}
		case "list", "lst":
			verb = "show"
		case "delete":
			verb = "del"
		}
	}
	s.c.Verb = verb
	s.c.Request.Op = map[string]tree.Op{
		"add": tree.Add, "change": tree.Change, "replace": tree.Replace, "link": tree.Link, "del": tree.Delete,
	}[verb]
	switch {
	case object == "filter":
		return s.filter()
	case verb == "show":
		return s.show()
	}
	if err := s.edit(usage); err != nil {
		return err
	}
	if s.c.Dev == "" {
		return &Error{Msg: "RTNETLINK answers: " + strerror(syscall.ENODEV), Code: ExitKernel}
	}
	return nil
}

// show takes the restrictions of a show command.
func (s *parse) show() error {
	class := s.c.Object == "class"
	for len(s.args) > 0 {
		word := s.next()
		if word == "help" {
			return &Error{Usage: map[bool]string{true: usageClass, false: usageQdisc}[class]}
		}
		if word == "root" || !class && word == "invisible" {
			if word == "root" {
				s.c.Show.Parent = tree.Root
			} else {
				s.c.Show.Invisible = true
			}
			continue
		}
		if !class && (word == "ingress" || word == "clsact") {
			s.c.Show.Parent = tree.Ingress
			continue
		}
		var set func(string) error
		switch {
		case word == "dev":
			set = func(v string) error { s.c.Dev = v; return nil }
		case word == "parent":
			set = s.classID(&s.c.Show.Parent, "invalid parent ID")
		case word == "handle" && !class:
			set = s.handle(&s.c.Show.Handle, "invalid qdisc ID")
		case word == "qdisc" && class:
			set = s.handle(&s.c.Show.Handle, "invalid qdisc ID")
		case (word == "classid" || word == "handle") && class:
			set = s.classID(&s.c.Show.ClassID, "invalid class ID")
		default:
			return &Error{Msg: fmt.Sprintf(`What is "%s"? Try "tc %s help".`, word, s.c.Object), Code: ExitUsage}
		}
		v, err := s.value()
		if err == nil {
			err = set(v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *parse) classID(to *qdisc.ClassID, why string) func(string) error {
	return func(v string) (err error) {
		if *to, err = ParseClassID(v); err != nil {
			return wrongArg(v, why)
		}
		return nil
	}
}

func (s *parse) handle(to *qdisc.ClassID, why string) func(string) error {
	return func(v string) (err error) {
		if *to, err = ParseHandle(v); err != nil {
			return wrongArg(v, why)
		}
		return nil
	}
}
