// Package appliance tests the whole appliance as its user meets it: the real
// sluiced and sluice, built once, at work between two hosts. tests/lab makes the
// hosts and the wires and is a tool for anybody; this room is what the tool is
// used for: what the service promises is shown on packets of a real kernel.
//
// Each test prints its figures; go test -v shows them. What depends on how busy
// the machine is, is printed and only loosely asserted. SLUICE_LONG=1 asks for
// the runs that take longer (make test-long sets it).
package appliance
