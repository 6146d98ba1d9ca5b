package control

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// maxPath is what the address of a unix socket holds besides its ending NUL.
const maxPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// socket is a listening unix socket, and the lock that says whose it is.
type socket struct {
	net.Listener
	close func() error // once
}

// listen opens the socket at path, mode 0660 from the first moment, owned by
// group when one is named. The lock beside it belongs to a process for as long as
// that lives, so what stands at path while nobody has the lock is a dead
// service's, and is replaced.
func listen(path, group string) (*socket, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("the path is %d bytes long, and a socket's may have %d; choose a shorter one for [control] socket",
			len(path), maxPath)
	}
	gid := -1
	if group != "" {
		var err error
		if gid, err = groupID(group); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("its directory cannot be made: %w", err)
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, err
	}
	l, err := bind(path, gid)
	if err != nil {
		lock.Close()
		return nil, err
	}
	// The lock's file stays: one that was removed could be locked twice.
	return &socket{l, sync.OnceValue(func() error { return errors.Join(l.Close(), lock.Close()) })}, nil
}

// Close removes the socket, then gives up the lock.
func (s *socket) Close() error { return s.close() }

func lockFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("its lock cannot be opened: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.New("another sluiced has it; stop that one, or give this one another [control] socket")
	}
	return nil, fmt.Errorf("its lock, %s: %w", name, err)
}

func bind(path string, gid int) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, errors.New("something that is no socket stands there; remove it, or choose another path for [control] socket")
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// A chmod afterwards would come too late for who connects in between.
	umask := syscall.Umask(0o117)
	l, err := net.Listen("unix", path)
	syscall.Umask(umask)
	if err != nil {
		return nil, err
	}
	if gid >= 0 {
		if err := os.Chown(path, -1, gid); err != nil {
			l.Close()
			return nil, fmt.Errorf("it cannot be given to the group: %w", err)
		}
	}
	return l, nil
}

func groupID(name string) (int, error) {
	g, err := user.LookupGroup(name)
	var unknown user.UnknownGroupError
	switch {
	case errors.As(err, &unknown):
		return 0, fmt.Errorf("there is no group %q; make it, or name another for [control] group", name)
	case err != nil:
		return 0, err
	}
	return strconv.Atoi(g.Gid)
}
