package qdisc_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"sluice/qdisc"
)

// ipPacket returns a packet whose network header is h, behind some bytes of a
// link header.
func ipPacket(pool *qdisc.Pool, etherType uint16, l3 int, h []byte) *qdisc.Packet {
	p := take(pool, l3+len(h))
	copy(p.Bytes()[l3:], h)
	p.L3, p.EtherType = uint16(l3), etherType
	p.Flags |= qdisc.Parsed
	switch etherType {
	case 0x0800:
		p.TOS = h[1]
	case 0x86dd:
		p.TOS = uint8(binary.BigEndian.Uint16(h) >> 4)
	}
	return p
}

// checksum computes the checksum of an IPv4 header anew (RFC 1071).
func checksum(h []byte) uint16 {
	sum := 0
	for i := 0; i < len(h); i += 2 {
		if i != 10 {
			sum += int(binary.BigEndian.Uint16(h[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// Marking changes two bits and keeps the checksum right: what the slow way gives.
func TestSetCEOnIPv4(t *testing.T) {
	pool := newPool(t, 1)
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, "header")
		l3 := rapid.SampledFrom([]int{14, 18, 22}).Draw(t, "l3")
		h[0] = 0x45
		binary.BigEndian.PutUint16(h[10:], checksum(h))
		want, ect := bytes.Clone(h), h[1]&3 != 0
		if ect {
			want[1] |= 3
			binary.BigEndian.PutUint16(want[10:], checksum(want))
		}

		p := ipPacket(pool, 0x0800, l3, h)
		defer p.Free()
		if got := qdisc.SetCE(p); got != ect {
			t.Fatalf("ECN %d: SetCE says %v", h[1]&3, got)
		}
		if got := p.Bytes()[l3:]; !bytes.Equal(got, want) {
			t.Fatalf("header\n%x, marked\n%x, want\n%x", h, got, want)
		}
		if p.TOS != want[1] {
			t.Fatalf("TOS is %#x, want %#x", p.TOS, want[1])
		}
	})
}

// A router that finds the checksum wrong must not find it right behind us.
func TestSetCEDoesNotMendAChecksum(t *testing.T) {
	pool := newPool(t, 1)
	h := []byte{0x45, 0x02, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
	right := checksum(h)
	binary.BigEndian.PutUint16(h[10:], right+1)
	p := ipPacket(pool, 0x0800, 14, h)
	qdisc.SetCE(p)
	marked := p.Bytes()[14:]
	if got := binary.BigEndian.Uint16(marked[10:]); got == checksum(marked) {
		t.Errorf("checksum %#x is right, and was wrong before", got)
	}
}

func TestSetCEOnIPv6(t *testing.T) {
	pool := newPool(t, 1)
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.SliceOfN(rapid.Byte(), 40, 40).Draw(t, "header")
		h[0] = 6<<4 | h[0]&15
		class := uint8(binary.BigEndian.Uint16(h) >> 4)
		want := bytes.Clone(h)
		if class&3 != 0 {
			class |= 3
			binary.BigEndian.PutUint16(want, 6<<12|uint16(class)<<4|binary.BigEndian.Uint16(h)&15)
		}
		p := ipPacket(pool, 0x86dd, 14, h)
		defer p.Free()
		if got := qdisc.SetCE(p); got != (class&3 != 0) {
			t.Fatalf("traffic class %#x: SetCE says %v", class, got)
		}
		if !bytes.Equal(p.Bytes()[14:], want) || p.TOS != class {
			t.Fatalf("marked\n%x, want\n%x; TOS %#x, want %#x", p.Bytes()[14:], want, p.TOS, class)
		}
	})
}

func TestSetCELeavesOtherProtocolsAlone(t *testing.T) {
	pool := newPool(t, 2)
	arp := ipPacket(pool, 0x0806, 14, bytes.Repeat([]byte{0xaa}, 28))
	arp.TOS = 2
	unparsed := take(pool, 60)
	for _, p := range []*qdisc.Packet{arp, unparsed} {
		before := bytes.Clone(p.Bytes())
		if qdisc.SetCE(p) || !bytes.Equal(p.Bytes(), before) {
			t.Errorf("a frame of type %#x was marked", p.EtherType)
		}
	}
}

// The hash is computed once for each packet, and not at all for one that brought
// its own.
func TestFlowHashIsComputedOnce(t *testing.T) {
	pool := newPool(t, 2)
	ctx := qdisc.NewContext(pool, 1)
	asked := 0
	ctx.Hasher = func(p *qdisc.Packet) uint32 { asked++; return 7 }
	p, q := take(pool, 60), take(pool, 60)
	q.Hash, q.Flags = 9, qdisc.HashSet
	for range 3 {
		if a, b := ctx.FlowHash(p), ctx.FlowHash(q); a != 7 || b != 9 || p.Hash != 7 || asked != 1 {
			t.Errorf("hashes %d and %d, asked %d times", a, b, asked)
		}
	}
	p.Free()
	ctx.Hasher = nil
	if p = take(pool, 60); ctx.FlowHash(p) != 0 || p.Flags&qdisc.HashSet == 0 {
		t.Error("without a hasher all packets are of flow 0")
	}
}

func BenchmarkSetCE(b *testing.B) {
	p := ipPacket(newPool(b, 1), 0x0800, 14, make([]byte, 20))
	for b.Loop() {
		p.TOS = 2
		qdisc.SetCE(p)
	}
}
