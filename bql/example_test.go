package bql_test

import (
	"fmt"

	"sluice/bql"
)

// A sender that always has more to send, and a device that completes up to 12
// frames once a tick. The limit grows until the ring holds two such batches,
// one to complete and one behind it, and stays there.
func Example() {
	const frame, batch = 1514, 12
	var l bql.Limit
	l.Init(0)
	for now := bql.Tick(1); now <= 10_000; now++ {
		for l.Avail() >= 0 {
			l.Queued(frame, now)
		}
		inflight := l.Inflight()
		l.Completed(min(inflight, batch*frame), now)
		if now <= 6 || now == 10_000 {
			fmt.Printf("tick %d: %d frames in flight, limit now %d\n",
				now, inflight/frame, l.Snapshot().Limit/frame)
		}
	}
	// Output:
	// tick 1: 1 frames in flight, limit now 1
	// tick 2: 2 frames in flight, limit now 3
	// tick 3: 4 frames in flight, limit now 7
	// tick 4: 8 frames in flight, limit now 15
	// tick 5: 16 frames in flight, limit now 15
	// tick 6: 16 frames in flight, limit now 24
	// tick 10000: 25 frames in flight, limit now 24
}
