// Admin path.

package afpacket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"

	"sluice/dequeue"
	"sluice/shaper/nic"
)

const (
	ethHeader     = 14    // bytes of an Ethernet header
	vlanTags      = 2 * 4 // and of the tags that may come on top of the MTU
	vnetNeedsCsum = 1     // VIRTIO_NET_HDR_F_NEEDS_CSUM

	// rxOverhead is what the kernel puts before a received frame: its header and
	// address, the virtio header, and what aligns the network header.
	rxOverhead = 96

	minBlock = 64 << 10 // rings are made of blocks of physically adjacent pages
)

// Port is an Ethernet device with its sockets.
type Port struct {
	name string
	mtu  int
	rx   []*rxQueue
	tx   []*txQueue
}

var _ nic.Port = (*Port)(nil)

// Open opens a device of the calling thread's namespace. The errors are
// sentences for the operator.
func Open(o Options) (*Port, error) {
	p := &Port{name: o.Interface}
	if err := p.open(o); err != nil {
		p.Close()
		return nil, fmt.Errorf("%s: %w", o.Interface, err)
	}
	return p, nil
}

func (p *Port) open(o Options) error {
	index, mtu, err := device(o.Interface)
	if err != nil {
		return err
	}
	p.mtu = mtu
	longest := mtu + ethHeader + vlanTags
	if o.PoolFrame != 0 && longest > o.PoolFrame {
		return fmt.Errorf("MTU %d needs packets of %d bytes and the pool's hold %d: make them larger or lower the MTU to %d",
			mtu, longest, o.PoolFrame, o.PoolFrame-ethHeader-vlanTags)
	}
	if o.FrameSize == 0 {
		o.FrameSize = 1 << bits.Len(uint(longest+rxOverhead-1))
	}
	if o.FrameSize < longest+rxOverhead || o.FrameSize&(o.FrameSize-1) != 0 {
		return fmt.Errorf("frame size %d is too small for MTU %d or no power of two: use %d or lower the MTU",
			o.FrameSize, mtu, 1<<bits.Len(uint(longest+rxOverhead-1)))
	}
	rxReq, err := request(o.FrameSize, or(o.RxFrames, 2048))
	if err != nil {
		return fmt.Errorf("receive ring: %w", err)
	}
	txReq, err := request(o.FrameSize, or(o.TxFrames, 1024))
	if err != nil {
		return fmt.Errorf("transmit ring: %w", err)
	}
	queues := or(o.Queues, 1)
	if queues < 1 || queues > 256 {
		return fmt.Errorf("%d queues: between 1 and 256 are possible", queues)
	}
	group := 0
	for i := range queues {
		tx, err := openTx(index, longest, txReq)
		if err != nil {
			return fmt.Errorf("transmit queue %d: %w", i, explain(err))
		}
		p.tx = append(p.tx, tx)
		rx, err := openRx(index, longest, rxReq)
		if err != nil {
			return fmt.Errorf("receive queue %d: %w", i, explain(err))
		}
		p.rx = append(p.rx, rx)
		if queues > 1 {
			if group, err = joinFanout(rx.fd, group, i == 0); err != nil {
				return fmt.Errorf("receive queue %d: share the frames: %w", i, err)
			}
		}
	}
	return nil
}

func or(v, otherwise int) int {
	if v == 0 {
		return otherwise
	}
	return v
}

// request is a ring of n slots in blocks that hold a whole number of them.
func request(frameSize, n int) (unix.TpacketReq, error) {
	block := max(frameSize, minBlock)
	least := block / frameSize
	if n < least || n&(n-1) != 0 || n*frameSize > 1<<30 {
		return unix.TpacketReq{}, fmt.Errorf("%d slots of %d bytes: a power of two is needed, at least %d and at most %d",
			n, frameSize, least, 1<<30/frameSize)
	}
	return unix.TpacketReq{
		Block_size: uint32(block), Block_nr: uint32(n * frameSize / block),
		Frame_size: uint32(frameSize), Frame_nr: uint32(n),
	}, nil
}

// device finds an Ethernet device.
func device(name string) (index, mtu int, err error) {
	var ifr ifreq
	if name == "" || len(name) >= len(ifr.name) {
		return 0, 0, errors.New("not the name of an interface: 1 to 15 bytes are")
	}
	copy(ifr.name[:], name)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(fd)
	ask := func(request uint) error {
		ifr.union = [24]byte{}
		if errno := ioctlIfreq(fd, request, &ifr); errno != 0 {
			return explain(errno)
		}
		return nil
	}
	if err := ask(unix.SIOCGIFHWADDR); err != nil {
		return 0, 0, err
	}
	if hw := ifr.short(); hw != unix.ARPHRD_ETHER && hw != unix.ARPHRD_LOOPBACK {
		return 0, 0, fmt.Errorf("not an Ethernet device (hardware type %d): a tunnel is shaped at the Ethernet device below it", hw)
	}
	if err := ask(unix.SIOCGIFMTU); err != nil {
		return 0, 0, err
	}
	mtu = int(ifr.int())
	if err := ask(unix.SIOCGIFINDEX); err != nil {
		return 0, 0, err
	}
	return int(ifr.int()), mtu, nil
}

// explain adds to an errno what the operator can do.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: raw sockets need CAP_NET_RAW: run as root or grant it", err)
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("no such interface, `ip link` lists the ones there are: %w", err)
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w: use fewer or smaller ring slots", err)
	}
	return err
}

// openSocket makes a socket that receives nothing before its bind.
func openSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open a packet socket: %w", err)
	}
	err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("set up a packet socket: %w", err)
	}
	return fd, nil
}

// joinFanout makes the sockets of one port share its frames by flow hash. The
// kernel chooses the group's number for the first.
func joinFanout(fd, group int, first bool) (int, error) {
	mode := unix.PACKET_FANOUT_HASH | unix.PACKET_FANOUT_FLAG_IGNORE_OUTGOING
	if first {
		mode |= unix.PACKET_FANOUT_FLAG_UNIQUEID
	}
	err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT, group|mode<<16)
	if errors.Is(err, unix.EINVAL) { // kernels that can't ignore outgoing frames here: Receive does
		mode &^= unix.PACKET_FANOUT_FLAG_IGNORE_OUTGOING
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT, group|mode<<16)
	}
	if err != nil || !first {
		return group, err
	}
	group, err = unix.GetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT)
	return group & 0xffff, err
}

func htons(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// Name returns the name of the interface as it was opened.
func (p *Port) Name() string { return p.name }

// Driver returns "afpacket".
func (p *Port) Driver() string { return "afpacket" }

// MTU returns the device's MTU when it was opened.
func (p *Port) MTU() int { return p.mtu }

// Rx returns the receive queues.
func (p *Port) Rx() []nic.RxQueue {
	out := make([]nic.RxQueue, len(p.rx))
	for i, q := range p.rx {
		out[i] = q
	}
	return out
}

// Tx returns the transmit queues.
func (p *Port) Tx() []dequeue.Driver {
	out := make([]dequeue.Driver, len(p.tx))
	for i, q := range p.tx {
		out[i] = q
	}
	return out
}

// Close unmaps the rings and closes the sockets. Frames that wait for a doorbell
// are lost. It does nothing the second time.
func (p *Port) Close() error {
	var errs []error
	for _, q := range p.rx {
		errs = append(errs, q.close())
	}
	for _, q := range p.tx {
		errs = append(errs, q.close())
	}
	p.rx, p.tx = nil, nil
	return errors.Join(errs...)
}
