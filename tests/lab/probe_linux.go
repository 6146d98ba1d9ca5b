package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// RTTs are the round trips of a probe.
type RTTs struct {
	Sent    int
	Samples []time.Duration // of the answers that came, in order of sending
}

// Lost returns how many probes had no answer.
func (r RTTs) Lost() int { return r.Sent - len(r.Samples) }

// Percentile returns the p-th percentile (0 to 100, nearest rank), 0 when no
// answer came.
func (r RTTs) Percentile(p float64) time.Duration {
	if len(r.Samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(r.Samples))
	rank := int(math.Ceil(p / 100 * float64(len(s))))
	return s[min(max(rank, 1), len(s))-1]
}

func (r RTTs) String() string {
	return fmt.Sprintf("%d probes, %d lost, p50 %v p90 %v p99 %v max %v", r.Sent, r.Lost(),
		r.Percentile(50), r.Percentile(90), r.Percentile(99), r.Percentile(100))
}

// Probe says how to measure round trips.
type Probe struct {
	To    string        // address:port of an [Echo]
	Count int           // probes in all
	Every time.Duration // between two of them; 0 means 5 ms
	Size  int           // bytes of UDP payload, at least 16; 0 means 32
	TOS   int           // IPv4 TOS or IPv6 traffic class
	Wait  time.Duration // for the last answers; 0 means 1 s
}

// Echo answers UDP datagrams until it is closed.
type Echo struct {
	fd   int
	stop atomic.Bool
	done chan struct{}
}

// Echo starts to answer at an address:port of the host. It answers with the TOS
// of the question.
func (h *Host) Echo(address string) (*Echo, error) {
	fd, err := h.udpSocket(address, unix.Bind)
	if err != nil {
		return nil, fmt.Errorf("echo at %s: %w", address, err)
	}
	e := &Echo{fd: fd, done: make(chan struct{})}
	go e.loop()
	return e, nil
}

func (e *Echo) loop() {
	defer close(e.done)
	buf := make([]byte, 65536)
	for !e.stop.Load() {
		n, from, err := unix.Recvfrom(e.fd, buf, 0)
		if err == nil {
			unix.Sendto(e.fd, buf[:n], 0, from)
		}
	}
}

// Close ends the echo.
func (e *Echo) Close() error {
	if e.stop.Swap(true) {
		return nil
	}
	<-e.done
	return unix.Close(e.fd)
}

// udpSocket makes a blocking UDP socket in the host that gives up waiting every
// 20 ms, and binds or connects it. Blocking sockets on threads of their own are
// not delayed by Go's network poller when a busy worker shares the process.
func (h *Host) udpSocket(address string, attach func(fd int, sa unix.Sockaddr) error) (fd int, err error) {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return -1, err
	}
	family := unix.AF_INET
	var sa unix.Sockaddr = &unix.SockaddrInet4{Port: int(ap.Port()), Addr: as4(ap.Addr())}
	if !ap.Addr().Is4() {
		family = unix.AF_INET6
		sa = &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}
	}
	err = h.Do(func() error {
		fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, err
	}
	timeout := unix.Timeval{Usec: 20_000}
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		attach(fd, sa),
	)
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func as4(a netip.Addr) (b [4]byte) {
	if a.Is4() {
		b = a.As4()
	}
	return b
}

func setTOS(fd, tos int, v6 bool) error {
	if v6 {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, tos)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, tos)
}

