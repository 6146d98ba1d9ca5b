// Admin path.

package tap

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"sluice/dequeue"
	"sluice/shaper/nic"
)

const device = "/dev/net/tun"

// Port is an open TAP interface.
type Port struct {
	name string
	mtu  int
	fds  []int
	rx   []nic.RxQueue
	tx   []dequeue.Driver
}

var _ nic.Port = (*Port)(nil)

// Open opens the TAP interface of c in the namespace of the calling thread,
// making it if it does not exist; one that we made goes away with the port.
// Bringing it up is the caller's business.
func Open(c Config) (*Port, error) {
	if c.Queues == 0 {
		c.Queues = 1
	}
	if c.Queues < 1 || c.Queues > 256 {
		return nil, fmt.Errorf("tap %s: %d queues; 1 to 256 are possible", c.Name, c.Queues)
	}
	p := &Port{name: c.Name}
	if err := p.open(c); err != nil {
		p.Close()
		return nil, fmt.Errorf("tap %s: %w", c.Name, err)
	}
	return p, nil
}

func (p *Port) open(c Config) error {
	for range c.Queues {
		fd, err := unix.Open(device, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			if err == unix.ENOENT || err == unix.ENODEV || err == unix.ENXIO {
				return fmt.Errorf("open %s: %w; the kernel needs its tun module (modprobe tun)", device, err)
			}
			return fmt.Errorf("open %s: %w", device, err)
		}
		p.fds = append(p.fds, fd)
		if err := p.attach(fd, c.Queues); err != nil {
			return err
		}
		if err := offload(fd); err != nil {
			return fmt.Errorf("turn on checksum and segmentation offload: %w", err)
		}
		tx := &TxQueue{fd: fd}
		tx.probe()
		p.tx = append(p.tx, tx)
		p.rx = append(p.rx, &RxQueue{fd: fd, buf: make([]byte, maxSlot+maxSuper)})
	}
	var err error
	p.mtu, err = mtu(p.name, c.MTU)
	return err
}

// maxSlot is the longest slot that a pool can have.
const maxSlot = 65535

// attach makes fd a queue of the interface, and takes over the name that the
// kernel chose.
func (p *Port) attach(fd, queues int) error {
	// An interface that exists answers EINVAL when it was made with
	// multi_queue and is asked for without, or the other way round.
	flags := []uint16{unix.IFF_MULTI_QUEUE}
	if queues == 1 {
		flags = []uint16{0, unix.IFF_MULTI_QUEUE}
	}
	var err error
	for _, f := range flags {
		var ifr *unix.Ifreq
		if ifr, err = unix.NewIfreq(p.name); err != nil {
			return fmt.Errorf("name %q: an interface's name has at most %d characters", p.name, unix.IFNAMSIZ-1)
		}
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | f)
		if err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err == nil {
			p.name = ifr.Name()
			return nil
		}
		if err != unix.EINVAL {
			break
		}
	}
	switch err {
	case unix.EPERM:
		return fmt.Errorf("attach: %w; CAP_NET_ADMIN is needed, or an interface made for this user", err)
	case unix.EBUSY:
		return fmt.Errorf("attach: %w; another process has the interface open", err)
	case unix.EINVAL:
		return fmt.Errorf("attach: %w; an interface of this name exists and is not a tap with this many queues", err)
	}
	return fmt.Errorf("attach: %w", err)
}

// offload asks for everything that we can do in the device's place.
func offload(fd int) error {
	const tcp = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tcp|unix.TUN_F_USO4|unix.TUN_F_USO6)
	if err == unix.EINVAL { // before Linux 6.2
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tcp)
	}
	return err
}

// mtu sets the interface's MTU unless it is 0, and returns what it is then.
func mtu(name string, want int) (int, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	if want != 0 {
		ifr.SetUint32(uint32(want))
		if err := unix.IoctlIfreq(s, unix.SIOCSIFMTU, ifr); err != nil {
			return 0, fmt.Errorf("set mtu %d: %w", want, err)
		}
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFMTU, ifr); err != nil {
		return 0, fmt.Errorf("read mtu: %w", err)
	}
	return int(ifr.Uint32()), nil
}

// Name returns the interface's name.
func (p *Port) Name() string { return p.name }

// Driver returns "tap".
func (p *Port) Driver() string { return "tap" }

// MTU returns the MTU that the interface had when it was opened.
func (p *Port) MTU() int { return p.mtu }

// Rx returns the receive queues.
func (p *Port) Rx() []nic.RxQueue { return p.rx }

// Tx returns the transmit queues.
func (p *Port) Tx() []dequeue.Driver { return p.tx }

// Close detaches the queues, and with the last one removes an interface that
// is not persistent.
func (p *Port) Close() error {
	var errs []error
	for i, fd := range p.fds {
		if i < len(p.tx) {
			q := p.tx[i].(*TxQueue)
			for pkt := q.posted.Pop(); pkt != nil; pkt = q.posted.Pop() {
				pkt.Free()
			}
		}
		errs = append(errs, unix.Close(fd))
	}
	p.fds = nil
	return errors.Join(errs...)
}
