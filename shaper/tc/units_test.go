package tc_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/qdisc"
	"sluice/shaper/tc"
	"sluice/shaper/tree"
)

// Rates as tc reads and prints them, and the whole bytes a second in between
// that the kernel stores and JSON shows.
func TestRates(t *testing.T) {
	for _, c := range []struct {
		in    string
		bytes uint64
		out   string
	}{
		{"1000", 125, "1Kbit"}, {"1bit", 0, "0bit"}, {"5", 0, "0bit"}, {"8bit", 1, "8bit"},
		{"1kbit", 125, "1Kbit"}, {"1kibit", 128, "1024bit"}, {"1Kbit", 125, "1Kbit"},
		{"1mbit", 125000, "1Mbit"}, {"1Mibit", 131072, "1048Kbit"}, {"1gbit", 125000000, "1Gbit"},
		{"1Gibit", 134217728, "1073Mbit"}, {"1tbit", 125000000000, "1Tbit"},
		{"1bps", 1, "8bit"}, {"1kbps", 1000, "8Kbit"}, {"1kibps", 1024, "8192bit"},
		{"1mbps", 1000000, "8Mbit"}, {"1gbps", 1000000000, "8Gbit"}, {"1.5mbit", 187500, "1500Kbit"},
		{"1e6", 125000, "1Mbit"}, {"0x10", 2, "16bit"}, {"1KBPS", 1000, "8Kbit"}, {"1MBIT", 125000, "1Mbit"},
		{"12345", 1543, "12344bit"}, {"999bit", 124, "992bit"}, {"1001bit", 125, "1Kbit"},
		{"1499kbit", 187375, "1499Kbit"}, {"1500kbit", 187500, "1500Kbit"},
		{"1234567bit", 154320, "1234Kbit"}, {"10gbit", 1250000000, "10Gbit"}, {"12gbit", 1500000000, "12Gbit"},
	} {
		got, err := tc.ParseRate(c.in)
		if err != nil || got != c.bytes || tc.FormatRate(got) != c.out {
			t.Errorf("%s is %d bytes/s, printed %s, %v; want %d, %s", c.in, got, tc.FormatRate(got), err, c.bytes, c.out)
		}
	}
	for _, bad := range []string{"", "10mb", "5kk", "zz", "abc", "-5", "-0", "mbit", "1 mbit", "50%", "inf", "nan", "1e999", "1e30"} {
		if n, err := tc.ParseRate(bad); err == nil {
			t.Errorf("rate %q is read as %d", bad, n)
		}
	}
	for in, want := range map[string]string{"3mbit": "2929Kibit", "1mbit": "1000000bit", "1mibit": "1Mibit"} {
		if n, _ := tc.ParseRate(in); tc.FormatRateIEC(n) != want {
			t.Errorf("%s prints as %s with -iec, want %s", in, tc.FormatRateIEC(n), want)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		in    string
		bytes uint64
		out   string
	}{
		{"1000", 1000, "1000b"}, {"1b", 1, "1b"}, {"1k", 1024, "1Kb"}, {"1kb", 1024, "1Kb"}, {"1K", 1024, "1Kb"},
		{"1KB", 1024, "1Kb"}, {"2m", 2097152, "2Mb"}, {"2mb", 2097152, "2Mb"}, {"1g", 1073741824, "1Gb"},
		{"1gb", 1073741824, "1Gb"}, {"1kbit", 128, "128b"}, {"1mbit", 131072, "128Kb"}, {"1gbit", 134217728, "128Mb"},
		{"1.5k", 1536, "1536b"}, {"1023", 1023, "1023b"}, {"1024", 1024, "1Kb"}, {"1025", 1025, "1Kb"},
		{"10000", 10000, "10000b"}, {"10240", 10240, "10Kb"}, {"1048576", 1048576, "1Mb"}, {"1048577", 1048577, "1Mb"},
		{"1500000", 1500000, "1500000b"}, {"0x100", 256, "256b"}, {"15140k", 15503360, "15140Kb"},
	} {
		got, err := tc.ParseSize(c.in)
		if err != nil || got != c.bytes || tc.FormatSize(got) != c.out {
			t.Errorf("%s is %d bytes, printed %s, %v; want %d, %s", c.in, got, tc.FormatSize(got), err, c.bytes, c.out)
		}
	}
	for _, bad := range []string{"", "12q", "5mm", "-5", "k", "1tb", "1e40"} {
		if n, err := tc.ParseSize(bad); err == nil {
			t.Errorf("size %q is read as %d", bad, n)
		}
	}
}

func TestTimes(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	for _, c := range []struct {
		in  string
		is  time.Duration
		out string
	}{
		{"1000", ms, "1ms"}, {"1s", time.Second, "1s"}, {"1sec", time.Second, "1s"}, {"1secs", time.Second, "1s"},
		{"1ms", ms, "1ms"}, {"1msec", ms, "1ms"}, {"1msecs", ms, "1ms"}, {"1us", us, "1us"}, {"1usec", us, "1us"},
		{"1.5ms", 1500 * us, "1.5ms"}, {"0.5s", 500 * ms, "500ms"}, {"999us", 999 * us, "999us"},
		{"2000ms", 2 * time.Second, "2s"}, {"92160us", 92160 * us, "92.2ms"}, {"0.7us", 0, "0us"}, {"60s", time.Minute, "60s"},
	} {
		got, err := tc.ParseTime(c.in)
		if err != nil || got != c.is || tc.FormatTime(got) != c.out {
			t.Errorf("%s is %v, printed %s, %v; want %v, %s", c.in, got, tc.FormatTime(got), err, c.is, c.out)
		}
	}
	// What codel stores for 1 s and 5 ms.
	for in, want := range map[time.Duration]string{999999 * us: "1e+03ms", 4999 * us: "5ms"} {
		if got := tc.FormatTime(in); got != want {
			t.Errorf("%v prints as %s, want %s", in, got, want)
		}
	}
	for _, bad := range []string{"", "100ns", "10m", "1min", "-1ms", "x", "1h", "5000s"} {
		if d, err := tc.ParseTime(bad); err == nil {
			t.Errorf("time %q is read as %v", bad, d)
		}
	}
}

func TestHandlesAndClassIDs(t *testing.T) {
	id := qdisc.MakeID
	for in, want := range map[string]qdisc.ClassID{
		"1:": id(1, 0), "1": id(1, 0), "10:": id(0x10, 0), "ffff:": id(0xffff, 0), "1:1": id(1, 0), "none": 0, "a:": id(10, 0),
	} {
		if got, err := tc.ParseHandle(in); err != nil || got != want {
			t.Errorf("handle %s is %v, %v; want %v", in, got, err, want)
		}
	}
	for in, want := range map[string]qdisc.ClassID{
		"1:10": id(1, 0x10), "1:": id(1, 0), ":2": id(0, 2), "root": tree.Root, "none": 0, "ffff:fff1": tree.Ingress,
		"10010": id(1, 0x10), "9": id(0, 9), ":": 0,
	} {
		if got, err := tc.ParseClassID(in); err != nil || got != want {
			t.Errorf("class id %s is %v, %v; want %v", in, got, err, want)
		}
	}
	for _, bad := range []string{"12345:", "zz:", "10000:", "", ":", "1x", "-1:"} {
		if got, err := tc.ParseHandle(bad); err == nil {
			t.Errorf("handle %q is read as %v", bad, got)
		}
	}
	for _, bad := range []string{"zz", "1:zz", "10000:1", "1:10000", "1:1:1", "", "123456789"} {
		if got, err := tc.ParseClassID(bad); err == nil {
			t.Errorf("class id %q is read as %v", bad, got)
		}
	}
}

// Whatever tc prints it also reads; nothing gets lost that it shows. (What is
// printed as "1Kb" may have been 1025 bytes: it then reads as the round number.)
func TestPrintedUnitsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scale := rapid.IntRange(0, 60).Draw(t, "bits")
		n := rapid.Uint64Range(0, 1<<scale).Draw(t, "n")

		text := tc.FormatRate(n)
		back, err := tc.ParseRate(text)
		if err != nil || back > n || n-back > n/1000+1 {
			t.Errorf("%d bytes/s prints as %s, which reads as %d, %v", n, text, back, err)
		}
		if again := tc.FormatRate(back); again != text {
			t.Errorf("%s reads back and prints as %s", text, again)
		}

		bytes := n % (1 << 32)
		text = tc.FormatSize(bytes)
		back, err = tc.ParseSize(text)
		if diff := int64(back) - int64(bytes); err != nil || diff > int64(bytes/32) || -diff > int64(bytes/32) {
			t.Errorf("%d bytes prints as %s, which reads as %d, %v", bytes, text, back, err)
		}

		d := time.Duration(n % 4e9 * 1000)
		text = tc.FormatTime(d)
		read, err := tc.ParseTime(text)
		if diff := (read - d).Abs(); err != nil || diff > d/100 {
			t.Errorf("%v prints as %s, which reads as %v, %v", d, text, read, err)
		}

		h := qdisc.MakeID(uint32(n%0x10000), 0)
		if got, err := tc.ParseHandle(tc.FormatHandle(h)); err != nil || got != h {
			t.Errorf("handle %v: %v, %v", h, got, err)
		}
		class := qdisc.MakeID(uint32(n%0x10000), uint32(n>>16%0x10000))
		if got, err := tc.ParseClassID(tc.FormatClassID(class)); err != nil || got != class {
			t.Errorf("class %v: %v, %v", class, got, err)
		}
	})
}
