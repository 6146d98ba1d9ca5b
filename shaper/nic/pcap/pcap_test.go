package pcap_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/dequeue"
	"sluice/qdisc"
	"sluice/shaper/nic/pcap"
)

type shot struct {
	at    time.Duration
	frame []byte
}

func newContext(t testing.TB, slots int) *qdisc.Context {
	t.Helper()
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: slots})
	if err != nil {
		t.Fatal(err)
	}
	return qdisc.NewContext(pool, 1)
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

func write(t testing.TB, ng bool, shots []shot) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := pcap.NewWriter(&b, ng, epoch)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shots {
		if err := w.Write(s.frame, s.at); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// replay goes from one announced instant to the next until nothing is left.
func replay(t testing.TB, p *pcap.Port, ctx *qdisc.Context) []shot {
	t.Helper()
	rx := p.Rx()[0]
	var got []shot
	for at := rx.NextAt(); at != qdisc.Never; at = rx.NextAt() {
		ctx.Now = max(ctx.Now, at)
		var l qdisc.List
		rx.Receive(ctx, &l, 64)
		for pkt := l.Pop(); pkt != nil; pkt = l.Pop() {
			got = append(got, shot{pkt.Arrival, bytes.Clone(pkt.Bytes())})
			pkt.Free()
		}
	}
	return got
}

func equal(a, b []shot) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].at != b[i].at || !bytes.Equal(a[i].frame, b[i].frame) {
			return false
		}
	}
	return true
}

// What is written is read back: every byte, and every nanosecond between two
// frames, in both formats.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var shots []shot
		var at time.Duration
		for range rapid.IntRange(0, 20).Draw(rt, "frames") {
			at += time.Duration(rapid.Int64Range(0, 3e9).Draw(rt, "gap"))
			shots = append(shots, shot{at, rapid.SliceOfN(rapid.Byte(), 1, 1514).Draw(rt, "frame")})
		}
		ng := rapid.Bool().Draw(rt, "pcapng")
		start := time.Duration(rapid.Int64Range(0, 5e9).Draw(rt, "start"))
		p, err := pcap.New("p", bytes.NewReader(write(t, ng, shots)), nil, pcap.Config{Start: start})
		if err != nil {
			rt.Fatal(err)
		}
		got := replay(t, p, newContext(t, 64))
		want := make([]shot, len(shots))
		for i, s := range shots {
			want[i] = shot{start + s.at - shots[0].at, s.frame}
		}
		if !equal(got, want) || p.Err() != nil || !p.Done() {
			rt.Fatalf("replayed %v, want %v; Err %v, Done %v", got, want, p.Err(), p.Done())
		}
	})
}

