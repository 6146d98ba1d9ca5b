// Command sluice is the tc of a running sluiced, with a few words of its own:
//
//	sluice [OPTIONS] qdisc|class …         as tc
//	sluice [-force] -batch FILE            as tc: one such command a line
//	sluice check FILE                      check a configuration
//	sluice apply FILE [--discard-edits]    put its policy into force
//	sluice [-j] status                     ports, queues and counters
//	sluice help KIND                       what a qdisc is for, and its parameters
//
// It finds sluiced by -socket PATH (first on the line), by SLUICE_SOCKET, or at
// the default place. tc's part has tc's exit codes; its own words have: 0 done, 1
// failed, 2 usage, 3 the policy is refused. Under the name tc it is tc and
// nothing else.
package main

import (
	"os"
	"path/filepath"

	"sluice/shaper/config"
	"sluice/shaper/control"
)

// Exit codes of the own words.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3
)

func main() {
	c := &command{name: "sluice", in: os.Stdin, out: os.Stdout, err: os.Stderr}
	if filepath.Base(os.Args[0]) == "tc" {
		c.name = "tc"
	}
	socket, args := os.Getenv("SLUICE_SOCKET"), os.Args[1:]
	if c.name == "sluice" && len(args) > 0 && (args[0] == "-socket" || args[0] == "--socket") {
		if len(args) == 1 {
			os.Exit(c.usage("-socket PATH …"))
		}
		socket, args = args[1], args[2:]
	}
	if socket == "" {
		socket = config.DefaultSocket
	}
	c.client = control.Dial(socket)
	code := c.run(args)
	c.client.Close()
	os.Exit(code)
}
