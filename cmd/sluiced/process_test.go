package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"sluice/shaper"
)

// bin has the service and the command as they are shipped, and the command once
// more as tc.
var bin string

func TestMain(m *testing.M) {
	var err error
	if bin, err = os.MkdirTemp("", "sluice-bin"); err != nil {
		log.Fatal(err)
	}
	code := 1
	if out, err := exec.Command("go", "build", "-o", bin, ".", "../sluice").CombinedOutput(); err != nil {
		log.Printf("%v\n%s", err, out)
	} else if err := os.Symlink("sluice", filepath.Join(bin, "tc")); err != nil {
		log.Print(err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(bin)
	os.Exit(code)
}

// TestScripts runs the processes. In a script
//
//	file NAME     writes a file; DIR stands for the directory of the test
//	start NAME    starts a service and waits until it is ready, or has ended
//	run           runs command lines, each with "<NAME" at its end for standard input
//	log           shows what the service has logged since
//	hup, stop     signals the service and waits for what it says to that
//
// and what was printed, standard output before standard error, is below the line.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{t: t, dir: t.TempDir()}
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct {
	t       *testing.T // of the whole file
	dir     string
	service *service
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	name := ""
	if len(d.CmdArgs) > 0 {
		name = filepath.Join(s.dir, d.CmdArgs[0].Key)
	}
	switch d.Cmd {
	case "file":
		if err := os.WriteFile(name, []byte(strings.ReplaceAll(d.Input, "DIR", s.dir)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return ""
	case "start":
		s.service = startService(s.t, nil, "-config", name)
		return s.masked(s.service.until(t, "sluiced is ready"))
	case "run":
		var out strings.Builder
		for line := range strings.Lines(d.Input) {
			out.WriteString(s.command(t, strings.TrimSpace(line)))
		}
		return s.masked(out.String())
	case "log":
		return s.masked(s.service.take(t, nil))
	case "hup":
		s.service.take(t, nil)
		s.service.signal(t, syscall.SIGHUP)
		return s.masked(s.service.until(t, "policy applied", "what runs goes on"))
	case "stop":
		s.service.take(t, nil)
		s.service.signal(t, syscall.SIGTERM)
		return s.masked(s.service.until(t, never))
	}
	d.Fatalf(t, "unknown: %s", d.Cmd)
	return ""
}

// command runs one line. A line of several says which it is.
func (s *script) command(t *testing.T, line string) string {
	words := strings.Fields(line)
	var in bytes.Buffer
	if last := words[len(words)-1]; last[0] == '<' {
		data, err := os.ReadFile(filepath.Join(s.dir, last[1:]))
		if err != nil {
			t.Fatal(err)
		}
		in.Write(data)
		words = words[:len(words)-1]
	}
	cmd := exec.Command(filepath.Join(bin, words[0]), words[1:]...)
	var out, complaints bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = s.dir, &in, &out, &complaints
	cmd.Env = append(os.Environ(), "SLUICE_SOCKET="+filepath.Join(s.dir, "s"))
	err := cmd.Run()
	text := "$ " + line + "\n" + out.String() + complaints.String()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		text += fmt.Sprintf("[exit %d]\n", exit.ExitCode())
	case err != nil:
		t.Fatal(err)
	}
	return text
}

// never is what no line has: the end is waited for.
const never = "\x00"

var varies = regexp.MustCompile(`(?m)^time=\S+ | version=\S+`)

func (s *script) masked(text string) string {
	text = strings.NewReplacer(s.dir, "DIR", bin+"/", "").Replace(text)
	return varies.ReplaceAllString(text, "")
}

// service is a sluiced that runs. It logs to a file, where a line is as soon as the
// service has gone on.
type service struct {
	cmd   *exec.Cmd
	log   *os.File
	said  string // what was read of it and not taken
	ended chan error
}

func startService(t *testing.T, env []string, args ...string) *service {
	t.Helper()
	name := filepath.Join(t.TempDir(), "log")
	w, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s := &service{cmd: exec.Command(filepath.Join(bin, "sluiced"), args...), ended: make(chan error, 1)}
	if s.log, err = os.Open(name); err != nil {
		t.Fatal(err)
	}
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stderr = w
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- s.cmd.Wait() }()
	t.Cleanup(func() {
		s.cmd.Process.Kill() // when it has ended, nobody
		<-s.ended
		s.log.Close()
	})
	return s
}

func (s *service) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// until returns what the service logs up to a line with one of words, or to its
// end, with the exit code.
func (s *service) until(t *testing.T, words ...string) string {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		select {
		case err := <-s.ended:
			s.ended <- err
			return s.take(t, nil) + fmt.Sprintf("[exit %d]\n", s.cmd.ProcessState.ExitCode())
		default:
		}
		if text := s.take(t, words); text != "" {
			return text
		}
	}
	t.Fatalf("waited 20 s for the end or one of %q; the service says:\n%s", words, s.said)
	return ""
}

// take returns the lines up to one with a word in it, nothing when there is none
// yet; all when words is nil.
func (s *service) take(t *testing.T, words []string) string {
	t.Helper()
	more, err := io.ReadAll(s.log)
	if err != nil {
		t.Fatal(err)
	}
	s.said += string(more)
	if words == nil {
		taken := s.said
		s.said = ""
		return taken
	}
	taken := ""
	for line := range strings.Lines(s.said) {
		taken += line
		for _, w := range words {
			if strings.Contains(line, w) {
				s.said = s.said[len(taken):]
				return taken
			}
		}
	}
	return ""
}

const memory = `version = 1
[control]
socket = "%s"
[link.l]
inside = "in"
outside = "out"
driver = "mem"
`

func write(t *testing.T, format string, args ...any) (name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "f.toml")
	if err := os.WriteFile(name, fmt.Appendf(nil, format, args...), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestServiceManagerIsTold(t *testing.T) {
	dir := t.TempDir()
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	manager.SetReadDeadline(time.Now().Add(20 * time.Second))
	socket := filepath.Join(dir, "s")
	s := startService(t, []string{"NOTIFY_SOCKET=" + filepath.Join(dir, "notify"), "JOURNAL_STREAM=1:2"},
		"-config", write(t, memory, socket))
	expect := func(want string) {
		t.Helper()
		b := make([]byte, 100)
		if n, err := manager.Read(b); err != nil || string(b[:n]) != want {
			t.Fatalf("the manager hears %q, %v; want %q", b[:n], err, want)
		}
	}
	expect("READY=1")
	if c, err := net.Dial("unix", socket); err != nil {
		t.Errorf("ready, and yet: %v", err)
	} else {
		c.Close()
	}
	s.signal(t, syscall.SIGTERM)
	expect("STOPPING=1")
	if log := s.until(t, never); !strings.HasPrefix(log, `<6>level=INFO msg="sluiced is ready"`) || !strings.HasSuffix(log, "[exit 0]\n") {
		t.Errorf("not the journal's form, or no good end:\n%s", log)
	}
}

func TestStatusAsJSON(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	s := startService(t, nil, "-config", write(t, memory, socket))
	s.until(t, "sluiced is ready")
	for _, args := range [][]string{{"-j", "status"}, {"status", "-j"}} {
		out, err := exec.Command(filepath.Join(bin, "sluice"), append([]string{"-socket", socket}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		var got shaper.Status
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if len(got.Ports) != 2 || got.Ports[0].Name != "in" || got.Ports[1].Driver != "mem" || !got.Balance.Even() || got.Uptime <= 0 {
			t.Errorf("sluice %q: %s", args, out)
		}
	}
}

func TestKilledServiceLeavesRoomForTheNext(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	config := write(t, memory, socket)
	for range 2 {
		s := startService(t, nil, "-config", config)
		if log := s.until(t, "sluiced is ready"); strings.Contains(log, "[exit") {
			t.Fatal(log)
		}
		s.cmd.Process.Kill()
		s.until(t, never)
		if _, err := os.Lstat(socket); err != nil {
			t.Errorf("the socket of a killed service: %v", err)
		}
	}
}
