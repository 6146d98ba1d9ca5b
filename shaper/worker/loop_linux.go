// Admin path: the thread around Turn.

package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Wake-ups closer than this are a stream, and worth coalescing.
const coalesceBelow = 100 * time.Microsecond

// The pause grows by this much with each wake-up of a stream.
const coalesceStep = 10 * time.Microsecond

// A descriptor that reports an error and brings no frame is left out of the
// poll for this long, so that a vanished device cannot make the loop spin.
const errorPause = 10 * time.Millisecond

// niceness of the worker's thread.
const niceness = -15

// longest is the longest sleep: nothing depends on it but a lost deadline.
const longest = 10 * time.Second

func newWakeFD() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) }

// wake ends the worker's sleep.
func (w *Worker) wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	// It can only fail when the counter is full, and then the worker is awake.
	_, _ = unix.Write(w.wakeFD, one[:])
}

// Run turns until ctx is done. It takes the calling goroutine's OS thread for
// itself. After it returns Do answers ErrStopped and the worker's fields may be
// read by anyone.
func (w *Worker) Run(ctx context.Context) error {
	if !w.running.CompareAndSwap(false, true) {
		return errors.New(w.name + ": is running already")
	}
	// Never unlocked: the thread's affinity and niceness are not for others, so
	// it ends with the goroutine.
	runtime.LockOSThread()
	defer w.closeMail()
	if w.cpu >= 0 {
		var set unix.CPUSet
		set.Set(w.cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return fmt.Errorf("%s: cannot be pinned to CPU %d: %w", w.name, w.cpu, err)
		}
	}
	// Next to what else the box runs, the forwarding thread comes first, as the
	// kernel's own would; without the right to it, it takes its turn.
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), niceness)
	// Timer slack would add 50 µs to every deadline.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)

	stop := context.AfterFunc(ctx, w.wake)
	defer stop()
	var fds []unix.PollFd
	for ctx.Err() == nil {
		if w.mail.Load() != nil {
			w.runCommands()
		}
		at := w.Turn()
		now := w.ctx.Now
		if at <= now || now-w.active < w.busyPoll {
			continue
		}
		fds = w.sleep(fds[:0], at-now)
	}
	return nil
}

// sleep waits for a frame, a command, or d. The descriptors' storage goes round
// with the caller.
func (w *Worker) sleep(fds []unix.PollFd, d time.Duration) []unix.PollFd {
	d = min(d, longest)
	fds = append(fds, unix.PollFd{Fd: int32(w.wakeFD), Events: unix.POLLIN})
	now := w.ctx.Now
	for _, in := range w.ingress {
		switch {
		case in.fd < 0:
		case in.silent > now:
			d = min(d, in.silent-now)
		default:
			fds = append(fds, unix.PollFd{Fd: int32(in.fd), Events: unix.POLLIN})
		}
	}
	ts := unix.NsecToTimespec(int64(d))
	n, err := unix.Ppoll(fds, &ts, nil)
	w.Wakes++
	if err != nil || n == 0 {
		w.coalesce = 0
		return fds
	}
	frames := false
	for _, fd := range fds[1:] {
		frames = frames || fd.Revents&unix.POLLIN != 0
		if fd.Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0 && fd.Revents&unix.POLLIN == 0 {
			w.silence(int(fd.Fd), now)
		}
	}
	if fds[0].Revents != 0 {
		var buf [8]byte
		_, _ = unix.Read(w.wakeFD, buf[:])
		return fds
	}
	if !frames {
		w.EmptyWakes++
		return fds
	}
	if w.rxCoalesce > 0 {
		w.moderate(fds[:1], now, d)
	}
	return fds
}

func (w *Worker) silence(fd int, now time.Duration) {
	for _, in := range w.ingress {
		if in.fd == fd {
			in.silent = now + errorPause
		}
	}
}

// moderate pauses after a frame's wake-up, as a NIC's interrupt moderation does,
// so that a steady stream costs one wake-up for many frames. A lone frame never
// waits: the pause exists only while wake-ups follow each other closely.
func (w *Worker) moderate(wakeOnly []unix.PollFd, before, d time.Duration) {
	slept := w.clock.Now() - before
	if slept > coalesceBelow || w.Queued() > 0 {
		w.coalesce = 0
		return
	}
	w.coalesce = min(w.coalesce+coalesceStep, w.rxCoalesce)
	if left := d - slept; left > w.coalesce {
		ts := unix.NsecToTimespec(int64(w.coalesce))
		_, _ = unix.Ppoll(wakeOnly, &ts, nil)
	}
}

// Close releases the worker's own descriptor. Call it after Run has returned.
func (w *Worker) Close() error { return unix.Close(w.wakeFD) }
