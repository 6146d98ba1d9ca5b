// Package nic says what a port is: one network attachment and its raw queues.
// The drivers are packages below this one: afpacket, tap, mem, pcap.
package nic

import (
	"errors"
	"time"

	"sluice/dequeue"
	"sluice/qdisc"
)

// Port is one open network attachment. Opening and closing are admin work; its
// queues belong to workers, one worker each.
type Port interface {
	Name() string   // name of the interface
	Driver() string // "afpacket", "tap", "mem", "pcap"
	MTU() int       // bytes, without the link header
	Rx() []RxQueue
	Tx() []dequeue.Driver
	// Close releases the device. The workers have let go of the queues before;
	// packets still posted are freed by it.
	Close() error
}

// RxQueue is one receive queue.
type RxQueue interface {
	// Receive takes up to max waiting frames, each into a packet of ctx.Pool
	// appended to l with Arrival = ctx.Now, and returns how many. It never
	// blocks. A frame for which the pool has no packet stays in the device's
	// ring if it can; else it is dropped and counted.
	Receive(ctx *qdisc.Context, l *qdisc.List, max int) int

	// FD returns the descriptor to poll for readability, or -1 when there is
	// none.
	FD() int

	// NextAt returns the instant at which a frame will be there without any
	// descriptor saying so (memory ports under a virtual clock, pcap), or
	// qdisc.Never.
	NextAt() time.Duration

	// RxStats returns a copy of the counters. The owning worker only.
	RxStats() RxStats
}

// RxStats are the counters of a receive queue.
type RxStats struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	Drops   uint64 `json:"drops"`  // lost before they reached us, or no packet in the pool
	Errors  uint64 `json:"errors"` // frames refused: longer than a slot, empty
}

// ErrDown is wrapped by errors that mean the device is gone or down.
var ErrDown = errors.New("device is down")
