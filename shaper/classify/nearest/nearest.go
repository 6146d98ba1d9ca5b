// Package nearest finds the word that somebody probably meant, for hints in
// error messages.
package nearest

// Word returns the one of known that is closest to got, or "" when none is
// close: more than a third of its letters, or of a short word more than one,
// would have to change. Swapping two neighbours is one change, and so is case.
// Of several equally close ones the first wins.
func Word(got string, known []string) string {
	best, word := len(got)/3+2, ""
	for _, w := range known {
		if d := distance(got, w); d < best && d <= max(1, len(w)/3) {
			best, word = d, w
		}
	}
	return word
}

// distance is the optimal string alignment distance of bytes.
func distance(a, b string) int {
	if fold(a) == fold(b) && a != b {
		return 1
	}
	var before []int
	prev, cur := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, make([]int, len(b)+1)
	}
	return prev[len(b)]
}

func fold(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
