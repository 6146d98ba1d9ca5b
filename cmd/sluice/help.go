package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"sluice/qdisc"
	"sluice/qdisc/kinds"
)

const usageOwn = `Usage:	sluice [ -socket PATH ] { as tc, see below | own words }
own words:
	sluice check FILE                       say what is wrong with a configuration
	sluice apply FILE [ --discard-edits ]   put its policy into force, over edits by hand if asked to
	sluice [ -j ] status                    ports, queues and counters
	sluice help KIND                        what a qdisc is for, and its parameters
KIND := { %s }
`

// kindNames lists the disciplines.
func kindNames(separator string) string {
	var names []string
	for _, k := range kinds.All() {
		names = append(names, k.Name)
	}
	return strings.Join(names, separator)
}

// writeKind prints what the table of a kind says of it.
func writeKind(w io.Writer, k *qdisc.Kind) error {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s: %s\n", k.Name, k.Doc)
	if k.Usage != "" {
		fmt.Fprintf(&out, "\n%s\n", k.Usage)
	}
	for _, part := range []struct {
		name   string
		params []qdisc.Param
	}{{"parameters", k.Params}, {"parameters of a class", k.ClassParams}} {
		t := table{{part.name, "default", "meaning"}}
		for i := range part.params {
			if p := &part.params[i]; p.Taken() {
				t.row(p.Name, p.Default, p.Doc)
			}
		}
		if len(t) > 1 {
			t.write(&out, 3)
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}
