package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sluice/shaper/config"
)

// policies are the two files that are compared, made of one: they have the
// ports and the shaper in common, and differ in what queues behind it.
type policies struct {
	fifo, shaped    string // files
	socket          string // control socket
	inside, outside string // interfaces
	rate            float64
}

// fifoQueue takes the place of everything that a policy hangs below its shaper.
const fifoQueue = `
[[qdisc]]
dev = %q
parent = "1:1"
kind = "pfifo"
limit = "1000 packets"
`

// preparePolicies writes into dir the policy with a control socket of its own,
// and the FIFO: its [engine], [control], [link.*] and the first [[qdisc]], which
// has to be the outside interface's tbf, with one queue in it.
func preparePolicies(file, dir string) (*policies, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p := &policies{
		fifo:   filepath.Join(dir, "fifo.toml"),
		shaped: filepath.Join(dir, "shaped.toml"),
		socket: filepath.Join(dir, "control.sock"),
	}
	text := strings.Replace(string(data), "\n[control]\n", fmt.Sprintf("\n[control]\nsocket = %q\n", p.socket), 1)
	c, err := config.Parse(file, []byte(text))
	if err != nil {
		return nil, err
	}
	tables := strings.SplitN(text, "\n[[qdisc]]\n", 3)
	if c.Control.Socket != p.socket || len(c.Links) != 1 || len(tables) < 3 ||
		!c.Qdiscs[0].Root || c.Qdiscs[0].Kind != "tbf" || c.Qdiscs[0].Dev != c.Links[0].Outside.Dev {
		return nil, fmt.Errorf("%s: the demo needs a [control] table, one link, and a tbf at the root of its outside interface as first [[qdisc]]", file)
	}
	p.inside, p.outside = c.Links[0].Inside.Dev, c.Links[0].Outside.Dev
	p.rate = float64(c.Qdiscs[0].Values.N("rate", 0)) * 8
	fifo := tables[0] + "\n[[qdisc]]\n" + tables[1] + fmt.Sprintf(fifoQueue, p.outside)
	if err := os.WriteFile(p.fifo, []byte(fifo), 0o644); err != nil {
		return nil, err
	}
	return p, os.WriteFile(p.shaped, []byte(text), 0o644)
}
