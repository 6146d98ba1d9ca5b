// Command sluice is the tc of a running sluiced, with a few words of its own:
//
//	sluice [OPTIONS] qdisc|class …    as tc
//	sluice check FILE                 check a configuration
//	sluice apply FILE                 put its policy into force
//	sluice status                     ports, queues and counters
//
// It finds sluiced by -socket PATH (first on the line), by SLUICE_SOCKET, or at
// the default place. tc's part has tc's exit codes; its own: 0 done, 1 failed,
// 2 usage, 3 the configuration is refused.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"sluice/qdisc/kinds"
	"sluice/shaper"
	"sluice/shaper/config"
	"sluice/shaper/control"
	"sluice/shaper/tc"
)

// Exit codes of the own words.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3
)

func main() {
	socket := os.Getenv("SLUICE_SOCKET")
	args := os.Args[1:]
	if len(args) >= 2 && (args[0] == "-socket" || args[0] == "--socket") {
		socket, args = args[1], args[2:]
	}
	if socket == "" {
		socket = control.DefaultSocket
	}
	client := control.Dial(socket)
	c := &command{client: client, out: os.Stdout, err: os.Stderr}
	code := c.run(args)
	client.Close()
	os.Exit(code)
}

type command struct {
	client   *control.Client
	out, err io.Writer
}

// run carries out one command line and returns the exit code.
func (c *command) run(args []string) int {
	json := false
	rest := args
	for len(rest) > 0 && (rest[0] == "-j" || rest[0] == "-json") {
		json, rest = true, rest[1:]
	}
	if len(rest) > 0 {
		switch rest[0] {
		case "apply":
			return c.apply(rest[1:])
		case "check":
			return c.check(rest[1:])
		case "status":
			return c.status(rest[1:], json)
		}
	}
	return c.tc(args)
}

func (c *command) tc(args []string) int {
	cmd, err := tc.Parse(args, kinds.ByName)
	if err == nil {
		err = c.tcRun(cmd)
	}
	if err == nil {
		return 0
	}
	var down *control.UnreachableError
	if errors.As(err, &down) {
		fmt.Fprintln(c.err, "sluice:", err)
		return exitFailed
	}
	var dev *shaper.NoDeviceError
	if errors.As(err, &dev) {
		err = tc.NoDevice(dev.Dev)
	}
	text, code := tc.KernelError(err)
	fmt.Fprintln(c.err, text)
	return code
}

func (c *command) tcRun(cmd *tc.Command) error {
	switch {
	case cmd.Options.Version:
		_, err := fmt.Fprintln(c.out, "sluice utility, tc grammar of iproute2 7")
		return err
	case cmd.Options.Batch != "":
		return &tc.Error{Msg: "batch files are not supported yet; give one command at a time", Code: tc.ExitUsage}
	case cmd.Object == "filter":
		return tc.NotYet(cmd)
	}
	class := cmd.Object == "class"
	switch {
	case cmd.Verb == "show" && class:
		if cmd.Dev == "" {
			return nil // as tc
		}
		all, err := c.client.Classes(cmd.Dev)
		if err != nil {
			return err
		}
		return tc.WriteClasses(c.out, cmd, all, kinds.ByName)
	case cmd.Verb == "show":
		all, err := c.client.Qdiscs(cmd.Dev)
		if err != nil {
			return err
		}
		return tc.WriteQdiscs(c.out, cmd, all, kinds.ByName)
	case class:
		return c.client.Class(cmd.Dev, cmd.Request)
	}
	return c.client.Qdisc(cmd.Dev, cmd.Request)
}

// apply FILE [--discard-edits]
func (c *command) apply(args []string) int {
	a := control.Apply{}
	for _, arg := range args {
		switch {
		case strings.TrimLeft(arg, "-") == "discard-edits" && strings.HasPrefix(arg, "-"):
			a.DiscardEdits = true
		case strings.HasPrefix(arg, "-") || a.Name != "":
			return c.usage("apply FILE [--discard-edits]")
		default:
			a.Name = arg
		}
	}
	if a.Name == "" {
		return c.usage("apply FILE [--discard-edits]")
	}
	text, code := c.load(a.Name)
	if code != 0 {
		return code
	}
	a.Text = text
	report, err := c.client.Apply(a)
	var refused *control.ConfigError
	switch {
	case errors.As(err, &refused):
		fmt.Fprintln(c.err, err)
		return exitRefused
	case err != nil:
		return c.fail(err)
	}
	for _, step := range report.Steps {
		fmt.Fprintln(c.out, step)
	}
	if len(report.Steps) == 0 {
		fmt.Fprintln(c.out, "nothing to change")
	}
	return 0
}

// check FILE
func (c *command) check(args []string) int {
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		return c.usage("check FILE")
	}
	_, code := c.load(args[0])
	return code
}

// load reads and checks a configuration, and prints what is wrong with it.
func (c *command) load(file string) (text string, code int) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", c.fail(err)
	}
	if _, err := config.Parse(file, data); err != nil {
		fmt.Fprintln(c.err, err)
		return "", exitRefused
	}
	return string(data), 0
}

// status
func (c *command) status(args []string, asJSON bool) int {
	if len(args) != 0 {
		return c.usage("[-j] status")
	}
	s, err := c.client.Status()
	if err != nil {
		return c.fail(err)
	}
	if asJSON {
		if err := json.NewEncoder(c.out).Encode(s); err != nil {
			return c.fail(err)
		}
		return 0
	}
	writeStatus(c.out, s)
	return 0
}

func (c *command) fail(err error) int {
	fmt.Fprintln(c.err, "sluice:", err)
	return exitFailed
}

func (c *command) usage(form string) int {
	fmt.Fprintln(c.err, "Usage: sluice", form)
	return exitUsage
}
