package config_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"sluice/shaper/config"
)

// Whatever the file, Parse does not panic, every mistake has a place inside it
// and a way out, and the scanner sees the same keys, in the same order, as the
// TOML module.
func FuzzParseConfig(f *testing.F) {
	for _, src := range []string{
		minimal, full,
		"a.b.c = 1\na.b.d = 2\n[a.e]\nf = 'x'\n",
		"[[q]]\nx = 1\n[q.sub]\ny = 2\n[[q]]\nx = 3\n[[q.list]]\nz = [1, [2, 3], {a = 1, b.c = 2}]\n",
		"s = \"\"\"a\n# no comment \\\"\"\"\"\"\"\nl = '''\n[x]\n'''''\nm = [ # comment ]\n 'a', # another\n]\n",
		"\"a.b\" . 'c d' = { x = \"}\", y = { z = [ ] } }\r\n\"\\u00e9\\n\" = 1979-05-27 07:32:00 # c\r\n",
		"\ufeffversion = 1\n", "\ufeff\ufeff", "= 1", "[", "a = {", "a = [[[", "x = \"\\", "version = 1\n[link]\nfoo = 1\n",
	} {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		_, err := config.Parse("f.toml", []byte(src))
		if err != nil {
			checkErrors(t, src, err)
		}
		src = strings.TrimLeft(src, "\ufeff")
		var root map[string]any
		meta, err := toml.Decode(src, &root)
		if err != nil {
			return
		}
		keys, value := config.Scan(src)
		var want [][]string
		for _, k := range meta.Keys() {
			want = append(want, k)
		}
		if !reflect.DeepEqual(keys, want) {
			t.Errorf("%q\nscanner: %q\nmodule:  %q", src, keys, want)
		}
		checkPlaces(t, src, value, "", root)
	})
}

func checkErrors(t *testing.T, src string, err error) {
	var errs config.Errors
	if !errors.As(err, &errs) || len(errs) == 0 {
		t.Fatalf("%q: %#v is not a list of errors", src, err)
	}
	lines := strings.Split(src, "\n")
	for _, e := range errs {
		if e.Line < 1 || e.Line > len(lines) || e.Col < 1 || e.Col > len(lines[e.Line-1])+2 {
			t.Errorf("%q: %v: no such place", src, e)
		}
		if e.Msg == "" || strings.HasSuffix(e.Msg, ".") || !strings.HasSuffix(e.Hint, ".") && !strings.HasSuffix(e.Hint, "?") {
			t.Errorf("%q: %q. %q: not one sentence each", src, e.Msg, e.Hint)
		}
	}
}

// checkPlaces walks the decoded document: every value has a place, and what
// stands there looks like it.
func checkPlaces(t *testing.T, src string, value map[string]int, path string, v any) {
	first := ""
	switch v := v.(type) {
	case map[string]any:
		for key, e := range v {
			checkPlaces(t, src, value, config.Child(path, key), e)
		}
		return
	case []map[string]any:
		for i, e := range v {
			checkPlaces(t, src, value, config.Element(path, i), e)
		}
		return
	case []any:
		for i, e := range v {
			checkPlaces(t, src, value, config.Element(path, i), e)
		}
		first = "["
	case string:
		first = `"'`
	case bool:
		first = "tf"
	case int64:
		first = "+-0123456789"
	case float64:
		first = "+-0123456789ni"
	default:
		first = "0123456789"
	}
	at, ok := value[path]
	if !ok || at >= len(src) || strings.IndexByte(first, src[at]) < 0 {
		t.Errorf("%q: %s = %v is said to be at %d, %v", src, path, v, at, ok)
	}
}
