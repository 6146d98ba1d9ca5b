package tc_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"sluice/shaper/tc"
)

func TestBatch(t *testing.T) {
	text := "qdisc del dev d0 root\n" +
		"# comment\n" +
		"\n" +
		"qdisc add dev d0 \\\n  parent 1:1 \\\n handle 11: pfifo limit 7 # tail comment\n" +
		"  filter add dev d0 basic match 'cmp(u8 at 9 layer network eq 6)' \"classid\" 1:4\n" +
		"qdisc show dev d0"
	var got []tc.BatchLine
	for l, err := range tc.Batch(strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, l)
	}
	want := []tc.BatchLine{
		{1, []string{"qdisc", "del", "dev", "d0", "root"}},
		{6, strings.Fields("qdisc add dev d0 parent 1:1 handle 11: pfifo limit 7")},
		{7, []string{"filter", "add", "dev", "d0", "basic", "match", "cmp(u8 at 9 layer network eq 6)", "classid", "1:4"}},
		{8, strings.Fields("qdisc show dev d0")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, want := tc.BatchFailed("f", got[1]), "Command failed f:6"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The first command is there before the second is read.
func TestBatchIsReadAsItGoes(t *testing.T) {
	broken := errors.New("broken pipe")
	n := 0
	for l, err := range tc.Batch(io.MultiReader(strings.NewReader("qdisc\n"), iotest.ErrReader(broken))) {
		switch n++; n {
		case 1:
			if err != nil || l.Line != 1 {
				t.Errorf("%+v, %v", l, err)
			}
		default:
			if !errors.Is(err, broken) {
				t.Errorf("%v, want %v", err, broken)
			}
		}
	}
	if n != 2 {
		t.Errorf("%d results, want a command and an error", n)
	}
	for range tc.Batch(strings.NewReader("a\nb\n")) {
		break
	}
}
