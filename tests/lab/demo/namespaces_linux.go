package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"sluice/shaper/control"
	"sluice/tests/lab"
)

// patience is how long sluiced has to be ready, and to stop: it sends what is
// queued for a second.
const patience = 5 * time.Second

// namespaces is the bench with a real sluiced between two hosts.
type namespaces struct {
	*control.Client // Status and Qdiscs

	out                     io.Writer
	bin, socket             string
	rate                    float64
	began                   time.Time
	lab                     *lab.Lab
	inside, router, outside *lab.Host
	echo                    *lab.Echo
	sinks                   [len(classes)]*lab.Receiver
	load                    sync.WaitGroup
	stopLoad                context.CancelFunc

	stopSluiced context.CancelFunc
	ended       chan struct{} // closed when sluiced is gone; the two below are valid then
	err         error
	said        bytes.Buffer
}

func openNamespaces(ctx context.Context, o options, p *policies, out io.Writer) (_ bench, err error) {
	n := &namespaces{Client: control.Dial(p.socket), out: out, bin: o.bin, socket: "SLUICE_SOCKET=" + p.socket,
		rate: p.rate, began: time.Now(), stopLoad: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	fmt.Fprintf(out, "Three network namespaces, joined by veth:\n\n")
	fmt.Fprintf(out, "  inside %s ──── %s router %s ──── %s outside\n\n", insideIP, p.inside, p.outside, outsideIP)
	writeTraffic(out, p.rate)
	if err := n.wire(p); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "shaped.toml is %s with a control socket of its own, fifo.toml the same up to its tbf,\n", o.policy)
	fmt.Fprintf(out, "and one pfifo below it.\n\nrouter# export %s\n", n.socket)
	return n, n.start(ctx, p.fifo)
}

// wire makes the hosts, and what answers and counts at the outside one.
func (n *namespaces) wire(p *policies) (err error) {
	if n.lab, err = lab.New(); err != nil {
		return err
	}
	if n.router, err = n.lab.Host("router"); err != nil {
		return err
	}
	for _, h := range []struct {
		host         **lab.Host
		name, ip, to string
	}{{&n.inside, "inside", insideIP, p.inside}, {&n.outside, "outside", outsideIP, p.outside}} {
		if *h.host, err = n.lab.Host(h.name); err != nil {
			return err
		}
		err = errors.Join(n.lab.Wire(*h.host, "eth0", n.router, h.to, lab.Wire{}), (*h.host).Addr("eth0", h.ip+"/24"))
		if err != nil {
			return err
		}
	}
	// They know each other's hardware address, so that no ARP depends on a full queue.
	insideMAC, err := n.inside.MAC("eth0")
	outsideMAC, err2 := n.outside.MAC("eth0")
	err = errors.Join(err, err2,
		n.inside.Neighbor("eth0", outsideIP, outsideMAC), n.outside.Neighbor("eth0", insideIP, insideMAC))
	if err != nil {
		return err
	}
	for i, c := range classes {
		n.sinks[i], err = n.outside.Listen("eth0", lab.Listen{Filter: func(frame []byte) bool {
			return len(frame) == headers+loadPayload && frame[15] == byte(c.tos) &&
				binary.BigEndian.Uint16(frame[headers-6:]) == loadPort
		}})
		if err != nil {
			return err
		}
	}
	n.echo, err = n.outside.Echo(fmt.Sprintf("%s:%d", outsideIP, probePort))
	return err
}

// start starts sluiced in the router and waits until it answers.
func (n *namespaces) start(ctx context.Context, config string) error {
	command := filepath.Join(n.bin, "sluiced")
	fmt.Fprintf(n.out, "router# %s -config %s &\n", command, config)
	running, stop := context.WithCancel(context.Background())
	cmd := n.router.Command(running, command, "-config", config)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = patience
	cmd.Stderr = &n.said
	// Ctrl-C is for the demo alone; when the demo is killed, sluiced stops too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		stop()
		return err
	}
	n.stopSluiced, n.ended = stop, make(chan struct{})
	go func() {
		n.err = cmd.Wait()
		close(n.ended)
	}()
	for end := time.Now().Add(patience); time.Now().Before(end); n.Wait(ctx, 10*time.Millisecond) {
		if _, err := n.Status(); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-n.ended:
			return errors.New("sluiced did not start")
		default:
		}
	}
	return fmt.Errorf("sluiced does not answer after %v", patience)
}

func (n *namespaces) Now() time.Duration { return time.Since(n.began) }

func (n *namespaces) Wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (n *namespaces) Load(on bool) {
	n.stopLoad()
	n.load.Wait()
	if !on {
		return
	}
	var ctx context.Context
	ctx, n.stopLoad = context.WithCancel(context.Background())
	for _, c := range classes {
		if c.load > 0 {
			// It can only fail to make its socket, and then nothing arrives.
			n.load.Go(func() {
				n.inside.UDPBulk(ctx, lab.UDPBulk{To: fmt.Sprintf("%s:%d", outsideIP, loadPort),
					Rate: c.load * n.rate, Size: loadPayload, TOS: c.tos})
			})
		}
	}
}

func (n *namespaces) Probe(ctx context.Context, d time.Duration) (rtts [len(classes)]lab.RTTs, err error) {
	var errs [len(classes)]error
	var probes sync.WaitGroup
	for i, c := range classes {
		probes.Go(func() {
			rtts[i], errs[i] = n.inside.Probe(ctx, lab.Probe{To: fmt.Sprintf("%s:%d", outsideIP, probePort),
				Count: int(d / probeEvery), Every: probeEvery, Size: probePayload, TOS: c.tos, Wait: probeWait})
		})
	}
	probes.Wait()
	return rtts, errors.Join(errs[:]...)
}

func (n *namespaces) Arrived() (packets [len(classes)]uint64) {
	for i, s := range n.sinks {
		packets[i], _ = s.Count()
	}
	return packets
}

func (n *namespaces) Apply(ctx context.Context, file string) error {
	command := filepath.Join(n.bin, "sluice")
	fmt.Fprintf(n.out, "router# %s apply %s\n", command, file)
	cmd := exec.CommandContext(ctx, command, "apply", file)
	cmd.Env = append(os.Environ(), n.socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(said)) {
		fmt.Fprint(n.out, "    ", line)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("sluice apply: %w", err)
	}
	return ctx.Err()
}

// Close ends everything, also what was only half made.
func (n *namespaces) Close() error {
	n.Load(false)
	n.Client.Close()
	var errs []error
	if n.ended != nil {
		n.stopSluiced()
		<-n.ended
		// Canceled: SIGTERM was sent, and it ended with exit code 0.
		if !errors.Is(n.err, context.Canceled) {
			errs = append(errs, fmt.Errorf("sluiced ended with %v; it says:\n%s", n.err, strings.TrimSpace(n.said.String())))
		}
	}
	for _, s := range n.sinks {
		if s != nil {
			s.Close()
		}
	}
	if n.echo != nil {
		n.echo.Close()
	}
	if n.lab != nil {
		errs = append(errs, n.lab.Close())
	}
	return errors.Join(errs...)
}
