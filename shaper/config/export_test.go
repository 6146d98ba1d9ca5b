package config

// Scan gives tests what the scanner found: the keys in order, and where the
// value of a path begins.
func Scan(src string) (keys [][]string, value map[string]int) {
	s := scan(src)
	value = map[string]int{}
	for path, p := range s.places {
		value[path] = p.value
	}
	return s.keys, value
}

var (
	Child   = child
	Element = element
)
