//go:build linux

package kernel_test

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"sluice/shaper/kernel"
)

// message builds a tc message with the attributes that enc writes.
func message(t testing.TB, enc func(*netlink.AttributeEncoder)) []byte {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	enc(ae)
	attrs, err := ae.Encode()
	check(t, err)
	b := make([]byte, 4)
	for _, v := range []uint32{7, 1 << 16, kernel.HandleRoot, 2} {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return append(b, attrs...)
}

func u32s(values ...uint32) (b []byte) {
	for _, v := range values {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return b
}

func TestAnUnknownKindIsReadAllTheSame(t *testing.T) {
	got, err := kernel.ParseObject(message(t, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.TCA_KIND, "cake_from_the_future")
		ae.Bytes(unix.TCA_OPTIONS, []byte{1, 2, 3, 4})
		ae.Bytes(999, []byte("what is this"))
		ae.Nested(unix.TCA_STATS2, func(n *netlink.AttributeEncoder) error {
			n.Bytes(8, u32s(0, 1)) // 64-bit packets, before the 32-bit ones
			n.Bytes(1, u32s(1000, 0, 9, 0))
			n.Bytes(3, u32s(1, 2, 3, 4, 5))
			n.Bytes(4, []byte("own"))
			n.Bytes(77, []byte("unknown"))
			return nil
		})
	}))
	check(t, err)
	packets := uint64(1) << 32
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		packets = 1
	}
	want := kernel.Object{
		Ifindex: 7, Handle: 1 << 16, Parent: kernel.HandleRoot, Leaf: 2,
		Kind: "cake_from_the_future", Options: []byte{1, 2, 3, 4}, XStats: []byte("own"),
		Stats: kernel.Stats{Bytes: 1000, Packets: packets, Qlen: 1, Backlog: 2, Drops: 3, Requeues: 4, Overlimits: 5},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func FuzzMessagesAreReadOrRefused(f *testing.F) {
	f.Add([]byte{})
	f.Add(message(f, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.TCA_KIND, "tbf")
		ae.Nested(unix.TCA_STATS2, func(n *netlink.AttributeEncoder) error { n.Bytes(1, u32s(1, 2, 3, 4)); return nil })
		ae.Bytes(unix.TCA_STATS, u32s(1, 2, 3, 4, 5, 6, 7, 8, 9))
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, err := kernel.ParseObject(b); err != nil && o.Kind != "" {
			t.Errorf("refused (%v) and yet of kind %q", err, o.Kind)
		}
		kernel.ParseLink(b)
	})
}
