// Package dequeue is the transmit side of the engine: Txq, Runner and Scheduler
// stand for the kernel's netdev_queue, __qdisc_run and net_tx_action.
package dequeue
