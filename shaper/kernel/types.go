package kernel

import "fmt"

// Link is one network interface as the kernel describes it.
type Link struct {
	Index        int
	Name         string
	Kind         string // "device" (a NIC), "veth", "bridge", "tuntap", …
	MTU          int    // bytes, without the link header
	HardwareAddr string
	TxQueues     int
	RxQueues     int
	TxQLen       int    // packets, of the default qdisc
	Qdisc        string // kind of the root qdisc
	Up           bool   // set up by the administrator
	Carrier      bool   // and something is at the other end
	Promisc      bool   // by request of the administrator
	Speed        uint64 // bits a second, 0 when the device doesn't say
}

// LinkEvent says what became of an interface. Link is as much of its state as
// the kernel's notice holds: Index, Name, MTU, Up and Carrier.
type LinkEvent struct {
	Kind    LinkEventKind
	Link    Link
	OldName string // of a LinkRenamed
}

// LinkEventKind is the kind of a [LinkEvent].
type LinkEventKind uint8

const (
	_           LinkEventKind = iota
	LinkAdded                 // it appeared
	LinkUp                    // it is set up and has carrier, and had not before
	LinkDown                  // the opposite
	LinkRenamed               // it has a new name
	LinkChanged               // its MTU changed
	LinkRemoved               // it is gone, or in another namespace

	// LinkResync comes after the kernel dropped notices because we were slow.
	// Its Link is empty. The state was read again: the events that follow are
	// the differences, so that nothing but short-lived changes was missed.
	LinkResync
)

var linkEventKinds = [...]string{"", "added", "up", "down", "renamed", "changed", "removed", "resync"}

func (k LinkEventKind) String() string {
	if int(k) < len(linkEventKinds) {
		return linkEventKinds[k]
	}
	return fmt.Sprintf("LinkEventKind(%d)", k)
}

// Object is one of the kernel's tc objects, a qdisc or a class. Options are as
// the kernel sent them, so that an unknown kind is no obstacle.
type Object struct {
	Ifindex int
	Handle  uint32 // major in the upper 16 bits
	Parent  uint32 // HandleRoot for a root qdisc
	Leaf    uint32 // of a class: handle of its qdisc, or 0. Of a qdisc: its reference count
	Kind    string
	Options []byte // TCA_OPTIONS
	XStats  []byte // the kind's own statistics
	Stats   Stats
}

// Stats are a tc object's counters.
type Stats struct {
	Bytes, Packets uint64
	Qlen           uint32 // packets
	Backlog        uint32 // bytes
	Drops          uint32
	Requeues       uint32
	Overlimits     uint32
}

// Handles that the kernel gives a meaning.
const (
	HandleRoot    uint32 = 0xffffffff
	HandleIngress uint32 = 0xfffffff1
)

// Options say what [Prepare] leaves alone. The zero value prepares a port that
// receives and sends.
type Options struct {
	KeepOffloads   bool // no offloads at all
	KeepTxOffloads bool // of transmit offloads: when no traffic of this host's own comes back to us through the device
	KeepQdisc      bool // noqueue, when the port only receives
	KeepPromisc    bool // when frames to other addresses are of no interest
	KeepIngress    bool // the kernel also gets the frames that we receive
}

// Where says where a qdisc or class is: Parent is HandleRoot for a root qdisc,
// else a class.
type Where struct {
	Ifindex int
	Parent  uint32
	Handle  uint32 // 0: the kernel chooses
}

// Pfifo is the kernel's pfifo.
type Pfifo struct {
	Limit int // packets
}

// Tbf is the kernel's tbf.
type Tbf struct {
	Rate  uint64 // bytes a second, below 4 GB
	Burst uint32 // bytes
	Limit uint32 // bytes that may wait
}

// Htb is the kernel's htb.
type Htb struct {
	Default uint32 // minor of the class for what no filter takes; 0: sent unshaped
}

// HtbClass is a class of an htb.
type HtbClass struct {
	Rate, Ceil    uint64 // bytes a second, below 4 GB; Ceil 0 means Rate
	Burst, Cburst uint32 // bytes
	Quantum       uint32 // bytes; 0: the kernel computes it from Rate
	Prio          uint32
}
