package classify_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"sluice/qdisc"
	"sluice/shaper/classify"
)

// testdata/match: "parse" prints the canonical form, or the error with its place;
// "try" prints which of the frames below match.
func TestMatch(t *testing.T) {
	frames := []struct {
		name  string
		frame []byte
	}{
		{"udp4", udp4}, {"tcp4", tcp4}, {"udp6", udp6}, {"icmp4", icmp4}, {"icmp6", icmp6}, {"arp", arp},
		{"vlan4", vlan4}, {"qinq6", qinq6}, {"chained", chained}, {"first4", first4}, {"later4", later4}, {"stp", stp},
	}
	datadriven.Walk(t, "testdata/match", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for _, line := range strings.Split(d.Input, "\n") {
				m, err := classify.ParseMatch(line)
				var syntax *classify.SyntaxError
				switch {
				case errors.As(err, &syntax):
					fmt.Fprintf(&out, "%s\n%s^ %s. %s\n", line, strings.Repeat(" ", syntax.Offset), syntax.Msg, syntax.Hint)
				case err != nil:
					t.Fatal(err)
				case d.Cmd == "parse":
					fmt.Fprintln(&out, m)
				case d.Cmd == "try":
					fmt.Fprintf(&out, "%s:", m)
					for _, f := range frames {
						p := parsed(f.frame)
						if m.Match(p) {
							fmt.Fprintf(&out, " %s", f.name)
						}
						p.Free()
					}
					fmt.Fprintln(&out)
				default:
					t.Fatalf("no command %q", d.Cmd)
				}
			}
			return out.String()
		})
	})
}

func TestDSCPNames(t *testing.T) {
	for name, want := range map[string]uint8{"ef": 46, "cs0": 0, "cs6": 48, "af11": 10, "af43": 38, "va": 44, "le": 1, "df": 0, "17": 17, "0x2e": 46} {
		if got, ok := classify.DSCP(name); !ok || got != want {
			t.Errorf("DSCP(%q) = %d, %v, want %d", name, got, ok, want)
		}
	}
	for _, name := range []string{"", "EF", "64", "-1", "af14"} {
		if got, ok := classify.DSCP(name); ok {
			t.Errorf("DSCP(%q) = %d, want none", name, got)
		}
	}
	for dscp := range uint8(64) {
		if got, ok := classify.DSCP(classify.DSCPName(dscp)); !ok || got != dscp {
			t.Errorf("code point %d is called %q, which is %d", dscp, classify.DSCPName(dscp), got)
		}
	}
}

func FuzzMatch(f *testing.F) {
	for _, src := range []string{
		"any", "dscp ef", "dscp cs6 or cs7", "udp port 5060", "tcp dst port 443", "src port 10000-20000",
		"src 10.0.0.0/8 and not (udp or icmp6)", "net fd00::/8,192.0.2.0/24", "vlan", "vlan 5 or udp", "length < 128",
		"ethertype 0x8863", "mark 3 priority >= 6", "not not ip", "ecn ce or not-ect", "(((any)))", "port 80,443 or 8080",
	} {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		m, err := classify.ParseMatch(src)
		if err != nil {
			var syntax *classify.SyntaxError
			if !errors.As(err, &syntax) || syntax.Offset > len(src) || !strings.HasPrefix(src[syntax.Offset:], syntax.Word) {
				t.Fatalf("%q: %#v", src, err)
			}
			return
		}
		again, err := classify.ParseMatch(m.String())
		if err != nil {
			t.Fatalf("%q has the canonical form %q: %v", src, m, err)
		}
		if !again.Equal(m) {
			t.Fatalf("%q has the canonical form %q, and that %q", src, m, again)
		}
		for _, frame := range [][]byte{udp4, tcp4, udp6, vlan4, arp, icmp6, later4} {
			p := parsed(frame)
			if m.Match(p) != again.Match(p) {
				t.Errorf("%q and its canonical form %q differ on %x", src, m, frame)
			}
			p.Free()
		}
	})
}

// expr is a match as a person would evaluate it: text, and what it says of a
// packet.
type expr struct {
	text string
	eval func(facts) bool
}

// facts are what a person sees of a packet.
type facts struct {
	ip, tagged     bool
	etherType      int
	proto, dscp    int
	src, dst       netip.Addr
	ports          bool
	sport, dport   int
	vlan, length   int
	priority, mark int
}

