package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/shaper/control"
	"sluice/tests/lab"
)

const (
	insideIP  = "10.0.0.1"
	outsideIP = "10.0.0.2"
	loadPort  = 9000 // and up, one for each class
)

// namespaces is the bench with a real sluiced between two real hosts.
type namespaces struct {
	*control.Client // Status and Qdiscs

	lab             *lab.Lab
	inside, outside *lab.Host
	echo            *lab.Echo
	sinks           [len(classes)]net.PacketConn
	arrived         [len(classes)]atomic.Uint64

	rate     float64
	stopLoad context.CancelFunc
	load     sync.WaitGroup

	daemon *daemon
	sluice string // the command
	env    string // SLUICE_SOCKET=…
	out    io.Writer
}

func openNamespaces(ctx context.Context, o options, p *policies, out io.Writer) (_ bench, err error) {
	n := &namespaces{
		rate: p.rate, sluice: filepath.Join(o.bin, "sluice"), env: "SLUICE_SOCKET=" + p.socket, out: out,
		Client: control.Dial(p.socket),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if n.lab, err = lab.New(); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "Three network namespaces, joined by veth:\n\n")
	fmt.Fprintf(out, "  inside %s ──── %s router %s ──── %s outside\n\n", insideIP, p.inside, p.outside, outsideIP)
	writeTraffic(out, p.rate)
	router, err := n.wire(p)
	if err != nil {
		return nil, err
	}
	if n.echo, err = n.outside.Echo(outsideIP + ":7"); err != nil {
		return nil, err
	}
	if err := n.openSinks(); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "shaped.toml is %s with a control socket of its own, fifo.toml the same up to its tbf,\nand one pfifo below it.\n\n", o.policy)
	n.show("export " + n.env)
	n.show(filepath.Join(o.bin, "sluiced"), "-config", p.fifo, "&")
	n.daemon, err = startDaemon(ctx, router, filepath.Join(o.bin, "sluiced"), p.fifo, n.answers)
	if err != nil {
		return nil, err
	}
	return n, nil
}

// wire makes the hosts. Both know each other's hardware address, so that no ARP
// depends on a full queue.
func (n *namespaces) wire(p *policies) (router *lab.Host, err error) {
	for _, h := range []struct {
		name string
		host **lab.Host
	}{{"inside", &n.inside}, {"router", &router}, {"outside", &n.outside}} {
		if *h.host, err = n.lab.Host(h.name); err != nil {
			return nil, err
		}
	}
	if err := n.lab.Wire(n.inside, "eth0", router, p.inside, lab.Wire{}); err != nil {
		return nil, err
	}
	if err := n.lab.Wire(n.outside, "eth0", router, p.outside, lab.Wire{}); err != nil {
		return nil, err
	}
	insideMAC, err := n.inside.MAC("eth0")
	if err != nil {
		return nil, err
	}
	outsideMAC, err := n.outside.MAC("eth0")
	if err != nil {
		return nil, err
	}
	return router, errors.Join(
		n.inside.Addr("eth0", insideIP+"/24"), n.outside.Addr("eth0", outsideIP+"/24"),
		n.inside.Neighbor("eth0", outsideIP, outsideMAC), n.outside.Neighbor("eth0", insideIP, insideMAC),
	)
}

// show prints a command line as one would type it in the router's namespace.
func (n *namespaces) show(words ...string) {
	fmt.Fprintln(n.out, "router#", strings.Join(words, " "))
}

func (n *namespaces) answers() bool { _, err := n.Status(); return err == nil }

func loadAddr(class int) string {
	return netip.AddrPortFrom(netip.MustParseAddr(outsideIP), loadPort+uint16(class)).String()
}

// openSinks receives and counts the load.
func (n *namespaces) openSinks() error {
	return n.outside.Do(func() error {
		for i := range classes {
			c, err := net.ListenPacket("udp4", loadAddr(i))
			if err != nil {
				return err
			}
			n.sinks[i] = c
			go func() {
				for buf := make([]byte, 2048); ; {
					got, _, err := c.ReadFrom(buf)
					if err != nil {
						return
					}
					n.arrived[i].Add(uint64(got))
				}
			}()
		}
		return nil
	})
}

func (n *namespaces) Arrived() (bytes [len(classes)]uint64) {
	for i := range bytes {
		bytes[i] = n.arrived[i].Load()
	}
	return bytes
}

func (n *namespaces) Load(on bool) error {
	if n.stopLoad != nil {
		n.stopLoad()
		n.load.Wait()
		n.stopLoad = nil
	}
	if !on {
		return nil
	}
	var ctx context.Context
	ctx, n.stopLoad = context.WithCancel(context.Background())
	for i, c := range classes {
		if c.load > 0 {
			// It can only fail to make its socket, and then nothing arrives.
			n.load.Go(func() {
				n.inside.UDPBulk(ctx, lab.UDPBulk{To: loadAddr(i), Rate: c.load * n.rate, Size: loadPayload, TOS: c.tos})
			})
		}
	}
	return nil
}

func (n *namespaces) Probe(ctx context.Context, d time.Duration) (rtts [len(classes)]lab.RTTs, err error) {
	var errs [len(classes)]error
	var wg sync.WaitGroup
	for i, c := range classes {
		wg.Go(func() {
			rtts[i], errs[i] = n.inside.Probe(ctx, lab.Probe{To: outsideIP + ":7", Count: int(d / probeEvery),
				Every: probeEvery, Size: probePayload, TOS: c.tos, Wait: probeWait})
		})
	}
	wg.Wait()
	return rtts, errors.Join(errs[:]...)
}

func (n *namespaces) Apply(ctx context.Context, file string) error {
	n.show(n.sluice, "apply", file)
	cmd := exec.CommandContext(ctx, n.sluice, "apply", file)
	cmd.Env = append(os.Environ(), n.env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the demo alone
	said, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(said)) {
		fmt.Fprint(n.out, "    ", line)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("sluice apply: %w", err)
	}
	return nil
}

func (n *namespaces) Close() error {
	n.Load(false)
	n.Client.Close()
	var errs []error
	if n.daemon != nil {
		errs = append(errs, n.daemon.stop())
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
