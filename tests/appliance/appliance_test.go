//go:build linux

package appliance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/shaper"
	"sluice/shaper/control"
	"sluice/tests/lab"
)

var (
	long = os.Getenv("SLUICE_LONG") != ""
	bin  string // holds sluiced and sluice
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if lab.Available() != nil {
		return m.Run() // all of it skips, and says why
	}
	dir, err := os.MkdirTemp("", "sluice")
	if err == nil {
		defer os.RemoveAll(dir)
		// Some tests run the service as somebody else.
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	bin = dir
	ahead()
	if out, err := exec.Command("go", "build", "-o", dir, "sluice/cmd/sluiced", "sluice/cmd/sluice").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// ahead gives this process and its children precedence over whatever else the
// machine is doing: that is no part of a router.
func ahead() {
	threads, _ := os.ReadDir("/proc/self/task") // threads to come inherit it
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, -15)
		}
	}
}

// site is where the appliance works: a host inside, a host outside, and between
// them the router, whose in0 leads inside and whose out0 leads outside. Both
// hosts call their end eth0 and have no addresses unless a test gives them some,
// so that no frame is on the wires but the test's own.
type site struct {
	t                       testing.TB
	lab                     *lab.Lab
	inside, router, outside *lab.Host
	dir                     string // for the configuration and the socket
}

func newSite(t testing.TB, in, out lab.Wire) *site {
	t.Helper()
	s := &site{t: t, lab: lab.ForTest(t)}
	s.inside, s.router, s.outside = s.host("inside"), s.host("router"), s.host("outside")
	s.check(s.lab.Wire(s.inside, "eth0", s.router, "in0", in))
	s.check(s.lab.Wire(s.router, "out0", s.outside, "eth0", out))
	// Not t.TempDir: the path of a socket is at most 107 bytes long.
	dir, err := os.MkdirTemp("", "sluice")
	s.check(err)
	s.dir = dir
	t.Cleanup(func() { os.RemoveAll(dir) })
	return s
}

func (s *site) host(name string) *lab.Host {
	s.t.Helper()
	h, err := s.lab.Host(name)
	s.check(err)
	return h
}

func (s *site) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// addresses gives the hosts 10.0.0.1 (inside) and 10.0.0.2 (outside), known to
// each other without asking.
func (s *site) addresses() {
	s.t.Helper()
	in, err := s.inside.MAC("eth0")
	s.check(err)
	out, err := s.outside.MAC("eth0")
	s.check(err)
	s.check(s.inside.Addr("eth0", "10.0.0.1/24"))
	s.check(s.outside.Addr("eth0", "10.0.0.2/24"))
	s.check(s.inside.Neighbor("eth0", "10.0.0.2", out))
	s.check(s.outside.Neighbor("eth0", "10.0.0.1", in))
}

// write writes a configuration with the site's link and control socket, and
// returns its path. An [engine] table may begin the policy.
func (s *site) write(name, policy string) string {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	text := fmt.Sprintf("version = 1\n\n[control]\nsocket = %q\n\n[link.test]\ninside = \"in0\"\noutside = \"out0\"\n\n%s",
		s.socket(), policy)
	s.check(os.WriteFile(file, []byte(text), 0o644))
	return file
}

func (s *site) socket() string { return filepath.Join(s.dir, "control.sock") }

// service is a sluiced that runs.
type service struct {
	*site
	cmd    *lab.Cmd
	log    *log
	client *control.Client
	done   chan struct{}
	err    error // of Wait, once done is closed
}

// start writes a policy, starts sluiced on the router, and returns when it is
// ready. It is stopped with the test, if it still runs then.
func (s *site) start(policy string) *service {
	s.t.Helper()
	return s.startFile(s.write("sluice.toml", policy))
}

func (s *site) startFile(file string) *service {
	s.t.Helper()
	v := &service{site: s, log: &log{}, client: control.Dial(s.socket()), done: make(chan struct{})}
	v.cmd = s.router.Command(context.Background(), filepath.Join(bin, "sluiced"), "-config", file)
	v.cmd.Stderr = v.log
	s.check(v.cmd.Start())
	go func() {
		v.err = v.cmd.Wait()
		close(v.done)
	}()
	s.t.Cleanup(func() {
		v.stop(syscall.SIGTERM)
		v.client.Close()
		if s.t.Failed() {
			s.t.Logf("sluiced said:\n%s", v.log)
		}
	})
	v.waitLog("sluiced is ready")
	return v
}

// waitLog waits until sluiced has written text.
func (v *service) waitLog(text string) {
	v.t.Helper()
	for end := time.Now().Add(10 * time.Second); !strings.Contains(v.log.String(), text); time.Sleep(2 * time.Millisecond) {
		select {
		case <-v.done:
			v.t.Fatalf("sluiced ended (%v) before it said %q:\n%s", v.err, text, v.log)
		default:
		}
		if time.Now().After(end) {
			v.t.Fatalf("sluiced did not say %q in 10 s:\n%s", text, v.log)
		}
	}
}

// stop sends a signal and returns how long it took sluiced to end. One that does
// not end is killed.
func (v *service) stop(sig os.Signal) time.Duration {
	v.t.Helper()
	start := time.Now()
	_ = v.cmd.Process.Signal(sig) // it may have ended before
	select {
	case <-v.done:
	case <-time.After(10 * time.Second):
		v.t.Errorf("sluiced did not end in 10 s of %v", sig)
		_ = v.cmd.Process.Kill()
		<-v.done
	}
	return time.Since(start)
}

