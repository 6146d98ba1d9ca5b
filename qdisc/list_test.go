package qdisc_test

import (
	"testing"

	"pgregory.net/rapid"

	"sluice/qdisc"
)

// newPool makes a small pool for tests.
func newPool(t interface{ Fatal(...any) }, packets int) *qdisc.Pool {
	pool, err := qdisc.NewPool(qdisc.PoolConfig{Packets: packets, FrameSize: 2048})
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// take takes a packet of n bytes.
func take(pool *qdisc.Pool, n int) *qdisc.Packet {
	p := pool.Get()
	p.SetLen(n)
	return p
}

// Two lists do what two slices do.
func TestListIsASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool := newPool(t, 64)
		var list [2]qdisc.List
		var model [2][]*qdisc.Packet
		pick := func(t *rapid.T) int { return rapid.IntRange(0, 1).Draw(t, "list") }
		get := func(t *rapid.T) *qdisc.Packet {
			if pool.Available() == 0 {
				t.Skip("pool empty")
			}
			return take(pool, rapid.IntRange(60, 1514).Draw(t, "len"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				i, p := pick(t), get(t)
				list[i].Push(p)
				model[i] = append(model[i], p)
			},
			"cut": func(t *rapid.T) {
				i := pick(t)
				at := rapid.IntRange(0, len(model[i])).Draw(t, "at")
				var before, want *qdisc.Packet
				if at > 0 {
					before = model[i][at-1]
				}
				if at < len(model[i]) {
					want = model[i][at]
					model[i] = append(model[i][:at:at], model[i][at+1:]...)
				}
				got := list[i].Cut(before)
				if got != want {
					t.Fatalf("Cut behind packet %d of list %d gave another packet", at, i)
				}
				if got != nil {
					got.Free()
				}
			},
			"push front": func(t *rapid.T) {
				i, p := pick(t), get(t)
				list[i].PushFront(p)
				model[i] = append([]*qdisc.Packet{p}, model[i]...)
			},
			"pop": func(t *rapid.T) {
				i := pick(t)
				var want *qdisc.Packet
				if len(model[i]) > 0 {
					want, model[i] = model[i][0], model[i][1:]
				}
				got := list[i].Pop()
				if got != want {
					t.Fatalf("Pop gave %p; want %p", got, want)
				}
				if got != nil {
					if got.Next() != nil {
						t.Fatal("a packet off the list still points to another")
					}
					got.Free()
				}
			},
			"append": func(t *rapid.T) {
				i := pick(t)
				list[i].Append(&list[1-i])
				model[i] = append(model[i], model[1-i]...)
				model[1-i] = nil
			},
			"": func(t *rapid.T) {
				for i := range list {
					bytes := 0
					p := list[i].Front()
					for _, want := range model[i] {
						if p != want {
							t.Fatalf("list %d holds %p where %p should be", i, p, want)
						}
						bytes += int(p.PktLen)
						p = p.Next()
					}
					if p != nil {
						t.Fatalf("list %d goes on behind its end", i)
					}
					if list[i].Len() != len(model[i]) || list[i].Bytes() != bytes {
						t.Fatalf("list %d says %d packets, %d bytes; it holds %d, %d",
							i, list[i].Len(), list[i].Bytes(), len(model[i]), bytes)
					}
				}
			},
		})
	})
}
