package tc

import (
	"bytes"
	"encoding/json"
)

// object is a JSON object whose members keep their order: tc's is fixed, and
// encoding/json sorts maps.
type object []member

type member struct {
	key   string
	value any // object, array, or what encoding/json takes
}

type array []any

func (o *object) add(key string, value any) { *o = append(*o, member{key, value}) }

// writeJSON writes v on one line, or as `tc -p` does: members on lines of their
// own, four blanks deeper than their object, which in an array stands a level
// deeper itself.
func writeJSON(b *bytes.Buffer, v any, pretty bool) {
	(&jsonWriter{b: b, pretty: pretty}).value(v)
}

type jsonWriter struct {
	b      *bytes.Buffer
	pretty bool
	depth  int
}

func (w *jsonWriter) value(v any) {
	w.depth++
	switch v := v.(type) {
	case object:
		w.b.WriteByte('{')
		for i, m := range v {
			if i > 0 {
				w.b.WriteByte(',')
			}
			w.line()
			w.scalar(m.key)
			w.b.WriteByte(':')
			w.blank()
			w.value(m.value)
		}
		w.depth--
		if len(v) > 0 {
			w.line()
		}
		w.b.WriteByte('}')
		return
	case array:
		w.b.WriteByte('[')
		w.blank()
		for i, e := range v {
			if i > 0 {
				w.b.WriteByte(',')
			}
			w.value(e)
		}
		if len(v) > 0 {
			w.blank()
		}
		w.b.WriteByte(']')
	default:
		w.scalar(v)
	}
	w.depth--
}

// scalar writes a number, a string or a truth value. There is nothing in them
// that encoding/json could refuse.
func (w *jsonWriter) scalar(v any) {
	e := json.NewEncoder(w.b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("tc: " + err.Error())
	}
	w.b.Truncate(w.b.Len() - 1) // Encode ends the line
}

func (w *jsonWriter) blank() {
	if w.pretty {
		w.b.WriteByte(' ')
	}
}

func (w *jsonWriter) line() {
	if w.pretty {
		w.b.WriteByte('\n')
		for range w.depth {
			w.b.WriteString("    ")
		}
	}
}
