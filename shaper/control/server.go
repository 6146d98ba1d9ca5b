package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/kinds"
	"sluice/shaper"
	"sluice/shaper/config"
	"sluice/shaper/tree"
)

const (
	maxBody    = 64 << 20 // of a request: ten thousand subscribers fit
	maxHeaders = 16 << 10

	headerTime = 5 * time.Second  // for a client to say what it wants
	bodyTime   = 30 * time.Second // to send all of it, and as long to take the answer
	idleTime   = time.Minute

	closeTime = 500 * time.Millisecond // for requests under way when the server closes
)

// Server answers on a control socket.
type Server struct {
	engine *shaper.Engine
	log    *slog.Logger
	http   http.Server
	listen *socket
}

// Listen opens the socket at path, mode 0660, owned by group when one is named.
// A socket that a dead service left behind is replaced; a second service at the
// same path is refused.
func Listen(path, group string, e *shaper.Engine, log *slog.Logger) (*Server, error) {
	l, err := listen(path, group)
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	s := &Server{engine: e, log: log, listen: l}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", s.status)
	mux.HandleFunc("GET /v1/qdiscs", s.qdiscs)
	mux.HandleFunc("GET /v1/classes", s.classes)
	mux.HandleFunc("POST /v1/qdisc", s.edit("qdisc", e.Qdisc))
	mux.HandleFunc("POST /v1/class", s.edit("class", e.Class))
	mux.HandleFunc("POST /v1/apply", s.apply)
	s.http = http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       bodyTime,
		WriteTimeout:      2 * bodyTime, // it counts from the end of the headers
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeaders,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return s, nil
}

// Serve answers until Close.
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listen); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close removes the socket. Requests under way may finish, for at most half a
// second; clients that hang are cut off.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	return errors.Join(err, s.listen.Close()) // again, for a server that never served
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	v, err := s.engine.Status()
	reply(w, v, err)
}

func (s *Server) qdiscs(w http.ResponseWriter, r *http.Request) {
	v, err := s.engine.Qdiscs(r.URL.Query().Get("dev"))
	reply(w, v, err)
}

func (s *Server) classes(w http.ResponseWriter, r *http.Request) {
	v, err := s.engine.Classes(r.URL.Query().Get("dev"))
	reply(w, v, err)
}

func (s *Server) edit(object string, do func(dev string, r tree.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q tree.Request
		if !read(w, r, &q) {
			return
		}
		if err := check(object, &q); err != nil {
			misunderstood(w, err)
			return
		}
		dev := r.URL.Query().Get("dev")
		err := do(dev, q)
		if err != nil && !qdisc.IsWarning(err) {
			s.log.Warn("edit refused", "dev", dev, "edit", words(object, &q), "err", err)
		} else {
			s.log.Info("edited by hand", "dev", dev, "edit", words(object, &q))
		}
		reply(w, struct{}{}, err)
	}
}

// words says what was asked for about as tc does.
func words(object string, q *tree.Request) string {
	s := fmt.Sprintf("%s %s", q.Op, object)
	switch {
	case q.Parent == tree.Root:
		s += " root"
	case q.Parent != 0:
		s += fmt.Sprintf(" parent %s", q.Parent)
	}
	if q.Handle != 0 {
		s += fmt.Sprintf(" handle %s", q.Handle)
	}
	if q.ClassID != 0 {
		s += fmt.Sprintf(" classid %s", q.ClassID)
	}
	if q.Kind != "" {
		s += " " + q.Kind
	}
	return s
}

// check refuses what tc's grammar would not have let through, and the qdiscs
// would not notice.
func check(object string, q *tree.Request) error {
	if q.Op == 0 {
		return errors.New(`"op" is missing`)
	}
	kind := kinds.ByName(q.Kind)
	if kind == nil {
		if q.Kind == "" && len(q.Values) > 0 {
			return errors.New(`"values" without a "kind"`)
		}
		return nil // the tree has the words for it
	}
	params := kind.Params
	if object == "class" {
		params = kind.ClassParams
	}
	for name := range q.Values {
		if !has(params, name) {
			return fmt.Errorf("a %s %s has no parameter %q", q.Kind, object, name)
		}
	}
	return nil
}

func has(params []qdisc.Param, name string) bool {
	for i := range params {
		if params[i].Name == name && params[i].Taken() {
			return true
		}
	}
	return false
}

func (s *Server) apply(w http.ResponseWriter, r *http.Request) {
	var a Apply
	if !read(w, r, &a) {
		return
	}
	report, err := s.force(a)
	if err != nil {
		s.log.Warn("policy refused", "file", a.Name, "err", err)
	}
	reply(w, report, err)
}

// force checks and applies a policy.
func (s *Server) force(a Apply) (*shaper.Report, error) {
	c, err := config.Parse(a.Name, []byte(a.Text))
	if err != nil {
		return nil, &RefusedError{err.Error()}
	}
	report, err := s.engine.Apply(a.Name, c, a.DiscardEdits)
	return report, refused(err)
}

func read(w http.ResponseWriter, r *http.Request, v any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("something follows its end")
		}
	}
	if err != nil {
		misunderstood(w, err)
	}
	return err == nil
}

func misunderstood(w http.ResponseWriter, err error) {
	send(w, http.StatusBadRequest, Refusal{Text: "request not understood: " + err.Error()})
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		status, r := refusal(err)
		send(w, status, r)
		return
	}
	send(w, http.StatusOK, v)
}

func send(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// It fails only when the client is gone.
	_ = json.NewEncoder(w).Encode(v)
}
