// Command demo shows what Sluice is for, in a quarter of a minute: an uplink
// that is offered twice its rate, first behind a plain FIFO, then behind the
// policy of etc/sluice.toml. It is what `make demo` runs.
//
//	demo [-memory] [-time D] [-policy FILE] [-bin DIR]
//
// As root it makes three network namespaces (an inside host, a router, an
// outside host), runs sluiced on the raw queues of the router's two interfaces,
// and talks to it with the sluice command. Without root the same engine runs in
// this process, between memory ports and by a virtual clock, which takes a
// second. Either way it ends with one table.
//
// Nothing is left behind, however it ends: the namespaces have no names and go
// with the process, sluiced is stopped, the temporary directory is removed.
// The exit code is 0 when the demo ran, whatever the table shows, 1 when it could
// not, 2 for a wrong command line and 130 when it was interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"sluice/tests/lab"
)

// options are the command line.
type options struct {
	memory bool
	policy string
	bin    string
	time   time.Duration // one measurement; idle takes half of it
}

func main() {
	var o options
	flag.BoolVar(&o.memory, "memory", false, "run in memory, even as root")
	flag.StringVar(&o.policy, "policy", "etc/sluice.toml", "the shaped policy, a `file`")
	flag.StringVar(&o.bin, "bin", "bin", "the `directory` of sluiced and sluice")
	flag.DurationVar(&o.time, "time", 5*time.Second, "how long to measure each policy")
	flag.Parse()
	if flag.NArg() > 0 || o.time < 100*time.Millisecond {
		fmt.Fprintln(os.Stderr, "demo: no arguments, and a -time of at least 100ms; see demo -help")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	err := run(ctx, o, os.Stdout)
	switch {
	case ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)):
		fmt.Fprintln(os.Stderr, "demo: interrupted; everything it made is gone")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run is the whole demo. What it made is gone when it returns.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "sluice-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p, err := preparePolicies(o.policy, dir)
	if err != nil {
		return err
	}

	open := openNamespaces
	if o.memory {
		open = openMemory
	} else if err := lab.Available(); err != nil {
		fmt.Fprintf(out, "Not as root, so in memory: %v.\n\n", err)
		open = openMemory
	}
	fmt.Fprintf(out, "An uplink of %.0f Mbit/s is offered twice as much, behind a plain FIFO and behind %s.\n\n", p.rate/1e6, o.policy)
	b, err := open(ctx, o, p, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()

	results, err := compare(ctx, b, p, o.time, out)
	if err != nil {
		return err
	}
	writeTable(out, results)
	fmt.Fprintf(out, "\n%s\n", verdict(results))
	return nil
}
