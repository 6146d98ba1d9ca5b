package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// UDPBulk says what a bulk UDP sender sends.
type UDPBulk struct {
	To   string  // address:port; nobody needs to listen
	Rate float64 // bits a second of whole Ethernet frames without FCS; 0 means as fast as they go
	Size int     // bytes of UDP payload; 0 means 1472, a full Ethernet frame of IPv4
	TOS  int     // IPv4 TOS or IPv6 traffic class
}

// UDPBulk sends datagrams until the context ends.
func (h *Host) UDPBulk(ctx context.Context, o UDPBulk) (Sent, error) {
	o.Size = or(o.Size, 1472)
	to, err := netip.ParseAddrPort(o.To)
	if err != nil {
		return Sent{}, err
	}
	fd, err := h.udpSocket(o.To, unix.Connect)
	if err != nil {
		return Sent{}, fmt.Errorf("udp to %s: %w", o.To, err)
	}
	defer unix.Close(fd)
	frame := o.Size + 14 + 20 + 8
	if !to.Addr().Is4() {
		frame += 20
	}
	if err := setTOS(fd, o.TOS, !to.Addr().Is4()); err != nil {
		return Sent{}, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var sent Sent
	payload := make([]byte, o.Size)
	start := time.Now()
	for ctx.Err() == nil {
		if o.Rate > 0 {
			due := time.Duration(float64(sent.Bytes*8) / o.Rate * float64(time.Second))
			pause(ctx, due-time.Since(start))
		}
		// What is refused was still offered: a sender at a rate doesn't slow
		// down. A port nobody listens at answers with ECONNREFUSED now and then.
		if _, err := unix.Write(fd, payload); err != nil {
			sent.Refused++
		}
		sent.Packets++
		sent.Bytes += uint64(frame)
	}
	sent.Elapsed = time.Since(start)
	return sent, nil
}

// TCPSink takes TCP connections and throws away what they bring.
type TCPSink struct {
	l     net.Listener
	bytes atomic.Uint64
	wg    sync.WaitGroup
	mu    sync.Mutex
	conns []net.Conn
}

// TCPSink starts a sink at an address:port of the host.
func (h *Host) TCPSink(address string) (*TCPSink, error) {
	s := &TCPSink{}
	err := h.Do(func() (err error) {
		s.l, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sink in %s: %w", h.name, err)
	}
	s.wg.Go(func() {
		for {
			c, err := s.l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			s.wg.Go(func() { s.drain(c) })
		}
	})
	return s, nil
}

func (s *TCPSink) drain(c net.Conn) {
	buf := make([]byte, 256<<10)
	for {
		n, err := c.Read(buf)
		s.bytes.Add(uint64(n))
		if err != nil {
			c.Close()
			return
		}
	}
}

// Bytes returns the bytes received until now, of all connections.
func (s *TCPSink) Bytes() uint64 { return s.bytes.Load() }

// Close ends the sink and its connections.
func (s *TCPSink) Close() error {
	err := s.l.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.wg.Wait()
	return err
}

// TCPBulk says what a bulk TCP sender sends.
type TCPBulk struct {
	To         string // address:port of a [TCPSink]
	Conns      int    // parallel connections; 0 means 1
	Congestion string // congestion control; "" means cubic, which unlike BBR fills a queue
	TOS        int    // IPv4 TOS or IPv6 traffic class
}

// TCPBulk sends until the context ends and returns the bytes written and the
// congestion control that was used: the kernel's default when the kernel has
// not what was asked for.
func (h *Host) TCPBulk(ctx context.Context, o TCPBulk) (bytes uint64, congestion string, err error) {
	var total atomic.Uint64
	if o.Congestion == "" {
		o.Congestion = "cubic"
	}
	var conns []net.Conn
	for range or(o.Conns, 1) {
		var c net.Conn
		err := h.Do(func() (err error) {
			c, err = o.dialer(&congestion).DialContext(ctx, "tcp", o.To)
			return err
		})
		if err != nil {
			for _, c := range conns {
				c.Close()
			}
			return 0, congestion, fmt.Errorf("tcp from %s: %w", h.name, err)
		}
		conns = append(conns, c)
	}
	errs := make([]error, len(conns))
	var wg sync.WaitGroup
	for i, c := range conns {
		unblock := context.AfterFunc(ctx, func() { c.SetDeadline(time.Now()) })
		wg.Go(func() {
			defer unblock()
			defer c.Close()
			buf := make([]byte, 128<<10)
			for ctx.Err() == nil {
				n, err := c.Write(buf)
				total.Add(uint64(n))
				if err != nil && ctx.Err() == nil {
					errs[i] = err
					return
				}
			}
			// What is still queued is of no interest: reset rather than drain.
			c.(*net.TCPConn).SetLinger(0)
		})
	}
	wg.Wait()
	return total.Load(), congestion, errors.Join(errs...)
}

// dialer sets the congestion control before the connection is made, and says
// which one the socket has.
func (o TCPBulk) dialer(used *string) *net.Dialer {
	return &net.Dialer{Control: func(network, _ string, rc syscall.RawConn) error {
		var serr error
		err := rc.Control(func(fd uintptr) {
			err := unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, o.Congestion)
			if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EPERM) {
				serr = err
				return
			}
			name, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
			if err != nil {
				serr = err
				return
			}
			*used = name
			serr = setTOS(int(fd), o.TOS, network == "tcp6")
		})
		return errors.Join(err, serr)
	}}
}
