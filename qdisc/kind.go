// Admin path.

package qdisc

import (
	"fmt"
	"strings"
	"syscall"
)

// Kind is a discipline's table (struct Qdisc_ops): everything that the outside
// has to know of it. tc's grammar, its text and JSON, the TOML keys, help and
// completion are all made from this one table.
type Kind struct {
	Name  string // as tc knows it
	Doc   string // one sentence
	Usage string // tc's usage line for the kind

	Params      []Param // in the order tc prints them
	ClassParams []Param // parameters of its classes
	XStats      []Param // extra statistics of the qdisc, in the order -s prints them
	ClassXStats []Param // extra statistics of a class

	Flags KindFlags

	// IllegalFormat words the refusal of a value: keyword, then text.
	// UnknownFormat that of a word it does not know. Empty: tc's common
	// `Illegal "keyword"` and `What is "word"?`.
	IllegalFormat, UnknownFormat string

	IllegalUsage bool // tc prints the usage behind the refusal of a value

	// Check is what tc itself refuses before it asks the kernel: text for a
	// person ([Misuse] when tc adds the usage), nil when the values are
	// acceptable. It may fill in values that follow from others (tbf's limit
	// from latency).
	Check func(v Values) error

	// CheckClass is the same for the parameters of a class.
	CheckClass func(v Values) error

	// New makes one, with the kernel's checks: errors are *Error.
	New func(env Env, v Values) (Qdisc, error)
}

// KindFlags are the yes-or-no facts about a kind.
type KindFlags uint16

const (
	IsClassful   KindFlags = 1 << iota // can have children
	HasClasses                         // its classes are made by the administrator (ClassEditor)
	NoChange                           // has no change operation for the qdisc itself
	NoQueue                            // stands for the absence of a queue: no statistics of its own
	NoClassStats                       // its classes have no statistics (no dump_stats)
	NoClassSent                        // its classes have statistics, but not of what they sent
)

// Env is what a constructor may know of the place it builds for.
type Env struct {
	Handle     uint32 // major number the qdisc gets
	TxQueueLen int    // the port's tx_queue_len, packets
	MTU        int    // the port's MTU, bytes, without the link header
	HeaderLen  int    // link header, 14
	TxQueues   int    // the port's transmit queues; 0 stands for 1

	// Stopped says whether a transmit queue takes nothing for now; nil: none is
	// ever stopped. For the packet path.
	Stopped func(queue int) bool

	// Pfifo and Bfifo make the default children of classful kinds; a discipline
	// never imports another. Limits in packets and bytes.
	Pfifo func(limit int) Qdisc
	Bfifo func(limit int) Qdisc
}

// Param is one parameter, statistic or keyword of a kind.
type Param struct {
	Name    string   // tc's keyword, and the key in Values and TOML
	Aliases []string // other keywords tc takes for it
	JSON    string   // key in JSON; empty: Name
	Unit    Unit
	Default string // as help shows it
	Doc     string // one sentence, for help
	Show    Show

	// Text is the parameter's part of tc's text, with %s for the value as its
	// unit prints it, or %d for the plain number, with a width if need be ("%8d");
	// the line is these parts one
	// after the other, so blanks are part of them. Empty: "NAME %s ", of a Flag
	// "NAME ", which is tc's habit.
	Text string

	// Bare says that a member of a group is given without a keyword: behind the
	// one before it, the first of them always, the others when the next word is
	// a number.
	Bare bool

	// Apply, of a Flag, is what giving it does to the values, when that is more
	// than to be there: a word for values of other parameters, or one of several
	// words of which the last one given holds.
	Apply func(v Values)

	Columns []Param // of a Table: the members of its rows, whose Text is the label
}

// Key returns the JSON key.
func (p *Param) Key() string {
	if p.JSON != "" {
		return p.JSON
	}
	return p.Name[strings.IndexByte(p.Name, '.')+1:]
}

