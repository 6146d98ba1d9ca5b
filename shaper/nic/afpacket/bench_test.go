//go:build linux

package afpacket_test

import (
	"context"
	"fmt"
	"testing"

	"sluice/qdisc"
	"sluice/shaper/nic/afpacket"
	"sluice/tests/lab"
)

// Post, Kick and Reap on a veth, by packets a doorbell. The peer's kernel frees
// the frames, which is part of the time.
func BenchmarkIntegrationTransmit(b *testing.B) {
	for _, size := range []int{64, 1514} {
		for _, every := range []int{1, 4, 16, 64} {
			b.Run(fmt.Sprintf("size=%d/doorbell=%d", size, every), func(b *testing.B) {
				s := setup(b, lab.Wire{}, afpacket.Options{})
				q := s.port.Tx()[0]
				frame := s.flow().Frame(size)
				now := s.now()
				b.ReportAllocs()
				b.ResetTimer()
				for sent := 0; sent < b.N; {
					for i := 0; i < every && q.Room() > 0; i++ {
						q.Post(s.packet(frame))
						sent++
					}
					q.Kick(now)
					q.Reap(now)
				}
				b.StopTimer()
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/pkt")
			})
		}
	}
}

// Receive alone: the ring is filled while the clock stands.
func BenchmarkIntegrationReceive(b *testing.B) {
	for _, size := range []int{64, 1514} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			const slots = 4096
			s := setup(b, lab.Wire{}, afpacket.Options{RxFrames: slots})
			q := s.port.Rx()[0]
			frames := [][]byte{s.flow().Frame(size)}
			var l qdisc.List
			b.ReportAllocs()
			b.ResetTimer()
			for got := 0; got < b.N; {
				b.StopTimer()
				n := min(slots, b.N-got)
				if _, err := s.peer.Send(context.Background(), "eth0", lab.Send{Frames: frames, N: n}); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				for n > 0 {
					took := q.Receive(s.ctx, &l, 64)
					for p := l.Pop(); p != nil; p = l.Pop() {
						p.Free()
					}
					n -= took
					got += took
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/pkt")
		})
	}
}
