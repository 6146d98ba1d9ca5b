package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"sluice/shaper"
	"sluice/shaper/config"
	"sluice/shaper/tree"
)

// maxBody bounds a request: ten thousand subscribers fit.
const maxBody = 64 << 20

// Server answers on a control socket.
type Server struct {
	engine *shaper.Engine
	log    *slog.Logger
	http   http.Server
	listen net.Listener
}

// Listen opens the socket at path, mode 0660, owned by group when one is named.
// A socket that a dead service left behind is replaced; one that answers means
// that another service runs, and is refused.
func Listen(path, group string, e *shaper.Engine, log *slog.Logger) (*Server, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return nil, fmt.Errorf("control socket %s: another sluiced answers there; stop it, or give this one another [control] socket", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	if err := permit(path, group); err != nil {
		l.Close()
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	s := &Server{engine: e, log: log, listen: l}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", s.status)
	mux.HandleFunc("GET /v1/qdiscs", s.qdiscs)
	mux.HandleFunc("GET /v1/classes", s.classes)
	mux.HandleFunc("POST /v1/qdisc", s.edit((*shaper.Engine).Qdisc))
	mux.HandleFunc("POST /v1/class", s.edit((*shaper.Engine).Class))
	mux.HandleFunc("POST /v1/apply", s.apply)
	s.http = http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	return s, nil
}

func permit(path, group string) error {
	if group != "" {
		g, err := user.LookupGroup(group)
		if err != nil {
			return err
		}
		gid, err := strconv.Atoi(g.Gid)
		if err != nil {
			return err
		}
		if err := os.Chown(path, -1, gid); err != nil {
			return err
		}
	}
	return os.Chmod(path, 0o660)
}

// Serve answers until Close.
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listen); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close lets the requests under way finish, and removes the socket.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return s.http.Shutdown(ctx)
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	v, err := s.engine.Status()
	reply(w, v, err)
}

func (s *Server) qdiscs(w http.ResponseWriter, r *http.Request) {
	v, err := s.engine.Qdiscs(r.FormValue("dev"))
	reply(w, v, err)
}

func (s *Server) classes(w http.ResponseWriter, r *http.Request) {
	v, err := s.engine.Classes(r.FormValue("dev"))
	reply(w, v, err)
}

func (s *Server) edit(do func(*shaper.Engine, string, tree.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q tree.Request
		if !read(w, r, &q) {
			return
		}
		dev := r.URL.Query().Get("dev")
		err := do(s.engine, dev, q)
		s.log.Info("edit", "dev", dev, "op", q.Op, "kind", q.Kind, "handle", q.Handle, "class", q.ClassID, "err", err)
		reply(w, struct{}{}, err)
	}
}

func (s *Server) apply(w http.ResponseWriter, r *http.Request) {
	var a Apply
	if !read(w, r, &a) {
		return
	}
	c, err := config.Parse(a.Name, []byte(a.Text))
	if err != nil {
		reply(w, nil, &ConfigError{err.Error()})
		return
	}
	report, err := s.engine.Apply(a.Name, c, a.DiscardEdits)
	reply(w, report, err)
}

func read(w http.ResponseWriter, r *http.Request, v any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		send(w, http.StatusBadRequest, Refusal{Text: "request not understood: " + err.Error()})
		return false
	}
	return true
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
