package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Send says what a raw sender sends.
type Send struct {
	Frames [][]byte                // sent in turn, over and over
	N      int                     // how many in all; 0 means until the context ends
	PPS    float64                 // frames a second; 0 means as fast as they go
	Edit   func(i int, frm []byte) // when set, changes frame i before it is sent (a sequence number)
}

// Sent is what a sender did.
type Sent struct {
	Packets, Bytes uint64
	Refused        uint64 // times a full queue refused a frame, which was then sent again
	Elapsed        time.Duration
}

// Send puts raw frames on an interface and returns when all are handed to its
// qdisc or the context ends, which is no error. A frame that a full queue
// refuses is sent again: every frame counted has left.
func (h *Host) Send(ctx context.Context, ifname string, s Send) (sent Sent, err error) {
	fd, err := h.packetSocket(ifname, 0)
	if err != nil {
		return sent, err
	}
	defer unix.Close(fd)
	// Wake up now and then to look at the context.
	timeout := unix.Timeval{Usec: 50_000}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
		return sent, err
	}
	runtime.LockOSThread() // pacing by nanosleep, which oversleeps 25 µs where Go's timers take 1 ms
	defer runtime.UnlockOSThread()

	start := time.Now()
	defer func() { sent.Elapsed = time.Since(start) }()
	for i := 0; s.N == 0 || i < s.N; i++ {
		if s.PPS > 0 {
			due := time.Duration(float64(i) / s.PPS * float64(time.Second))
			if wait := due - time.Since(start); wait > 0 {
				pause(ctx, wait)
			}
		}
		frame := s.Frames[i%len(s.Frames)]
		if s.Edit != nil {
			s.Edit(i, frame)
		}
		for {
			if (s.PPS > 0 || i%64 == 0) && ctx.Err() != nil {
				return sent, nil
			}
			_, err = unix.Write(fd, frame)
			if err == nil {
				break
			}
			switch {
			case errors.Is(err, unix.ENOBUFS):
				sent.Refused++
				pause(ctx, 20*time.Microsecond)
			case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			default:
				return sent, fmt.Errorf("send on %s/%s: %w", h.name, ifname, err)
			}
			if ctx.Err() != nil {
				return sent, nil
			}
		}
		sent.Packets++
		sent.Bytes += uint64(len(frame))
	}
	return sent, nil
}

// pause sleeps on the calling thread, at most until the context ends, give or
// take 50 ms.
func pause(ctx context.Context, d time.Duration) {
	for d > 0 && ctx.Err() == nil {
		part := min(d, 50*time.Millisecond)
		ts := unix.NsecToTimespec(int64(part))
		unix.Nanosleep(&ts, nil)
		d -= part
	}
}

// packetSocket opens a blocking AF_PACKET socket bound to an interface.
// Protocol 0 receives nothing.
func (h *Host) packetSocket(ifname string, protocol uint16) (fd int, err error) {
	index, err := h.Index(ifname)
	if err != nil {
		return -1, err
	}
	err = h.Do(func() error {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("packet socket on %s/%s: %w", h.name, ifname, err)
	}
	addr := &unix.SockaddrLinklayer{Ifindex: index, Protocol: htons(protocol)}
	if protocol != 0 {
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 256<<20),
		)
	}
	if err = errors.Join(err, unix.Bind(fd, addr)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("packet socket on %s/%s: %w", h.name, ifname, err)
	}
	return fd, nil
}

func htons(v uint16) uint16 {
	return binary.NativeEndian.Uint16([]byte{byte(v >> 8), byte(v)})
}

// Frame is one received frame.
type Frame struct {
	At   time.Time // when the kernel received it
	Data []byte    // VLAN tag included
}

// Listen says what a receiver does with the frames it sees.
type Listen struct {
	Keep   int                     // keep the first so many frames
	Filter func(frame []byte) bool // when set, other frames are not counted
	Each   func(f Frame)           // when set, called for every counted frame; Data is valid during the call
}

