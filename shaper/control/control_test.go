package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sluice/qdisc"
	"sluice/shaper"
	"sluice/shaper/config"
	"sluice/shaper/control"
	"sluice/shaper/nic"
	"sluice/shaper/nic/mem"
	"sluice/shaper/tree"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const policy = `version = 1
[link.l]
inside = "in"
outside = "out"
driver = "mem"
[[qdisc]]
dev = "out"
root = true
handle = "1:"
kind = "tbf"
rate = "%d Mbit/s"
burst = "16 KiB"
limit = "1 MiB"
`

// engine runs an engine on memory ports until the test ends.
func engine(t *testing.T) *shaper.Engine {
	t.Helper()
	c, err := config.Parse("test.toml", fmt.Appendf(nil, policy, 10))
	if err != nil {
		t.Fatal(err)
	}
	e, err := shaper.Open(c, shaper.Options{Name: "test.toml", OpenPort: func(_ *config.Link, p *config.Port) (nic.Port, error) {
		a, _ := mem.Pair(p.Dev, p.Dev+"-peer", mem.Config{})
		return a, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return e
}

// serve answers for an engine on a socket of its own, and says what was logged.
func serve(t *testing.T, e *shaper.Engine) (s *control.Server, path string, log *bytes.Buffer) {
	t.Helper()
	path, log = filepath.Join(t.TempDir(), "run", "s"), &bytes.Buffer{}
	s, err := control.Listen(path, "", e, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return s, path, log
}

func dial(t *testing.T, path string) *control.Client {
	c := control.Dial(path)
	t.Cleanup(c.Close)
	return c
}

func TestAnswersTravelWhole(t *testing.T) {
	e := engine(t)
	_, path, _ := serve(t, e)
	c := dial(t, path)

	s, err := c.Status()
	if err != nil {
		t.Fatal(err)
	}
	if s.Config != "test.toml" || len(s.Ports) != 2 || len(s.Ports[1].Txqs) != 1 || s.Edited || !s.Balance.Even() {
		t.Errorf("status %+v", s)
	}
	there, err := e.Qdiscs("out")
	if err != nil {
		t.Fatal(err)
	}
	here, err := c.Qdiscs("out")
	if err != nil || fmt.Sprint(here) != fmt.Sprint(there) {
		t.Errorf("qdiscs of out: %v, %v; the engine has %v", here, err, there)
	}
	if all, err := c.Qdiscs(""); err != nil || len(all) != len(there)+1 {
		t.Errorf("qdiscs of all ports: %v, %v", all, err)
	}
	if k, err := c.Classes("out"); err != nil || len(k) != 1 || k[0].ID != qdisc.MakeID(1, 1) {
		t.Errorf("classes of out: %v, %v", k, err)
	}
}

func TestErrorsTravelAsWhatTheyAre(t *testing.T) {
	_, path, _ := serve(t, engine(t))
	c := dial(t, path)
	prio := tree.Request{Op: tree.Add, Parent: tree.Root, Handle: qdisc.MakeID(2, 0), Kind: "prio"}

	var refused *qdisc.Error
	if err := c.Qdisc("out", prio); !errors.As(err, &refused) || refused.Ext != "NLM_F_REPLACE needed to override" || !errors.Is(err, syscall.EEXIST) {
		t.Errorf("an occupied root: %v", err)
	}
	var noDevice *shaper.NoDeviceError
	if err := c.Qdisc("eth9", prio); !errors.As(err, &noDevice) || noDevice.Dev != "eth9" {
		t.Errorf("no such port: %v", err)
	}
	err := c.Class("out", tree.Request{Op: tree.Change, ClassID: qdisc.MakeID(7, 1), Kind: "ets"})
	if !errors.As(err, &refused) || refused.Ext != "" || refused.Errno != syscall.ENOENT {
		t.Errorf("a class of no qdisc: %v", err)
	}
	var policyRefused *control.RefusedError
	_, err = c.Apply(control.Apply{Name: "bad.toml", Text: "version = 2\n"})
	if !errors.As(err, &policyRefused) || !strings.HasPrefix(err.Error(), "bad.toml:1:") {
		t.Errorf("a wrong policy: %v", err)
	}
	_, err = c.Apply(control.Apply{Name: "mtu.toml", Text: "[engine]\nweight = 7\n" + fmt.Sprintf(policy, 10)})
	if !errors.As(err, &policyRefused) {
		t.Errorf("a policy for another engine: %v", err)
	}

	prio.Op = tree.Replace
	if err := c.Qdisc("out", prio); err != nil {
		t.Fatal(err)
	}
	again := control.Apply{Name: "test.toml", Text: fmt.Sprintf(policy, 20)}
	if _, err := c.Apply(again); !errors.Is(err, shaper.ErrEdited) {
		t.Errorf("apply over edits: %v", err)
	}
	again.DiscardEdits = true
	if r, err := c.Apply(again); err != nil || len(r.Steps) == 0 {
		t.Errorf("apply that discards edits: %v, %v", r, err)
	}
}

func TestRequestsThatAreNotUnderstoodChangeNothing(t *testing.T) {
	e := engine(t)
	_, path, _ := serve(t, e)
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", path)
	}}}
	defer client.CloseIdleConnections()
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/v1/qdisc?dev=out", `{"op":"add","kind":"pfifo","colour":"red"}`, 400, "colour"},
		{"POST", "/v1/qdisc?dev=out", `{"op":"paint"}`, 400, "paint"},
		{"POST", "/v1/qdisc?dev=out", `{"kind":"pfifo"}`, 400, "op"},
		{"POST", "/v1/qdisc?dev=out", `{"op":"replace","kind":"pfifo","values":{"rate":{"n":1}}}`, 400, `no parameter \"rate\"`},
		{"POST", "/v1/qdisc?dev=out", `{"op":"change","values":{"rate":{"n":1}}}`, 400, "without"},
		{"POST", "/v1/qdisc?dev=out", `{"op":"del","parent":4294967295}{"op":"del"}`, 400, "follows"},
		{"POST", "/v1/qdisc?dev=out", ``, 400, "EOF"},
		{"POST", "/v1/apply", `{"name":"x","text":"` + strings.Repeat("x", 64<<20) + `"}`, 400, "too large"},
		{"POST", "/v1/status", ``, 405, ""},
		{"GET", "/v1/qdisc", ``, 405, ""},
		{"GET", "/v2/status", ``, 404, ""},
	} {
		r, err := http.NewRequest(c.method, "http://sluice"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status || !strings.Contains(string(body), c.says) {
			t.Errorf("%s %s %.80s: %s %s, want %d and %q", c.method, c.path, c.body, resp.Status, body, c.status, c.says)
		}
	}
	if s, err := e.Status(); err != nil || s.Edited {
		t.Errorf("after refused requests: edited %v, %v", s.Edited, err)
	}
}

func TestManyClientsAtOnce(t *testing.T) {
	_, path, _ := serve(t, engine(t))
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			c := control.Dial(path)
			defer c.Close()
			for range 5 {
				var err error
				switch i % 3 {
				case 0:
					_, err = c.Status()
				case 1:
					_, err = c.Apply(control.Apply{Name: "test.toml", Text: fmt.Sprintf(policy, 10+i)})
				default:
					_, err = c.Qdiscs("")
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestSocketIsForOwnerAndGroupAndGoesWithTheServer(t *testing.T) {
	s, path, _ := serve(t, engine(t))
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := fs.ModeSocket | 0o660; info.Mode() != want {
		t.Errorf("mode %v, want %v", info.Mode(), want)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}
	var down *control.UnreachableError
	if _, err := dial(t, path).Status(); !errors.As(err, &down) || !strings.Contains(err.Error(), "no sluiced is listening") {
		t.Errorf("a client after Close: %v", err)
	}
}

func TestListenRefusesInSentences(t *testing.T) {
	e := engine(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, taken, _ := serve(t, e)
	for _, c := range []struct{ name, path, group, says string }{
		{"path too long", filepath.Join(dir, strings.Repeat("x", 108)), "", "choose a shorter one"},
		{"no such group", filepath.Join(dir, "g"), "no-such-group", `there is no group "no-such-group"`},
		{"no socket", file, "", "something that is no socket"},
		{"below a file", filepath.Join(file, "s"), "", "its directory cannot be made"},
		{"second service", taken, "", "another sluiced has it"},
	} {
		s, err := control.Listen(c.path, c.group, e, slog.New(slog.DiscardHandler))
		if err == nil {
			s.Close()
			t.Errorf("%s: taken", c.name)
			continue
		}
		if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "data" {
		t.Errorf("the file that was in the way: %q, %v", data, err)
	}
	if _, err := dial(t, taken).Status(); err != nil {
		t.Errorf("the first service after a second was refused: %v", err)
	}
}

func TestDeadServicesSocketIsReplaced(t *testing.T) {
	e, path := engine(t), filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	s, err := control.Listen(path, "", e, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	// A server that never served closes, too, and leaves the place free.
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if s, err = control.Listen(path, "", e, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	s.Close()
}

func TestClientsThatHangDoNotHoldUpTheEnd(t *testing.T) {
	s, path, _ := serve(t, engine(t))
	var hanging []net.Conn
	for _, said := range []string{"", "GET /v1/sta", "POST /v1/apply HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"} {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		hanging = append(hanging, c)
		if _, err := io.WriteString(c, said); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := dial(t, path).Status(); err != nil { // all of them are accepted now
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Close still waits")
	}
	for i, c := range hanging {
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("client %d was not cut off", i)
		}
	}
}

func TestEditsAndRefusalsAreLogged(t *testing.T) {
	s, path, log := serve(t, engine(t))
	c := dial(t, path)
	fifo := tree.Request{Op: tree.Replace, Parent: tree.Root, Handle: qdisc.MakeID(9, 0), Kind: "pfifo"}
	if err := c.Qdisc("out", fifo); err != nil {
		t.Fatal(err)
	}
	fifo.Op = tree.Add
	if err := c.Qdisc("out", fifo); err == nil {
		t.Error("added twice")
	}
	if err := s.Close(); err != nil { // nobody writes the log after it
		t.Fatal(err)
	}
	for _, want := range []string{
		`level=INFO msg="edited by hand" dev=out edit="replace qdisc root handle 9: pfifo"`,
		`level=WARN msg="edit refused" dev=out edit="add qdisc root handle 9: pfifo" err="Exclusivity flag on, cannot modify"`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, log)
		}
	}
}
