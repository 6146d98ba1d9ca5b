package config_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/shaper/config"
)

func TestUnits(t *testing.T) {
	rate, size, packets := config.ParseRate, config.ParseSize, config.ParsePackets
	span := func(s string) (uint64, error) { d, err := config.ParseTime(s); return uint64(d), err }
	for _, tc := range []struct {
		parse func(string) (uint64, error)
		text  string
		want  uint64
	}{
		{rate, "20 Mbit/s", 2500000}, {rate, "20Mbit/s", 2500000}, {rate, "2.5 MB/s", 2500000}, {rate, "8 bit/s", 1},
		{rate, "64 kbit/s", 8000}, {rate, "1 Gbit/s", 125e6}, {rate, "1 Tbit/s", 125e9}, {rate, "0.008 kbit/s", 1}, {rate, "1500 kB/s", 1500e3},
		{rate, "0 bit/s", 0},
		{size, "64 KiB", 65536}, {size, "1514 B", 1514}, {size, "1.5 MiB", 1572864}, {size, "64 kB", 64000}, {size, "1 GiB", 1 << 30},
		{span, "5 ms", 5e6}, {span, "1.5 us", 1500}, {span, "2 s", 2e9}, {span, "7 ns", 7}, {span, "7 µs", 7000}, {span, "7 μs", 7000},
		{packets, "1000 packets", 1000}, {packets, "1 packet", 1},
	} {
		if got, err := tc.parse(tc.text); err != nil || got != tc.want {
			t.Errorf("%q = %d, %v, want %d", tc.text, got, err, tc.want)
		}
	}
}

func TestWhatWasProbablyMeant(t *testing.T) {
	rate, size, packets := config.ParseRate, config.ParseSize, config.ParsePackets
	span := func(s string) (uint64, error) { d, err := config.ParseTime(s); return uint64(d), err }
	for _, tc := range []struct {
		parse      func(string) (uint64, error)
		text, want string
	}{
		{rate, "20", `"20" has no unit. Did you mean "20 Mbit/s" (2.5 MB/s)?`},
		{rate, "20000000", `"20000000" has no unit. Did you mean "20 Mbit/s" (2.5 MB/s)?`},
		{rate, "500kbps", `"kbps" in "500kbps" is no unit for a rate. Did you mean "500 kbit/s" (62.5 kB/s)?`},
		{rate, "20 mbit", `"mbit" in "20 mbit" is no unit for a rate. Did you mean "20 Mbit/s" (2.5 MB/s)?`},
		{rate, "20 MBit/s", `"MBit/s" in "20 MBit/s" is no unit for a rate. Did you mean "20 Mbit/s" (2.5 MB/s)?`},
		{rate, "20 Mibit/s", `"Mibit/s" in "20 Mibit/s" is no unit for a rate. Did you mean "20 Mbit/s" (2.5 MB/s)?`},
		{rate, "10%", `"%" in "10%" is no unit for a rate. Write it as "20 Mbit/s".`},
		{rate, "fast", `"fast" is not a rate. Write it as "20 Mbit/s".`},
		{rate, "-1 Mbit/s", `"-1 Mbit/s" is not a rate. Write it as "20 Mbit/s".`},
		{rate, "", `"" is not a rate. Write it as "20 Mbit/s".`},
		{rate, "1.2.3 Mbit/s", `"1.2.3 Mbit/s" is not a rate. Write it as "20 Mbit/s".`},
		{rate, "12345 bit/s", `"12345 bit/s" is not a whole number of bytes per second. The nearest are "12.344 kbit/s" and "12.352 kbit/s".`},
		{rate, "100000000000 Gbit/s", `"100000000000 Gbit/s" is too much. At most 9223372036854775807 bytes per second are possible.`},
		{size, "64", `"64" has no unit. Did you mean "64 KiB"?`},
		{size, "1514", `"1514" has no unit. Did you mean "1514 B"?`},
		{size, "64k", `"k" in "64k" is no unit for a size. Did you mean "64 KiB"?`},
		{size, "64 KB", `"KB" in "64 KB" is no unit for a size. Did you mean "64 KiB"?`},
		{size, "64 kib", `"kib" in "64 kib" is no unit for a size. Did you mean "64 KiB"?`},
		{size, "0.3 B", `"0.3 B" is not a whole number of bytes. The nearest are "0 B" and "1 B".`},
		{span, "5", `"5" has no unit. Did you mean "5 ms"?`},
		{span, "5000", `"5000" has no unit. Did you mean "5 ms"?`},
		{span, "5 msec", `"msec" in "5 msec" is no unit for a time. Did you mean "5 ms"?`},
		{span, "5 m", `"m" in "5 m" is no unit for a time. Did you mean "5 ms"?`},
		{packets, "1000", `"1000" has no unit. Did you mean "1000 packets"?`},
		{packets, "1000p", `"p" in "1000p" is no unit for a number of packets. Did you mean "1000 packets"?`},
		{packets, "1", `"1" has no unit. Did you mean "1 packet"?`},
	} {
		_, err := tc.parse(tc.text)
		if err == nil || err.Error() != tc.want {
			t.Errorf("%q:\n got %v\nwant %s", tc.text, err, tc.want)
		}
	}
}

// What is printed reads back as the same number, and a hint is always a value
// that works.
func TestUnitsGoRound(t *testing.T) {
	for _, tc := range []struct {
		name   string
		format func(uint64) string
		parse  func(string) (uint64, error)
	}{
		{"rate", config.FormatRate, config.ParseRate},
		{"size", config.FormatSize, config.ParseSize},
		{"time", func(n uint64) string { return config.FormatTime(time.Duration(n)) },
			func(s string) (uint64, error) { d, err := config.ParseTime(s); return uint64(d), err }},
		{"packets", config.FormatPackets, config.ParsePackets},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				n := rapid.Uint64Range(0, 1<<62).Draw(t, "n")
				if rapid.Bool().Draw(t, "round") {
					n = n % 2000 * rapid.SampledFrom([]uint64{1, 125, 1000, 1024, 125e3, 1e6, 1 << 20, 1e9}).Draw(t, "of")
				}
				text := tc.format(n)
				if got, err := tc.parse(text); err != nil || got != n {
					t.Fatalf("%d is written %q and read as %d, %v", n, text, got, err)
				}
			})
			rapid.Check(t, func(t *rapid.T) {
				text := rapid.StringMatching(`[0-9]{1,6}(\.[0-9]{1,3})? ?[kKmMgGbBitps/]{0,6}`).Draw(t, "text")
				_, err := tc.parse(text)
				if err == nil {
					return
				}
				_, meant, ok := strings.Cut(err.Error(), `Did you mean "`)
				if !ok {
					return
				}
				meant, _, _ = strings.Cut(meant, `"`)
				if _, err := tc.parse(meant); err != nil {
					t.Fatalf("%q: meant is %q: %v", text, meant, err)
				}
			})
		})
	}
}
