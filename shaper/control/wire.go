package control

import (
	"errors"
	"net/http"
	"syscall"

	"sluice/qdisc"
	"sluice/shaper"
	"sluice/shaper/worker"
)

// Apply asks for a policy to be put into force. The file travels as text: the
// service may not be able to read it, and checks it anyway.
type Apply struct {
	Name         string `json:"name"` // of the file, for messages
	Text         string `json:"text"`
	DiscardEdits bool   `json:"discard_edits,omitempty"`
}

// Refusal is how an error travels. Kind says which of the errors below it was
// made of.
type Refusal struct {
	Kind  string        `json:"kind,omitempty"` // "qdisc", "device", "edited", "policy" or ""
	Text  string        `json:"text"`
	Errno syscall.Errno `json:"errno,omitempty"` // qdisc
	Dev   string        `json:"dev,omitempty"`   // device
}

// RefusedError says why a configuration was not put into force: its mistakes, one
// a line, or how it clashes with what runs.
type RefusedError struct{ Text string }

func (e *RefusedError) Error() string { return e.Text }

// refused makes what the engine says to a policy a RefusedError, unless there is
// nobody left to refuse, it is about edits, or a fault of ours.
func refused(err error) error {
	if err == nil || errors.Is(err, shaper.ErrEdited) ||
		errors.Is(err, shaper.ErrHalfApplied) || errors.Is(err, worker.ErrStopped) {
		return err
	}
	return &RefusedError{err.Error()}
}

// refusal turns an error of the engine into what travels.
func refusal(err error) (status int, r Refusal) {
	r.Text = err.Error()
	var q *qdisc.Error
	var d *shaper.NoDeviceError
	var p *RefusedError
	switch {
	case errors.Is(err, shaper.ErrHalfApplied): // whatever it wraps
		return http.StatusInternalServerError, r
	case errors.As(err, &q):
		r.Kind, r.Text, r.Errno = "qdisc", q.Ext, q.Errno
		return http.StatusConflict, r
	case errors.As(err, &d):
		r.Kind, r.Dev = "device", d.Dev
		return http.StatusNotFound, r
	case errors.Is(err, shaper.ErrEdited):
		r.Kind = "edited"
		return http.StatusConflict, r
	case errors.As(err, &p):
		r.Kind = "policy"
		return http.StatusUnprocessableEntity, r
	case errors.Is(err, worker.ErrStopped):
		return http.StatusServiceUnavailable, r
	}
	return http.StatusInternalServerError, r
}

// err turns what travelled into an error again.
func (r Refusal) err() error {
	switch r.Kind {
	case "qdisc":
		return &qdisc.Error{Errno: r.Errno, Ext: r.Text}
	case "device":
		return &shaper.NoDeviceError{Dev: r.Dev}
	case "edited":
		return shaper.ErrEdited
	case "policy":
		return &RefusedError{r.Text}
	}
	return errors.New(r.Text)
}
