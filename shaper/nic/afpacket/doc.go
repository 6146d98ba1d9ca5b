// Package afpacket is a port over AF_PACKET sockets with memory mapped rings: it
// works on every Ethernet device, as root or with CAP_NET_RAW, and the kernel is
// not bypassed but shared (packet(7), Documentation/networking/packet_mmap.rst).
//
// A receive queue is a socket with a TPACKET_V2 ring; version 3 hands over
// blocks, whose timer costs up to a millisecond a hop. Several receive queues
// share a fanout group, which keeps a flow on one of them. A transmit queue is a
// socket of its own with a TPACKET_V2 ring. Which hardware queue a frame leaves by
// is the kernel's choice (XPS by processor, else the flow's hash): the sockets
// can't say.
//
// Both directions copy once in user space: frames live in the worker's pool,
// ring slots are the kernel's. In transmit the kernel copies a second time, at
// the doorbell, because it is told that the whole frame is header. An sk_buff
// that points into the ring would be linearised for a device without
// scatter-gather, and copied when a veth's peer clones or keeps it; before Linux
// 4.20 it was not, and a late receiver read the bytes of a later frame.
//
// Sending goes past the device's own qdisc (PACKET_QDISC_BYPASS): shaping was
// done here. The device should have a qdisc all the same. A veth without one
// drops what its full peer can't take, where one with a qdisc stops; the ring
// offers a dropped frame again, but the device counts a drop each time, and
// kernels in which veth doesn't report it lose the frame. [sluice/shaper/kernel]
// arranges the qdisc, and closes the kernel's own ingress.
//
// A frame that the device never takes, because a veth's peer has a smaller MTU,
// would stand at the head of the ring for ever. It is given up after 5 ms in
// which the device counted drops, and counted as lost; so are, for a second, all
// as long, once the device has taken shorter ones. One that takes none is full,
// as a TAP whose reader pauses, and stops the queue.
package afpacket

// Options say how to open a port.
type Options struct {
	Interface string
	Queues    int // receive and transmit queues; 0 means 1
	RxFrames  int // slots of a receive ring; 0 means 2048
	TxFrames  int // slots of a transmit ring; 0 means 1024

	// FrameSize is the size of a slot, frame and kernel header; 0 means the
	// smallest power of two that holds what the MTU allows.
	FrameSize int

	// PoolFrame is what a frame of the pool holds behind its headroom
	// ([qdisc.Pool.FrameSize] less Headroom). A device whose MTU exceeds it is
	// refused. 0: not checked, longer frames are counted as errors.
	PoolFrame int
}