func factsOf(p *qdisc.Packet) facts {
	b := p.Bytes()
	f := facts{etherType: int(p.EtherType), length: len(b), priority: int(p.Priority), mark: int(p.Mark)}
	switch p.EtherType {
	case 0x0800:
		f.ip, f.proto, f.dscp = true, int(p.L4Proto), int(b[p.L3+1]>>2)
		f.src, _ = netip.AddrFromSlice(b[p.L3+12 : p.L3+16])
		f.dst, _ = netip.AddrFromSlice(b[p.L3+16 : p.L3+20])
	case 0x86dd:
		f.ip, f.proto, f.dscp = true, int(p.L4Proto), int(binary.BigEndian.Uint16(b[p.L3:])>>6&63)
		f.src, _ = netip.AddrFromSlice(b[p.L3+8 : p.L3+24])
		f.dst, _ = netip.AddrFromSlice(b[p.L3+24 : p.L3+40])
	}
	if p.L4 != 0 && (f.proto == 6 || f.proto == 17) {
		f.ports = true
		f.sport, f.dport = int(binary.BigEndian.Uint16(b[p.L4:])), int(binary.BigEndian.Uint16(b[p.L4+2:]))
	}
	if t := binary.BigEndian.Uint16(b[12:]); t == 0x8100 || t == 0x88a8 {
		f.tagged, f.vlan = true, int(binary.BigEndian.Uint16(b[14:])&0xfff)
	}
	return f
}

// number makes a test of a small number, so that it holds now and then.
func number(t *rapid.T, word string, has func(facts) bool, of func(facts) int) expr {
	n := rapid.IntRange(0, 3).Draw(t, "n")
	switch rapid.IntRange(0, 4).Draw(t, "form") {
	case 0:
		return expr{fmt.Sprintf("%s <= %d", word, n), func(f facts) bool { return has(f) && of(f) <= n }}
	case 1:
		return expr{fmt.Sprintf("%s > %d", word, n), func(f facts) bool { return has(f) && of(f) > n }}
	case 2:
		return expr{fmt.Sprintf("%s %d-%d", word, n, n+1), func(f facts) bool { return has(f) && (of(f) == n || of(f) == n+1) }}
	case 3:
		return expr{fmt.Sprintf("%s %d or %d", word, n, n+2), func(f facts) bool { return has(f) && (of(f) == n || of(f) == n+2) }}
	}
	return expr{fmt.Sprintf("%s %d", word, n), func(f facts) bool { return has(f) && of(f) == n }}
}

func drawExpr(t *rapid.T, depth int) expr {
	always := func(facts) bool { return true }
	ip := func(f facts) bool { return f.ip }
	ports := func(f facts) bool { return f.ports }
	if depth > 0 {
		a := drawExpr(t, depth-1)
		switch rapid.IntRange(0, 4).Draw(t, "op") {
		case 0:
			b := drawExpr(t, depth-1)
			return expr{"(" + a.text + ") and (" + b.text + ")", func(f facts) bool { return a.eval(f) && b.eval(f) }}
		case 1:
			b := drawExpr(t, depth-1)
			return expr{"(" + a.text + ") or (" + b.text + ")", func(f facts) bool { return a.eval(f) || b.eval(f) }}
		case 2:
			return expr{"not (" + a.text + ")", func(f facts) bool { return !a.eval(f) }}
		case 3: // without parentheses "and" binds tighter
			b, c := drawExpr(t, 0), drawExpr(t, 0)
			d := drawExpr(t, 0)
			return expr{b.text + " or " + c.text + " and " + d.text, func(f facts) bool { return b.eval(f) || c.eval(f) && d.eval(f) }}
		}
		return a
	}
	switch rapid.IntRange(0, 12).Draw(t, "test") {
	case 0:
		return expr{"any", always}
	case 1:
		return expr{"udp", func(f facts) bool { return f.proto == 17 }}
	case 2:
		return expr{"ip6", func(f facts) bool { return f.etherType == 0x86dd }}
	case 3:
		return expr{"arp", func(f facts) bool { return f.etherType == 0x0806 }}
	case 4:
		return number(t, "dscp", ip, func(f facts) int { return f.dscp })
	case 5:
		return number(t, "src port", ports, func(f facts) int { return f.sport })
	case 6:
		return number(t, "dst port", ports, func(f facts) int { return f.dport })
	case 7:
		n := rapid.IntRange(0, 3).Draw(t, "n")
		return expr{fmt.Sprintf("port %d", n), func(f facts) bool { return f.ports && (f.sport == n || f.dport == n) }}
	case 8:
		return number(t, "vlan", func(f facts) bool { return f.tagged }, func(f facts) int { return f.vlan })
	case 9:
		return number(t, "priority", always, func(f facts) int { return f.priority })
	case 10:
		return number(t, "mark", always, func(f facts) int { return f.mark })
	case 11:
		n := rapid.IntRange(40, 90).Draw(t, "n")
		return expr{fmt.Sprintf("length < %d", n), func(f facts) bool { return f.length < n }}
	}
	base := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}[rapid.IntRange(0, 1).Draw(t, "ip")]
	net, _ := base.Prefix(rapid.IntRange(0, base.BitLen()).Draw(t, "bits"))
	switch rapid.IntRange(0, 2).Draw(t, "dir") {
	case 0:
		return expr{"src " + net.String(), func(f facts) bool { return net.Contains(f.src) }}
	case 1:
		return expr{"dst " + net.String(), func(f facts) bool { return net.Contains(f.dst) }}
	}
	return expr{"net " + net.String(), func(f facts) bool { return net.Contains(f.src) || net.Contains(f.dst) }}
}

