package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"sluice/qdisc/kinds"
	"sluice/shaper"
	"sluice/shaper/control"
	"sluice/shaper/tc"
)

var parser = tc.Parser{Lookup: kinds.ByName, Speed: linkSpeed}

// tc carries out a command line of tc.
func (c *command) tc(args []string) int {
	cmd, err := parser.Parse(args)
	switch {
	case err != nil:
		return c.refusal(err)
	case cmd.Options.Netns != "":
		return c.refusal(&tc.Error{Code: tc.ExitUsage,
			Msg: "sluiced knows its ports whatever namespace they are in; leave -netns out, and name another sluiced by SLUICE_SOCKET"})
	case cmd.Options.Version:
		fmt.Fprintf(c.out, "%s utility, grammar of iproute2-7.3.0\n", c.name)
		return 0
	case cmd.Options.Batch != "":
		return c.batch(cmd.Options)
	}
	return c.refusal(c.do(cmd))
}

// do carries out a command that was understood.
func (c *command) do(cmd *tc.Command) error {
	class := cmd.Object == "class"
	switch {
	case cmd.Object == "filter":
		if cmd.Verb == "show" && cmd.Dev == "" {
			return nil // as tc
		}
		return tc.NotYet(cmd)
	case cmd.Verb == "show" && class && cmd.Dev == "": // nothing, as tc
		return tc.WriteClasses(c.out, cmd, nil, kinds.ByName)
	case cmd.Verb == "show" && class:
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

// batch carries out the commands of a file, under the options in front of it.
func (c *command) batch(o tc.Options) int {
	file, in := o.Batch, c.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return c.refusal(&tc.Error{Msg: fmt.Sprintf("Cannot open file %q for reading: %s", file, reason(err)), Code: exitFailed})
		}
		defer f.Close()
		in = f
	}
	code := 0
	for line, err := range tc.Batch(in) {
		if err != nil {
			return c.fail(err)
		}
		if c.line(line.Args, o) == 0 {
			continue
		}
		fmt.Fprintln(c.err, tc.BatchFailed(file, line))
		if code = exitFailed; !o.Force {
			break
		}
	}
	return code
}

// line carries out one line of a batch, which has no options of its own.
func (c *command) line(args []string, o tc.Options) int {
	if strings.HasPrefix(args[0], "-") {
		return c.refusal(&tc.Error{Msg: fmt.Sprintf(`Object "%s" is unknown, try "tc help".`, args[0]), Code: tc.ExitUsage})
	}
	cmd, err := parser.Parse(args)
	if err != nil {
		return c.refusal(err)
	}
	cmd.Options = o
	return c.refusal(c.do(cmd))
}

// refusal prints an error as tc does and returns tc's exit code.
func (c *command) refusal(err error) int {
	if err == nil {
		return 0
	}
	var down *control.UnreachableError
	if errors.As(err, &down) {
		return c.fail(err)
	}
	var dev *shaper.NoDeviceError
	if errors.As(err, &dev) {
		err = tc.NoDevice(dev.Dev)
	}
	text, code := tc.KernelError(err)
	fmt.Fprintln(c.err, text)
	return code
}

// reason is the cause of a file's error as the C library has it.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	s := err.Error()
	return strings.ToUpper(s[:1]) + s[1:]
}

// linkSpeed returns the speed of an interface in bytes per second, which rates in
// percent refer to.
func linkSpeed(dev string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join("/sys/class/net", filepath.Base(dev), "speed"))
	if err != nil {
		return 0, err
	}
	mbit, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return 0, err
	}
	return mbit * 1e6 / 8, nil
}
