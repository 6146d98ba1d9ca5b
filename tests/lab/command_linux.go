package lab

import (
	"context"
	"os/exec"
)

// Cmd is a command that starts inside a host. Use its Start, Run, Output and
// CombinedOutput; everything else is exec.Cmd's.
type Cmd struct {
	*exec.Cmd
	host *Host
}

// Command prepares a command as exec.CommandContext does, to run in the host.
// It sees this process's /sys; its network, netlink and /proc/net are the
// host's.
func (h *Host) Command(ctx context.Context, name string, args ...string) *Cmd {
	return &Cmd{exec.CommandContext(ctx, name, args...), h}
}

// Start starts the command: a child gets the namespace of the thread that forks.
func (c *Cmd) Start() error { return c.host.Do(c.Cmd.Start) }

// Run starts the command and waits for it.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns its standard output.
func (c *Cmd) Output() (out []byte, err error) {
	err = c.host.Do(func() error { out, err = c.Cmd.Output(); return err })
	return out, err
}

// CombinedOutput runs the command and returns all it wrote.
func (c *Cmd) CombinedOutput() (out []byte, err error) {
	err = c.host.Do(func() error { out, err = c.Cmd.CombinedOutput(); return err })
	return out, err
}
