package qdisc_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/qdisctest"
)

// counts is what a Base shows.
func counts(b *qdisc.Base) string {
	held, heldBytes := b.Held()
	return fmt.Sprintf("len %d/%d held %d/%d sent %d/%d drops %d",
		b.Len(), b.Backlog(), held, heldBytes, b.Packets, b.Bytes, b.Drops)
}

func want(t *testing.T, when string, b *qdisc.Base, text string) {
	t.Helper()
	if got := counts(b); got != text {
		t.Errorf("%s: %s; want %s", when, got, text)
	}
}

func TestBaseCounts(t *testing.T) {
	pool := newPool(t, 8)
	ctx := qdisc.NewContext(pool, 1)
	var b qdisc.Base

	p, q := take(pool, 100), take(pool, 200)
	b.Enqueued(p)
	b.Enqueued(q)
	want(t, "two in", &b, "len 2/300 held 0/0 sent 0/0 drops 0")
	b.Dequeued(p)
	want(t, "one out", &b, "len 1/200 held 0/0 sent 1/100 drops 0")

	// The driver gives it back: queued again, and still counted as sent.
	b.Hold(p)
	want(t, "requeued", &b, "len 2/300 held 1/100 sent 1/100 drops 0")
	b.Unhold(p)
	want(t, "sent at last", &b, "len 1/200 held 0/0 sent 1/100 drops 0")
	p.Free()

	b.Discard(ctx, q, qdisc.Congested)
	want(t, "discarded", &b, "len 0/0 held 0/0 sent 1/100 drops 1")
	b.Refuse(ctx, take(pool, 60), qdisc.Overlimit)
	want(t, "refused", &b, "len 0/0 held 0/0 sent 1/100 drops 2")
	p = take(pool, 60)
	b.Passed(p)
	want(t, "bypassed", &b, "len 0/0 held 0/0 sent 2/160 drops 2")
	p.Free()

	if ctx.Drops[qdisc.Congested] != 1 || ctx.Drops[qdisc.Overlimit] != 1 {
		t.Errorf("drops by reason: %v", ctx.Drops)
	}
	if pool.Available() != pool.Size() {
		t.Errorf("%d frames are missing", pool.Size()-pool.Available())
	}
}

func TestAParkedPacketIsQueuedAndCountedAsSent(t *testing.T) {
	pool := newPool(t, 2)
	ctx := qdisc.NewContext(pool, 1)
	var b qdisc.Base
	if b.Park(nil) != nil || b.Unpark() != nil {
		t.Error("nothing was parked")
	}

	p := take(pool, 100)
	b.Enqueued(p)
	b.Dequeued(p)
	if b.Park(p) != p || b.Parked() != p {
		t.Error("Park and Parked give something else")
	}
	want(t, "parked", &b, "len 1/100 held 1/100 sent 1/100 drops 0")
	if b.Unpark() != p || b.Parked() != nil {
		t.Error("Unpark gave something else, or kept it")
	}
	want(t, "taken", &b, "len 0/0 held 0/0 sent 1/100 drops 0")

	b.Park(p)
	b.SetNextAt(time.Second)
	if b.NextAt() != time.Second {
		t.Errorf("NextAt is %v", b.NextAt())
	}
	b.ResetBase(ctx)
	want(t, "reset", &b, "len 0/0 held 0/0 sent 1/100 drops 0")
	if b.NextAt() != qdisc.Never || ctx.Drops[qdisc.Purged] != 1 || pool.Available() != 2 {
		t.Error("a reset has to drop the parked packet and forget the instant")
	}
}

// An empty discipline has no instant, whatever it stored when it had packets.
func TestNothingIsDueWhenNothingIsQueued(t *testing.T) {
	var b qdisc.Base
	b.SetNextAt(time.Second)
	if b.NextAt() != qdisc.Never {
		t.Errorf("NextAt is %v", b.NextAt())
	}
}

// parent is a Base with one child, which is all that Child needs.
type parent struct {
	qdisc.Base
	child qdisc.Child
}

func newParent(q qdisc.Qdisc) *parent { return &parent{child: qdisc.NewChild(q)} }

func (q *parent) in(ctx *qdisc.Context, n int) qdisc.Verdict {
	return q.child.Enqueue(ctx, &q.Base, take(ctx.Pool, n))
}

