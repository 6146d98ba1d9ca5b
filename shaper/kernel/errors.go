package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/mdlayher/netlink"
)

var (
	// ErrNotSupported is wrapped when this kernel or device lacks something.
	ErrNotSupported = errors.New("not supported by this kernel or device")

	// ErrNoSuchLink is wrapped when there is no interface of that name.
	ErrNoSuchLink = errors.New("no such interface")

	// ErrPermission is wrapped when the process lacks a capability.
	ErrPermission = errors.New("not permitted: run as root or with CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF")

	// ErrClaimed is wrapped when another process works the interface.
	ErrClaimed = errors.New("interface is in use by another sluiced")
)

// OpError is the error of an operation that the kernel refused.
type OpError struct {
	Op     string // what was tried: "add qdisc"
	Dev    string // the interface, or ""
	Kind   string // kind of the tc object, or ""
	Err    error  // wraps a sentinel of this package where one fits, and the errno
	ExtAck string // the kernel's own explanation, or ""
}

func (e *OpError) Error() string {
	var b strings.Builder
	if e.Dev != "" {
		b.WriteString(e.Dev + ": ")
	}
	b.WriteString(e.Op)
	if e.Kind != "" {
		b.WriteString(" " + e.Kind)
	}
	b.WriteString(": " + e.Err.Error())
	if e.ExtAck != "" {
		b.WriteString(" (the kernel says: " + e.ExtAck + ")")
	}
	return b.String()
}

func (e *OpError) Unwrap() error { return e.Err }

// opError makes an OpError of err, which is nil for a nil err. What callers
// branch on is found by errors.Is.
func opError(op, dev, kind string, err error) error {
	if err == nil {
		return nil
	}
	e := &OpError{Op: op, Dev: dev, Kind: kind, Err: err}
	e.ExtAck, e.Err = plain(err)
	for _, known := range []struct{ errno, sentinel error }{
		{syscall.EPERM, ErrPermission},
		{syscall.EACCES, ErrPermission},
		{syscall.EOPNOTSUPP, ErrNotSupported},
		{syscall.ENODEV, ErrNoSuchLink},
	} {
		if errors.Is(e.Err, known.errno) && !errors.Is(e.Err, known.sentinel) {
			e.Err = &reason{known.sentinel, e.Err}
			break
		}
	}
	return e
}

// reason reads as a sentinel's sentence and is also the errno under it.
type reason struct{ sentinel, errno error }

func (r *reason) Error() string   { return r.sentinel.Error() }
func (r *reason) Unwrap() []error { return []error{r.sentinel, r.errno} }

// noSuchLink is the error for a name that no interface has.
func noSuchLink(name string) error {
	return fmt.Errorf("%w: %q; `ip link` lists the ones there are", ErrNoSuchLink, name)
}

// plain returns the kernel's explanation, and err without the libraries'
// wrapping, which says how netlink works rather than what was wrong.
func plain(err error) (extack string, inner error) {
	var op *netlink.OpError
	if errors.As(err, &op) {
		err, extack = op.Err, op.Message
	}
	var sys *os.SyscallError
	if errors.As(err, &sys) {
		err = sys.Err
	}
	return extack, err
}
