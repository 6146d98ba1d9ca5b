package kernel

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Claim takes an interface for this process until release is called or the
// process ends, and fails with ErrClaimed, naming the process, when another has
// it. It does not keep other programs from opening raw sockets.
//
// The claim is a listening unix socket with an abstract name. Such names belong
// to the network namespace, as interface indices do, need no directory, vanish
// with the process, and tell who holds them.
func Claim(ifname string) (release func(), err error) {
	l, err := LinkByName(ifname)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, opError("claim interface", ifname, "", err)
	}
	name := &unix.SockaddrUnix{Name: fmt.Sprintf("@sluice/port/%d", l.Index)}
	err = unix.Bind(fd, name)
	if err == nil {
		err = unix.Listen(fd, 1)
	}
	if err == nil {
		return sync.OnceFunc(func() { unix.Close(fd) }), nil
	}
	defer unix.Close(fd)
	if err != unix.EADDRINUSE {
		return nil, opError("claim interface", ifname, "", err)
	}
	holder := "another process"
	if unix.Connect(fd, name) == nil {
		if cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			holder = fmt.Sprintf("process %d", cred.Pid)
		}
	}
	return nil, &OpError{Op: "claim interface", Dev: ifname,
		Err: fmt.Errorf("%w (%s); stop that one first", ErrClaimed, holder)}
}
