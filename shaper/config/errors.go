package config

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Error is one mistake: where, why, and what to do.
type Error struct {
	File      string
	Line, Col int    // from 1; 0: it concerns the file as a whole
	Key       string // the key it concerns, with its table, as in qdisc[0].rate
	Value     string // the value as written, if that is at fault
	Msg       string // the cause, without full stop
	Hint      string // the way out, one sentence

	err error
}

func (e *Error) Error() string {
	where := e.File
	if e.Line > 0 {
		where = fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Col)
	}
	return fmt.Sprintf("%s: %s. %s", where, e.Msg, e.Hint)
}

func (e *Error) Unwrap() error { return e.err }

// Errors are all mistakes of a file, in the order of their places.
type Errors []*Error

// Error prints one mistake a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.Is and errors.As see each of them.
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, err := range e {
		errs[i] = err
	}
	return errs
}

// reason is the cause of a file error without the file's name.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// problem is a mistake whose place is not known yet.
type problem struct {
	msg, hint string
	element   int // of a list, from 1, that is at fault; 0: all of the value
}

func problemf(hint, format string, args ...any) *problem {
	return &problem{msg: fmt.Sprintf(format, args...), hint: hint}
}

// Error makes a problem an error for those who have no place to add.
func (p *problem) Error() string { return p.msg + ". " + p.hint }
