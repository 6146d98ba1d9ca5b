package classify_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"sluice/qdisc"
	"sluice/shaper/classify"
)

func hash(frame []byte, seed uint64) uint32 {
	p := parsed(frame)
	defer p.Free()
	return classify.FlowHash(p, seed)
}

// What makes two packets the same flow, and what does not.
func TestFlowHash(t *testing.T) {
	tos := bytes(eth(0x0800), ip4(17, 0), udp(4000, 5060), payload(900))
	tagged := bytes(eth(0x8100), vlan(5, 0x0800), ip4(17, 0), udp(4000, 5060))
	reply := bytes(eth(0x0800), &layers.IPv4{Version: 4, Protocol: 17, SrcIP: ip4B, DstIP: ip4A}, udp(5060, 4000))
	reply4 := edit(icmp4, 34, 0)
	esp := func(spi byte) []byte {
		return bytes(eth(0x0800), ip4(50, 0), raw(0, 0, 0, spi, 0, 0, 0, 1, 9, 9, 9, 9))
	}
	second := edit(udp4, 27, 9) // another host
	for _, tc := range []struct {
		name string
		a, b []byte
		same bool
	}{
		{"length and TOS do not count", udp4, tos, true},
		{"VLAN does not count", udp4, tagged, true},
		{"PPPoE does not count", udp4, pppoe(0x21, udp4[14:]), true},
		{"the ports count", udp4, edit(udp4, 35, 1), false},
		{"the address counts", udp4, second, false},
		{"the protocol counts", bytes(eth(0x0800), ip4(132, 0), payload(12)), bytes(eth(0x0800), ip4(136, 0), payload(12)), false},
		{"the other direction is another flow", udp4, reply, false},
		{"IPv6 ports count", udp6, edit(udp6, 55, 1), false},
		{"every byte of an IPv6 address counts", udp6, edit(udp6, 50, 1), false},
		{"an echo's identifier counts", icmp4, edit(icmp4, 39, 8), false},
		{"its sequence number does not", icmp4, edit(icmp4, 41, 8), true},
		{"its type does not", icmp4, reply4, true},
		{"in an unreachable the same bytes do not", edit(icmp4, 34, 3), edit(icmp4, 34, 3, 0, 0, 0, 0, 8), true},
		{"IPv6 echo identifier", icmp6, edit(icmp6, 59, 8), false},
		{"SPI", esp(1), esp(2), false},
		{"fragments stay together, IPv4", first4, later4, true},
		{"fragments stay together, IPv6", first6, later6, true},
		{"an atomic fragment's ports count", chained, edit(chained, 119, 7), false},
		{"behind AH the ports count", chained, edit(chained, 121, 7), false},
		{"malformed: addresses only", udp4[:60], edit(udp4[:60], 35, 1), true},
		{"ARP by Ethernet address", arp, edit(arp, 11, 0xc), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if a, b := hash(tc.a, 1), hash(tc.b, 1); (a == b) != tc.same {
				t.Errorf("hashes %#x and %#x, same flow: %v", a, b, tc.same)
			}
		})
	}
}

func TestFlowHashKeepsWhatTheNICComputed(t *testing.T) {
	p := packet(udp4)
	defer p.Free()
	p.Hash, p.Flags = 42, qdisc.HashSet
	classify.Parse(p)
	if h := classify.FlowHash(p, 1); h != 42 {
		t.Errorf("hash %d, want 42", h)
	}
}

func TestFlowHashFollowsItsSeed(t *testing.T) {
	if once, again := hash(udp4, 1), hash(udp4, 1); once != again {
		t.Error("the same seed, another hash")
	}
	if hash(udp4, 1) == hash(udp4, 2) {
		t.Error("another seed, the same hash")
	}
}

// Flows that differ as flows in the field do, by one counting number, must
// spread over buckets as if thrown at random. The bound is the value that a
// chi-squared with 1023 degrees of freedom exceeds once in 10⁹ times.
func TestFlowHashSpreads(t *testing.T) {
	const buckets, flows, bound = 1024, 65536, 1310
	count := func(t *testing.T, frame func(i int) []byte) {
		for _, seed := range []uint64{0, 1, rand.Uint64()} {
			for _, shift := range []int{0, 11, 22} {
				var n [buckets]int
				for i := range flows {
					n[hash(frame(i), seed)>>shift%buckets]++
				}
				chi := 0.0
				for _, n := range n {
					d := float64(n) - flows/buckets
					chi += d * d / (flows / buckets)
				}
				if chi > bound {
					t.Errorf("seed %#x, bits from %d: chi-squared %.0f", seed, shift, chi)
				}
			}
		}
	}
	put := func(frame []byte, off int) func(i int) []byte {
		b := append([]byte(nil), frame...)
		return func(i int) []byte { binary.BigEndian.PutUint16(b[off:], uint16(i)); return b }
	}
	t.Run("source port", func(t *testing.T) { count(t, put(udp4, 34)) })
	t.Run("destination port", func(t *testing.T) { count(t, put(tcp4, 36)) })
	t.Run("source address", func(t *testing.T) { count(t, put(udp4, 28)) })
	t.Run("destination address", func(t *testing.T) { count(t, put(udp4, 31)) })
	t.Run("IPv6 source network", func(t *testing.T) { count(t, put(udp6, 28)) })
	t.Run("IPv6 interface identifier", func(t *testing.T) { count(t, put(udp6, 52)) })
	t.Run("Ethernet address", func(t *testing.T) { count(t, put(arp, 10)) })
}

func TestFlowHashDoesNotAllocate(t *testing.T) {
	p := parsed(chained)
	defer p.Free()
	if n := testing.AllocsPerRun(100, func() { p.Flags &^= qdisc.HashSet; classify.FlowHash(p, 1) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkFlowHash(b *testing.B) {
	for _, bc := range []struct {
		name  string
		frame []byte
	}{{"udp4", udp4}, {"udp6", udp6}, {"extensions", chained}} {
		b.Run(bc.name, func(b *testing.B) {
			p := parsed(bc.frame)
			defer p.Free()
			for b.Loop() {
				p.Flags &^= qdisc.HashSet
				classify.FlowHash(p, 1)
			}
		})
	}
}
