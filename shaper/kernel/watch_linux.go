package kernel

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Watch reports what becomes of the interfaces of the calling thread's
// namespace, from now until ctx ends, which closes the channel. Events are not
// lost by a slow reader: when the kernel had to drop notices, the state is read
// again and a LinkResync tells.
func Watch(ctx context.Context) (<-chan LinkEvent, error) { return watch(ctx, 1<<20) }

func watch(ctx context.Context, buffer int) (<-chan LinkEvent, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Groups: unix.RTMGRP_LINK})
	if err != nil {
		return nil, opError("watch interfaces", "", "", err)
	}
	// Best effort: with a small buffer there are more resyncs, not errors.
	_ = conn.SetReadBuffer(buffer)
	h, err := openLinks()
	if err != nil {
		conn.Close()
		return nil, err
	}
	w := &watcher{conn: conn, links: h, known: map[int]Link{}, events: make(chan LinkEvent, 64)}
	// Subscribed before the state is read: a change in between is seen twice,
	// and the second time is no difference.
	if _, err := w.resync(); err != nil {
		w.close()
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	go func() {
		defer stop()
		defer w.close()
		w.loop(ctx)
	}()
	return w.events, nil
}

type watcher struct {
	conn   *netlink.Conn
	links  *links
	known  map[int]Link // by index
	events chan LinkEvent
}

func (w *watcher) close() {
	w.conn.Close()
	w.links.Close()
	close(w.events)
}

func (w *watcher) loop(ctx context.Context) {
	for {
		msgs, err := w.conn.Receive()
		if errors.Is(err, unix.ENOBUFS) {
			events, err := w.resync()
			if err != nil || !w.send(ctx, LinkEvent{Kind: LinkResync}) || !w.send(ctx, events...) {
				return
			}
			continue
		}
		if err != nil {
			return
		}
		for _, m := range msgs {
			l, err := parseLink(m.Data)
			if err != nil {
				continue
			}
			var events []LinkEvent
			switch m.Header.Type {
			case unix.RTM_NEWLINK:
				events = w.update(l)
			case unix.RTM_DELLINK:
				events = w.remove(l.Index)
			}
			if !w.send(ctx, events...) {
				return
			}
		}
	}
}

func (w *watcher) send(ctx context.Context, events ...LinkEvent) bool {
	for _, e := range events {
		select {
		case w.events <- e:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// resync reads the state again and returns the differences.
func (w *watcher) resync() ([]LinkEvent, error) {
	now, err := w.links.list()
	if err != nil {
		return nil, err
	}
	var events []LinkEvent
	for _, old := range sorted(w.known) {
		if !slices.ContainsFunc(now, func(l Link) bool { return l.Index == old.Index }) {
			events = append(events, w.remove(old.Index)...)
		}
	}
	for _, l := range now {
		events = append(events, w.update(l)...)
	}
	return events, nil
}

func sorted(m map[int]Link) []Link {
	var out []Link
	for _, l := range m {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Link) int { return cmp.Compare(a.Index, b.Index) })
	return out
}

func (w *watcher) update(l Link) (events []LinkEvent) {
	old, had := w.known[l.Index]
	w.known[l.Index] = l
	if !had {
		events = append(events, LinkEvent{Kind: LinkAdded, Link: l})
	}
	if had && old.Name != l.Name {
		events = append(events, LinkEvent{Kind: LinkRenamed, Link: l, OldName: old.Name})
	}
	if had && old.MTU != l.MTU {
		events = append(events, LinkEvent{Kind: LinkChanged, Link: l})
	}
	was, is := old.Up && old.Carrier, l.Up && l.Carrier
	if is && !was {
		events = append(events, LinkEvent{Kind: LinkUp, Link: l})
	}
	if was && !is {
		events = append(events, LinkEvent{Kind: LinkDown, Link: l})
	}
	return events
}

func (w *watcher) remove(index int) []LinkEvent {
	l, had := w.known[index]
	if !had {
		return nil
	}
	delete(w.known, index)
	l.Up, l.Carrier = false, false
	return []LinkEvent{{Kind: LinkRemoved, Link: l}}
}

// sizeofIfInfomsg is the fixed part of a link message: family, type, index,
// flags, changed flags.
const sizeofIfInfomsg = 16

var errShort = errors.New("message is too short")

// parseLink reads what LinkEvent promises from a link message.
func parseLink(b []byte) (Link, error) {
	if len(b) < sizeofIfInfomsg {
		return Link{}, errShort
	}
	flags := binary.NativeEndian.Uint32(b[8:])
	l := Link{
		Index:   int(int32(binary.NativeEndian.Uint32(b[4:]))),
		Up:      flags&unix.IFF_UP != 0,
		Carrier: flags&unix.IFF_LOWER_UP != 0,
		Promisc: flags&unix.IFF_PROMISC != 0,
	}
	ad, err := netlink.NewAttributeDecoder(b[sizeofIfInfomsg:])
	if err != nil {
		return Link{}, err
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.IFLA_IFNAME:
			name, _, _ := bytes.Cut(ad.Bytes(), []byte{0})
			l.Name = string(name)
		case unix.IFLA_MTU:
			l.MTU = int(ad.Uint32())
		case unix.IFLA_TXQLEN:
			l.TxQLen = int(ad.Uint32())
		case unix.IFLA_QDISC:
			l.Qdisc = ad.String()
		}
	}
	return l, ad.Err()
}
