package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"sluice/qdisc/kinds"
	"sluice/shaper"
	"sluice/shaper/config"
	"sluice/shaper/control"
)

// command carries out command lines.
type command struct {
	name     string // it was called by: sluice, or tc
	client   *control.Client
	in       io.Reader
	out, err io.Writer
}

// run carries out one command line and returns the exit code.
func (c *command) run(args []string) int {
	if c.name == "tc" {
		return c.tc(args)
	}
	rest, json := args, false
	for len(rest) > 0 && isJSON(rest[0]) {
		json, rest = true, rest[1:]
	}
	if len(rest) == 0 {
		rest = []string{"help"}
	}
	switch rest[0] {
	case "apply":
		return c.apply(rest[1:])
	case "check":
		return c.check(rest[1:])
	case "status":
		if len(rest) == 2 && isJSON(rest[1]) {
			json, rest = true, rest[:1]
		}
		return c.status(rest[1:], json)
	case "help", "-h", "-help", "--help":
		if len(rest) == 2 {
			return c.help(rest[1])
		}
		c.ownHelp()
	}
	return c.tc(args)
}

func isJSON(arg string) bool { return arg == "-j" || arg == "-json" || arg == "--json" }

func (c *command) ownHelp() { fmt.Fprintf(c.err, usageOwn, kindNames(" | ")) }

// help KIND, or an own word
func (c *command) help(name string) int {
	switch name {
	case "apply", "check", "status":
		c.ownHelp()
		return 0
	}
	kind := kinds.ByName(name)
	if kind == nil {
		fmt.Fprintf(c.err, "sluice: there is no qdisc %q; there are %s\n", name, kindNames(", "))
		return exitUsage
	}
	if err := writeKind(c.out, kind); err != nil {
		return c.fail(err)
	}
	return 0
}

// apply FILE [--discard-edits]
func (c *command) apply(args []string) int {
	const form = "apply FILE [--discard-edits]"
	a, file := control.Apply{}, ""
	for _, arg := range args {
		switch {
		case arg == "--discard-edits" || arg == "-discard-edits":
			a.DiscardEdits = true
		case strings.HasPrefix(arg, "-") || file != "":
			return c.usage(form)
		default:
			file = arg
		}
	}
	if file == "" {
		return c.usage(form)
	}
	text, code := c.load(file)
	if code != 0 {
		return code
	}
	var err error
	if a.Name, err = filepath.Abs(file); err != nil { // the service has another working directory
		return c.fail(err)
	}
	a.Text = text
	report, err := c.client.Apply(a)
	if err != nil {
		return c.fail(err)
	}
	for _, step := range report.Steps {
		fmt.Fprintln(c.out, step)
	}
	if len(report.Steps) == 0 {
		fmt.Fprintln(c.out, "no qdisc or class to change")
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
		err = json.NewEncoder(c.out).Encode(s)
	} else {
		err = writeStatus(c.out, s)
	}
	if err != nil {
		return c.fail(err)
	}
	return 0
}

// fail says why something did not happen. Who refused decides the exit code.
func (c *command) fail(err error) int {
	var refused *control.RefusedError
	if errors.As(err, &refused) {
		fmt.Fprintln(c.err, err) // it begins with the file's name
		return exitRefused
	}
	fmt.Fprintf(c.err, "%s: %v\n", c.name, err)
	if errors.Is(err, shaper.ErrEdited) {
		return exitRefused
	}
	return exitFailed
}

func (c *command) usage(form string) int {
	fmt.Fprintln(c.err, "Usage: sluice", form)
	return exitUsage
}
