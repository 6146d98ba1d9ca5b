// Packet path, except NewPool.

package qdisc

import "fmt"

// Pool is the fixed slab that packets and their frames come from: slot i is
// Packet i and bytes [i*FrameSize, (i+1)*FrameSize) of the frame memory. It is
// sized once and never grows; when it runs out, Get says so and the worker
// sheds. One worker owns it; nothing here is safe for concurrent use.
type Pool struct {
	head     *Packet // free slots, last in first out: the warmest is taken first
	nfree    int
	headroom uint16
	size     int
	slab     []Packet
	mem      []byte
}

// PoolConfig sizes a [Pool].
type PoolConfig struct {
	Packets   int    // number of slots; default 4096
	FrameSize int    // bytes a slot; default 2048, at most 65535
	Headroom  int    // bytes kept free in front of a received frame; default 256
	Memory    []byte // frame memory, Packets*FrameSize bytes (a UMEM); nil: allocated here
}

// NewPool makes a pool with all slots free.
func NewPool(c PoolConfig) (*Pool, error) {
	if c.Packets == 0 {
		c.Packets = 4096
	}
	if c.FrameSize == 0 {
		c.FrameSize = 2048
	}
	if c.Headroom == 0 {
		c.Headroom = 256
	}
	switch {
	case c.Packets < 1:
		return nil, fmt.Errorf("pool of %d packets; at least 1 is needed", c.Packets)
	case c.FrameSize > 65535:
		return nil, fmt.Errorf("frame size %d bytes; at most 65535 is possible", c.FrameSize)
	case c.Headroom < 0 || c.FrameSize < c.Headroom+64:
		return nil, fmt.Errorf("frame size %d bytes with %d bytes of headroom; at least %d is needed",
			c.FrameSize, c.Headroom, c.Headroom+64)
	}
	want := c.Packets * c.FrameSize
	if c.Memory == nil {
		c.Memory = make([]byte, want)
	}
	if len(c.Memory) < want {
		return nil, fmt.Errorf("frame memory of %d bytes; %d packets of %d bytes need %d",
			len(c.Memory), c.Packets, c.FrameSize, want)
	}
	pool := &Pool{headroom: uint16(c.Headroom), size: c.FrameSize, slab: make([]Packet, c.Packets), mem: c.Memory}
	for i := len(pool.slab) - 1; i >= 0; i-- {
		p := &pool.slab[i]
		p.pool, p.index = pool, uint32(i)
		p.buf = c.Memory[i*c.FrameSize : (i+1)*c.FrameSize : (i+1)*c.FrameSize]
		pool.put(p)
	}
	return pool, nil
}

// Get takes a free slot, or nil when there is none. The frame is empty and
// starts behind the headroom; every other field is zero, Scratch excepted.
func (pool *Pool) Get() *Packet {
	p := pool.head
	if p == nil {
		return nil
	}
	pool.head = p.next
	pool.nfree--
	p.next = nil
	p.off, p.len = pool.headroom, 0
	p.PktLen, p.Priority, p.Mark, p.Hash = 0, 0, 0, 0
	p.Class, p.Port, p.Queue = 0, 0, 0
	p.L3, p.L4, p.EtherType, p.VLAN = 0, 0, 0, 0
	p.L4Proto, p.TOS, p.Flags = 0, 0, 0
	return p
}

func (pool *Pool) put(p *Packet) {
	if p.Flags&free != 0 {
		panic("qdisc: packet freed twice")
	}
	p.Flags = free
	p.next = pool.head
	pool.head = p
	pool.nfree++
}

// Clone copies p, frame and all, into a slot of this pool: what netem's
// duplicate and mirred's mirror need. It returns nil when no slot is free or
// the frame does not fit.
func (pool *Pool) Clone(p *Packet) *Packet {
	if int(p.off)+int(p.len) > pool.size {
		return nil
	}
	c := pool.Get()
	if c == nil {
		return nil
	}
	buf, index := c.buf, c.index
	*c = *p
	c.next, c.pool, c.buf, c.index = nil, pool, buf, index
	copy(c.buf[c.off:int(c.off)+int(c.len)], p.Bytes())
	return c
}

// At returns the packet of slot i, for drivers that learn of frames by address.
func (pool *Pool) At(i uint32) *Packet { return &pool.slab[i] }

// Available returns how many slots are free.
func (pool *Pool) Available() int { return pool.nfree }

// Size returns how many slots there are.
func (pool *Pool) Size() int { return len(pool.slab) }

// FrameSize returns the bytes of a slot, headroom included.
func (pool *Pool) FrameSize() int { return pool.size }

// Headroom returns the bytes in front of a received frame.
func (pool *Pool) Headroom() int { return int(pool.headroom) }

// Memory returns the frame memory.
func (pool *Pool) Memory() []byte { return pool.mem }