func TestDeparturesAreOnTheTimeLineOfTheReplay(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.pcap"), filepath.Join(dir, "out.pcapng")
	shots := []shot{{0, []byte("first frame")}, {250 * time.Microsecond, []byte("second")}}
	if err := os.WriteFile(in, write(t, false, shots), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := pcap.Open("p", pcap.Config{In: in, Out: out, Start: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, rx, tx := newContext(t, 8), p.Rx()[0], p.Tx()[0]
	for at := rx.NextAt(); at != qdisc.Never; at = rx.NextAt() {
		ctx.Now = at
		var l qdisc.List
		rx.Receive(ctx, &l, 64)
		for pkt := l.Pop(); pkt != nil; pkt = l.Pop() {
			if !tx.Post(pkt) {
				t.Fatal("an empty ring refuses")
			}
		}
		if got := tx.Kick(ctx.Now + 7); got != dequeue.KickAll { // 7 ns in the shaper
			t.Fatalf("Kick says %v", got)
		}
	}
	if n, n8 := tx.Reap(ctx.Now); n != 2 || n8 != 17 {
		t.Errorf("Reap says %d, %d; want 2, 17", n, n8)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}

	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcap.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range shots {
		frame, _, at, err := r.Next()
		if err != nil || !bytes.Equal(frame, s.frame) || !at.Equal(epoch.Add(s.at+7)) {
			t.Errorf("frame %d: %q at %v, %v; want %q at %v", i, frame, at, err, s.frame, epoch.Add(s.at+7))
		}
	}
}

func TestFastReplayWaitsForNothing(t *testing.T) {
	p, err := pcap.New("p", bytes.NewReader(write(t, false, []shot{{0, []byte{1}}, {time.Hour, []byte{2}}})), nil,
		pcap.Config{Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	var l qdisc.List
	if n := p.Rx()[0].Receive(newContext(t, 8), &l, 64); n != 2 || !p.Done() {
		t.Errorf("received %d at once, want 2", n)
	}
}

func TestFrameWaitsForAPacket(t *testing.T) {
	p, err := pcap.New("p", bytes.NewReader(write(t, false, []shot{{0, []byte{1}}, {0, []byte{2}}})), nil, pcap.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := newContext(t, 1)
	for want := byte(1); want <= 2; want++ {
		var l qdisc.List
		if p.Rx()[0].Receive(ctx, &l, 64) != 1 {
			t.Fatalf("frame %d is not there", want)
		}
		pkt := l.Pop()
		if pkt.Bytes()[0] != want {
			t.Errorf("frame %d in the place of %d", pkt.Bytes()[0], want)
		}
		pkt.Free()
	}
}

// record is one classic pcap record, microseconds, little endian.
func record(sec, usec, captured, length uint32, data ...byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, sec)
	b = binary.LittleEndian.AppendUint32(b, usec)
	b = binary.LittleEndian.AppendUint32(b, captured)
	b = binary.LittleEndian.AppendUint32(b, length)
	return append(b, data...)
}

func head(linkType uint32) []byte {
	b := []byte{0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}
	return binary.LittleEndian.AppendUint32(b, linkType)
}

func join(b ...[]byte) []byte { return bytes.Join(b, nil) }

func TestFramesCapturedInPartKeepTheirLength(t *testing.T) {
	file := join(head(1), record(5, 0, 4, 100, 1, 2, 3, 4), record(5, 1, 1, 9000, 1), record(5, 2, 0, 0))
	p, err := pcap.New("p", bytes.NewReader(file), nil, pcap.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := newContext(t, 8)
	old := ctx.Pool.Get() // what is in a slot before must not show
	copy(old.Room(), bytes.Repeat([]byte{0xff}, 200))
	old.Free()
	got := replay(t, p, ctx)
	want := append([]byte{1, 2, 3, 4}, make([]byte, 96)...)
	if len(got) != 1 || !bytes.Equal(got[0].frame, want) {
		t.Errorf("got %v, want the one frame that fits a slot, filled up with zeros", got)
	}
	if s := p.Rx()[0].RxStats(); s.Errors != 2 {
		t.Errorf("%d errors, want 2: one too long, one empty", s.Errors)
	}
}

func TestTimeDoesNotRunBackwards(t *testing.T) {
	file := join(head(1), record(5, 10, 1, 1, 1), record(5, 30, 1, 1, 2), record(5, 20, 1, 1, 3), record(4, 0, 1, 1, 4),
		record(5, 31, 1, 1, 5))
	p, err := pcap.New("p", bytes.NewReader(file), nil, pcap.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var got []time.Duration
	for _, s := range replay(t, p, newContext(t, 8)) {
		got = append(got, s.at/time.Microsecond)
	}
	want := []time.Duration{0, 20, 20, 20, 21}
	if len(got) != len(want) {
		t.Fatalf("instants %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("instants %v, want %v", got, want)
		}
	}
}

func TestTruncatedFileIsUsedAsFarAsItGoes(t *testing.T) {
	for _, ng := range []bool{false, true} {
		var shots []shot
		for i := range 3 {
			shots = append(shots, shot{time.Duration(i), bytes.Repeat([]byte{byte(i)}, 64)})
		}
		whole := write(t, ng, shots)
		two := len(write(t, ng, shots[:2]))
		for cut := two; cut <= len(whole); cut++ {
			p, err := pcap.New("p", bytes.NewReader(whole[:cut]), nil, pcap.Config{})
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, p, newContext(t, 8))
			switch {
			case cut == two && (len(got) != 2 || p.Err() != nil),
				cut == len(whole) && (len(got) != 3 || p.Err() != nil),
				cut > two && cut < len(whole) && (len(got) != 2 || !errors.Is(p.Err(), io.ErrUnexpectedEOF)):
				t.Errorf("pcapng %v, %d of %d bytes: %d frames, Err %v", ng, cut, len(whole), len(got), p.Err())
			}
		}
	}
}

func TestGzippedCaptureIsRead(t *testing.T) {
	for _, ng := range []bool{false, true} {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(write(t, ng, []shot{{0, []byte("frame")}}))
		z.Close()
		p, err := pcap.New("p", &b, nil, pcap.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if got := replay(t, p, newContext(t, 8)); len(got) != 1 || p.Err() != nil {
			t.Errorf("pcapng %v: %d frames, Err %v", ng, len(got), p.Err())
		}
	}
}

func TestOtherFilesAreRefusedWithTheReason(t *testing.T) {
	for name, c := range map[string]struct {
		file []byte
		want error
		says string
	}{
		"empty":      {nil, pcap.ErrFormat, "p: not a pcap or pcapng file: it is empty"},
		"text":       {[]byte("hello, world"), pcap.ErrFormat, "p: not a pcap or pcapng file: it begins with 68 65 6c 6c"},
		"short":      {[]byte{0xd4, 0xc3}, pcap.ErrFormat, "p: not a pcap or pcapng file: unexpected EOF"},
		"cut head":   {head(1)[:20], pcap.ErrFormat, "p: not a pcap or pcapng file: unexpected EOF"},
		"raw IP":     {head(101), pcap.ErrLinkType, "p: not a capture of Ethernet frames: its link type is 101 (Raw)"},
		"wrong gzip": {[]byte{0x1f, 0x8b, 0, 0}, io.ErrUnexpectedEOF, "p: gzip: unexpected EOF"},
	} {
		_, err := pcap.New("p", bytes.NewReader(c.file), nil, pcap.Config{})
		if !errors.Is(err, c.want) || err.Error() != c.says {
			t.Errorf("%s: %v\nwant %s", name, err, c.says)
		}
	}
	if _, err := pcap.Open("p", pcap.Config{In: filepath.Join(t.TempDir(), "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

type fullDisk struct{ left int }

func (d *fullDisk) Write(b []byte) (int, error) {
	if d.left -= len(b); d.left < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(b), nil
}

func TestFullDiskTakesTheDeviceDown(t *testing.T) {
	p, err := pcap.New("p", nil, &fullDisk{left: 1 << 16}, pcap.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, tx := newContext(t, 8), p.Tx()[0]
	posted, reaped := 0, 0
	kick := dequeue.KickAll
	for i := 0; kick == dequeue.KickAll && i < 1000; i++ {
		pkt := ctx.Pool.Get()
		pkt.SetLen(1000)
		tx.Post(pkt)
		posted++
		kick = tx.Kick(0)
		n, _ := tx.Reap(0)
		reaped += n
	}
	if kick != dequeue.KickDown || !tx.Down() || tx.Room() != 0 || p.Err() == nil {
		t.Errorf("Kick %v, Down %v, room %d, Err %v", kick, tx.Down(), tx.Room(), p.Err())
	}
	if tx.Lost() == 0 || reaped != posted || ctx.Pool.Available() != 8 {
		t.Errorf("posted %d, reaped %d, lost %d, %d of 8 slots free", posted, reaped, tx.Lost(), ctx.Pool.Available())
	}
}

// Whatever a file holds, reading it ends, and nothing longer than a slot and
// no time that runs backwards comes out of it.
func FuzzReplay(f *testing.F) {
	shots := []shot{{0, []byte("a frame")}, {5, []byte("another frame")}}
	f.Add(write(f, false, shots))
	f.Add(write(f, true, shots))
	f.Add(join(head(1), record(5, 0, 4, 100, 1, 2, 3, 4), record(4, 0, 1, 9000, 1)))
	f.Add(join(head(1), record(0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 1)))
	ctx := newContext(f, 64)
	f.Fuzz(func(t *testing.T, file []byte) {
		p, err := pcap.New("p", bytes.NewReader(file), nil, pcap.Config{})
		if err != nil {
			return
		}
		ctx.Now = 0
		var last time.Duration
		for i, s := range replay(t, p, ctx) {
			if s.at < last || len(s.frame) == 0 || len(s.frame) > 2048-256 {
				t.Fatalf("frame %d: %d bytes at %v, behind one at %v", i, len(s.frame), s.at, last)
			}
			last = s.at
		}
		if ctx.Pool.Available() != 64 {
			t.Fatalf("%d of 64 slots are free", ctx.Pool.Available())
		}
	})
}
