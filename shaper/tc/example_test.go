package tc_test

import (
	"fmt"
	"os"
	"strings"

	"sluice/qdisc"
	"sluice/qdisc/kinds"
	"sluice/shaper/tc"
	"sluice/shaper/tree"
)

// A command line becomes a request for a tree, and a snapshot of a tree becomes
// what tc prints.
func Example() {
	line := "qdisc add dev wan root handle 1: tbf rate 8mbit burst 10k limit 100k"
	c, err := tc.Parse(strings.Fields(line), kinds.ByName)
	if err != nil {
		text, code := tc.KernelError(err)
		fmt.Println(text, code)
		return
	}
	fmt.Println(c.Request.Op, c.Request.Kind, c.Request.Values.N("rate", 0), "bytes/s")

	show, _ := tc.Parse([]string{"qdisc", "show", "dev", "wan"}, kinds.ByName)
	snapshot := []tree.QdiscInfo{{
		Dev: "wan", Kind: "pfifo", Handle: qdisc.MakeID(0x10, 0), Parent: qdisc.MakeID(1, 1),
		Options: qdisc.Values{"limit": {N: 7}},
	}}
	_ = tc.WriteQdiscs(os.Stdout, show, snapshot, kinds.ByName)
	// Output:
	// add tbf 1000000 bytes/s
	// qdisc pfifo 10: parent 1:1 limit 7p
}
