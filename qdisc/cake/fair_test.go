package cake_test

import (
	"testing"
	"time"

	"sluice/qdisc"
)

// crowd is hosts with 1, 4, 16 and 64 greedy flows, of which every other one has
// small packets. host places flow i of host h.
func crowd(host func(f *greedy, h, i byte)) (flows []greedy, of []int) {
	for h, n := range []int{1, 4, 16, 64} {
		for i := range n {
			f := greedy{src: 1, dst: 1, sport: uint16(1000*h + i), size: 1514, tos: ect0}
			if i%2 == 1 {
				f.size = 300
			}
			host(&f, byte(h+1), byte(len(flows)))
			flows = append(flows, f)
			of = append(of, h)
		}
	}
	return flows, of
}

func byHost(sent []float64, of []int) []float64 {
	sum := make([]float64, 4)
	for i, x := range sent {
		sum[of[i]] += x
	}
	return sum
}

// Hosts share the link equally, however many flows they have, at the end of the link
// that is asked for; and the flows of a host share what it gets.
func TestHostsShareEqually(t *testing.T) {
	atSrc := func(f *greedy, h, i byte) { f.src, f.dst = h, 100+i }
	atDst := func(f *greedy, h, i byte) { f.src, f.dst = 100+i, h }
	pairs := func(f *greedy, h, _ byte) { f.src, f.dst = 1+h%2, h }
	for _, c := range []struct {
		mode string
		host func(f *greedy, h, i byte)
		fair bool
	}{
		{"dual-srchost", atSrc, true},
		{"dual-dsthost", atDst, true},
		{"triple-isolate", atSrc, true},
		{"triple-isolate", atDst, true},
		{"srchost", atSrc, true},
		{"dsthost", atDst, true},
		{"hosts", pairs, true},
		{"flows", atSrc, false},
		{"dual-srchost", atDst, false},
	} {
		t.Run(c.mode, func(t *testing.T) {
			s := newSim(t, 4096, "besteffort", c.mode, "bandwidth", 12_500_000)
			flows, of := crowd(c.host)
			sent := s.run(flows, 8, 4*time.Second, nil)
			hosts := byHost(sent, of)
			if index := jain(hosts); c.fair && index < 0.99 || !c.fair && index > 0.7 {
				t.Errorf("Jain's index of the hosts is %.4f, they sent %.0f", index, hosts)
			}
			if c.mode != "srchost" && c.mode != "dsthost" && c.mode != "hosts" {
				if index := jain(sent[21:]); index < 0.99 {
					t.Errorf("Jain's index of the flows of one host is %.4f, they sent %.0f %v", index, sent[21:], s.tin(0))
				}
			}
		})
	}
}

// Flows with packets of any size share equally by bytes.
func TestFlowsShareByBytes(t *testing.T) {
	s := newSim(t, 1024, "besteffort", "flows", "bandwidth", 1_250_000)
	var flows []greedy
	for i := range 20 {
		flows = append(flows, greedy{src: byte(i), sport: uint16(i), size: 64 + 76*i, tos: ect0})
	}
	sent := s.run(flows, 8, 20*time.Second, nil)
	if index := jain(sent); index < 0.999 {
		t.Errorf("Jain's index is %.4f, they sent %.0f", index, sent)
	}
}

// A flow that sends one packet now and then waits for less than twice the AQM's
// target, beside 32 that fill 20 Mbit/s.
func TestSparseFlowHardlyWaits(t *testing.T) {
	const rate, target = 2_500_000, 5 * time.Millisecond
	for _, ecn := range []uint8{0, ect0} {
		s := newSim(t, 4096, "besteffort", "bandwidth", rate)
		var flows []greedy
		for i := range 32 {
			flows = append(flows, greedy{src: byte(1 + i%4), dst: 9, sport: uint16(i), size: 1514, tos: ecn})
		}
		var waiting *qdisc.Packet
		var since, worst time.Duration
		n := 0
		next := 100 * time.Millisecond
		s.run(flows, 16, 5*time.Second, func() {
			if waiting != nil && waiting.Flags&qdisc.Parsed == 0 { // it left
				worst = max(worst, s.ctx.Now-since)
				waiting = nil
			}
			if s.ctx.Now >= next && waiting == nil {
				waiting, since = s.udp(77, 78, 7, 120, 0), s.ctx.Now
				s.put(waiting)
				next += 20 * time.Millisecond
				n++
			}
		})
		if n < 200 || worst >= 2*target {
			t.Errorf("%d packets of the sparse flow waited up to %v; want less than %v", n, worst, 2*target)
		}
	}
}

// Tins under a shaper: one that keeps to its part of the rate goes before all
// others; one that does not shares what is left.
func TestTinsKeepTheirParts(t *testing.T) {
	const ef, cs1 = 46 << 2, 8 << 2
	s := newSim(t, 1024, "bandwidth", 1_250_000, "flows")
	sent := s.run([]greedy{
		{src: 1, sport: 1, size: 1000, tos: ect0},
		{src: 2, sport: 2, size: 1000, tos: ect0 | cs1},
		{src: 3, sport: 3, size: 1000, tos: ect0 | ef},
	}, 16, 20*time.Second, nil)
	total := sent[0] + sent[1] + sent[2]
	for i, c := range []struct {
		name   string
		lo, hi float64
	}{
		// Bulk has 1/16 and voice 1/4 for certain, besteffort the rest.
		{"besteffort", 0.60, 0.75}, {"bulk", 0.055, 0.08}, {"voice", 0.22, 0.30},
	} {
		if part := sent[i] / total; part < c.lo || part > c.hi {
			t.Errorf("%s has %.3f of the rate, want %.3f to %.3f", c.name, part, c.lo, c.hi)
		}
	}
}

// Shares below one byte are not rounded away: a host with 200 flows, each of which gets
// a byte and a half at a time, has what a host with one flow has.
func TestTinySharesAddUp(t *testing.T) {
	s := newSim(t, 1024, "besteffort", "dual-srchost", "bandwidth", 1_000_000)
	flows := []greedy{{src: 1, sport: 1, size: 500, tos: ect0}}
	for i := range 200 {
		flows = append(flows, greedy{src: 2, sport: uint16(i), size: 500, tos: ect0})
	}
	sent := s.run(flows, 4, 20*time.Second, nil)
	many := 0.0
	for _, x := range sent[1:] {
		many += x
	}
	if ratio := many / sent[0]; ratio < 0.95 || ratio > 1.05 {
		t.Errorf("200 flows of one host sent %.3f of what the flow of the other sent", ratio)
	}
}
