//go:build linux

package appliance_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"sluice/tests/lab"
)

// The addresses of the frames on the wire. The router is promiscuous, so they
// need not be anybody's.
var (
	insideMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	outsideMAC = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

func udp(src, dst string, tos uint8) lab.Flow {
	return lab.Flow{SrcMAC: insideMAC, DstMAC: outsideMAC, TOS: tos,
		Src: netip.MustParseAddrPort(src), Dst: netip.MustParseAddrPort(dst)}
}

var (
	flow4 = udp("192.0.2.1:1000", "198.51.100.1:2000", 0)
	flow6 = udp("[2001:db8::1]:1000", "[2001:db8::2]:2000", 0)
)

// under returns a frame with more headers between its addresses and its type.
func under(frame []byte, headers ...byte) []byte {
	return bytes.Join([][]byte{frame[:12], headers, frame[12:]}, nil)
}

// session returns an IPv4 or IPv6 frame within a PPPoE session (RFC 2516).
func session(frame []byte) []byte {
	ppp := []byte{0x00, 0x21}
	if frame[12] == 0x86 {
		ppp = []byte{0x00, 0x57}
	}
	packet := frame[14:]
	header := []byte{0x88, 0x64, 0x11, 0, 0, 7}
	header = binary.BigEndian.AppendUint16(header, uint16(len(packet)+2))
	return bytes.Join([][]byte{frame[:12], header, ppp, packet}, nil)
}

// sizes returns a frame of every length from lo to hi.
func sizes(lo, hi int, frame func(size int) []byte) (frames [][]byte) {
	for size := lo; size <= hi; size++ {
		f := frame(size)
		if len(f) != size {
			panic(fmt.Sprintf("frame of %d bytes, want %d", len(f), size))
		}
		frames = append(frames, f)
	}
	return frames
}

// kinds of frames that must arrive as they were sent, all sizes of each.
func intact() map[string][][]byte {
	garbage := rand.New(rand.NewChaCha8([32]byte{1}))
	fill := func(f []byte) []byte {
		for i := range f {
			f[i] = byte(garbage.Uint32())
		}
		return f
	}
	// Any type but a VLAN's: the sending host's kernel would interpret that.
	random := func(size int) []byte {
		f := fill(make([]byte, size))
		copy(f, outsideMAC)
		copy(f[6:], insideMAC)
		if f[12] == 0x81 || f[12] == 0x88 {
			f[12] = 0x08
		}
		return f
	}
	cut := func(whole []byte) (frames [][]byte) {
		for n := 15; n < len(whole); n++ {
			frames = append(frames, whole[:n])
		}
		return frames
	}
	return map[string][][]byte{
		"IPv4": sizes(60, 1514, flow4.Frame),
		"IPv6": sizes(62, 1514, flow6.Frame),
		"VLAN": sizes(64, 1518, func(n int) []byte { return under(flow4.Frame(n-4), 0x81, 0, 0x60, 42) }),
		"VLAN with IPv6": sizes(66, 1518, func(n int) []byte {
			return under(flow6.Frame(n-4), 0x81, 0, 0xe0, 0)
		}),
		"QinQ":       sizes(64, 1514, func(n int) []byte { return under(flow4.Frame(n-8), 0x88, 0xa8, 0, 7, 0x81, 0, 0, 42) }),
		"PPPoE":      sizes(64, 1514, func(n int) []byte { return session(flow4.Frame(n - 8)) }),
		"PPPoE IPv6": sizes(70, 1514, func(n int) []byte { return session(flow6.Frame(n - 8)) }),
		"garbage":    sizes(15, 1514, random),
		"IPv4 cut":   cut(flow4.Frame(64)),
		"IPv6 cut":   cut(flow6.Frame(80)),
		"PPPoE cut":  cut(session(flow4.Frame(64))),
		"IPv4 with a false header": sizes(60, 200, func(n int) []byte {
			f := flow4.Frame(n)
			fill(f[14:34])
			return f
		}),
		"IPv6 with false extension headers": sizes(62, 200, func(n int) []byte {
			f := flow6.Frame(n)
			f[20] = []byte{0, 43, 44, 51, 60, 135, 255}[n%7]
			fill(f[54:])
			return f
		}),
	}
}

// Whatever comes in goes out at the other side as it came, in order.
func TestIntegrationFramesArriveUnchanged(t *testing.T) {
	s := newSite(t, lab.Wire{}, lab.Wire{})
	v := s.start("")
	for name, frames := range intact() {
		t.Run(name, func(t *testing.T) {
			cross(t, s.inside, s.outside, frames)
			cross(t, s.outside, s.inside, frames)
		})
	}
	v.even(v.settled())
}

// ours tells the test's frames from what a kernel says by itself.
func ours(frame []byte) bool { return bytes.Equal(frame[6:12], insideMAC) }

// cross sends frames from one host to the other and compares.
func cross(t *testing.T, from, to *lab.Host, frames [][]byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := to.Listen("eth0", lab.Listen{Keep: len(frames), Filter: ours})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cpu, _ := cpus(t)
	defer pin(t, cpu)()
	// Slow enough for the rings: what is asked is whether, not how fast.
	if _, err := from.Send(ctx, "eth0", lab.Send{Frames: frames, N: len(frames), PPS: 20000}); err != nil {
		t.Fatal(err)
	}
	if err := r.Wait(ctx, uint64(len(frames))); err != nil {
		t.Error(err)
	}
	got := r.Frames()
	for i := range got {
		if !bytes.Equal(got[i].Data, frames[i]) {
			t.Fatalf("%s to %s: frame %d of %d:\ngot  %x\nsent %x", from.Name(), to.Name(), i, len(frames), got[i].Data, frames[i])
		}
	}
}

// count is how many frames are sent, both directions together: the rings overflow,
// and a million or so get through.
const count = 1_400_000

// More than a million packets in both directions at once, faster than they can leave.
// Those of a flow stay in order, and every one is accounted for, from the host
// that sent it to the host that got it or the counter of who dropped it.
func TestIntegrationMillionPacketsAddUp(t *testing.T) {
	s := newSite(t, lab.Wire{}, lab.Wire{})
	senders, worker := cpus(t)
	v := s.start(fmt.Sprintf("[engine]\ncpu = %d\n", worker))
	const flows = 8
	directions := []struct {
		from, to   *lab.Host
		rx, tx     string
		sent       uint64
		got        *lab.Receiver
		next       [flows]uint32
		disordered int
	}{
		{from: s.inside, to: s.outside, rx: "in0", tx: "out0"},
		{from: s.outside, to: s.inside, rx: "out0", tx: "in0"},
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := time.Now()
	var wg sync.WaitGroup
	for i := range directions {
		d := &directions[i]
		var err error
		d.got, err = d.to.Listen("eth0", lab.Listen{Each: func(f lab.Frame) {
			flow, seq := f.Data[42], binary.BigEndian.Uint32(f.Data[43:])
			if seq < d.next[flow] {
				d.disordered++
			}
			d.next[flow] = seq + 1
		}})
		s.check(err)
		defer d.got.Close()
		wg.Go(func() {
			defer pin(t, senders)()
			sent, err := d.from.Send(ctx, "eth0", lab.Send{
				Frames: [][]byte{flow4.Frame(64)}, N: count / 2,
				Edit: func(i int, f []byte) {
					f[35] = byte(i % flows) // source port
					f[42] = byte(i % flows)
					binary.BigEndian.PutUint32(f[43:], uint32(i/flows))
				},
			})
			if err != nil {
				t.Error(err)
			}
			d.sent = sent.Packets
		})
	}
	wg.Wait()
	took := time.Since(start)
	st := v.settled()
	v.even(st)
	var all uint64
	for i := range directions {
		d := &directions[i]
		in, out := port(t, st, d.rx), port(t, st, d.tx)
		rx, tx := in.Rx[0], out.Txqs[0]
		// What the wire itself lost: the backlog of the receiving CPU was full.
		lost := s.dropped(d.from, "eth0")
		if d.sent != rx.Packets+rx.Drops+rx.Errors+lost {
			t.Errorf("%s: sent %d != received %d + ring full %d + errors %d + lost by the wire %d",
				d.rx, d.sent, rx.Packets, rx.Drops, rx.Errors, lost)
		}
		s.check(d.got.Wait(ctx, tx.Packets-tx.Lost))
		got, _ := d.got.Count()
		if unseen := d.got.Drops(); got+unseen+tx.Lost != tx.Packets {
			t.Errorf("%s: posted %d != arrived %d + unseen by the test %d + lost %d", d.tx, tx.Packets, got, unseen, tx.Lost)
		}
		if d.disordered > 0 {
			t.Errorf("%s to %s: %d packets came after a later one of their flow", d.from.Name(), d.to.Name(), d.disordered)
		}
		all += d.sent
		t.Logf("%s to %s: sent %d, lost by the wire %d; %s received %d, ring full %d; qdisc dropped %d; %s sent %d in %d bells; arrived %d",
			d.from.Name(), d.to.Name(), d.sent, lost, d.rx, rx.Packets, rx.Drops, rx.Packets-tx.Packets, d.tx, tx.Packets, tx.Bells, got)
	}
	if all != count {
		t.Errorf("only %d packets of %d could be sent in a minute", all, count)
	}
	b := st.Balance
	t.Logf("received %d = sent %d + dropped %d + queued %d, in %v", b.Received, b.Sent, b.Dropped, b.Queued, took.Round(time.Millisecond))
}

// dropped returns what the kernel says an interface could not hand over.
func (s *site) dropped(h *lab.Host, ifname string) uint64 {
	s.t.Helper()
	link, err := h.Netlink().LinkByName(ifname)
	s.check(err)
	return link.Attrs().Statistics.TxDropped
}

// What is too long for the way out is dropped and counted, and nothing else
// suffers.
func TestIntegrationTooLongIsDroppedAndCounted(t *testing.T) {
	const jumbos, others = 20, 200
	// send sends jumbos of a size among ordinary frames, and waits for the latter.
	send := func(t *testing.T, s *site, size int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		small := flow4.Frame(100)
		r, err := s.outside.Listen("eth0", lab.Listen{Filter: func(f []byte) bool { return bytes.Equal(f, small) }})
		s.check(err)
		defer r.Close()
		frames := [][]byte{flow4.Frame(size)}
		for range others / jumbos {
			frames = append(frames, small)
		}
		_, err = s.inside.Send(ctx, "eth0", lab.Send{Frames: frames, N: jumbos * len(frames), PPS: 2000})
		s.check(err)
		s.check(r.Wait(ctx, others))
	}

	t.Run("longer than the MTU outside", func(t *testing.T) {
		s := newSite(t, lab.Wire{MTU: 9000}, lab.Wire{})
		v := s.start("[engine]\nframe_size = \"16 KiB\"\npackets = \"1024 packets\"\n")
		send(t, s, 9014)
		st := v.settled()
		v.even(st)
		if q := port(t, st, "out0").Txqs[0]; q.Lost != jumbos {
			t.Errorf("lost %d packets at out0, want %d", q.Lost, jumbos)
		}
	})
	t.Run("the MTU inside grew while we ran", func(t *testing.T) {
		s := newSite(t, lab.Wire{}, lab.Wire{})
		v := s.start("")
		s.check(s.inside.SetMTU("eth0", 4000))
		s.check(s.router.SetMTU("in0", 4000))
		send(t, s, 4014)
		st := v.settled()
		v.even(st)
		if rx := port(t, st, "in0").Rx[0]; rx.Errors != jumbos {
			t.Errorf("%d receive errors at in0, want %d", rx.Errors, jumbos)
		}
	})
	t.Run("longer than the MTU of the host outside", func(t *testing.T) {
		s := newSite(t, lab.Wire{}, lab.Wire{})
		s.check(s.outside.SetMTU("eth0", 1000))
		v := s.start("")
		send(t, s, 1514)
		st := v.settled()
		v.even(st)
		if q := port(t, st, "out0").Txqs[0]; q.Lost < jumbos {
			t.Errorf("lost %d packets at out0, want at least %d", q.Lost, jumbos)
		}
	})
	t.Run("frames that no slot can hold", func(t *testing.T) {
		s := newSite(t, lab.Wire{MTU: 9000}, lab.Wire{})
		said, code := s.fails(s.write("sluice.toml", ""))
		t.Logf("exit code %d: %s", code, said)
		if want := `set [engine] frame_size to at least "10 KiB", or lower the MTU`; code != 1 || !bytes.Contains([]byte(said), []byte(want)) {
			t.Errorf("want exit code 1 and %q", want)
		}
	})
}
