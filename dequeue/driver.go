// Packet path.

package dequeue

import (
	"time"

	"sluice/qdisc"
)

// Driver is one transmit queue of a device, as [Txq] sees it. All methods are
// called by the worker that owns the queue. The doorbell policy is not here: it
// lives once, in Txq.
type Driver interface {
	// Room returns how many more packets Post is sure to take. It is asked once
	// a turn, after Reap, and again when so many have been posted and rung for.
	Room() int

	// Post puts p on the ring, invisible to the device until Kick. When it
	// returns true the driver owns p, and frees it when the device is done with
	// the frame (or at once, when it copied it). When it returns false it
	// refused (NETDEV_TX_BUSY): p is still the caller's and nothing changed.
	Post(p *qdisc.Packet) bool

	// Kick rings the doorbell: all that was posted becomes visible. Txq repeats
	// one that reached the device in part or not at all.
	Kick(now time.Duration) Kick

	// Reap collects what the device completed since the last call: packets, and
	// the bytes they were posted with (the sum of their Len, whatever the device
	// padded). Packets that the device lost count here too, and in Lost.
	Reap(now time.Duration) (packets, bytes int)

	// Lost returns the packets that were posted and then lost by the device,
	// since the queue was opened.
	Lost() uint64

	// Completions says what Reap's news mean, which decides about BQL.
	Completions() Completions

	// Down reports that the device is gone or has no carrier. Packets stay
	// queued, or are shed by policy; nothing is posted.
	Down() bool
}

// Kick is the outcome of a doorbell.
type Kick uint8

const (
	KickAll     Kick = iota // the device took everything
	KickAgain               // it took a part; ring again
	KickStopped             // it has stopped its queue: driver XOFF until Reap shows progress or time passes
	KickDown                // the device is gone or down
)

// Completions says who completes a posted packet.
type Completions uint8

const (
	// CompleteNone: nobody says. The txq runs without BQL, bounded by Room.
	CompleteNone Completions = iota
	// CompleteDevice: the device finished sending.
	CompleteDevice
	// CompletePeer: whoever is at the other end of a software device took it.
	CompletePeer
)
