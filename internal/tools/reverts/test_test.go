package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each test that must find a fault runs without the fault first. A fault counts as found only if a test that passed fails.
func TestTestAllReportsSurvivors(t *testing.T) {
	r := run{dir: t.TempDir()}
	for name, content := range map[string]string{
		"go.mod": "module tested\n",
		"a.go":   "package tested\n\nfunc one() int {\n\treturn 1\n}\n\nfunc unused() int {\n\treturn 1\n}\n",
		"a_test.go": `package tested

import (
	"os"
	"testing"
)

func TestOne(t *testing.T) {
	if one() != 1 {
		t.Error("not 1")
	}
}

func TestAlwaysFails(t *testing.T) { t.Error("fails") }

func TestExits(t *testing.T) {
	if one() != 1 {
		os.Exit(3)
	}
}

func TestMixed(t *testing.T) {
	t.Run("fails", TestAlwaysFails)
	t.Run("one", TestOne)
}
`,
	} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change := func(function, from, to string) string {
		return "+++ b/a.go\n@@\n func " + function + "() int {\n-\treturn " + from + "\n+\treturn " + to + "\n"
	}
	for name, test := range map[string]struct {
		header, diff string
		row, err     string
	}{
		"found":                 {"Test: . -run TestOne$", change("one", "1", "2"), "TestOne fails", ""},
		"process exits":         {"Test: . -run TestExits", change("one", "1", "2"), "TestExits fails", ""},
		"survivor":              {"Test: . -run TestOne$", change("unused", "1", "2"), "survives, and must not", "survived . -run TestOne$: A fault."},
		"known survivor":        {"Survives: unused\nTest: . -run TestOne$", change("unused", "1", "2"), "survives: unused", ""},
		"found in the meantime": {"Survives: unused\nTest: . -run TestOne$", change("one", "1", "2"), "TestOne fails", "remove the line"},
		"compile error":         {"Test: . -run TestOne$", change("one", "1", `"1"`), "error", "cannot test"},
		"failing baseline":      {"Test: . -run TestAlwaysFails", change("one", "1", "2"), "", "without a fault: . -run TestAlwaysFails: TestAlwaysFails fails"},
		"partly failing":        {"Test: . -run TestMixed", change("one", "1", "2"), "", "without a fault: . -run TestMixed: TestMixed, TestMixed/fails fails"},
		"no test":               {"Test: . -run TestNone", change("one", "1", "2"), "", "without a fault: . -run TestNone: no test passed"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := parsePatch("A fault.\n" + test.header + "\n\n" + test.diff)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			err = r.testAll(t.Context(), &out, []patch{p})
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("got error %v, want %q", err, test.err)
			}
			if test.row == "" {
				test.row = "|---|---|---|\n"
			}
			if !strings.HasSuffix(out.String(), test.row+" |\n") && !strings.HasSuffix(out.String(), test.row) {
				t.Errorf("got table\n%s\nwant a row with %q", out.String(), test.row)
			}
		})
	}
}
