package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Lab is a set of hosts that end together.
type Lab struct {
	mu    sync.Mutex
	hosts []*Host
}

// Host is one network namespace, with lo up.
type Host struct {
	name string
	ns   netns.NsHandle
	nl   *netlink.Handle // its sockets live in ns
}

// Available returns nil when this process may make network namespaces, else
// the reason in one sentence.
func Available() error { return available() }

var available = sync.OnceValue(func() error {
	l := &Lab{}
	defer l.Close()
	if _, err := l.Host("probe"); err != nil {
		return fmt.Errorf("%w: %w; run as root or with CAP_SYS_ADMIN and CAP_NET_ADMIN", ErrNotAvailable, err)
	}
	return nil
})

// ForTest returns a lab that is closed when the test ends. It skips the test,
// with the reason, where namespaces are not to be had or -short is given.
func ForTest(t testing.TB) *Lab {
	t.Helper()
	if testing.Short() {
		t.Skip("needs network namespaces, skipped by -short")
	}
	l, err := New()
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// New returns an empty lab, or the error of [Available].
func New() (*Lab, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	return &Lab{}, nil
}

// Close lets go of all hosts; the kernel removes them with their wires. Sockets
// and processes still alive in a host keep it for as long as they live. Close
// may be called more than once.
func (l *Lab) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, h := range l.hosts {
		errs = append(errs, h.close())
	}
	l.hosts = nil
	return errors.Join(errs...)
}

// Host makes a network namespace. The name is for messages only.
func (l *Lab) Host(name string) (*Host, error) {
	h := &Host{name: name, ns: netns.None()}
	err := h.open()
	if err != nil {
		h.close()
		return nil, fmt.Errorf("host %s: %w", name, err)
	}
	l.mu.Lock()
	l.hosts = append(l.hosts, h)
	l.mu.Unlock()
	return h, nil
}

func (h *Host) open() error {
	if err := h.unshare(); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	nl, err := netlink.NewHandleAt(h.ns)
	if err != nil {
		return err
	}
	h.nl = nl
	if err := h.Up("lo"); err != nil {
		return err
	}
	for _, which := range []string{"all", "default"} {
		key := "net.ipv6.conf." + which + ".disable_ipv6"
		if err := h.Sysctl(key, "1"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	// Where bridge netfilter exists it is on in new namespaces, and costs a
	// bridge a quarter of its rate.
	err = h.Sysctl("net.bridge.bridge-nf-call-iptables", "0")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// unshare makes the namespace on a thread of its own and comes back.
func (h *Host) unshare() error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer leave(home)
	h.ns, err = netns.New()
	return err
}

// leave takes the thread back to its namespace. If that fails, the thread stays
// locked and dies with its goroutine rather than run others in the wrong place.
func leave(home netns.NsHandle) {
	if netns.Set(home) == nil {
		runtime.UnlockOSThread()
	}
	home.Close()
}

func (h *Host) close() error {
	if h.nl != nil {
		h.nl.Close()
		h.nl = nil
	}
	if h.ns.IsOpen() {
		return h.ns.Close()
	}
	return nil
}

// Name returns the name given to [Lab.Host].
func (h *Host) Name() string { return h.name }

// NS returns the namespace's descriptor, valid until the lab is closed.
func (h *Host) NS() netns.NsHandle { return h.ns }

// Path returns the namespace as a file, for nsenter --net=PATH.
func (h *Host) Path() string {
	return filepath.Join("/proc", fmt.Sprint(os.Getpid()), "fd", fmt.Sprint(int(h.ns)))
}

// Netlink returns a netlink handle of the namespace, for what this package does
// not offer. It belongs to the host.
func (h *Host) Netlink() *netlink.Handle { return h.nl }

// Do runs fn in the namespace: on the calling goroutine, its thread locked
// meanwhile. Sockets that fn opens stay in the namespace; goroutines it starts
// do not run there.
func (h *Host) Do(fn func() error) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("host %s: %w", h.name, err)
	}
	defer leave(home)
	if err := netns.Set(h.ns); err != nil {
		return fmt.Errorf("host %s: enter the namespace: %w", h.name, err)
	}
	return fn()
}

// Sysctl sets a kernel parameter of the host, as sysctl key=value does.
func (h *Host) Sysctl(key, value string) error {
	path := filepath.Join("/proc/sys", strings.ReplaceAll(key, ".", "/"))
	return h.Do(func() error { return os.WriteFile(path, []byte(value), 0) })
}
