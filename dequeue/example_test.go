package dequeue_test

import (
	"fmt"

	"sluice/dequeue"
	"sluice/dequeue/dequeuetest"
	"sluice/qdisc"
)

// A worker's transmit side by hand: one queue with BQL, one runner, and a turn in
// which ten packets leave in three lists and share a doorbell.
func Example() {
	pool, _ := qdisc.NewPool(qdisc.PoolConfig{Packets: 64})
	ctx := qdisc.NewContext(pool, 1)

	var sched dequeue.Scheduler
	device := &dequeuetest.Driver{Size: 32, Kind: dequeue.CompleteDevice}
	txq := dequeue.NewTxq(dequeue.TxqConfig{Driver: device, MinLimit: 8000})
	runner := dequeue.NewRunner(dequeue.RunnerConfig{
		Root:      &dequeuetest.Queue{},
		Txqs:      []*dequeue.Txq{txq},
		Scheduler: &sched,
	})

	var burst qdisc.List
	for range 10 {
		p := pool.Get()
		p.SetLen(1000)
		burst.Push(p)
	}

	txq.Reap(ctx)
	runner.Submit(ctx, &burst)
	sched.Pass(ctx)
	txq.Flush(ctx)

	st := txq.Stats()
	fmt.Println(st.Packets, "packets,", st.Lists, "lists,", st.Bells, "doorbell,", runner.Len(), "waiting")

	device.Complete(9) // the device is done with them, and BQL has learned
	txq.Reap(ctx)
	sched.Pass(ctx)
	txq.Flush(ctx)
	fmt.Println(runner.Len(), "waiting")
	// Output:
	// 9 packets, 2 lists, 1 doorbell, 1 waiting
	// 0 waiting
}
