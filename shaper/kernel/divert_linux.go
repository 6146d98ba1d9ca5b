package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
)

// tcxDrop is TCX_DROP of linux/bpf.h.
const tcxDrop = 2

// attachDrop puts a program at an interface's ingress that drops every frame.
// The packet taps come before it.
func attachDrop(ifindex int) (link.Link, error) {
	// Before 5.11 programs were charged to RLIMIT_MEMLOCK; if this fails the load
	// says why.
	_ = rlimit.RemoveMemlock()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:    "sluice_divert",
		Type:    ebpf.SchedCLS,
		License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R0, tcxDrop),
			asm.Return(),
		},
	})
	if err != nil {
		return nil, opError("load ingress program", "", "", unsupported(err))
	}
	defer prog.Close() // the link keeps it
	l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: prog, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return nil, opError("attach ingress program", "", "", unsupported(err))
	}
	return l, nil
}

func unsupported(err error) error {
	if errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf("%w: %w", ErrNotSupported, err)
	}
	return err
}
