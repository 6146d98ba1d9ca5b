// Admin path.

package classify

import (
	"fmt"
	"net/netip"
	"strings"

	"sluice/shaper/classify/nearest"
)

// A SyntaxError is a match that cannot be understood: why, what to do, and
// where.
type SyntaxError struct {
	Src    string // the match
	Offset int    // of the word at fault, in bytes
	Word   string // the word at fault, empty at the end
	Msg    string // the cause, without full stop
	Hint   string // the way out, a whole sentence
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s, at byte %d of %q. %s", e.Msg, e.Offset, e.Src, e.Hint)
}

const (
	maxSource = 16 << 10 // bytes of a match
	maxNests  = 64       // parentheses within each other
)

// ParseMatch reads a match. The language, tightest first:
//
//	any                                every packet
//	ip, ip6, arp                       network protocol, behind VLAN tags and PPPoE
//	tcp, udp, sctp, icmp, icmp6        transport protocol, behind extension headers
//	fragment                           a later fragment: it has no ports
//	dscp V, ecn V                      code points, by number or name
//	port V, src port V, dst port V     ports of whatever protocol has ports
//	host A, net N, src A|N, dst A|N    IPv4 or IPv6 address or prefix
//	vlan [V], pcp V                    the outer tag; vlan alone: there is one
//	proto V, ethertype V               by number
//	length V                           bytes of the frame, without FCS
//	priority V, mark V                 as set before
//	( … ), not …
//	… and …                            "and" may be left out: udp port 53
//	… or …
//
// V is a number, a name, a range such as 10000-20000, or a comparison such as
// < 128. Several values follow each other with a comma or with "or", which then
// belongs to the list: "udp and port 53 or 123" is udp with one of two ports.
func ParseMatch(src string) (*Match, error) {
	p := parser{src: src}
	if len(src) > maxSource {
		return nil, p.fail(token{}, fmt.Sprintf("the match is %d bytes long", len(src)),
			fmt.Sprintf("At most %d are possible", maxSource))
	}
	p.next()
	root, err := p.or()
	if err == nil && p.tok.kind != end {
		err = p.unexpected(`"and", "or" or the end`)
	}
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	root.print(&b)
	m := &Match{root: root, text: b.String()}
	m.compile()
	return m, nil
}

// MustParseMatch is ParseMatch for matches known to be good.
func MustParseMatch(src string) *Match {
	m, err := ParseMatch(src)
	if err != nil {
		panic(err)
	}
	return m
}

type token struct {
	kind kind
	off  int
	text string
}

type kind uint8

const (
	end kind = iota
	word
	punct // ( ) , < <= > >= =
	other // a character the language does not have
)

type parser struct {
	src   string
	pos   int
	tok   token
	nests int
}

func (p *parser) next() { p.tok, p.pos = p.scan(p.pos) }

// peek returns the token behind the current one.
func (p *parser) peek() token {
	t, _ := p.scan(p.pos)
	return t
}

func (p *parser) scan(pos int) (token, int) {
	for pos < len(p.src) && strings.IndexByte(" \t\r\n", p.src[pos]) >= 0 {
		pos++
	}
	start := pos
	if pos == len(p.src) {
		return token{end, start, ""}, pos
	}
	for pos < len(p.src) && isWord(p.src[pos]) {
		pos++
	}
	k := word
	if pos == start {
		k = other
		pos++
		switch p.src[start] {
		case '<', '>':
			k = punct
			if strings.HasPrefix(p.src[pos:], "=") {
				pos++
			}
		case '(', ')', ',', '=':
			k = punct
		}
	}
	return token{k, start, p.src[start:pos]}, pos
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("._:/-%", c) >= 0
}

func (p *parser) is(text string) bool { return p.tok.kind != end && p.tok.text == text }

func (p *parser) fail(t token, msg, hint string) error {
	if !strings.HasSuffix(hint, "?") {
		hint += "."
	}
	return &SyntaxError{Src: p.src, Offset: t.off, Word: t.text, Msg: msg, Hint: hint}
}

