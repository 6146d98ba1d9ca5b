package qdisc_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"sluice/qdisc"
)

func TestAPoolRunsOutAndNeverGrows(t *testing.T) {
	pool := newPool(t, 3)
	var out []*qdisc.Packet
	for range 3 {
		out = append(out, pool.Get())
	}
	if p := pool.Get(); p != nil {
		t.Fatalf("a pool of 3 gave packet %d", p.Index())
	}
	if got := pool.Available(); got != 0 {
		t.Errorf("Available is %d", got)
	}
	// The warmest slot is taken first.
	out[1].Free()
	out[0].Free()
	if p := pool.Get(); p != out[0] {
		t.Errorf("Get gave slot %d; the last one freed was %d", p.Index(), out[0].Index())
	}
}

func TestAReusedPacketRemembersNothing(t *testing.T) {
	pool := newPool(t, 1)
	p := take(pool, 100)
	fresh := *p
	p.Priority, p.Mark, p.Hash, p.Class, p.Port, p.Queue = 1, 2, 3, 4, 5, 6
	p.L3, p.L4, p.EtherType, p.VLAN, p.L4Proto, p.TOS = 1, 2, 3, 4, 5, 6
	p.Flags = qdisc.Parsed | qdisc.HashSet | qdisc.VLANSet | qdisc.Malformed | qdisc.Fragment
	p.Push(14)
	p.Free()
	if again := take(pool, 100); !reflect.DeepEqual(*again, fresh) {
		t.Errorf("taken again: %+v\nwas: %+v", *again, fresh)
	}
}

func TestFreeingTwiceIsABug(t *testing.T) {
	p := newPool(t, 2).Get()
	p.Free()
	defer func() {
		if recover() == nil {
			t.Error("the second Free went unnoticed")
		}
	}()
	p.Free()
}

func TestSlotsDoNotOverlap(t *testing.T) {
	const size, headroom = 512, 64
	memory := make([]byte, 4*size)
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 4, FrameSize: size, Headroom: headroom, Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		p := pool.Get()
		if pool.At(p.Index()) != p {
			t.Errorf("At(%d) is another packet", p.Index())
		}
		p.SetLen(len(p.Room()))
		p.Push(headroom)
		for i := range p.Bytes() {
			p.Bytes()[i] = byte(p.Index() + 1)
		}
		if cap(p.Bytes()) != size {
			t.Errorf("slot %d: a frame can be appended to beyond its slot", p.Index())
		}
	}
	for slot := range 4 {
		want := bytes.Repeat([]byte{byte(slot + 1)}, size)
		if !bytes.Equal(memory[slot*size:(slot+1)*size], want) {
			t.Errorf("slot %d is not at its place in the given memory", slot)
		}
	}
}

func TestPushTakesFromTheHeadroom(t *testing.T) {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 1, FrameSize: 512, Headroom: 8})
	if err != nil {
		t.Fatal(err)
	}
	p := take(pool, 60)
	if frame := p.Push(8); len(frame) != 68 || p.Len() != 68 || p.PktLen != 68 || p.Offset() != 0 {
		t.Errorf("after Push(8): %d bytes, Len %d, PktLen %d, Offset %d", len(frame), p.Len(), p.PktLen, p.Offset())
	}
	if p.Push(1) != nil || p.Len() != 68 || p.PktLen != 68 {
		t.Error("Push beyond the headroom was not refused, or changed the frame")
	}
	p.SetFrame(100, 64)
	if p.Offset() != 100 || p.Len() != 64 || p.PktLen != 64 {
		t.Errorf("after SetFrame(100, 64): Offset %d, Len %d, PktLen %d", p.Offset(), p.Len(), p.PktLen)
	}
}

func TestClone(t *testing.T) {
	pool := newPool(t, 2)
	p := take(pool, 60)
	copy(p.Bytes(), "once")
	p.Priority, p.Mark, p.Class, p.TOS = 6, 7, qdisc.MakeID(1, 2), 0xb8
	p.PktLen = 84 // as a size table makes it

	c := pool.Clone(p)
	if c == nil || c == p || c.Index() == p.Index() {
		t.Fatalf("Clone gave %v", c)
	}
	if string(c.Bytes()[:4]) != "once" || c.Len() != 60 || c.PktLen != 84 ||
		c.Priority != 6 || c.Mark != 7 || c.Class != p.Class || c.TOS != 0xb8 {
		t.Errorf("the copy differs: %+v", *c)
	}
	copy(p.Bytes(), "more")
	if string(c.Bytes()[:4]) != "once" {
		t.Error("the copy shares the frame")
	}

	ctx := qdisc.NewContext(pool, 1)
	if ctx.Clone(p) != nil || ctx.Drops[qdisc.NoBuffer] != 1 {
		t.Error("a clone out of an empty pool, or not counted")
	}
	c.Free() // to its own slot: a second Free of p's would panic
	p.Free()
	if pool.Available() != 2 {
		t.Errorf("%d slots are free after both were freed", pool.Available())
	}

	small, err := qdisc.NewPool(qdisc.PoolConfig{Packets: 1, FrameSize: 320})
	if err != nil {
		t.Fatal(err)
	}
	if small.Clone(take(pool, 1514)) != nil {
		t.Error("a clone into a pool whose slots are too small")
	}
	if small.Available() != 1 {
		t.Error("the refused clone kept a slot")
	}
}

func TestPoolsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		config qdisc.PoolConfig
		want   string
	}{
		{qdisc.PoolConfig{Packets: -1}, "at least 1"},
		{qdisc.PoolConfig{FrameSize: 65536}, "at most 65535"},
		{qdisc.PoolConfig{FrameSize: 128}, "at least 320"},
		{qdisc.PoolConfig{Headroom: -1}, "headroom"},
		{qdisc.PoolConfig{Packets: 2, FrameSize: 512, Memory: make([]byte, 1023)}, "need 1024"},
	} {
		if _, err := qdisc.NewPool(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want %q", c.config, err, c.want)
		}
	}
}

func TestPoolAndListAllocateNothing(t *testing.T) {
	pool := newPool(t, 4)
	var list qdisc.List
	if got := testing.AllocsPerRun(100, func() {
		list.Push(take(pool, 60))
		list.PushFront(pool.Clone(list.Front()))
		list.Pop().Free()
		list.Pop().Free()
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
