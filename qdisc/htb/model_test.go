package htb_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/qdisc"
)

// The model is htb as one would explain it: it keeps no rings and no wheel, but
// looks at all classes, each time, to find who may send. All it remembers beside
// the classes is whose turn it is. Its tokens are whole nanoseconds, which is
// exact at the rates that the test uses.

type modelClass struct {
	id              uint32
	parent          *modelClass
	inner           bool
	prio, want      int // want: the prio that it had when its queue began
	quantum         int
	nsByte, ceilNs  int64 // what a byte costs
	buffer, cbuffer int64
	tokens, ctokens int64
	settled         int64
	mode            int // 0 can send, 1 may borrow, 2 can't send
	waits           bool
	due             int64
	age             int
	queue           []int         // lengths
	deficit         map[int]int   // by how many levels up the lender is
	turn            map[int]int64 // of an inner class: by prio, the id from which its feed goes on
	lends, borrows  uint64
}

// nobody is the turn at the end of a round.
const nobody = math.MaxInt64

type model struct {
	classes    []*modelClass // by id
	rows       map[[2]int]int64
	now        int64
	ages       int
	hysteresis bool
}

func (m *model) find(id uint32) *modelClass {
	for _, c := range m.classes {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (c *modelClass) depth() int {
	if c.parent == nil {
		return 0
	}
	return c.parent.depth() + 1
}

// level counts as the kernel does: leaves 0, inner classes 7 and down.
func (c *modelClass) level() int {
	if !c.inner {
		return 0
	}
	return 7 - c.depth()
}

// wants says whether a class has something to send at a prio, or a child has that
// would borrow from it.
func (m *model) wants(c *modelClass, prio int) bool {
	if !c.inner {
		return len(c.queue) > 0 && c.want == prio
	}
	return len(m.feed(c, prio)) > 0
}

func (m *model) feed(p *modelClass, prio int) (all []*modelClass) {
	for _, c := range m.classes {
		if c.parent == p && c.mode == 1 && m.wants(c, prio) {
			all = append(all, c)
		}
	}
	return all
}

func (m *model) row(level, prio int) (all []*modelClass) {
	for _, c := range m.classes {
		if c.level() == level && c.mode == 0 && m.wants(c, prio) {
			all = append(all, c)
		}
	}
	return all
}

// changed moves the turn of every row on whose holder is no longer in it.
func (m *model) changed() {
	for at, turn := range m.rows {
		row := m.row(at[0], at[1])
		if turn != nobody && !slices.ContainsFunc(row, func(c *modelClass) bool { return int64(c.id) == turn }) {
			m.rows[at] = after(row, turn)
		}
	}
}

// after returns the id of the first class behind a turn.
func after(ring []*modelClass, turn int64) int64 {
	for _, c := range ring {
		if int64(c.id) > turn {
			return int64(c.id)
		}
	}
	return nobody
}

// choose follows the turns from a row down to a leaf.
func (m *model) choose(level, prio int) (leaf, from *modelClass) {
	at := [2]int{level, prio}
	for {
		row := m.row(level, prio)
		i := slices.IndexFunc(row, func(c *modelClass) bool { return int64(c.id) >= m.turn(at) })
		if i < 0 {
			i = 0
		}
		m.rows[at] = int64(row[i].id)
		if leaf = m.descend(row[i], prio); leaf != nil {
			return leaf, row[i]
		}
		m.rows[at] = after(row, m.rows[at])
	}
}

func (m *model) turn(at [2]int) int64 {
	if t, ok := m.rows[at]; ok {
		return t
	}
	return nobody
}

// descend follows the turns below a class; nil when its feed came to an end, and
// begins anew.
func (m *model) descend(c *modelClass, prio int) *modelClass {
	if !c.inner {
		return c
	}
	for {
		feed := m.feed(c, prio)
		turn, ok := c.turn[prio]
		if !ok {
			turn = nobody
		}
		i := slices.IndexFunc(feed, func(x *modelClass) bool { return int64(x.id) >= turn })
		if i < 0 {
			c.turn[prio] = int64(feed[0].id)
			return nil
		}
		c.turn[prio] = int64(feed[i].id)
		if leaf := m.descend(feed[i], prio); leaf != nil {
			return leaf
		}
		c.turn[prio] = after(feed, c.turn[prio])
	}
}

// setMode gives a class the mode that it can have with what it has earned. One that
// was due is due again, unless it can send now.
func (m *model) setMode(c *modelClass, earned int64, wasDue bool) {
	low, high := int64(0), int64(0)
	if m.hysteresis && c.mode != 2 {
		low = -c.cbuffer
	}
	if m.hysteresis && c.mode == 0 {
		high = -c.buffer
	}
	mode, wait := 0, int64(0)
	switch {
	case c.ctokens+earned < low:
		mode, wait = 2, -(c.ctokens + earned)
	case c.tokens+earned < high:
		mode, wait = 1, -(c.tokens + earned)
	}
	if mode == c.mode && !wasDue {
		return
	}
	c.mode = mode
	c.waits, c.due = mode != 0, m.now+max(wait, 1)
	m.ages++
	c.age = m.ages
	m.changed()
}

func (m *model) events(level int) {
	for {
		var first *modelClass
		for _, c := range m.classes {
			if c.waits && c.level() == level && c.due <= m.now &&
				(first == nil || c.due < first.due || c.due == first.due && c.age < first.age) {
				first = c
			}
		}
		if first == nil {
			return
		}
		m.setMode(first, min(m.now-first.settled, 60e9), true)
	}
}

// dequeue returns the class that sent, or nil and when it is worth asking again.
func (m *model) dequeue() (*modelClass, int64) {
	if !slices.ContainsFunc(m.classes, func(c *modelClass) bool { return len(c.queue) > 0 }) {
		return nil, nobody
	}
	for level := range 8 {
		m.events(level)
		for prio := range 8 {
			if len(m.row(level, prio)) > 0 {
				return m.send(level, prio), 0
			}
		}
	}
	next := int64(nobody)
	for _, c := range m.classes {
		if c.waits {
			next = min(next, c.due)
		}
	}
	return nil, next
}

func (m *model) send(level, prio int) *modelClass {
	leaf, from := m.choose(level, prio)
	n := leaf.queue[0]
	up := leaf.depth() - from.depth()
	if leaf.deficit[up] -= n; leaf.deficit[up] < 0 {
		leaf.deficit[up] += leaf.quantum
		if leaf == from {
			at := [2]int{level, prio}
			m.rows[at] = after(m.row(level, prio), m.rows[at])
		} else {
			leaf.parent.turn[prio] = after(m.feed(leaf.parent, prio), leaf.parent.turn[prio])
		}
	}
	leaf.queue = leaf.queue[1:]
	m.changed()

	pays := false
	for c := leaf; c != nil; c = c.parent {
		earned := min(m.now-c.settled, 60e9)
		if c == from {
			pays = true
			c.lends++
		}
		if pays {
			c.tokens = max(min(c.tokens+earned, c.buffer)-int64(n)*c.nsByte, 1-60e9)
		} else {
			c.borrows++
			c.tokens += earned
		}
		c.ctokens = max(min(c.ctokens+earned, c.cbuffer)-int64(n)*c.ceilNs, 1-60e9)
		c.settled = m.now
		m.setMode(c, 0, false)
	}
	return leaf
}

func (m *model) add(parent, id uint32, v qdisc.Values) {
	c := &modelClass{id: id, deficit: map[int]int{}}
	if p := m.find(parent); p != nil {
		if !p.inner {
			p.inner, p.turn, p.queue, p.mode, p.waits = true, map[int]int64{}, nil, 0, false
		}
		c.parent = p
	}
	m.set(c, v)
	c.tokens, c.ctokens, c.settled = c.buffer, c.cbuffer, m.now
	m.classes = append(m.classes, c)
	slices.SortFunc(m.classes, func(a, b *modelClass) int { return int(a.id) - int(b.id) })
	m.changed()
}

func (m *model) set(c *modelClass, v qdisc.Values) {
	const second = 1_000_000_000
	c.nsByte, c.ceilNs = int64(second/v["rate"].N), int64(second/v["ceil"].N)
	c.buffer = (int64(v["burst"].N)*c.nsByte + 63) / 64 * 64
	c.cbuffer = (int64(v["cburst"].N)*c.ceilNs + 63) / 64 * 64
	if !c.inner {
		c.prio, c.quantum = int(v["prio"].N), int(v["quantum"].N)
	}
}

func (m *model) remove(id uint32) bool {
	c := m.find(id)
	if c == nil || c.inner {
		return false
	}
	m.classes = slices.DeleteFunc(m.classes, func(x *modelClass) bool { return x == c })
	if p := c.parent; p != nil && !slices.ContainsFunc(m.classes, func(x *modelClass) bool { return x.parent == p }) {
		p.inner, p.mode, p.waits, p.deficit = false, 0, false, map[int]int{}
		p.tokens, p.ctokens, p.settled = p.buffer, p.cbuffer, m.now
	}
	m.changed()
	return true
}

// Whatever tree, whatever arrives, and however classes come, change and go: the
// same packets leave at the same instants as in the model, and every class has the
// same tokens and the same account of them.
func TestLikeTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hysteresis := rapid.IntRange(0, 3).Draw(t, "hysteresis") == 0
		v := values()
		if hysteresis {
			v.Set("hysteresis", 1)
		}
		m := &model{rows: map[[2]int]int64{}, hysteresis: hysteresis}
		pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 256, FrameSize: 1600, Headroom: 64})
		if err != nil {
			t.Fatal(err)
		}
		ctx := qdisc.NewContext(pool, 1)
		fast := build(t, v)

		pick := func(name string, of ...int) int { return rapid.SampledFrom(of).Draw(t, name) }
		minor := func() uint32 { return uint32(rapid.IntRange(1, 12).Draw(t, "class")) }
		params := func() qdisc.Values {
			return values("rate", pick("rate", 62_500, 125_000, 250_000, 1_000_000), "ceil", pick("ceil", 125_000, 500_000, 1_000_000),
				"burst", pick("burst", 1, 1600, 4000), "cburst", pick("cburst", 1, 1600, 4000),
				"quantum", pick("quantum", 300, 1000, 1514, 4000), "prio", pick("prio", 0, 0, 0, 1, 5))
		}
		add := func() {
			parent, id, v := minor(), minor(), params()
			if p := m.find(parent); p != nil && p.depth() > 4 || m.find(id) != nil {
				return
			}
			if err := fast.AddClass(ctx, qdisc.MakeID(1, parent), qdisc.MakeID(1, id), v); err != nil {
				t.Fatal(err)
			}
			m.add(parent, id, v)
		}
		var next int64
		dequeue := func() {
			m.now = int64(ctx.Now)
			want, at := m.dequeue()
			p := fast.Dequeue(ctx)
			next = at
			var who, whoWant uint32
			if want != nil {
				whoWant = want.id
			}
			if p != nil {
				who = p.Class.Minor()
			}
			switch {
			case who != whoWant:
				t.Fatalf("at %d class %x sends, want %x", m.now, who, whoWant)
			case p != nil:
				p.Free()
			case int64(fast.NextAt()) != at:
				t.Fatalf("at %d NextAt is %d, want %d", m.now, fast.NextAt(), at)
			}
		}
		for range rapid.IntRange(2, 10).Draw(t, "classes") {
			add()
		}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			m.now = int64(ctx.Now)
			switch op := rapid.IntRange(0, 40).Draw(t, "op"); {
			case op < 14:
				c := m.find(minor())
				if c == nil || c.inner || len(c.queue) >= 20 {
					continue
				}
				p := pool.Get()
				if p == nil {
					continue
				}
				p.SetLen(pick("len", 64, 500, 1000, 1514))
				p.Class = id(c.id)
				if v := fast.Enqueue(ctx, p); v != qdisc.Success {
					t.Fatalf("verdict %d", v)
				}
				if len(c.queue) == 0 {
					c.want = c.prio
				}
				c.queue = append(c.queue, p.Len())
			case op < 28:
				dequeue()
			case op < 34 && next > int64(ctx.Now) && next != nobody:
				ctx.Now = time.Duration(next)
				dequeue()
			case op < 37:
				ctx.Now += time.Duration(rapid.IntRange(0, 20_000_000).Draw(t, "ns"))
			case op == 37:
				add()
			case op == 38:
				c, v := m.find(minor()), params()
				if c != nil {
					if err := fast.ChangeClass(ctx, id(c.id), v); err != nil {
						t.Fatal(err)
					}
					m.set(c, v)
				}
			case op == 39:
				x := minor()
				if err := fast.DeleteClass(ctx, id(x)); (err == nil) != m.remove(x) {
					t.Fatalf("delete of class %d: %v", x, err)
				}
			}
			if got, want := account(fast), m.account(); got != want {
				t.Fatalf("at %d\n%s\nwant\n%s", ctx.Now, got, want)
			}
		}
		fast.Reset(ctx)
	})
}

func account(q scheduler) (text string) {
	q.Walk(func(c qdisc.Class) bool {
		x := c.XStats
		text += fmt.Sprintf("%x: lent %d borrowed %d tokens %d %d, %d waiting\n", c.ID.Minor(),
			x["lended"].N, x["borrowed"].N, int64(x["tokens"].N), int64(x["ctokens"].N), c.Len)
		return true
	})
	return text
}

func (m *model) account() (text string) {
	for _, c := range m.classes {
		text += fmt.Sprintf("%x: lent %d borrowed %d tokens %d %d, %d waiting\n",
			c.id, c.lends, c.borrows, c.tokens>>6, c.ctokens>>6, len(c.queue))
	}
	return text
}
