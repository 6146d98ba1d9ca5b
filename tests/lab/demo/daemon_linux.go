package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"sluice/tests/lab"
)

// patience is how long sluiced has to be ready, and to stop: it sends what is
// queued for a second.
const patience = 5 * time.Second

// daemon is a running sluiced.
type daemon struct {
	cmd   *lab.Cmd
	said  bytes.Buffer  // its log; read it when ended is closed
	ended chan struct{} // closed when the process is gone
	err   error         // what it ended with; read it when ended is closed
}

// startDaemon starts sluiced in a host and waits until it answers.
func startDaemon(ctx context.Context, h *lab.Host, command, config string, answers func() bool) (*daemon, error) {
	d := &daemon{ended: make(chan struct{})}
	// Not bound to ctx, which would kill it: stop lets it end as it should.
	d.cmd = h.Command(context.Background(), command, "-config", config)
	d.cmd.Stderr = &d.said
	// Ctrl-C is for the demo alone; when the demo is killed, sluiced stops too.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		d.err = d.cmd.Wait()
		close(d.ended)
	}()
	for end := time.Now().Add(patience); time.Now().Before(end) && ctx.Err() == nil; {
		if answers() {
			return d, nil
		}
		select {
		case <-d.ended:
			return nil, d.died()
		case <-time.After(10 * time.Millisecond):
		}
	}
	err := d.stop()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	}
	return nil, fmt.Errorf("sluiced does not answer after %v; it says:\n%s", patience, d.said.String())
}

// stop ends sluiced. It is an error if it had ended before, or ends badly.
func (d *daemon) stop() error {
	select {
	case <-d.ended:
		return d.died()
	default:
	}
	d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(patience):
		d.cmd.Process.Kill()
		<-d.ended
		return fmt.Errorf("sluiced did not stop within %v and was killed; it says:\n%s", patience, d.said.String())
	}
	if d.err != nil {
		return d.died()
	}
	return nil
}

func (d *daemon) died() error {
	how := "without an error"
	if d.err != nil {
		how = d.err.Error()
	}
	return fmt.Errorf("sluiced ended (%s); it says:\n%s", how, strings.TrimSpace(d.said.String()))
}