func TestAParentFollowsItsChild(t *testing.T) {
	ctx := qdisc.NewContext(newPool(t, 64), 1)

	t.Run("that refuses", func(t *testing.T) {
		q := newParent(&qdisctest.Fifo{Limit: 1})
		q.in(ctx, 100)
		if v := q.in(ctx, 200); v != qdisc.Dropped {
			t.Errorf("verdict %v", v)
		}
		want(t, "one in, one refused", &q.Base, "len 1/100 held 0/0 sent 0/0 drops 1")
		q.child.Dequeue(ctx, &q.Base).Free()
		want(t, "one out", &q.Base, "len 0/0 held 0/0 sent 1/100 drops 1")
	})
	t.Run("that drops another", func(t *testing.T) {
		q := newParent(&qdisctest.Fifo{Limit: 1, HeadDrop: true})
		q.in(ctx, 100)
		if v := q.in(ctx, 200); v != qdisc.CN {
			t.Errorf("verdict %v", v)
		}
		want(t, "the second in the place of the first", &q.Base, "len 1/200 held 0/0 sent 0/0 drops 1")
		q.child.Reset(ctx, &q.Base)
		want(t, "reset, which is no drop", &q.Base, "len 0/0 held 0/0 sent 0/0 drops 1")
	})
	t.Run("that drops as it gives", func(t *testing.T) {
		q := newParent(&qdisctest.Lossy{Fifo: qdisctest.Fifo{Limit: 9}})
		for range 4 {
			q.in(ctx, 100)
		}
		for range 2 {
			q.child.Dequeue(ctx, &q.Base).Free()
		}
		want(t, "two out", &q.Base, "len 2/200 held 0/0 sent 2/200 drops 0")
		// The peek drops the third and parks the fourth, which is the child's to
		// count as sent; the parent has not sent it.
		q.child.Peek(ctx, &q.Base)
		want(t, "peek", &q.Base, "len 1/100 held 0/0 sent 2/200 drops 1")
		want(t, "peek, child", q.child.Qdisc().Self(), "len 1/100 held 1/100 sent 3/300 drops 1")
		q.child.Dequeue(ctx, &q.Base).Free()
		want(t, "three out", &q.Base, "len 0/0 held 0/0 sent 3/300 drops 1")
	})
	t.Run("whose last packet a peek drops", func(t *testing.T) {
		q := newParent(&qdisctest.Lossy{Fifo: qdisctest.Fifo{Limit: 9}})
		for range 3 {
			q.in(ctx, 100)
		}
		for range 2 {
			q.child.Dequeue(ctx, &q.Base).Free()
		}
		if p := q.child.Peek(ctx, &q.Base); p != nil {
			t.Errorf("peek shows %v", p)
		}
		want(t, "peek", &q.Base, "len 0/0 held 0/0 sent 2/200 drops 1")
		if at := q.child.NextAt(); at != qdisc.Never {
			t.Errorf("NextAt of an empty child is %v", at)
		}
	})
	t.Run("that is shed", func(t *testing.T) {
		q := newParent(&qdisctest.Fifo{Limit: 9})
		for range 5 {
			q.in(ctx, 100)
		}
		if got := q.child.Shed(ctx, &q.Base, 2); got != 2 {
			t.Errorf("Shed gave %d", got)
		}
		want(t, "shed", &q.Base, "len 3/300 held 0/0 sent 0/0 drops 2")
		q.child.Reset(ctx, &q.Base)
	})
	t.Run("that is removed", func(t *testing.T) {
		q := newParent(&qdisctest.Fifo{Limit: 9})
		for range 3 {
			q.in(ctx, 100)
		}
		q.child.Purge(ctx, &q.Base)
		want(t, "purged, which is a drop", &q.Base, "len 0/0 held 0/0 sent 0/0 drops 3")
		want(t, "the child itself", q.child.Qdisc().Self(), "len 0/0 held 0/0 sent 0/0 drops 0")
	})

	if n := ctx.Pool.Size() - ctx.Pool.Available(); n != 0 {
		t.Errorf("%d frames are missing", n)
	}
}

// told is a qdisc above a change that notes what it is told.
type told struct {
	qdisctest.Fifo
	heard []qdisc.ClassID
}

func (q *told) QlenNotify(class qdisc.ClassID) { q.heard = append(q.heard, class) }

func TestEditMovesTheCountersOfAllAbove(t *testing.T) {
	ctx := qdisc.NewContext(newPool(t, 64), 1)
	// Three levels with what they would count if the packets had come through.
	root, middle, leaf := &told{}, &told{}, &qdisctest.Fifo{Limit: 9}
	for _, n := range []int{100, 200, 300} {
		p := take(ctx.Pool, n)
		leaf.Enqueue(ctx, p)
		middle.Enqueued(p)
		root.Enqueued(p)
	}
	other := take(ctx.Pool, 50) // in another class of the root
	root.Enqueued(other)
	path := []qdisc.Step{
		{Qdisc: root, Class: qdisc.MakeID(1, 1)},
		{Qdisc: middle, Class: qdisc.MakeID(2, 7)},
		{Qdisc: leaf},
	}

	if err := qdisc.Edit(path, func() error { leaf.Shed(ctx, 2); return nil }); err != nil {
		t.Fatal(err)
	}
	want(t, "two gone, leaf", leaf.Self(), "len 1/300 held 0/0 sent 0/0 drops 2")
	want(t, "two gone, middle", middle.Self(), "len 1/300 held 0/0 sent 0/0 drops 2")
	want(t, "two gone, root", root.Self(), "len 2/350 held 0/0 sent 0/0 drops 2")
	if len(root.heard)+len(middle.heard) != 0 {
		t.Errorf("told although nothing is empty: %v, %v", root.heard, middle.heard)
	}

	refusal := errors.New("no")
	if err := qdisc.Edit(path, func() error { leaf.Shed(ctx, 2); return refusal }); err != refusal {
		t.Errorf("error %v", err)
	}
	want(t, "empty, middle", middle.Self(), "len 0/0 held 0/0 sent 0/0 drops 3")
	want(t, "empty, root", root.Self(), "len 1/50 held 0/0 sent 0/0 drops 3")
	if got := fmt.Sprint(middle.heard, root.heard); got != "[2:7] [1:1]" {
		t.Errorf("told: %s; want the two classes that are empty now", got)
	}

	// A change that removes nothing still tells of an empty child: what became
	// empty without a word would stay on an active list (CVE-2025-37798,
	// CVE-2025-38350).
	if err := qdisc.Edit(path, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(middle.heard, root.heard); got != "[2:7 2:7] [1:1 1:1]" {
		t.Errorf("told: %s; want both again", got)
	}

	// Packets may also be added.
	if err := qdisc.Edit(path, func() error { leaf.Enqueue(ctx, take(ctx.Pool, 70)); return nil }); err != nil {
		t.Fatal(err)
	}
	want(t, "one more, root", root.Self(), "len 2/120 held 0/0 sent 0/0 drops 3")
}
