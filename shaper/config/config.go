// Package config turns a TOML file into a checked Config.
//
// It takes bytes and a name, so that a policy may come from elsewhere than a
// file. Nothing is clamped or guessed: every value has its unit, every key is
// known, what refers to something refers to something that exists. All mistakes
// of a file are reported in one go, each with its place, the cause and the way
// out ([Errors]).
//
// The shape follows tc: [[qdisc]], [[class]] and [[filter]] tables, whose keys
// come from the tables of the kinds, beside [engine], [control] and one
// [link.NAME] per link. etc/sluice.toml is a commented example.
package config

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/kinds"
	"sluice/shaper/classify"
)

// Version is the one the file has to name.
const Version = 1

// Config is everything a file says, with the defaults filled in.
type Config struct {
	Engine  Engine
	Control Control
	Links   []Link       // in file order, as the two below
	Qdiscs  []QdiscSpec  // a parent may come after its child
	Classes []ClassSpec  // likewise
	Filters []FilterSpec // in the order they are tried: by prio, those without last, then in file order
}

// Engine is how the workers and the transmit side run.
type Engine struct {
	Weight          int           // packets a runner may send per pass (dev_tx_weight)
	Quota           string        // how they are counted: packets, budget, restarts
	Doorbell        string        // when it is rung: turn, list, packet
	TxFlushInterval time.Duration // how long it may be held beyond that
	BusyPoll        time.Duration // how long to poll after the last packet before sleeping
	RxCoalesce      time.Duration // the longest pause after a wake-up by a frame
	Packets         int           // slots of a worker's pool
	FrameSize       int           // bytes of a slot
	CPU             int           // that a worker is pinned to; -1: none
	Priority        string        // what a packet's priority is derived from: dscp, none
}

// DefaultSocket is the control socket of a file that names none, and where the
// sluice command looks for one.
const DefaultSocket = "/run/sluice/control.sock"

// Control is the control socket.
type Control struct {
	Socket string // path
	Group  string // that may connect beside root; empty: none
}

// Link is two ports: what arrives at one leaves by the other.
type Link struct {
	Name            string
	Inside, Outside Port
	Queues          int    // queue pairs of a port; 0: as many as the device has
	TxQueueLen      int    // packets, the default limit of queues (tx_queue_len)
	BQLMin, BQLMax  uint64 // bounds of the byte queue limit; BQLMax 0: none
	Mem             Mem    // of a link between memory ports
	Pos             Pos
}

// Port is one end of a link.
type Port struct {
	Dev    string // interface, or the name of a port that has none
	Driver string // auto, afpacket, tap, mem, pcap
	Read   string // pcap: the capture to replay; empty: nothing arrives
	Write  string // pcap: the capture to write; empty: frames are dropped
	Pos    Pos    // of the key that names it
}

// Mem is the wire behind a memory port.
type Mem struct {
	Rate    uint64        // bytes per second; 0: serialisation takes no time
	Latency time.Duration // from one end to the other
	Ring    int           // descriptors of a transmit queue
}

// QdiscSpec is one [[qdisc]].
type QdiscSpec struct {
	Dev    string
	Root   bool
	Parent qdisc.ClassID // 0 when Root
	Handle qdisc.ClassID // 0: none given
	Kind   string
	Values qdisc.Values
	Pos    Pos
}

// ClassSpec is one [[class]].
type ClassSpec struct {
	Dev    string
	Parent qdisc.ClassID
	ID     qdisc.ClassID
	Kind   string
	Values qdisc.Values
	Pos    Pos
}

// FilterSpec is one [[filter]].
type FilterSpec struct {
	Dev    string
	Parent qdisc.ClassID // the qdisc or class it is attached to
	Prio   int           // 0: none given
	Match  *classify.Match
	Class  qdisc.ClassID // 0 when Drop
	Drop   bool
	Pos    Pos
}

// Pos is a place in the file. Both count from 1, columns in bytes.
type Pos struct{ Line, Col int }

// Options say what a configuration may refer to.
type Options struct {
	Kinds []*qdisc.Kind // the disciplines there are; nil: all of qdisc/kinds
}

// Load reads and checks a file.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, Errors{{File: path, Msg: "the file cannot be read: " + reason(err),
			Hint: "Name a file that exists and may be read.", err: err}}
	}
	return Parse(path, data)
}

// Parse checks a configuration; name stands for the file in errors. The error is
// of type [Errors].
func Parse(name string, data []byte) (*Config, error) {
	return Options{}.Parse(name, data)
}

// Parse is the package's Parse with options.
func (o Options) Parse(name string, data []byte) (*Config, error) {
	if o.Kinds == nil {
		o.Kinds = kinds.All()
	}
	d, err := decode(name, data)
	if err != nil {
		return nil, err
	}
	c := &Config{}
	d.read(c, o.Kinds)
	d.check(c)
	if len(d.errs) > 0 {
		slices.SortStableFunc(d.errs, func(a, b *Error) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
		})
		return nil, d.errs
	}
	slices.SortStableFunc(c.Filters, func(a, b FilterSpec) int { return cmp.Compare(rank(a), rank(b)) })
	return c, nil
}

func rank(f FilterSpec) int {
	if f.Prio == 0 {
		return 1 << 16
	}
	return f.Prio
}

// Equal says whether two configurations mean the same, wherever in the file
// they say it. The order of tables of one sort counts.
func (c *Config) Equal(d *Config) bool {
	return c.Engine == d.Engine && c.Control == d.Control &&
		slices.EqualFunc(c.Links, d.Links, func(a, b Link) bool {
			a.Pos, a.Inside.Pos, a.Outside.Pos = b.Pos, b.Inside.Pos, b.Outside.Pos
			return a == b
		}) &&
		slices.EqualFunc(c.Qdiscs, d.Qdiscs, func(a, b QdiscSpec) bool {
			return a.Dev == b.Dev && a.Root == b.Root && a.Parent == b.Parent && a.Handle == b.Handle &&
				a.Kind == b.Kind && sameValues(a.Values, b.Values)
		}) &&
		slices.EqualFunc(c.Classes, d.Classes, func(a, b ClassSpec) bool {
			return a.Dev == b.Dev && a.Parent == b.Parent && a.ID == b.ID && a.Kind == b.Kind && sameValues(a.Values, b.Values)
		}) &&
		slices.EqualFunc(c.Filters, d.Filters, func(a, b FilterSpec) bool {
			match := a.Match.Equal(b.Match)
			a.Pos, a.Match = b.Pos, b.Match
			return match && a == b
		})
}

func sameValues(a, b qdisc.Values) bool {
	return maps.EqualFunc(a, b, func(a, b qdisc.Value) bool {
		return a.N == b.N && a.Word == b.Word && slices.Equal(a.List, b.List)
	})
}

func (p Pos) String() string { return fmt.Sprintf("%d:%d", p.Line, p.Col) }
