package back_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sluice/qdisc"
	"sluice/qdisc/internal/back"
)

// A list that is pushed at its end and taken from at both ends is a slice, whatever
// pools the packets are of.
func TestAgainstASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pools []*qdisc.Pool
		for range 3 {
			pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 100, FrameSize: 512})
			if err != nil {
				t.Fatal(err)
			}
			pools = append(pools, pool)
		}
		var links back.Links
		lists := [2]qdisc.List{}
		slow := [2][]*qdisc.Packet{}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			i := rapid.IntRange(0, 1).Draw(t, "list")
			var got, want *qdisc.Packet
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				got = lists[i].Pop()
				if len(slow[i]) > 0 {
					want, slow[i] = slow[i][0], slow[i][1:]
				}
			case 1:
				got = links.PopBack(&lists[i])
				if n := len(slow[i]) - 1; n >= 0 {
					want = slow[i][n]
					slow[i] = slices.Delete(slow[i], n, n+1)
				}
			default:
				p := rapid.SampledFrom(pools).Draw(t, "pool").Get()
				p.SetLen(60)
				p.Scratch[3] = ^uint64(0)
				links.Push(&lists[i], p)
				slow[i] = append(slow[i], p)
			}
			if got != want || lists[i].Len() != len(slow[i]) {
				t.Fatalf("another packet, or %d on the list, want %d", lists[i].Len(), len(slow[i]))
			}
		}
	})
}
