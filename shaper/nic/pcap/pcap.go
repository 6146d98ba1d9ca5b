// Admin path.

// Package pcap makes a port of capture files: what arrives is replayed from one
// by its timestamps, what leaves is written to another with the instants of its
// departure. Formats are pcap and pcapng, gzipped or not, to read; pcap with
// nanoseconds, or pcapng, to write.
//
// Time is the worker's, so a capture replays on a virtual clock as on a real
// one. The port blocks on the disk and is for replays, not for a router.
package pcap

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"sluice/dequeue"
	"sluice/qdisc"
	"sluice/shaper/nic"
)

// Config says which files a port is made of.
type Config struct {
	In  string // file to replay; empty: nothing arrives
	Out string // file to write, pcapng when its name ends so; empty: frames that leave are freed

	Start time.Duration // instant at which the first frame arrives; the others follow as their timestamps do
	Fast  bool          // ignore the timestamps: every frame is there as soon as it is asked for

	// Epoch is the wall time that departures at instant 0 are written with.
	// Default: the one that puts the first frame read at Start, so that In and
	// Out have one time line; 1970 when there is no In.
	Epoch time.Time

	MTU int // default 1500; a longer frame in the file is still replayed if a slot holds it
}

// Port replays one file and writes another. It has one queue each way.
type Port struct {
	name    string
	mtu     int
	rx      RxQueue
	tx      TxQueue
	closers []io.Closer
}

var _ nic.Port = (*Port)(nil)

// Open opens the files of c. A file that is no capture, or one of a link that
// is not Ethernet, is an error here; damage further behind is found when it is
// reached, see [Port.Err].
func Open(name string, c Config) (*Port, error) {
	var (
		in      io.Reader
		out     io.Writer
		closers []io.Closer
	)
	abandon := func(err error) (*Port, error) {
		for _, f := range closers {
			f.Close()
		}
		return nil, err
	}
	if c.In != "" {
		f, err := os.Open(c.In)
		if err != nil {
			return nil, err
		}
		in, closers = f, append(closers, f)
	}
	var r *Reader
	if in != nil {
		var err error
		if r, err = NewReader(in); err != nil {
			return abandon(fmt.Errorf("%s: %w", c.In, err))
		}
	}
	if c.Out != "" {
		f, err := os.Create(c.Out)
		if err != nil {
			return abandon(err)
		}
		out, closers = f, append(closers, f)
	}
	p, err := newPort(name, r, out, strings.HasSuffix(c.Out, ".pcapng"), c)
	if err != nil {
		return abandon(err)
	}
	p.closers = closers
	return p, nil
}

// New is Open for a source and a sink that are open already; either may be nil.
// The caller closes them behind the port. The names in c do not count.
func New(name string, in io.Reader, out io.Writer, c Config) (*Port, error) {
	var r *Reader
	if in != nil {
		var err error
		if r, err = NewReader(in); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return newPort(name, r, out, false, c)
}

func newPort(name string, r *Reader, out io.Writer, ng bool, c Config) (*Port, error) {
	if c.MTU == 0 {
		c.MTU = 1500
	}
	p := &Port{name: name, mtu: c.MTU}
	p.rx = RxQueue{r: r, start: c.Start, last: c.Start, fast: c.Fast, next: qdisc.Never}
	p.rx.advance()
	if c.Epoch.IsZero() {
		c.Epoch = time.Unix(0, 0).UTC()
		if !p.rx.first.IsZero() {
			c.Epoch = p.rx.first.Add(-c.Start)
		}
	}
	if out != nil {
		w, err := NewWriter(out, ng, c.Epoch)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		p.tx.w = w
	}
	return p, nil
}

// Name returns the port's name.
func (p *Port) Name() string { return p.name }

// Driver returns "pcap".
func (p *Port) Driver() string { return "pcap" }

// MTU returns the configured MTU.
func (p *Port) MTU() int { return p.mtu }

// Rx returns the queue that replays.
func (p *Port) Rx() []nic.RxQueue { return []nic.RxQueue{&p.rx} }

// Tx returns the queue that writes.
func (p *Port) Tx() []dequeue.Driver { return []dequeue.Driver{&p.tx} }

// Done reports that nothing is left to replay.
func (p *Port) Done() bool { return p.rx.next == qdisc.Never }

// Err returns what ended the replay or the writing before its time:
// a file cut off in the middle of a frame (wraps io.ErrUnexpectedEOF), a
// damaged one, a full disk. What was read before stays valid.
func (p *Port) Err() error {
	var rx, tx error
	if p.rx.err != nil {
		rx = fmt.Errorf("%s: replay ended behind %d frames: %w", p.name, p.rx.r.Frames(), p.rx.err)
	}
	if p.tx.err != nil {
		tx = fmt.Errorf("%s: writing ended, %d frames lost: %w", p.name, p.tx.lost, p.tx.err)
	}
	return errors.Join(rx, tx)
}

// Close frees what was posted and not kicked, writes out what is buffered and
// closes the files that Open opened.
func (p *Port) Close() error {
	for pkt := p.tx.posted.Pop(); pkt != nil; pkt = p.tx.posted.Pop() {
		pkt.Free()
	}
	var err error
	if p.tx.w != nil {
		err = p.tx.w.Flush()
	}
	for _, f := range p.closers {
		err = errors.Join(err, f.Close())
	}
	p.closers = nil
	return err
}
