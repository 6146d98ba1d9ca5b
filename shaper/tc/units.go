package tc

import (
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"sluice/qdisc"
	"sluice/shaper/tree"
)

// errUnit says that a text is no value of its unit. Which words the user reads
// depends on the parameter, so it carries none.
type errUnit struct{ text string }

func (e errUnit) Error() string { return strconv.Quote(e.text) + " is not a value tc understands" }

// splitNumber splits s into the number that strtod would read from its front
// (decimal, exponent or hexadecimal) and the rest.
func splitNumber(s string) (n float64, rest string, ok bool) {
	i := 0
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		i++
	}
	hex := len(s) > i+2 && s[i] == '0' && s[i+1]|0x20 == 'x'
	digit := func(c byte) bool {
		return '0' <= c && c <= '9' || hex && 'a' <= c|0x20 && c|0x20 <= 'f'
	}
	if hex {
		i += 2
	}
	digits := 0
	for dot := false; i < len(s); i++ {
		if s[i] == '.' && !dot {
			dot = true
		} else if digit(s[i]) {
			digits++
		} else {
			break
		}
	}
	if digits == 0 {
		return 0, s, false
	}
	exponent := byte('e')
	if hex {
		exponent = 'p'
	}
	text := s[:i]
	if j := i + 1; i < len(s) && s[i]|0x20 == exponent {
		if j < len(s) && (s[j] == '+' || s[j] == '-') {
			j++
		}
		end := j
		for end < len(s) && '0' <= s[end] && s[end] <= '9' {
			end++
		}
		if end > j {
			text, i = s[:end], end
		}
	}
	rest = s[i:]
	if hex && !strings.ContainsAny(text, "pP") {
		text += "p0"
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 || math.Signbit(n) {
		return 0, s, false
	}
	return n, rest, true
}

// scaled multiplies and truncates, as tc does, and refuses what a counter
// cannot hold.
func scaled(s string, n, scale float64, limit float64) (uint64, error) {
	if n *= scale; n >= limit {
		return 0, errUnit{s}
	}
	return uint64(n), nil
}

const (
	max32 = 1 << 32
	max64 = 1 << 64
)

// rateUnits are the suffixes of a rate, in bits per second.
var rateUnits = map[string]float64{
	"": 1, "bit": 1,
	"kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12,
	"kibit": 1 << 10, "mibit": 1 << 20, "gibit": 1 << 30, "tibit": 1 << 40,
	"bps": 8, "kbps": 8e3, "mbps": 8e6, "gbps": 8e9, "tbps": 8e12,
	"kibps": 8 << 10, "mibps": 8 << 20, "gibps": 8 << 30, "tibps": 8 << 40,
}

// ParseRate reads a rate ("8mbit", "1.5gbit", "100kbps"; a bare number is bits a
// second) and returns whole bytes per second. A percentage is not a rate: it
// depends on the device.
func ParseRate(s string) (uint64, error) {
	n, suffix, ok := splitNumber(s)
	scale, known := rateUnits[strings.ToLower(suffix)]
	if !ok || !known {
		return 0, errUnit{s}
	}
	return scaled(s, n*scale, 1./8, max64)
}

// FormatRate prints bytes per second as tc does: in the largest unit that keeps
// the number whole, or three or more digits of it.
func FormatRate(bytes uint64) string { return formatRate(bytes, 1000, "") }

// FormatRateIEC prints as `tc -iec` does, by powers of 1024.
func FormatRateIEC(bytes uint64) string { return formatRate(bytes, 1024, "i") }

func formatRate(bytes, kilo uint64, infix string) string {
	high, rate := bits.Mul64(bytes, 8)
	if high != 0 {
		rate = math.MaxUint64
	}
	const prefixes = "KMGT"
	i := -1
	for i+1 < len(prefixes) && rate >= kilo && (rate%kilo == 0 || rate >= kilo*kilo) {
		rate /= kilo
		i++
	}
	text := strconv.FormatUint(rate, 10)
	if i >= 0 {
		text += prefixes[i:i+1] + infix
	}
	return text + "bit"
}

// sizeUnits are the suffixes of a size, in bytes.
var sizeUnits = map[string]float64{
	"": 1, "b": 1,
	"k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30,
	"kbit": 1 << 7, "mbit": 1 << 17, "gbit": 1 << 27,
}

// ParseSize reads a size ("10k", "1.5mb", "128kbit"; a bare number is bytes) and
// returns whole bytes. Everything is a power of 1024.
func ParseSize(s string) (uint64, error) { return parseSize(s, max64) }

func parseSize(s string, limit float64) (uint64, error) {
	n, suffix, ok := splitNumber(s)
	scale, known := sizeUnits[strings.ToLower(suffix)]
	if !ok || !known {
		return 0, errUnit{s}
	}
	return scaled(s, n, scale, limit)
}

// FormatSize prints bytes as tc does: "10Kb" when that is near enough, else "%db".
func FormatSize(bytes uint64) string {
	for _, u := range []struct {
		unit, near uint64
		name       string
	}{{1 << 30, 1 << 20, "Gb"}, {1 << 20, 1 << 10, "Mb"}, {1 << 10, 16, "Kb"}} {
		if bytes < u.unit {
			continue
		}
		n := math.RoundToEven(float64(bytes) / float64(u.unit))
		if math.Abs(n*float64(u.unit)-float64(bytes)) < float64(u.near) {
			return strconv.FormatFloat(n, 'g', 6, 64) + u.name
		}
	}
	return strconv.FormatUint(bytes, 10) + "b"
}