// drawFrame is a frame whose numbers are as small as those in the matches, and
// whose addresses share random prefixes with theirs.
func drawFrame(t *rapid.T) []byte {
	frame := append([]byte(nil), rapid.SampledFrom([][]byte{udp4, tcp4, udp6, arp, vlan4, qinq6, icmp4, later4}).Draw(t, "frame")...)
	p := parsed(frame)
	defer p.Free()
	if p.Flags&qdisc.VLANSet != 0 {
		frame[15] = rapid.Byte().Draw(t, "vlan") % 5
	}
	flip := func(off, n int) {
		if bit := rapid.IntRange(0, n*16).Draw(t, "bit"); bit < n*8 {
			frame[off+bit/8] ^= 0x80 >> (bit % 8)
		}
	}
	switch p.EtherType {
	case 0x0800:
		frame[p.L3+1] = rapid.Byte().Draw(t, "dscp") % 5 << 2
		flip(int(p.L3)+12, 4)
		flip(int(p.L3)+16, 4)
	case 0x86dd:
		frame[p.L3+1] = frame[p.L3+1]&0x3f | rapid.Byte().Draw(t, "dscp")%4<<6
		flip(int(p.L3)+8, 16)
		flip(int(p.L3)+24, 16)
	}
	if p.L4 != 0 && (p.L4Proto == 6 || p.L4Proto == 17) {
		frame[p.L4], frame[p.L4+1] = 0, rapid.Byte().Draw(t, "sport")%5
		frame[p.L4+2], frame[p.L4+3] = 0, rapid.Byte().Draw(t, "dport")%5
	}
	return frame
}

func TestMatchAgreesWithItsMeaning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawExpr(t, rapid.IntRange(0, 4).Draw(t, "depth"))
		m, err := classify.ParseMatch(e.text)
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			p := parsed(drawFrame(t))
			p.Mark = rapid.Uint32Range(0, 4).Draw(t, "mark")
			p.Priority = rapid.Uint32Range(0, 4).Draw(t, "priority")
			if got, want := m.Match(p), e.eval(factsOf(p)); got != want {
				t.Errorf("%s\n= %s\non %x: %v, want %v", e.text, m, p.Bytes(), got, want)
			}
			p.Free()
		}
	})
}

func TestMatchDoesNotAllocate(t *testing.T) {
	m := classify.MustParseMatch("tcp and port 80,443 or udp and not src 10.0.0.0/8 and dscp ef and length < 128")
	p := parsed(udp4)
	defer p.Free()
	if n := testing.AllocsPerRun(100, func() { m.Match(p) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, src := range []string{"any", "dscp ef", "udp port 5060", "src 10.0.0.0/8 or src 192.0.2.0/24 and tcp"} {
		b.Run(strings.ReplaceAll(src, " ", "_"), func(b *testing.B) {
			m := classify.MustParseMatch(src)
			p := parsed(udp4)
			defer p.Free()
			for b.Loop() {
				m.Match(p)
			}
		})
	}
}
