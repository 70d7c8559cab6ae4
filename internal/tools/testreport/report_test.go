package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// For each kind of failure, testdata contains the output of the go command and the expected report, which omits the time in
// the last line.
func TestReportMatchesTestdata(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.json")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("testdata not found: %v", err)
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".json")
		t.Run(name, func(t *testing.T) {
			in, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(strings.TrimSuffix(input, ".json") + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			got, success := run(t, string(in))
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if want := name == "passed"; success != want {
				t.Errorf("success: got %v, want %v", success, want)
			}
		})
	}
}

func TestReportPrintsFailuresAtEndOfPackage(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	r.event(event{Action: "run", Package: "p", Test: "TestA"})
	r.event(event{Action: "output", Package: "p", Test: "TestA", Output: "boom\n"})
	r.event(event{Action: "fail", Package: "p", Test: "TestA"})
	r.event(event{Action: "fail", Package: "p"})
	if !strings.Contains(out.String(), "boom\n") {
		t.Errorf("failure not printed at the end of the package: %q", out.String())
	}
}

func TestReportFailsWithoutTests(t *testing.T) {
	for name, in := range map[string]string{
		"empty":         "",
		"no test files": `{"Action":"skip","Package":"p"}`,
		"plain text":    "go: no such pattern\n",
	} {
		t.Run(name, func(t *testing.T) {
			out, success := run(t, in)
			if success || !strings.Contains(out, "no test was run\n") {
				t.Errorf("success: got %v, want false; report:\n%s", success, out)
			}
		})
	}
}

func TestReportPrintsPlainText(t *testing.T) {
	out, _ := run(t, "go: downloading example.com/x v1.0.0\n"+`{"Action":"pass","Package":"p"}`)
	if !strings.HasPrefix(out, "go: downloading example.com/x v1.0.0\n") {
		t.Errorf("plain text not found in:\n%s", out)
	}
}

func run(t *testing.T, in string) (out string, success bool) {
	t.Helper()
	var b strings.Builder
	r := newReport(&b)
	if err := r.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	success = r.finish()
	before, after, found := strings.Cut(b.String(), " packages in ")
	if !found {
		t.Fatalf("summary not found in:\n%s", b.String())
	}
	_, after, _ = strings.Cut(after, ": ")
	return before + " packages: " + after, success
}
