// Packet path.

package dequeue

import "sluice/qdisc"

// Scheduler is a worker's list of runners that have work: softnet_data's
// output_queue, and net_tx_action. The zero Scheduler is ready to use.
//
// Runners are served in the order in which they were scheduled, each up to its
// quota. One that is scheduled again during a pass, because its quota was spent
// or its txq woke, goes to the tail and runs in the next pass: round robin.
type Scheduler struct {
	head, tail *Runner // linked through Runner.next
}

// Schedule puts r at the tail of the list, unless it is on it already
// (__netif_schedule).
func (s *Scheduler) Schedule(r *Runner) {
	if r.scheduled {
		return
	}
	r.scheduled = true
	if s.tail == nil {
		s.head = r
	} else {
		s.tail.next = r
	}
	s.tail = r
}

// Pass runs every runner that was scheduled before, once, and returns how many
// those were (net_tx_action).
func (s *Scheduler) Pass(ctx *qdisc.Context) int {
	r := s.head
	s.head, s.tail = nil, nil
	n := 0
	for r != nil {
		next := r.next
		r.next = nil
		// Cleared before the run: what schedules r while it runs must not be
		// taken for the schedule that is being served.
		r.scheduled = false
		r.Run(ctx)
		r = next
		n++
	}
	return n
}

// Pending reports that a runner is scheduled. The worker does not sleep then.
func (s *Scheduler) Pending() bool { return s.head != nil }

// remove takes r off the list.
func (s *Scheduler) remove(r *Runner) {
	if !r.scheduled {
		return
	}
	var before *Runner
	for x := s.head; x != r; x = x.next {
		before = x
	}
	if before == nil {
		s.head = r.next
	} else {
		before.next = r.next
	}
	if s.tail == r {
		s.tail = before
	}
	r.next, r.scheduled = nil, false
}
