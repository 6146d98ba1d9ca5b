// Admin path.

// Package tap is a port to the host's own network stack: a TAP interface whose
// kernel end looks like any network device and whose other end is us.
//
// The kernel hands over frames whose checksums it left to the device, and
// super-packets of up to 64 KiB that it left to the device to cut; a header of
// ten bytes in front of every frame (struct virtio_net_hdr) says so. Both are
// done at receive, as hardware would: everything behind a port is one wire
// frame. Frames towards the kernel are complete.
//
// A TAP costs one system call a frame, each way. Post only remembers, Kick
// writes.
package tap

// Config says which TAP interface to open.
type Config struct {
	// Name of the interface, which is made if there is none; "" lets the kernel
	// choose, and a %d in it be counted up.
	Name string

	// Queues is how many queue pairs to attach, at most 256; default 1. An
	// existing interface must be of the same sort, made with or without
	// multi_queue; with one queue, either fits.
	Queues int

	// MTU is set on the interface; 0 leaves it alone.
	MTU int
}
