package main

import (
	"strings"
	"testing"
)

func TestCount(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []string
		want   string
	}{
		{"passed and skipped", []string{
			`{"Action":"start","Package":"p"}`,
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}`,
			`{"Action":"pass","Package":"p","Test":"TestA"}`,
			`{"Action":"run","Package":"p","Test":"TestB"}`,
			`{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: no namespace for us\n"}`,
			`{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}`,
			`{"Action":"skip","Package":"p","Test":"TestB"}`,
			`{"Action":"pass","Package":"p","Elapsed":0.5}`,
		}, `
ok    p 0.5s
skip  no namespace for us
      p TestB
1 passed, 0 failed, 1 skipped`},

		{"subtests count, not what contains them", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"run","Package":"p","Test":"TestA/x"}`,
			`{"Action":"pass","Package":"p","Test":"TestA/x"}`,
			`{"Action":"run","Package":"p","Test":"TestA/y"}`,
			`{"Action":"output","Package":"p","Test":"TestA/y","Output":"    a_test.go:9: 3, want 4\n"}`,
			`{"Action":"fail","Package":"p","Test":"TestA/y"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"--- FAIL: TestA (0.00s)\n"}`,
			`{"Action":"fail","Package":"p","Test":"TestA"}`,
			`{"Action":"output","Package":"p","Output":"FAIL\n"}`,
			`{"Action":"fail","Package":"p"}`,
		}, `
FAIL  p TestA/y
          a_test.go:9: 3, want 4
FAIL  p TestA
FAIL  p
1 passed, 1 failed, 0 skipped`},

		{"a test fails after its subtests passed", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"run","Package":"p","Test":"TestA/x"}`,
			`{"Action":"pass","Package":"p","Test":"TestA/x"}`,
			`{"Action":"fail","Package":"p","Test":"TestA"}`,
			`{"Action":"fail","Package":"p"}`,
		}, `
FAIL  p TestA
FAIL  p
1 passed, 1 failed, 0 skipped`},

		{"two runs of one test, the worse counts", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"fail","Package":"p","Test":"TestA"}`,
			`{"Action":"fail","Package":"p"}`,
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p","Elapsed":1}`,
		}, `
FAIL  p TestA
FAIL  p
ok    p 1.0s
0 passed, 1 failed, 0 skipped`},

		{"a package does not build", []string{
			`{"ImportPath":"p [p.test]","Action":"build-output","Output":"p/a.go:3: undefined: x\n"}`,
			`{"ImportPath":"p [p.test]","Action":"build-fail"}`,
			`{"Action":"start","Package":"p"}`,
			`{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}`,
			`{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`,
		}, `
FAIL  p
      p/a.go:3: undefined: x
0 passed, 1 failed, 0 skipped`},

		{"a test panics and takes the package with it", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: at the disco\n"}`,
			`{"Action":"fail","Package":"p"}`,
		}, `
FAIL  p
      panic: at the disco
0 passed, 1 failed, 0 skipped`},

		{"the stream breaks off", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
		}, `
FAIL  p TestA: did not finish
0 passed, 1 failed, 0 skipped`},

		{"a check that is no test", []string{
			`a.go:3:1: unreachable code`,
			`{"Action":"fail","Package":"go vet"}`,
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p","Test":"TestA"}`,
		}, `
a.go:3:1: unreachable code
FAIL  go vet
1 passed, 1 failed, 0 skipped`},

		{"nothing", nil, `
FAIL  no test ran
0 passed, 1 failed, 0 skipped`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			failures, err := count(strings.NewReader(strings.Join(c.events, "\n")), &out)
			if err != nil {
				t.Fatal(err)
			}
			if got := "\n" + strings.TrimSpace(out.String()); got != c.want {
				t.Errorf("printed%s\nwant%s", got, c.want)
			}
			if (failures > 0) != strings.Contains(c.want, "FAIL") {
				t.Errorf("%d failures", failures)
			}
		})
	}
}
