// Packet path.

package htb

import (
	"math/bits"
	"time"
)

// activate lets a class take part for the prios of mask (htb_activate_prios):
// it joins the row of its level if it can send, the feed of its parent if it may
// borrow; the parent then wants to send too, unless it did already.
func (q *htb) activate(c *class) {
	mask := c.active
	for c.mode == mayBorrow && c.parent != root && mask != 0 {
		p := &q.classes[c.parent]
		for m := mask; m != 0; m &= m - 1 {
			feed := &p.lender.feeds[bits.TrailingZeros8(m)]
			if !feed.empty() {
				mask &^= m & -m
			}
			feed.add(c.sibling)
		}
		p.active |= mask
		c = p
	}
	if c.mode == canSend && mask != 0 {
		t := q.tierOf(c)
		t.busy |= mask
		for ; mask != 0; mask &= mask - 1 {
			t.rows[bits.TrailingZeros8(mask)].add(c.rank)
		}
	}
}

// deactivate reverses activate, by the mode the class had then
// (htb_deactivate_prios).
func (q *htb) deactivate(c *class) {
	mask := c.active
	for c.mode == mayBorrow && c.parent != root && mask != 0 {
		p := &q.classes[c.parent]
		for m := mask; m != 0; m &= m - 1 {
			feed := &p.lender.feeds[bits.TrailingZeros8(m)]
			feed.del(c.sibling)
			if !feed.empty() {
				mask &^= m & -m
			}
		}
		p.active &^= mask
		c = p
	}
	if c.mode == canSend && mask != 0 {
		t := q.tierOf(c)
		for ; mask != 0; mask &= mask - 1 {
			row := &t.rows[bits.TrailingZeros8(mask)]
			if row.cursor == c.rank {
				row.advance()
			}
			if row.del(c.rank); row.empty() {
				t.busy &^= mask & -mask
			}
		}
	}
}

// rest takes a leaf without packets out of everything (htb_deactivate). Twice is
// as good as once.
func (q *htb) rest(c *class) {
	if c.active != 0 {
		q.deactivate(c)
		c.active = 0
	}
}

// setMode changes a class's mode (htb_change_class_mode). One that can't send is
// in no ring, so leaving or joining them as such does nothing.
func (q *htb) setMode(c *class, m mode) {
	if m == cantSend {
		c.overlimits++
		q.Overlimits++
	}
	if c.active == 0 {
		c.mode = m
		return
	}
	q.deactivate(c)
	c.mode = m
	q.activate(c)
}

// waitFor files a class, which is in debt, under the instant when it can pay.
func (t *tier) waitFor(i int32, now, delay time.Duration) {
	at := now + max(delay, 1)
	t.wait.Put(i, at)
	t.near = min(t.near, at)
}

// forget takes a class out that no longer waits.
func (t *tier) forget(i int32) {
	if t.wait.At(i) == t.near {
		t.stale = true
	}
	t.wait.Remove(i)
}

// events gives all classes of a level that have paid a debt the mode that they
// can have now (htb_do_events).
func (q *htb) events(t *tier, now time.Duration) {
	for i := t.wait.Pop(now); i != none; i = t.wait.Pop(now) {
		c := &q.classes[i]
		m, delay := c.modeIn(elapsed(now-c.settled), q.hysteresis)
		if m != c.mode {
			q.setMode(c, m)
		}
		if m != canSend {
			t.waitFor(i, now, delay)
		}
	}
	t.refresh()
}

// refresh makes near exact.
func (t *tier) refresh() { t.near, t.stale = t.wait.Next(), false }

// charge settles a packet of n bytes with its leaf and all ancestors; the one
// that lends for it, and those above, pay from their rate, all from their ceil
// (htb_charge_class).
func (q *htb) charge(now time.Duration, leaf, from int32, n uint32) {
	pays := false
	for i := leaf; i != root; {
		c := &q.classes[i]
		d, w := elapsed(now-c.settled), c.wire(n)
		if i == from {
			pays = true
			c.lends++
		}
		if pays {
			c.tokens = max(min(c.tokens+d, c.buffer)-c.cost.of(w), poorest)
		} else {
			c.borrows++
			c.tokens += d
		}
		c.ctokens = max(min(c.ctokens+d, c.cbuffer)-c.ccost.of(w), poorest)
		c.settled = now

		if c.mode != canSend || c.tokens|c.ctokens < 0 {
			q.judge(i, c, now)
		}
		if i != leaf {
			c.packets++
			c.bytes += uint64(n)
		}
		i = c.parent
	}
}

// judge gives a class that was charged the mode that it can have now.
func (q *htb) judge(i int32, c *class, now time.Duration) {
	m, delay := c.modeIn(0, q.hysteresis)
	if m == c.mode {
		return
	}
	t := q.tierOf(c)
	if c.mode != canSend {
		t.forget(i)
	}
	q.setMode(c, m)
	if m != canSend {
		t.waitFor(i, now, delay)
	}
}
