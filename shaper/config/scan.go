package config

import (
	"sort"
	"strconv"
	"strings"
)

// A scanner finds the place of every key and value of a TOML document. The TOML
// module keeps places for itself, and mixes up those in arrays of tables.
//
// It is fed only with documents that the module has accepted, so it reads the
// structure and checks nothing. The fuzz test holds it to the module's own list
// of keys.
type scanner struct {
	src    string
	pos    int
	places map[string]place
	tables map[string]int // elements seen of every array of tables
	keys   [][]string     // every key in order, as toml.MetaData.Keys has them
}

// place is where a key and its value begin, as offsets.
type place struct{ key, value int }

// Paths name a key by its way from the root: engine.weight, qdisc[0].rate. Keys
// that are not bare are quoted, so that no two ways have the same path.

func child(path, key string) string {
	if key == "" || strings.IndexFunc(key, func(r rune) bool { return r > 127 || !isBare(byte(r)) }) >= 0 {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func isBare(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

func scan(src string) *scanner {
	s := &scanner{src: src, places: map[string]place{}, tables: map[string]int{}}
	table := ""
	var names []string
	for s.skip(" \t\r\n"); s.pos < len(s.src); s.skip(" \t\r\n") {
		start := s.pos
		switch {
		case s.take("[["):
			names = s.key()
			table = s.last(s.open(names[:len(names)-1]), names)
			i := s.tables[table]
			s.tables[table]++
			s.add(table, place{start, start})
			table = element(table, i)
			s.add(table, place{start, start})
			s.take("]]")
			s.keys = append(s.keys, names)
		case s.take("["):
			names = s.key()
			table = s.last(s.open(names[:len(names)-1]), names)
			s.places[table] = place{start, start}
			s.take("]")
			s.keys = append(s.keys, names)
		default:
			s.pair(table, names)
		}
		if s.pos == start { // not in an accepted document
			s.pos++
		}
	}
	return s
}

// open returns the path of the table that names lead to; of an array of tables
// the last element is meant.
func (s *scanner) open(names []string) string {
	path := ""
	for _, n := range names {
		path = child(path, n)
		if n := s.tables[path]; n > 0 {
			path = element(path, n-1)
		}
	}
	return path
}

func (s *scanner) last(path string, names []string) string { return child(path, names[len(names)-1]) }

// add notes a place, unless the path has one.
func (s *scanner) add(path string, p place) {
	if _, ok := s.places[path]; !ok {
		s.places[path] = p
	}
}

// pair reads key = value in a table.
func (s *scanner) pair(table string, outer []string) {
	start := s.pos
	names := s.key()
	path := table
	for i, n := range names {
		path = child(path, n)
		if i < len(names)-1 {
			s.add(path, place{start, start})
		}
	}
	full := append(append([]string(nil), outer...), names...)
	s.keys = append(s.keys, full)
	s.skip(" \t")
	s.take("=")
	s.skip(" \t")
	s.places[path] = place{start, s.pos}
	s.value(path, full)
}

// value reads a value, and what is inside.
func (s *scanner) value(path string, names []string) {
	switch {
	case s.take(`"""`):
		s.until(`"""`, true)
		for range 2 { // quotes that belong to the text
			s.take(`"`)
		}
	case s.take("'''"):
		s.until("'''", false)
		for range 2 {
			s.take("'")
		}
	case s.take(`"`):
		s.until(`"`, true)
	case s.take("'"):
		s.until("'", false)
	case s.take("["):
		for i := 0; s.inside(']'); i++ {
			e := element(path, i)
			s.places[e] = place{s.pos, s.pos}
			s.value(e, names)
		}
	case s.take("{"):
		for s.inside('}') {
			s.pair(path, names)
		}
	default:
		for s.pos < len(s.src) && strings.IndexByte(",]}#\n", s.src[s.pos]) < 0 {
			s.pos++
		}
	}
}

// inside goes to the next element of an array or inline table, and says whether
// there is one before the closing character, which it takes.
func (s *scanner) inside(closing byte) bool {
	before := s.pos
	s.skip(" \t\r\n,")
	if s.pos == len(s.src) {
		return false
	}
	if s.src[s.pos] == closing {
		s.pos++
		return false
	}
	// Something must have been passed since the last element, else this is not
	// an accepted document and would not end.
	return s.pos > before || strings.IndexByte("[{,", s.src[s.pos-1]) >= 0
}

// skip passes the given characters and comments.
func (s *scanner) skip(chars string) {
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case c == '#':
			if i := strings.IndexByte(s.src[s.pos:], '\n'); i >= 0 {
				s.pos += i
			} else {
				s.pos = len(s.src)
			}
		case strings.IndexByte(chars, c) >= 0:
			s.pos++
		default:
			return
		}
	}
}

func (s *scanner) take(text string) bool {
	if strings.HasPrefix(s.src[s.pos:], text) {
		s.pos += len(text)
		return true
	}
	return false
}

// until passes everything up to and with end; after a backslash, if those
// count, one more character.
func (s *scanner) until(end string, escapes bool) {
	for s.pos < len(s.src) && !s.take(end) {
		if escapes && s.src[s.pos] == '\\' {
			s.pos++
		}
		s.pos++
	}
	s.pos = min(s.pos, len(s.src))
}

// key reads a key and returns its parts.
func (s *scanner) key() []string {
	var names []string
	for {
		s.skip(" \t")
		start := s.pos
		switch {
		case s.take(`"`):
			s.until(`"`, true)
			names = append(names, unescape(s.src[start+1:max(s.pos-1, start+1)]))
		case s.take("'"):
			s.until("'", false)
			names = append(names, s.src[start+1:max(s.pos-1, start+1)])
		default:
			for s.pos < len(s.src) && isBare(s.src[s.pos]) {
				s.pos++
			}
			names = append(names, s.src[start:s.pos])
		}
		s.skip(" \t")
		if !s.take(".") {
			return names
		}
	}
}

// unescape replaces TOML's escapes, which are Go's but for \e and that \x gives
// a code point.
func unescape(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		if s[0] != '\\' || len(s) < 2 {
			b.WriteByte(s[0])
			s = s[1:]
			continue
		}
		digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[1]]
		if digits > 0 && len(s) >= 2+digits {
			n, _ := strconv.ParseUint(s[2:2+digits], 16, 32)
			b.WriteRune(rune(n))
			s = s[2+digits:]
			continue
		}
		if i := strings.IndexByte("btnfre", s[1]); i >= 0 {
			b.WriteByte("\b\t\n\f\r\x1b"[i])
		} else {
			b.WriteByte(s[1])
		}
		s = s[2:]
	}
	return b.String()
}

// lines turns offsets into places.
type lines []int // where each line starts

func newLines(src string) lines {
	l := lines{0}
	for i := range len(src) {
		if src[i] == '\n' {
			l = append(l, i+1)
		}
	}
	return l
}

func (l lines) pos(off int) Pos {
	i := sort.SearchInts(l, off+1) - 1
	return Pos{i + 1, off - l[i] + 1}
}
