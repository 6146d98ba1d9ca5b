// Package kernel is the appliance's side of the kernel: what must be arranged by
// netlink, ethtool and bpf before and around raw sockets.
//
//   - [Prepare] makes an interface fit to be a port, and [Prepared.Restore] puts
//     everything back.
//   - [Claim] keeps two services from working one interface.
//   - [Links], [LinkByName] and [Watch] say what interfaces there are and what
//     becomes of them.
//   - [Qdiscs] and [Classes] read the kernel's own tc objects of an interface,
//     [TC] changes them.
//
// Everything here works in the network namespace of the calling thread, and
// keeps to the one it was opened in. All of it is admin path.
//
// Three netlink libraries divide the work. vishvananda/netlink does links. go-tc
// writes tc objects. Dumps of tc objects and the monitor use mdlayher/netlink
// directly: go-tc fails a whole dump over one unknown kind and misreads
// TCA_STATS2, and vishvananda's monitor ends at the first overrun.
package kernel
