//go:build !linux

// Admin path.

package worker

import (
	"context"
	"errors"
)

func newWakeFD() (int, error) { return -1, nil }

func (w *Worker) wake() {}

// Run needs Linux; Turn does not.
func (w *Worker) Run(context.Context) error {
	return errors.New("raw NIC queues need Linux")
}

// Close does nothing here.
func (w *Worker) Close() error { return nil }
