// Package dequeue is the transmit side of the engine: what happens between a
// qdisc and a device. It decides when packets leave a root qdisc, how many
// together, and when the device is told of them.
//
// Three types stand for three things of the kernel:
//
//	Txq        netdev_queue and the driver's transmit function: stopped or live,
//	           byte queue limits, the doorbell, the transmit watchdog
//	Runner     __qdisc_run: restarts, bulk dequeue, quota, requeue, bypass
//	Scheduler  softnet_data's output_queue and net_tx_action: round robin
//
// and one interface, [Driver], for the device. A worker's turn uses them in this
// order, with the same instant in its Context throughout:
//
//	txq.Reap      for each queue: completions, BQL, wakes
//	runner.Submit for each burst received
//	sched.Pass    until the worker has other things to do; usually once
//	txq.Flush     for each queue: the doorbell
//
// and sleeps until the earliest of runner.NextAt and txq.NextFlush, at most 50 µs
// while runner.Waiting, not at all while sched.Pending. A worker that follows this
// leaves no packet behind; that is tested with random devices.
//
// # One owner
//
// The kernel's transmit path runs on any CPU and spends much of its cunning on
// that: the running flag, the bits MISSED and DRAINING, the fences around XOFF,
// the deferred list. Here one worker owns queues, runners and scheduler, so what
// is left of all this is an order: a runner's scheduled flag is cleared before it
// runs, wakes schedule, and only Reap wakes.
//
// # What differs
//
// The behaviour is that of Linux 6.19 (net/sched/sch_generic.c, net/core/dev.c),
// and these are the differences:
//
//   - The doorbell may be held until the end of the turn, not only within a list.
//     DoorbellList is the kernel's way.
//   - Packets that a driver refused leave together again, under the byte budget,
//     not one by one; nothing is mixed with them.
//   - A list is bounded by the ring's room, so drivers refuse only in a race; and
//     by 512 packets in any quota mode.
//   - Without BQL the kernel sends single packets. Here the bound is the ring's
//     room and the quota.
//   - A run that spends its quota on the last packet is not scheduled again.
//   - Nothing is segmented or checksummed here, so requeued packets cannot be
//     validated twice.
package dequeue
