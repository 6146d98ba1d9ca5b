//go:build !linux

package kernel

import "context"

// Sluice runs on Linux. Elsewhere this package exists so that the rest compiles.

type Prepared struct {
	Link     Link
	Warnings []string
}

func Prepare(ifname string, o Options) (*Prepared, error) {
	return nil, opError("prepare", ifname, "", ErrNotSupported)
}
func (p *Prepared) OpenIngress() error { return nil }
func (p *Prepared) Restore() error     { return nil }

func Claim(ifname string) (release func(), err error) {
	return nil, opError("claim interface", ifname, "", ErrNotSupported)
}
func Links() ([]Link, error) { return nil, opError("list interfaces", "", "", ErrNotSupported) }
func LinkByName(n string) (Link, error) {
	return Link{}, opError("find interface", n, "", ErrNotSupported)
}
func Watch(ctx context.Context) (<-chan LinkEvent, error) {
	return nil, opError("watch interfaces", "", "", ErrNotSupported)
}
func Qdiscs(ifindex int) ([]Object, error) {
	return nil, opError("list qdiscs", "", "", ErrNotSupported)
}
func Classes(ifindex int) ([]Object, error) {
	return nil, opError("list classes", "", "", ErrNotSupported)
}

type TC struct{}

func OpenTC() (*TC, error)                        { return nil, opError("open rtnetlink", "", "", ErrNotSupported) }
func (*TC) Close() error                          { return nil }
func (*TC) ReplacePfifo(Where, Pfifo) error       { return ErrNotSupported }
func (*TC) ReplaceTbf(Where, Tbf) error           { return ErrNotSupported }
func (*TC) ReplaceHtb(Where, Htb) error           { return ErrNotSupported }
func (*TC) ReplaceHtbClass(Where, HtbClass) error { return ErrNotSupported }
func (*TC) ReplaceMq(ifindex int) error           { return ErrNotSupported }
func (*TC) DeleteQdisc(Where) error               { return ErrNotSupported }
func (*TC) DeleteClass(Where) error               { return ErrNotSupported }