// Probe measures round trips to an [Echo]: from just before the send call to
// the kernel's timestamp of the answer.
func (h *Host) Probe(ctx context.Context, p Probe) (RTTs, error) {
	p.Size = max(or(p.Size, 32), 16)
	if p.Every == 0 {
		p.Every = 5 * time.Millisecond
	}
	if p.Wait == 0 {
		p.Wait = time.Second
	}
	fd, err := h.udpSocket(p.To, unix.Connect)
	if err != nil {
		return RTTs{}, fmt.Errorf("probe %s: %w", p.To, err)
	}
	if to := netip.MustParseAddrPort(p.To); p.TOS != 0 {
		if err := setTOS(fd, p.TOS, !to.Addr().Is4()); err != nil {
			unix.Close(fd)
			return RTTs{}, err
		}
	}
	rtts := make([]time.Duration, p.Count) // by sequence number; 0 means no answer
	var answered atomic.Int64
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		collect(fd, rtts, &answered, &stop)
	}()

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sent := 0
	payload := make([]byte, p.Size)
	for start := time.Now(); sent < p.Count && ctx.Err() == nil; sent++ {
		pause(ctx, time.Duration(sent)*p.Every-time.Since(start))
		binary.BigEndian.PutUint64(payload, uint64(sent))
		binary.BigEndian.PutUint64(payload[8:], uint64(time.Now().UnixNano()))
		unix.Write(fd, payload) // one that is refused counts as lost
	}
	for end := time.Now().Add(p.Wait); int(answered.Load()) < sent && time.Now().Before(end) && ctx.Err() == nil; {
		pause(ctx, time.Millisecond)
	}
	stop.Store(true)
	<-done
	unix.Close(fd)
	return RTTs{Sent: sent, Samples: slices.DeleteFunc(rtts, func(d time.Duration) bool { return d == 0 })}, nil
}

// collect receives answers until it is told to stop.
func collect(fd int, rtts []time.Duration, answered *atomic.Int64, stop *atomic.Bool) {
	buf, oob := make([]byte, 65536), make([]byte, 128)
	for !stop.Load() {
		n, oobn, _, _, err := unix.Recvmsg(fd, buf, oob, 0)
		if err != nil || n < 16 {
			continue
		}
		at := time.Now()
		if hdr, data, _, err := unix.ParseOneSocketControlMessage(oob[:oobn]); err == nil &&
			hdr.Type == unix.SO_TIMESTAMPNS && len(data) >= 16 {
			ne := binary.NativeEndian
			at = time.Unix(int64(ne.Uint64(data)), int64(ne.Uint64(data[8:])))
		}
		seq := binary.BigEndian.Uint64(buf)
		sentAt := time.Unix(0, int64(binary.BigEndian.Uint64(buf[8:])))
		if seq < uint64(len(rtts)) && rtts[seq] == 0 {
			rtts[seq] = max(at.Sub(sentAt), 1)
			answered.Add(1)
		}
	}
}

// Ping sends one ICMP echo request and returns the round trip, or an error when
// no reply comes before the context ends (at most 1 s).
func (h *Host) Ping(ctx context.Context, address string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	to, err := netip.ParseAddr(address)
	if err != nil {
		return 0, fmt.Errorf("ping: %w", err)
	}
	rtt, err := h.ping(ctx, to)
	if err != nil {
		return 0, fmt.Errorf("ping %s from %s: %w", address, h.name, err)
	}
	return rtt, nil
}

var pingSeq atomic.Uint32

func (h *Host) ping(ctx context.Context, to netip.Addr) (time.Duration, error) {
	family, proto, request, reply := unix.AF_INET, unix.IPPROTO_ICMP, byte(8), byte(0)
	var sa unix.Sockaddr = &unix.SockaddrInet4{Addr: as4(to)}
	if !to.Is4() {
		family, proto, request, reply = unix.AF_INET6, unix.IPPROTO_ICMPV6, 128, 129
		sa = &unix.SockaddrInet6{Addr: to.As16()}
	}
	var fd int
	err := h.Do(func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
		return err
	})
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	timeout := unix.Timeval{Usec: 20_000}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return 0, err
	}
	msg := []byte{request, 0, 0, 0}
	msg = binary.BigEndian.AppendUint16(msg, uint16(os.Getpid()))
	msg = binary.BigEndian.AppendUint16(msg, uint16(pingSeq.Add(1)))
	if to.Is4() { // for ICMPv6 the kernel fills in the checksum
		binary.BigEndian.PutUint16(msg[2:], ^fold(sum(0, msg)))
	}
	start := time.Now()
	if err := unix.Sendto(fd, msg, 0, sa); err != nil {
		return 0, err
	}
	for buf := make([]byte, 2048); ctx.Err() == nil; {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			continue
		}
		b := buf[:n]
		if to.Is4() { // a raw IPv4 socket gives the header too
			b = b[min(n, int(b[0]&15)*4):]
		}
		if len(b) >= 8 && b[0] == reply && string(b[4:8]) == string(msg[4:8]) {
			return time.Since(start), nil
		}
	}
	return 0, ctx.Err()
}
