package config_test

import (
	"fmt"
	"strings"
	"testing"

	"sluice/shaper/config"
)

// The TOML module recurses as deep as the text says, and no recover catches a
// stack that overflows.
func TestDepthIsRefusedBeforeAnythingRecurses(t *testing.T) {
	const deep = 5_000_000
	for name, c := range map[string]struct {
		src       string
		line, col int
	}{
		"lists":       {"x = " + strings.Repeat("[", deep), 1, 37},
		"tables":      {"x = " + strings.Repeat("{a=", deep), 1, 101},
		"parts":       {"\n" + strings.Repeat("a.", deep) + "b = 1", 2, 64},
		"header":      {"[" + strings.Repeat("a.", deep) + "b]", 1, 65},
		"behind text": {"x = '''\n[''''' # [\ny = \"\\\"[\"\nz = " + strings.Repeat("[", 40), 4, 37},
		"CRLF":        {"x = 1 # it's\r\nz = " + strings.Repeat("[", 40), 2, 37},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse("f.toml", []byte(c.src))
			errs, _ := err.(config.Errors)
			if len(errs) != 1 || errs[0].Line != c.line || errs[0].Col != c.col || !strings.Contains(errs[0].Msg, "nests deeper than 32") {
				t.Errorf("%.200v", err)
			}
		})
	}
	for name, src := range map[string]string{
		"text":    "x = \"" + strings.Repeat("[", 100) + "\"\ny = 'a" + strings.Repeat("[", 100) + "'",
		"comment": "# " + strings.Repeat("[", 100) + "\nx = 1.5 # " + strings.Repeat("a.", 100),
		"breadth": "x = [" + strings.Repeat("[1.5], ", 100) + "]",
		"lines":   "x = '''" + strings.Repeat("\n[\"", 100) + "'''",
	} {
		if _, err := config.Parse("f.toml", []byte(minimal+"\n"+src)); err != nil && strings.Contains(err.Error(), "nests") {
			t.Errorf("%s is taken for depth: %v", name, err)
		}
	}
}

// Seven qdiscs may stand above another; the tree takes no more.
func TestChainsOfQdiscsAreShort(t *testing.T) {
	chain := func(n int) string {
		var b strings.Builder
		b.WriteString("version = 1\n[link.l]\ninside = \"a\"\noutside = \"b\"\ndriver = \"mem\"\n")
		for i := 1; i <= n; i++ {
			where := "root = true"
			if i > 1 {
				where = fmt.Sprintf("parent = \"%x:1\"", i-1)
			}
			fmt.Fprintf(&b, "[[qdisc]]\ndev = \"b\"\n%s\nhandle = \"%x:\"\nkind = \"prio\"\n", where, i)
		}
		return b.String()
	}
	if _, err := config.Parse("test.toml", []byte(chain(8))); err != nil {
		t.Errorf("seven above: %v", err)
	}
	_, err := config.Parse("test.toml", []byte(chain(9)))
	if err == nil || !strings.Contains(err.Error(), "more than 7 qdiscs stand above this one") {
		t.Errorf("eight above: %v", err)
	}
}
