// Admin path.

package worker

import (
	"errors"
	"fmt"

	"sluice/qdisc"
)

// ErrStopped is returned by Do when the worker's thread has ended.
var ErrStopped = errors.New("the worker has stopped")

// command is a function waiting to run between two turns. Commands form a
// stack, newest first; the worker takes it whole and runs it oldest first.
type command struct {
	fn   func(ctx *qdisc.Context)
	done chan error
	next *command
}

// closed marks the mailbox of a worker whose Run has ended.
var closed = new(command)

// Do runs fn on the worker's thread between two turns and returns when it has
// run. fn may touch everything the worker owns; it must not block, and what can
// fail or allocate much belongs before it. Safe for any goroutine but the
// worker's own. A panic in fn is fn's failure, not the worker's.
func (w *Worker) Do(fn func(ctx *qdisc.Context)) error {
	c := &command{fn: fn, done: make(chan error, 1)}
	for {
		c.next = w.mail.Load()
		if c.next == closed {
			return ErrStopped
		}
		if w.mail.CompareAndSwap(c.next, c) {
			break
		}
	}
	w.wake()
	return <-c.done
}

// runCommands runs what Do left in the mailbox.
func (w *Worker) runCommands() { w.serve(w.mail.Swap(nil)) }

func (w *Worker) serve(stack *command) {
	var first *command
	for c := stack; c != nil && c != closed; {
		c.next, first, c = first, c, c.next
	}
	w.ctx.Now = w.clock.Now()
	for c := first; c != nil; c = c.next {
		c.done <- w.guard(c.fn)
	}
}

func (w *Worker) guard(fn func(*qdisc.Context)) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: command failed: %v", w.name, r)
		}
	}()
	fn(w.ctx)
	return nil
}

// closeMail refuses further commands, and answers those that came too late.
func (w *Worker) closeMail() {
	for c := w.mail.Swap(closed); c != nil && c != closed; c = c.next {
		c.done <- ErrStopped
	}
}
