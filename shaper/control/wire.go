package control

import (
	"errors"
	"net/http"
	"syscall"

	"sluice/qdisc"
	"sluice/shaper"
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
	Kind  string        `json:"kind,omitempty"` // "qdisc", "device", "edited", "config" or ""
	Text  string        `json:"text"`
	Errno syscall.Errno `json:"errno,omitempty"` // qdisc
	Dev   string        `json:"dev,omitempty"`   // device
}

// ConfigError carries the complaints about a configuration as they were printed
// where it was checked.
type ConfigError struct{ Text string }

func (e *ConfigError) Error() string { return e.Text }

// refusal turns an error of the engine into what travels.
func refusal(err error) (status int, r Refusal) {
	r.Text = err.Error()
	var q *qdisc.Error
	var d *shaper.NoDeviceError
	var c *ConfigError
	switch {
	case errors.As(err, &q):
		r.Kind, r.Text, r.Errno = "qdisc", q.Ext, q.Errno
		return http.StatusConflict, r
	case errors.As(err, &d):
		r.Kind, r.Dev = "device", d.Dev
		return http.StatusNotFound, r
	case errors.Is(err, shaper.ErrEdited):
		r.Kind = "edited"
		return http.StatusConflict, r
	case errors.As(err, &c):
		r.Kind = "config"
		return http.StatusUnprocessableEntity, r
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
	case "config":
		return &ConfigError{r.Text}
	}
	return errors.New(r.Text)
}
