//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "demo: raw NIC queues need Linux")
	os.Exit(1)
}