// Group returns the name of the group that the parameter is a member of, "" when
// it stands for itself.
func (p *Param) Group() string {
	group, _, is := strings.Cut(p.Name, ".")
	if !is {
		return ""
	}
	return group
}

// Taken says whether the parameter can be given. One whose name has a slash in it
// ("burst/cell") is another way to print the parameter of that name.
func (p *Param) Taken() bool {
	return p.Show != Output && p.Show != Counter && !strings.Contains(p.Name, "/")
}

// Unit says how a value is written, stored and printed.
type Unit uint8

const (
	_        Unit = iota
	Number        // plain number
	Packets       // stored in packets, printed "1000p"
	Size          // stored in bytes, printed "10Kb"
	Rate          // stored in bytes per second, printed "8Mbit"
	Time          // stored in nanoseconds, printed "50ms"; a statistic may be negative, as an int64's bits
	Flag          // a word without a value
	Numbers       // a list of numbers up to the next word
	Word          // one of a few words
	Sizes         // a list of sizes up to the next word
	Hex           // a number in hexadecimal, printed "0x10", in JSON as a string
	Time64        // stored in nanoseconds and taken to the nanosecond, printed "50ms", in JSON in seconds
	Percent       // stored as 32 bits of fraction, printed "25%", in JSON as a fraction
	Signed        // a number that may be negative, stored as an int64's bits
	Number64      // a number of 64 bits
	Float         // stored as a float64's bits, printed to six digits
	Null          // nothing, shown in JSON only, as null
	Table         // rows, printed side by side under each other's labels, in JSON a list of objects

	// Group is a keyword, without a value of its own, of the parameters that
	// follow it in the table and are named "KEYWORD.x". In tc's grammar they
	// follow the keyword, in JSON and TOML they are an object of that name. A
	// keyword of two words is an alias with a blank in it ("loss state").
	Group
)

// Show says when a parameter is printed.
type Show uint8

const (
	Always   Show = iota // whenever Dump gives it
	TextOnly             // not in JSON
	JSONOnly             // not in text
	Details              // only with -d
	Input                // never: it is taken, and shown in another form
	Output               // printed, and never taken
	Brief                // only without -d, where another one takes its place
	Nonzero              // in text only when it is not 0
	Counter              // printed with -s only, and never taken
)

// Value is one value of a parameter, in the unit's stored form.
type Value struct {
	N    uint64   `json:"n,omitempty"`
	List []uint64 `json:"list,omitempty"`
	Word string   `json:"word,omitempty"`
	Rows []Values `json:"rows,omitempty"`
}

// Values are parameters by name. A missing name is a parameter not given.
type Values map[string]Value

// Has says whether name was given.
func (v Values) Has(name string) bool { _, ok := v[name]; return ok }

// N returns the value of name, or def when it was not given.
func (v Values) N(name string, def uint64) uint64 {
	if x, ok := v[name]; ok {
		return x.N
	}
	return def
}

// Set stores a plain value and returns v.
func (v Values) Set(name string, n uint64) Values { v[name] = Value{N: n}; return v }

// Misuse is a refusal by [Kind.Check] after which tc prints the kind's usage.
type Misuse string

func (m Misuse) Error() string { return string(m) }

// Error is a refusal in the kernel's words: its extended ack where it gives
// one, else only the errno.
type Error struct {
	Errno syscall.Errno
	Ext   string // without full stop; empty: none
}

func (e *Error) Error() string {
	if e.Ext != "" {
		return e.Ext
	}
	return e.Errno.Error()
}

// Unwrap lets errors.Is compare the errno.
func (e *Error) Unwrap() error { return e.Errno }

// IsWarning says whether err is no refusal but a warning: an extended ack that
// came with success, which is an Error without an errno.
func IsWarning(err error) bool {
	e, ok := err.(*Error)
	return ok && e.Errno == 0
}

// Refuse makes an Error with an extended ack.
func Refuse(errno syscall.Errno, format string, args ...any) error {
	return &Error{errno, fmt.Sprintf(format, args...)}
}