// status asks for the status as an operator would: sluice -j status.
func (v *service) status() *shaper.Status {
	v.t.Helper()
	out, errs, code := v.sluice("-j", "status")
	st := &shaper.Status{}
	if err := json.Unmarshal([]byte(out), st); err != nil || code != 0 {
		v.t.Fatalf("sluice -j status: exit code %d, %v\n%s%s", code, err, out, errs)
	}
	return st
}

// sluice runs the command.
func (v *service) sluice(args ...string) (out, errs string, code int) {
	v.t.Helper()
	cmd := exec.Command(filepath.Join(bin, "sluice"), args...)
	cmd.Env = append(os.Environ(), "SLUICE_SOCKET="+v.socket())
	return output(v.t, cmd, cmd.Run)
}

// output runs a command and returns what it wrote and its exit code.
func output(t testing.TB, cmd *exec.Cmd, run func() error) (out, errs string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// fails runs sluiced to its end and returns what it said.
func (s *site) fails(file string) (said string, code int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	cmd := s.router.Command(ctx, filepath.Join(bin, "sluiced"), "-config", file)
	_, said, code = output(s.t, cmd.Cmd, cmd.Run)
	return said, code
}

// settled waits until nothing moves any more, and returns the status.
func (v *service) settled() *shaper.Status {
	v.t.Helper()
	var last shaper.Balance
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		st := v.status()
		if st.Balance == last && st.Balance.Queued == 0 {
			return st
		}
		if last = st.Balance; time.Now().After(end) {
			v.t.Fatalf("the counters still move after 10 s: %+v", last)
		}
	}
}

// eventually waits until the status is as it should be, and returns it.
func (v *service) eventually(what string, is func(*shaper.Status) bool) *shaper.Status {
	v.t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		st := v.status()
		if is(st) {
			return st
		}
		if time.Now().After(end) {
			v.t.Fatalf("not so after 5 s: %s", what)
		}
	}
}

// port returns the status of one port.
func port(t testing.TB, st *shaper.Status, name string) *shaper.PortStatus {
	t.Helper()
	for i := range st.Ports {
		if st.Ports[i].Name == name {
			return &st.Ports[i]
		}
	}
	t.Fatalf("status has no port %s", name)
	return nil
}

// even fails the test unless every counter follows from those below it. Nothing
// may move meanwhile, and the qdiscs must be those of the beginning.
func (v *service) even(st *shaper.Status) {
	v.t.Helper()
	if b := st.Balance; !b.Even() {
		v.t.Errorf("received %d != sent %d + dropped %d + queued %d", b.Received, b.Sent, b.Dropped, b.Queued)
	}
	var received, taken, queued uint64
	for _, p := range st.Ports {
		for _, rx := range p.Rx {
			received += rx.Packets
		}
		var posted, bytes uint64
		for _, q := range p.Txqs {
			posted += q.Packets
			bytes += q.Bytes
			if q.Completed+uint64(q.InFlight) != q.Packets {
				v.t.Errorf("%s: txq: completed %d + in flight %d != posted %d", p.Name, q.Completed, q.InFlight, q.Packets)
			}
			if q.InFlight == 0 && q.CompletedBytes != q.Bytes {
				v.t.Errorf("%s: txq: completed %d bytes != posted %d", p.Name, q.CompletedBytes, q.Bytes)
			}
		}
		if p.Runner.Packets != posted {
			v.t.Errorf("%s: runner %d packets != txqs %d", p.Name, p.Runner.Packets, posted)
		}
		taken += posted
		queued += uint64(p.Qlen)
		v.evenQdiscs(p, bytes)
	}
	if b := st.Balance; received != b.Received || taken != b.Sent || queued != b.Queued {
		v.t.Errorf("the ports' received %d, sent %d, queued %d are not the balance's %+v", received, taken, queued, b)
	}
}

// evenBalance fails the test unless the balance is even, whatever moves.
func (v *service) evenBalance() {
	v.t.Helper()
	if b := v.status().Balance; !b.Even() {
		v.t.Errorf("received %d != sent %d + dropped %d + queued %d", b.Received, b.Sent, b.Dropped, b.Queued)
	}
}

// evenQdiscs compares a port's root qdisc with what the port was given and sent.
func (v *service) evenQdiscs(p shaper.PortStatus, sent uint64) {
	v.t.Helper()
	qdiscs, err := v.client.Qdiscs(p.Name)
	v.check(err)
	root := qdiscs[0].Stats
	if root.Packets != p.Runner.Packets || root.Bytes != sent {
		v.t.Errorf("%s: qdisc sent %d packets %d bytes, txqs %d packets %d bytes",
			p.Name, root.Packets, root.Bytes, p.Runner.Packets, sent)
	}
	if qdiscs[0].Qlen != p.Qlen {
		v.t.Errorf("%s: qdisc holds %d, port %d", p.Name, qdiscs[0].Qlen, p.Qlen)
	}
}

// log collects what a process writes.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// pin keeps the calling goroutine on one CPU, and returns how to end that. The
// kernel's order of packets that pass a veth is that of a CPU: a sender that is
// moved to another one may overtake itself.
func pin(t testing.TB, cpu int) (unpin func()) {
	t.Helper()
	var was, only unix.CPUSet
	only.Set(cpu)
	runtime.LockOSThread()
	if err := unix.SchedGetaffinity(0, &was); err != nil {
		t.Error(err)
	}
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		t.Error(err)
	}
	return func() {
		_ = unix.SchedSetaffinity(0, &was)
		runtime.UnlockOSThread()
	}
}

// cpus returns two CPUs that this process may use, the same twice if there is
// but one.
func cpus(t testing.TB) (a, b int) {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	var have []int
	for i := range 1024 {
		if set.IsSet(i) {
			have = append(have, i)
		}
	}
	return have[0], have[len(have)-1]
}
