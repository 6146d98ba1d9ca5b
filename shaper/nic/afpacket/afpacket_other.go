//go:build !linux

package afpacket

import (
	"errors"

	"sluice/shaper/nic"
)

// Port is never made here.
type Port struct{ nic.Port }

// Open fails: packet sockets are Linux's.
func Open(o Options) (*Port, error) {
	return nil, errors.New(o.Interface + ": packet sockets exist on Linux only")
}