// timeUnits are the suffixes of a time, in microseconds.
var timeUnits = map[string]float64{
	"s": 1e6, "sec": 1e6, "secs": 1e6,
	"ms": 1e3, "msec": 1e3, "msecs": 1e3,
	"": 1, "us": 1, "usec": 1, "usecs": 1,
}

// ParseTime reads a time ("5ms", "0.5s"; a bare number is microseconds), to whole
// microseconds.
func ParseTime(s string) (time.Duration, error) {
	n, suffix, ok := splitNumber(s)
	scale, known := timeUnits[strings.ToLower(suffix)]
	if !ok || !known {
		return 0, errUnit{s}
	}
	us, err := scaled(s, n, scale, max32)
	return time.Duration(us) * time.Microsecond, err
}

// ParseTime64 reads a time as ParseTime does, but a bare number is nanoseconds,
// and so is "ns".
func ParseTime64(s string) (time.Duration, error) {
	n, suffix, ok := splitNumber(s)
	scale, known := timeUnits[strings.ToLower(suffix)]
	switch strings.ToLower(suffix) {
	case "", "ns", "nsec", "nsecs":
		scale, known = 1e-3, true
	}
	if !ok || !known {
		return 0, errUnit{s}
	}
	ns, err := scaled(s, n, scale*1000, 1<<63)
	return time.Duration(ns), err
}

// FormatTime64 prints a time as tc does where it has nanoseconds.
func FormatTime64(d time.Duration) string {
	ns := float64(d)
	for _, u := range []struct {
		unit float64
		name string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}} {
		if ns >= u.unit {
			return strconv.FormatFloat(ns/u.unit, 'g', 3, 64) + u.name
		}
	}
	return strconv.FormatInt(int64(d), 10) + "ns"
}

// whole is 100 % of a [qdisc.Percent].
const whole = math.MaxUint32

// ParsePercent reads a percentage with or without its sign, as 32 bits of fraction.
func ParsePercent(s string) (uint64, error) {
	n, suffix, ok := splitNumber(s)
	if !ok || suffix != "" && suffix != "%" || n > 100 {
		return 0, errUnit{s}
	}
	return uint64(math.RoundToEven(n / 100 * whole)), nil
}

// FormatPercent prints 32 bits of fraction as tc does.
func FormatPercent(n uint64) string {
	return strconv.FormatFloat(100*float64(n)/whole, 'g', 6, 64) + "%"
}

// short is a number with the six digits that tc has in JSON.
func short(x float64) float64 {
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64)
	return x
}

// FormatTime prints a time as tc does, to three digits.
func FormatTime(d time.Duration) string {
	us := uint64(max(d, 0)) / 1000
	switch {
	case us >= 1e6:
		return strconv.FormatFloat(float64(us)/1e6, 'g', 3, 64) + "s"
	case us >= 1e3:
		return strconv.FormatFloat(float64(us)/1e3, 'g', 3, 64) + "ms"
	}
	return strconv.FormatUint(us, 10) + "us"
}

// parseHex reads hexadecimal digits from the front of s.
func parseHex(s string) (n uint64, rest string, ok bool) {
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i]|0x20 >= 'a' && s[i]|0x20 <= 'f') {
		i++
	}
	n, err := strconv.ParseUint(s[:i], 16, 32)
	return n, s[i:], err == nil
}

// ParseHandle reads the handle of a qdisc: "1:" or "1", in hexadecimal; a minor
// number is dropped. "none" is 0.
func ParseHandle(s string) (qdisc.ClassID, error) {
	if s == "none" {
		return 0, nil
	}
	n, rest, ok := parseHex(s)
	if !ok || n > 0xffff || rest != "" && rest[0] != ':' {
		return 0, errUnit{s}
	}
	return qdisc.MakeID(uint32(n), 0), nil
}

// ParseClassID reads the id of a class: "1:10", ":10", "1:", "root" or "none". A
// number without a colon is the 32-bit id itself, as tc has it.
func ParseClassID(s string) (qdisc.ClassID, error) {
	switch s {
	case "root":
		return tree.Root, nil
	case "none":
		return 0, nil
	}
	n, rest, ok := parseHex(s)
	if !ok {
		if n = 0; !strings.HasPrefix(s, ":") {
			return 0, errUnit{s}
		}
		rest = s
	}
	if rest == "" {
		return qdisc.FromTC(uint32(n)), nil
	}
	if rest[0] != ':' || n > 0xffff {
		return 0, errUnit{s}
	}
	var minor uint64
	if rest = rest[1:]; rest != "" {
		if minor, rest, ok = parseHex(rest); !ok || rest != "" || minor > 0xffff {
			return 0, errUnit{s}
		}
	}
	return qdisc.MakeID(uint32(n), uint32(minor)), nil
}

// FormatHandle prints the handle of a qdisc; the default's is "0:".
func FormatHandle(h qdisc.ClassID) string { return strconv.FormatUint(uint64(h.Major()), 16) + ":" }

// FormatClassID prints the id of a class, or "root" or "none".
func FormatClassID(id qdisc.ClassID) string {
	switch id {
	case tree.Root:
		return "root"
	case 0:
		return "none"
	}
	return id.String()
}
