package config

import "strings"

// maxNesting is how deep values may stand in each other, and how many parts a
// key may have. What this format has is four deep.
const maxNesting = 32

// tooDeep returns the offset at which a document nests deeper than that, or −1.
//
// The TOML module recurses for every bracket and every part of a key, and a
// goroutine whose stack overflows ends the process: one request to the control
// socket would stop the forwarding. So this runs before it, on text of which
// nothing is known yet. Up to the first mistake it reads strings and comments as
// the module does, and behind that nobody reads.
func tooDeep(src string) int {
	brackets, parts := 0, 1
	for i := 0; i < len(src); i++ {
		switch c := src[i]; c {
		case '"', '\'':
			i = stringEnd(src, i) - 1
		case '#':
			n := strings.IndexByte(src[i:], '\n')
			if n < 0 {
				return -1
			}
			i += n - 1
		case '[', '{':
			brackets++
			parts = 1
		case ']', '}':
			brackets = max(brackets-1, 0)
			parts = 1
		case '=', ',', '\n':
			parts = 1
		case '.':
			parts++
		}
		if brackets > maxNesting || parts > maxNesting {
			return i
		}
	}
	return -1
}

// stringEnd returns the offset behind the string that begins at i. One that
// should have ended on its line ends there.
func stringEnd(src string, i int) int {
	end := src[i : i+1]
	escapes := end == `"`
	if long := strings.Repeat(end, 3); strings.HasPrefix(src[i:], long) {
		end = long
	}
	for i += len(end); i < len(src); i++ {
		switch {
		case strings.HasPrefix(src[i:], end):
			i += len(end)
			for len(end) == 3 && i < len(src) && src[i] == end[0] {
				i++ // quotes that belong to the text
			}
			return i
		case src[i] == '\\' && escapes:
			i++
		case src[i] == '\n' && len(end) == 1:
			return i
		}
	}
	return len(src)
}
