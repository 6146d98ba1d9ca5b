//go:build !linux

package afpacket

import (
	"errors"

	"sluice/shaper/nic"
)

// Open fails: packet sockets are Linux's.
func Open(o Options) (nic.Port, error) {
	return nil, errors.New(o.Interface + ": packet sockets exist on Linux only")
}
