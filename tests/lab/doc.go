// Package lab makes network namespaces and wires them up, for integration tests
// and for the demo: a host is a namespace, a wire is a veth pair.
//
//	l := lab.ForTest(t)
//	a, _ := l.Host("client")
//	b, _ := l.Host("server")
//	l.Wire(a, "eth0", b, "eth0", lab.Wire{})
//	a.Addr("eth0", "10.0.0.1/24")
//	b.Addr("eth0", "10.0.0.2/24")
//	rtt, err := a.Ping(ctx, "10.0.0.2")
//
// A wire says nothing by itself: IPv6 is off in a new host until [Host.Addr6]
// asks for it, so that a test which counts frames counts its own. Offloads are
// off at both ends, because frames of local sockets otherwise carry half-made
// checksums and come as 64 KB super-packets; and both ends have a real qdisc,
// because a veth without one drops what its full peer cannot take, where one
// with a qdisc stops.
//
// Namespaces have no name in the file system: they exist as long as the Lab, a
// process started in them, or this process does, so nothing is left behind by a
// test that was killed. [Host.Path] is for nsenter(1).
//
// Besides hosts and wires there is what experiments need: raw senders and
// receivers with the kernel's timestamps, UDP round trips, bulk UDP and TCP.
package lab

import "errors"

// ErrNotAvailable is wrapped by the error of [Available] and [New] when this
// process may not make network namespaces.
var ErrNotAvailable = errors.New("network namespaces are not available")
