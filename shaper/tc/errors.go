package tc

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"sluice/qdisc"
)

// Exit codes of tc.
const (
	ExitParse  = 1   // a kind's or command's own parser refused
	ExitKernel = 2   // the kernel refused
	ExitUsage  = 255 // the command line as such is wrong
)

// Error is why tc would not do a command: what it prints to standard error, and
// its exit code.
type Error struct {
	Msg   string // without line end; may be empty when only the usage is shown
	Usage string // printed behind it, without line end
	Code  int    // ExitParse, ExitKernel, ExitUsage, or 0 when help was asked for
}

// Error returns all that is printed, lines apart.
func (e *Error) Error() string {
	if e.Msg == "" || e.Usage == "" {
		return e.Msg + e.Usage
	}
	return e.Msg + "\n" + e.Usage
}

// incomplete is NEXT_ARG without a next argument.
func incomplete() error {
	return &Error{Msg: `Command line is not complete. Try option "help"`, Code: ExitUsage}
}

func wrongArg(arg, why string) error {
	return &Error{Msg: fmt.Sprintf(`Error: argument "%s" is wrong: %s`, arg, why), Code: ExitUsage}
}

func duplicate(key, value string) error {
	return &Error{Msg: fmt.Sprintf(`Error: duplicate "%s": "%s" is the second value.`, key, value), Code: ExitUsage}
}

func parseError(format string, args ...any) error {
	return &Error{Msg: fmt.Sprintf(format, args...), Code: ExitParse}
}

// NoDevice is the refusal of a command for a port that does not exist.
func NoDevice(dev string) *Error {
	return &Error{Msg: fmt.Sprintf(`Cannot find device "%s"`, dev), Code: ExitParse}
}

// KernelError words a refusal by the tree as tc words one by the kernel, and
// returns the exit code with it. An [*Error] speaks for itself.
func KernelError(err error) (text string, code int) {
	var own *Error
	var refusal *qdisc.Error
	var errno syscall.Errno
	switch {
	case err == nil:
		return "", 0
	case errors.As(err, &own):
		return own.Error(), own.Code
	case qdisc.IsWarning(err):
		return "Warning: " + err.Error() + ".", 0
	case errors.As(err, &refusal) && refusal.Ext != "":
		return "Error: " + refusal.Ext + ".", ExitKernel
	case errors.As(err, &errno):
		return "RTNETLINK answers: " + strerror(errno), ExitKernel
	}
	return "Error: " + strings.TrimSuffix(err.Error(), ".") + ".", ExitKernel
}

// strerror has the C library's spelling, which begins with a capital.
func strerror(e syscall.Errno) string {
	s := e.Error()
	if e == syscall.EOPNOTSUPP {
		s = "operation not supported" // ENOTSUP is the same number; libc has one text
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
