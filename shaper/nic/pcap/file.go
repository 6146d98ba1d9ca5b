// Admin path.

package pcap

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

var (
	// ErrFormat is wrapped when a file is neither pcap nor pcapng.
	ErrFormat = errors.New("not a pcap or pcapng file")
	// ErrLinkType is wrapped when a capture was made on a link that is not
	// Ethernet.
	ErrLinkType = errors.New("not a capture of Ethernet frames")
)

// Reader reads the frames of a capture in either format.
type Reader struct {
	src interface {
		ZeroCopyReadPacketData() ([]byte, gopacket.CaptureInfo, error)
		LinkType() layers.LinkType
	}
	frames  int
	skipped int
}

// NewReader reads the head of a capture.
func NewReader(r io.Reader) (*Reader, error) {
	br := bufio.NewReaderSize(r, 1<<16)
	if magic, _ := br.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		br = bufio.NewReaderSize(z, 1<<16)
	}
	magic, err := br.Peek(4)
	if err != nil {
		if len(magic) == 0 && err == io.EOF {
			return nil, fmt.Errorf("%w: it is empty", ErrFormat)
		}
		return nil, fmt.Errorf("%w: %w", ErrFormat, unexpected(err))
	}
	out := &Reader{}
	switch binary.BigEndian.Uint32(magic) {
	case 0x0a0d0d0a:
		out.src, err = pcapgo.NewNgReader(br, pcapgo.NgReaderOptions{ErrorOnMismatchingLinkType: true})
	case 0xa1b2c3d4, 0xd4c3b2a1, 0xa1b23c4d, 0x4d3cb2a1:
		out.src, err = pcapgo.NewReader(br)
	default:
		return nil, fmt.Errorf("%w: it begins with % x", ErrFormat, magic)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, unexpected(err))
	}
	if lt := out.src.LinkType(); lt != layers.LinkTypeEthernet {
		return nil, fmt.Errorf("%w: its link type is %d (%v)", ErrLinkType, uint32(lt), lt)
	}
	return out, nil
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Next returns the next frame, valid until the call after, its length on the
// wire, which is more than len(frame) when the capture kept only the start of
// frames, and its timestamp, zero when the file gives it none. The error is
// io.EOF behind the last frame, and io.ErrUnexpectedEOF when the file ends
// inside one.
func (r *Reader) Next() (frame []byte, length int, at time.Time, err error) {
	for {
		frame, ci, err := r.src.ZeroCopyReadPacketData()
		switch {
		case err == nil:
			r.frames++
			return frame, max(ci.Length, len(frame)), ci.Timestamp, nil
		case errors.Is(err, pcapgo.ErrNgLinkTypeMismatch):
			r.skipped++ // of another interface in the same file
		case err == io.EOF && ci.CaptureLength > 0:
			return nil, 0, time.Time{}, io.ErrUnexpectedEOF // cut between a record's head and its frame
		default:
			return nil, 0, time.Time{}, err
		}
	}
}

// Frames returns how many frames Next has given.
func (r *Reader) Frames() int { return r.frames }

// Skipped returns how many frames Next has passed over because they were
// captured on an interface that is not Ethernet.
func (r *Reader) Skipped() int { return r.skipped }

// Writer writes frames to a capture with nanosecond timestamps.
type Writer struct {
	buf   *bufio.Writer
	pcap  *pcapgo.Writer
	ng    *pcapgo.NgWriter
	epoch time.Time
}

// NewWriter writes the head of a pcap or, with ng, pcapng capture. Instant 0
// is written as epoch.
func NewWriter(w io.Writer, ng bool, epoch time.Time) (*Writer, error) {
	out := &Writer{buf: bufio.NewWriterSize(w, 1<<16), epoch: epoch}
	if ng {
		head := pcapgo.DefaultNgWriterOptions
		head.SectionInfo.Application = "sluice"
		intf := pcapgo.DefaultNgInterface
		intf.LinkType = layers.LinkTypeEthernet
		var err error
		out.ng, err = pcapgo.NewNgWriterInterface(out.buf, intf, head)
		return out, err
	}
	out.pcap = pcapgo.NewWriterNanos(out.buf)
	return out, out.pcap.WriteFileHeader(262144, layers.LinkTypeEthernet)
}

// Write appends a frame that left at instant at.
func (w *Writer) Write(frame []byte, at time.Duration) error {
	ci := gopacket.CaptureInfo{Timestamp: w.epoch.Add(at), CaptureLength: len(frame), Length: len(frame)}
	if w.ng != nil {
		return w.ng.WritePacket(ci, frame)
	}
	return w.pcap.WritePacket(ci, frame)
}

// Flush hands everything to the writer beneath.
func (w *Writer) Flush() error {
	if w.ng != nil {
		if err := w.ng.Flush(); err != nil {
			return err
		}
	}
	return w.buf.Flush()
}
