package config

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"sluice/shaper/classify/nearest"
)

// unit is a name for num/den of what a quantity is stored in.
type unit struct {
	name     string
	num, den int64
}

// quantity is a sort of values with units.
type quantity struct {
	noun    string
	stored  string // what one stored unit is called
	example string
	units   []unit            // the canonical ones, ascending, then others
	meant   map[string]string // what people write for one of them, lower case

	// A number without unit that is less than small is probably counted in the
	// first, else in the second.
	small float64
	bare  [2]string

	fine bool   // what is stored is so fine that the nearest will do
	most uint64 // 0: no bound
}

var (
	rates = &quantity{
		noun: "a rate", stored: "bytes per second", example: "20 Mbit/s",
		units: []unit{
			{"bit/s", 1, 8}, {"kbit/s", 125, 1}, {"Mbit/s", 125e3, 1}, {"Gbit/s", 125e6, 1}, {"Tbit/s", 125e9, 1},
			{"B/s", 1, 1}, {"kB/s", 1e3, 1}, {"MB/s", 1e6, 1}, {"GB/s", 1e9, 1},
		},
		meant: map[string]string{
			"bit": "bit/s", "bps": "bit/s", "b/s": "bit/s",
			"k": "kbit/s", "kb": "kbit/s", "kbit": "kbit/s", "kbps": "kbit/s", "kb/s": "kbit/s", "kbits": "kbit/s",
			"m": "Mbit/s", "mb": "Mbit/s", "mbit": "Mbit/s", "mbps": "Mbit/s", "mb/s": "Mbit/s", "mbits": "Mbit/s",
			"g": "Gbit/s", "gb": "Gbit/s", "gbit": "Gbit/s", "gbps": "Gbit/s", "gb/s": "Gbit/s", "gbits": "Gbit/s",
			"kib/s": "kB/s", "mib/s": "MB/s", "gib/s": "GB/s",
		},
		small: 100e3, bare: [2]string{"Mbit/s", "bit/s"},
	}
	sizes = &quantity{
		noun: "a size", stored: "bytes", example: "64 KiB",
		units: []unit{
			{"B", 1, 1}, {"KiB", 1 << 10, 1}, {"MiB", 1 << 20, 1}, {"GiB", 1 << 30, 1},
			{"kB", 1e3, 1}, {"MB", 1e6, 1}, {"GB", 1e9, 1},
		},
		meant: map[string]string{
			"byte": "B", "bytes": "B", "k": "KiB", "kb": "KiB", "kbyte": "KiB", "m": "MiB", "mb": "MiB",
			"mbyte": "MiB", "g": "GiB", "gb": "GiB",
		},
		small: 256, bare: [2]string{"KiB", "B"},
	}
	times = &quantity{
		noun: "a time", stored: "nanoseconds", example: "5 ms",
		units: []unit{
			{"ns", 1, 1}, {"us", 1e3, 1}, {"ms", 1e6, 1}, {"s", 1e9, 1}, {"µs", 1e3, 1}, {"μs", 1e3, 1},
		},
		meant: map[string]string{
			"sec": "s", "secs": "s", "second": "s", "seconds": "s", "m": "ms", "msec": "ms", "msecs": "ms",
			"usec": "us", "usecs": "us", "u": "us", "nsec": "ns", "nsecs": "ns",
		},
		small: 1000, bare: [2]string{"ms", "us"},
	}
	packets = &quantity{
		noun: "a number of packets", stored: "packets", example: "1000 packets",
		units: []unit{{"packets", 1, 1}, {"packet", 1, 1}},
		meant: map[string]string{"p": "packets", "pkt": "packets", "pkts": "packets", "frames": "packets"},
		bare:  [2]string{"packets", "packets"},
	}
	percents = &quantity{
		noun: "a percentage", stored: "parts in 2³²", example: "1 %",
		units: []unit{{"%", math.MaxUint32, 100}},
		meant: map[string]string{"percent": "%", "pct": "%"},
		bare:  [2]string{"%", "%"},
		fine:  true, most: math.MaxUint32,
	}
)

// ParseRate reads a rate such as "20 Mbit/s" or "2.5 MB/s" and returns bytes per
// second. Prefixes are decimal.
func ParseRate(s string) (uint64, error) { return orError(rates.parse(s)) }

// ParseSize reads a size such as "64 KiB" or "1514 B" and returns bytes.
func ParseSize(s string) (uint64, error) { return orError(sizes.parse(s)) }

// ParseTime reads a time such as "5 ms".
func ParseTime(s string) (time.Duration, error) {
	n, err := orError(times.parse(s))
	return time.Duration(n), err
}

// ParsePackets reads a number such as "1000 packets".
func ParsePackets(s string) (uint64, error) { return orError(packets.parse(s)) }

// FormatRate writes bytes per second so that ParseRate reads them.
func FormatRate(n uint64) string { return rates.format(n) }

// FormatSize writes bytes so that ParseSize reads them.
func FormatSize(n uint64) string { return sizes.format(n) }

// FormatTime writes a time that is not negative so that ParseTime reads it.
func FormatTime(d time.Duration) string { return times.format(uint64(d)) }

// FormatPackets writes a number of packets so that ParsePackets reads it.
func FormatPackets(n uint64) string { return packets.format(n) }

