package classify_test

import (
	"fmt"

	"sluice/shaper/classify"
)

func ExampleParseMatch() {
	m, _ := classify.ParseMatch("udp port 5060 or dscp 46")
	fmt.Println(m)
	_, err := classify.ParseMatch("udp and dcsp ef")
	fmt.Println(err)
	// Output:
	// udp and port 5060 or dscp ef
	// unknown word "dcsp", at byte 8 of "udp and dcsp ef". Did you mean "dscp"?
}