// Receiver counts the frames that arrive at an interface, from [Host.Listen]
// until Close.
type Receiver struct {
	fd             int
	o              Listen
	packets, bytes atomic.Uint64
	stop           atomic.Bool
	done           chan struct{}

	mu     sync.Mutex
	frames []Frame
	drops  uint64
}

// Listen starts to receive what arrives at an interface, whatever its
// addresses; frames sent by the host itself are not seen.
func (h *Host) Listen(ifname string, o Listen) (*Receiver, error) {
	fd, err := h.packetSocket(ifname, unix.ETH_P_ALL)
	if err != nil {
		return nil, err
	}
	timeout := unix.Timeval{Usec: 20_000}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		unix.Close(fd)
		return nil, err
	}
	r := &Receiver{fd: fd, o: o, done: make(chan struct{})}
	go r.loop()
	return r, nil
}

func (r *Receiver) loop() {
	defer close(r.done)
	buf := make([]byte, 4+65536)
	oob := make([]byte, 256)
	for !r.stop.Load() {
		n, oobn, _, _, err := unix.Recvmsg(r.fd, buf[4:], oob, 0)
		if err != nil {
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
				continue
			}
			return // ENETDOWN and the like: nothing will come any more
		}
		f := Frame{Data: buf[4 : 4+n]}
		r.meta(&f, buf, oob[:oobn])
		if r.o.Filter != nil && !r.o.Filter(f.Data) {
			continue
		}
		if r.o.Each != nil {
			r.o.Each(f)
		}
		r.mu.Lock()
		if len(r.frames) < r.o.Keep {
			r.frames = append(r.frames, Frame{f.At, append([]byte(nil), f.Data...)})
		}
		r.mu.Unlock()
		r.bytes.Add(uint64(len(f.Data)))
		r.packets.Add(1)
	}
}

// meta reads the timestamp and puts back the VLAN tag, which the kernel hands
// over beside the frame. buf has 4 bytes of room in front of the frame.
func (r *Receiver) meta(f *Frame, buf, oob []byte) {
	for len(oob) > 0 {
		hdr, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return
		}
		oob = rest
		ne := binary.NativeEndian
		switch {
		case hdr.Level == unix.SOL_SOCKET && hdr.Type == unix.SO_TIMESTAMPNS && len(data) >= 16:
			f.At = time.Unix(int64(ne.Uint64(data)), int64(ne.Uint64(data[8:])))
		case hdr.Level == unix.SOL_PACKET && hdr.Type == unix.PACKET_AUXDATA && len(data) >= 20:
			status, tci, tpid := ne.Uint32(data), ne.Uint16(data[16:]), ne.Uint16(data[18:])
			if status&unix.TP_STATUS_VLAN_VALID == 0 || len(f.Data) < 12 {
				continue
			}
			copy(buf, buf[4:16])
			f.Data = buf[:4+len(f.Data)]
			binary.BigEndian.PutUint16(f.Data[12:], tpid)
			binary.BigEndian.PutUint16(f.Data[14:], tci)
		}
	}
}

// Count returns the frames and bytes counted until now.
func (r *Receiver) Count() (packets, bytes uint64) {
	return r.packets.Load(), r.bytes.Load()
}

// Drops returns the frames that arrived and found the receiver's buffer full. A
// measurement with drops says nothing about the sender.
func (r *Receiver) Drops() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if st, err := unix.GetsockoptTpacketStats(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		r.drops += uint64(st.Drops)
	}
	return r.drops
}

// Frames returns the frames kept until now.
func (r *Receiver) Frames() []Frame {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.frames[:len(r.frames):len(r.frames)]
}

// Wait waits until n frames were counted, or returns an error that says how
// many there were when the context ended.
func (r *Receiver) Wait(ctx context.Context, n uint64) error {
	for {
		got := r.packets.Load()
		if got >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d frames of %d arrived (%d more lost in the receiver): %w", got, n, r.Drops(), ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// Close stops the receiver; what it counted stays readable.
func (r *Receiver) Close() error {
	if r.stop.Swap(true) {
		return nil
	}
	<-r.done
	r.Drops()
	r.mu.Lock()
	defer r.mu.Unlock()
	fd := r.fd
	r.fd = -1
	return unix.Close(fd)
}
