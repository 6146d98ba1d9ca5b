//go:build !linux

// Admin path.

package tap

import (
	"errors"
	"fmt"

	"sluice/shaper/nic"
)

// Port is an open TAP interface. Linux has them.
type Port struct{ nic.Port }

// Open returns an error: TAP interfaces with offloads are Linux's.
func Open(c Config) (*Port, error) {
	return nil, fmt.Errorf("tap %s: %w outside Linux", c.Name, errors.ErrUnsupported)
}
