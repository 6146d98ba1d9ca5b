package qdisc_test

import (
	"errors"
	"syscall"
	"testing"

	"sluice/qdisc"
)

func TestClassIDsAsTCWritesThem(t *testing.T) {
	for _, c := range []struct {
		id   qdisc.ClassID
		text string
		tc   uint32
		fits bool
	}{
		{qdisc.MakeID(1, 0), "1:", 0x10000, true},
		{qdisc.MakeID(1, 10), "1:a", 0x1000a, true},
		{qdisc.MakeID(0, 10), ":a", 0xa, true},
		{qdisc.MakeID(0xffff, 0xffff), "ffff:ffff", 0xffffffff, true},
		{qdisc.MakeID(0x10000, 1), "10000:1", 0, false},
		{qdisc.MakeID(1, 0x12345), "1:12345", 0, false},
		{0, "0:", 0, true},
	} {
		if got := c.id.String(); got != c.text {
			t.Errorf("%#x prints %q; want %q", uint64(c.id), got, c.text)
		}
		tc, fits := c.id.TC()
		if fits != c.fits || fits && tc != c.tc {
			t.Errorf("%v in tc's form: %#x, %v; want %#x, %v", c.id, tc, fits, c.tc, c.fits)
		}
		if c.fits && qdisc.FromTC(c.tc) != c.id {
			t.Errorf("FromTC(%#x) is %v; want %v", c.tc, qdisc.FromTC(c.tc), c.id)
		}
	}
}

func TestEveryReasonHasAName(t *testing.T) {
	seen := map[string]qdisc.Reason{}
	for r := range qdisc.NumReasons {
		name := r.String()
		if other, twice := seen[name]; name == "" || twice {
			t.Errorf("reason %d is called %q, as is %d", r, name, other)
		}
		seen[name] = r
	}
}

func TestARefusalIsItsTextElseItsErrno(t *testing.T) {
	err := qdisc.Refuse(syscall.EINVAL, "Specified %s quantum cannot be zero", "DRR")
	if got := err.Error(); got != "Specified DRR quantum cannot be zero" {
		t.Errorf("with text: %q", got)
	}
	if !errors.Is(err, syscall.EINVAL) {
		t.Error("the errno is lost")
	}
	if got := (&qdisc.Error{Errno: syscall.ENOENT}).Error(); got != syscall.ENOENT.Error() {
		t.Errorf("without text: %q", got)
	}
}