func orError(n uint64, p *problem) (uint64, error) {
	if p != nil {
		return 0, p
	}
	return n, nil
}

// value reads a TOML value.
func (q *quantity) value(v any) (uint64, *problem) {
	switch v := v.(type) {
	case string:
		return q.parse(v)
	case int64:
		return q.parse(strconv.FormatInt(v, 10))
	case float64:
		return q.parse(strconv.FormatFloat(v, 'f', -1, 64))
	}
	return 0, problemf(fmt.Sprintf("Write it as %q.", q.example), "%s is expected here, not %s", q.noun, describe(v))
}

func (q *quantity) parse(s string) (uint64, *problem) {
	digits := strings.IndexFunc(s+"x", func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	number, name := s[:digits], strings.TrimSpace(s[digits:])
	n, ok := new(big.Rat).SetString(number)
	if !ok || strings.HasPrefix(number, ".") || strings.HasSuffix(number, ".") {
		return 0, problemf(fmt.Sprintf("Write it as %q.", q.example), "%q is not %s", s, q.noun)
	}
	for _, u := range q.units {
		if u.name == name {
			return q.whole(s, n, u)
		}
	}
	if name == "" {
		f, _ := n.Float64()
		meant := q.bare[1]
		if f < q.small {
			meant = q.bare[0]
		}
		return 0, problemf(q.didYouMean(number, meant), "%q has no unit", s)
	}
	meant := q.meant[strings.ToLower(name)]
	if meant == "" {
		meant = nearest.Word(name, q.names())
	}
	hint := fmt.Sprintf("Write it as %q.", q.example)
	if meant != "" {
		hint = q.didYouMean(number, meant)
	}
	return 0, problemf(hint, "%q in %q is no unit for %s", name, s, q.noun)
}

// whole converts n of u, and refuses what is not a whole number of what is
// stored.
func (q *quantity) whole(s string, n *big.Rat, u unit) (uint64, *problem) {
	n.Mul(n, big.NewRat(u.num, u.den))
	if n.Cmp(new(big.Rat).SetInt64(math.MaxInt64)) > 0 {
		return 0, problemf(fmt.Sprintf("At most %d %s are possible.", math.MaxInt64, q.stored), "%q is too much", s)
	}
	if q.fine {
		n.Add(n, big.NewRat(1, 2))
	}
	down := new(big.Int).Div(n.Num(), n.Denom()).Uint64()
	if q.most > 0 && down > q.most {
		return 0, problemf("At most 100 % are possible.", "%q is too much", s)
	}
	if !n.IsInt() && !q.fine {
		return 0, problemf(fmt.Sprintf("The nearest are %q and %q.", q.format(down), q.format(down+1)),
			"%q is not a whole number of %s", s, q.stored)
	}
	return down, nil
}

// didYouMean asks for number in a unit, and for a rate says what that is in
// bytes.
func (q *quantity) didYouMean(number, unit string) string {
	if number != "0" {
		number = strings.TrimLeft(number, "0")
	}
	if number == "" || number[0] == '.' {
		number = "0" + number
	}
	text := number + " " + unit
	n, p := q.parse(text)
	if p != nil {
		return fmt.Sprintf("Write it as %q.", q.example)
	}
	if unit == q.bare[1] && n > 0 && !q.fine { // "20000000 bit/s" is for people "20 Mbit/s"
		text = q.format(n)
	}
	if q == rates {
		return fmt.Sprintf("Did you mean %q (%s)?", text, inBytes(n))
	}
	return fmt.Sprintf("Did you mean %q?", text)
}

// inBytes writes a rate in bytes per second.
func inBytes(n uint64) string {
	for i, u := range []string{"GB/s", "MB/s", "kB/s"} {
		if scale := math.Pow10(9 - 3*i); float64(n) >= scale {
			return strconv.FormatFloat(float64(n)/scale, 'g', 4, 64) + " " + u
		}
	}
	return strconv.FormatUint(n, 10) + " B/s"
}

// format writes n in the largest of the ascending units that gives a whole
// number, or for rates one with at most three decimals.
func (q *quantity) format(n uint64) string {
	if q == packets && n == 1 {
		return "1 packet"
	}
	text := ""
	for i, u := range q.units {
		if i > 0 && u.num*q.units[i-1].den <= q.units[i-1].num*u.den {
			break
		}
		v := new(big.Rat).SetInt(new(big.Int).SetUint64(n))
		v.Mul(v, big.NewRat(u.den, u.num))
		switch {
		case v.IsInt() && (text == "" || v.Sign() > 0):
			text = v.Num().String() + " " + u.name
		case q == rates && v.Cmp(big.NewRat(1, 1)) > 0 && new(big.Rat).Mul(v, big.NewRat(1000, 1)).IsInt():
			text = strings.TrimRight(v.FloatString(3), "0") + " " + u.name
		}
	}
	return text
}

func (q *quantity) names() []string {
	names := make([]string, len(q.units))
	for i, u := range q.units {
		names[i] = u.name
	}
	return names
}

// describe names a TOML value of the wrong type.
func describe(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case bool, int64, float64:
		return fmt.Sprint(v)
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	case []map[string]any:
		return "a list of tables"
	}
	return "a date"
}
