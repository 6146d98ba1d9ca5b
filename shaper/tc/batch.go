package tc

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"strings"
)

// BatchLine is one command of a batch file.
type BatchLine struct {
	Line int // number of its last line
	Args []string
}

// Batch reads the commands of a batch file, one after the other, so that each can
// be carried out before the next is read. "#" starts a comment anywhere, a
// backslash at the end of a line joins the next one, blank lines don't count,
// quotes keep words together. An error of r ends the sequence.
//
// Where a command fails, tc says [BatchFailed] after the command's own message
// and, unless -force was given, stops; the exit code is 1 either way.
func Batch(r io.Reader) iter.Seq2[BatchLine, error] {
	return func(yield func(BatchLine, error) bool) {
		in := bufio.NewScanner(r)
		joined := ""
		for n := 1; in.Scan(); n++ {
			text, _, _ := strings.Cut(in.Text(), "#")
			more := strings.HasSuffix(text, `\`)
			joined += strings.TrimSuffix(text, `\`)
			if more {
				continue
			}
			args := words(joined)
			joined = ""
			if len(args) > 0 && !yield(BatchLine{n, args}, nil) {
				return
			}
		}
		if err := in.Err(); err != nil {
			yield(BatchLine{}, err)
		}
	}
}

// BatchFailed is what tc adds to the message of a command that failed.
func BatchFailed(file string, l BatchLine) string {
	return fmt.Sprintf("Command failed %s:%d", file, l.Line)
}

// words splits at blanks, except between quotes.
func words(s string) []string {
	var all []string
	for {
		s = strings.TrimLeft(s, " \t\r\n")
		if s == "" {
			return all
		}
		if q := s[0]; q == '\'' || q == '"' {
			word, rest, _ := strings.Cut(s[1:], string(q))
			all, s = append(all, word), rest
			continue
		}
		end := strings.IndexAny(s, " \t\r\n")
		if end < 0 {
			end = len(s)
		}
		all, s = append(all, s[:end]), s[end:]
	}
}