// unexpected refuses the current token.
func (p *parser) unexpected(expected string) error {
	if p.tok.kind == end {
		return p.fail(p.tok, "the match ends too early", "Here "+expected+" is expected")
	}
	if p.tok.kind == word && !keyword(p.tok.text) {
		if near := nearest.Word(p.tok.text, keywords); near != "" {
			return p.fail(p.tok, fmt.Sprintf("unknown word %q", p.tok.text), fmt.Sprintf("Did you mean %q?", near))
		}
	}
	switch p.tok.text {
	case "!", "&", "|":
		expected = `"not", "and" or "or", in words,`
	}
	return p.fail(p.tok, fmt.Sprintf("%q does not fit here", p.tok.text), "Here "+expected+" is expected")
}

func (p *parser) or() (*node, error) {
	var kids []*node
	for {
		n, err := p.and()
		if err != nil {
			return nil, err
		}
		kids = append(kids, n)
		if !p.is("or") {
			return join(opOr, kids), nil
		}
		p.next()
	}
}

func (p *parser) and() (*node, error) {
	var kids []*node
	for {
		n, err := p.unary()
		if err != nil {
			return nil, err
		}
		kids = append(kids, n)
		switch {
		case p.is("and"):
			p.next()
		case p.is("("), p.is("not"), p.tok.kind == word && !p.is("or") && keyword(p.tok.text):
		default:
			return join(opAnd, kids), nil
		}
	}
}

func (p *parser) unary() (*node, error) {
	if p.nests++; p.nests > maxNests {
		return nil, p.fail(p.tok, "the match is nested too deeply", fmt.Sprintf("At most %d levels are possible", maxNests))
	}
	defer func() { p.nests-- }()
	switch {
	case p.is("not"):
		p.next()
		n, err := p.unary()
		if err != nil {
			return nil, err
		}
		return negate(n), nil
	case p.is("("):
		p.next()
		n, err := p.or()
		if err != nil {
			return nil, err
		}
		if !p.is(")") {
			return nil, p.unexpected(`"and", "or" or ")"`)
		}
		p.next()
		return n, nil
	}
	return p.primary()
}

func (p *parser) primary() (*node, error) {
	if p.tok.kind != word {
		return nil, p.unexpected("a test such as \"dscp ef\" or \"udp\"")
	}
	text := p.tok.text
	for _, w := range bare {
		if w.word == text {
			p.next()
			return &node{op: opTest, field: w.field, spans: []span{{w.n, w.n}}}, nil
		}
	}
	dir := eitherWay
	switch text {
	case "any":
		p.next()
		return &node{op: opAny}, nil
	case "src", "dst":
		dir = source
		if text == "dst" {
			dir = destination
		}
		p.next()
		switch p.tok.text {
		case "port":
			return p.test([]field{source: fieldSrcPort, destination: fieldDstPort}[dir])
		case "host", "net":
			return p.net(dir)
		}
		return p.nets(dir, text, true)
	case "host", "net":
		return p.net(dir)
	}
	for f := range fields {
		if fields[f].word == text && fields[f].noun != "" {
			return p.test(field(f))
		}
	}
	return nil, p.unexpected("a test such as \"dscp ef\" or \"udp\"")
}

// test reads the values of a field; the current token is its keyword.
func (p *parser) test(f field) (*node, error) {
	info := &fields[f]
	p.next()
	n := &node{op: opTest, field: f}
	if f == fieldVLAN && !p.startsValue(p.tok) {
		n.spans = []span{{0, info.max}}
		return n, nil
	}
	for {
		s, err := p.span(info)
		if err != nil {
			return nil, err
		}
		n.spans = append(n.spans, s)
		if !p.another() {
			return n, nil
		}
	}
}

// another goes on to the next value of a list, if there is one.
func (p *parser) another() bool {
	if p.is(",") || p.is("or") && p.startsValue(p.peek()) {
		p.next()
		return true
	}
	return false
}

// startsValue says whether t begins a value, not a test.
func (p *parser) startsValue(t token) bool {
	switch t.kind {
	case word:
		return !keyword(t.text) && nearest.Word(t.text, keywords) == "" || isValueName(t.text)
	case punct:
		return t.text != "(" && t.text != ")" && t.text != ","
	}
	return false
}

// span reads one value.
func (p *parser) span(info *fieldInfo) (span, error) {
	cmp := ""
	if p.tok.kind == punct {
		switch p.tok.text {
		case "<", "<=", ">", ">=", "=":
			cmp = p.tok.text
			p.next()
		}
	}
	t := p.tok
	if t.kind != word {
		return span{}, p.unexpected(info.noun)
	}
	p.next()
	n, ok := info.number(t.text)
	lo, hi, isRange := strings.Cut(t.text, "-")
	switch {
	case ok && cmp == "<" && n == 0 || ok && cmp == ">" && n == info.max:
		return span{}, p.fail(t, fmt.Sprintf("nothing is %s %s", cmp, t.text), "Here "+info.noun+" is expected")
	case ok:
		return compared(cmp, n, info.max), nil
	case isRange && cmp == "":
		a, okA := info.number(lo)
		b, okB := info.number(hi)
		if okA && okB && a <= b {
			return span{a, b}, nil
		}
		if okA && okB {
			return span{}, p.fail(t, fmt.Sprintf("%q is an empty range", t.text), fmt.Sprintf("Write %s-%s", hi, lo))
		}
	}
	words := make([]string, len(info.names))
	for i, n := range info.names {
		words[i] = n.word
	}
	hint := "Here " + info.noun + " is expected"
	if near := nearest.Word(t.text, words); near != "" {
		hint = fmt.Sprintf("Did you mean %q?", near)
	}
	return span{}, p.fail(t, fmt.Sprintf("%q is not %s", t.text, bareNoun(info.noun)), hint)
}

// compared returns the numbers up to max that stand to n as cmp says.
func compared(cmp string, n, max uint32) span {
	switch cmp {
	case "<":
		return span{0, n - 1}
	case "<=":
		return span{0, n}
	case ">":
		return span{n + 1, max}
	case ">=":
		return span{n, max}
	}
	return span{n, n}
}

// bareNoun cuts a noun before its explanation.
func bareNoun(noun string) string {
	s, _, _ := strings.Cut(noun, " (")
	return s
}

// net reads what follows "host" or "net"; the current token is that word.
func (p *parser) net(dir direction) (*node, error) {
	after := p.tok.text
	p.next()
	return p.nets(dir, after, after == "net")
}

// nets reads addresses, and with prefixes prefixes as well.
func (p *parser) nets(dir direction, after string, prefixes bool) (*node, error) {
	n := &node{op: opNet, dir: dir}
	for {
		net, err := p.prefix(after, prefixes)
		if err != nil {
			return nil, err
		}
		n.nets = append(n.nets, net)
		if !p.another() {
			return n, nil
		}
	}
}

func (p *parser) prefix(after string, prefixes bool) (netip.Prefix, error) {
	t := p.tok
	expected := "an address or prefix such as 192.0.2.1 or 2001:db8::/32"
	if after == "src" || after == "dst" {
		expected = `"port", ` + expected + ","
	}
	if t.kind != word {
		return netip.Prefix{}, p.unexpected(expected)
	}
	none := netip.Prefix{}
	net, err := netip.ParsePrefix(t.text)
	addr, errA := netip.ParseAddr(t.text)
	if errA == nil {
		net, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	} else if err == nil && !prefixes {
		return none, p.fail(t, fmt.Sprintf("%q is a prefix, %q takes one address", t.text, after),
			fmt.Sprintf("Write \"net %s\"", t.text))
	}
	switch {
	case err != nil:
		return none, p.fail(t, fmt.Sprintf("%q is no address", t.text), "Here "+expected+" is expected")
	case addr.Zone() != "":
		return none, p.fail(t, fmt.Sprintf("%q has a zone, packets have none", t.text),
			"Write "+addr.WithZone("").String())
	case net.Addr().Is4In6():
		return none, p.fail(t, fmt.Sprintf("%q is IPv4 written as IPv6", t.text),
			"Write "+net.Addr().Unmap().String())
	case net != net.Masked():
		return none, p.fail(t, fmt.Sprintf("%q has bits set behind its prefix", t.text),
			fmt.Sprintf("Write %s, or %s for the one address", net.Masked(), net.Addr()))
	}
	p.next()
	return net, nil
}

var keywords = func() []string {
	words := []string{"and", "or", "not", "any", "src", "dst", "host", "net"}
	for _, w := range bare {
		words = append(words, w.word)
	}
	for _, f := range fields {
		if f.noun != "" && !strings.Contains(f.word, " ") {
			words = append(words, f.word)
		}
	}
	return words
}()

func keyword(s string) bool {
	for _, w := range keywords {
		if w == s {
			return true
		}
	}
	return false
}

func isValueName(s string) bool {
	for i := range fields {
		if _, ok := fields[i].number(s); ok && !keyword(s) {
			return true
		}
	}
	return false
}
