package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const root = "../../.."

// The patches apply to the tree, and the named tests exist.
func TestPatchesApplyToTree(t *testing.T) {
	tree := os.DirFS(root)
	all, err := readPatches(tree)
	if err != nil {
		t.Fatal(err)
	}
	sabotages, err := readSabotages(tree)
	if err != nil {
		t.Fatal(err)
	}
	if len(sabotages) < 60 {
		t.Errorf("got %d sabotages, want at least 60", len(sabotages))
	}
	for _, p := range append(all, sabotages...) {
		t.Run(p.name, func(t *testing.T) {
			changed, err := p.apply(tree)
			if err != nil {
				t.Fatal(err)
			}
			for name, content := range changed {
				if before, _ := os.ReadFile(root + "/" + name); string(before) == content {
					t.Errorf("patch does not change %s", name)
				}
			}
			for _, test := range p.tests {
				dir, name, _ := strings.Cut(test, " -run ")
				for name := range strings.SplitSeq(name, "|") {
					name, _, _ = strings.Cut(name, "/")
					if !hasTest(t, filepath.Join(root, dir), name) {
						t.Errorf("test %s not found in %s", name, dir)
					}
				}
			}
		})
	}
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(dir + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), "\nfunc "+name+"(")
	})
}

func TestApply(t *testing.T) {
	tree := fstest.MapFS{"a.go": {Data: []byte("one\ntwo\nthree\ntwo\n")}, "b.go": {Data: []byte("x\n")}}
	for name, test := range map[string]struct{ diff, want, err string }{
		"replaces":        {"@@ -1,2 +1,2 @@\n one\n-two\n+2\n", "one\n2\nthree\ntwo\n", ""},
		"at the start":    {"@@ -1 +1 @@\n-one\n+1\n", "1\ntwo\nthree\ntwo\n", ""},
		"twice":           {"@@ -2 +2 @@\n-two\n+2\n", "", "found 2 times"},
		"missing lines":   {"@@ -2 +2 @@\n-four\n+4\n", "", "found 0 times"},
		"within a line":   {"@@ -2 +2 @@\n-ne\n+1\n", "", "found 0 times"},
		"two hunks":       {"@@ -1,2 +1,2 @@\n one\n-two\n@@ -3 +2 @@\n three\n-two\n", "one\nthree\n", ""},
		"two files":       {"@@ -1 +1 @@\n-one\n+1\ndiff --git a/b.go b/b.go\n--- a/b.go\n+++ b/b.go\n@@ -1 +1 @@\n-x\n+y\n", "1\ntwo\nthree\ntwo\n", ""},
		"no hunk":         {"", "", "must have a hunk"},
		"an unknown file": {"--- a/c.go\n+++ b/c.go\n@@ -1 +1 @@\n-x\n", "", "c.go"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := parsePatch("About it.\nTest: ./a -run TestA\n\ndiff --git a/a.go b/a.go\n--- a/a.go\n+++ b/a.go\n" + test.diff)
			var changed map[string]string
			if err == nil {
				changed, err = p.apply(tree)
			}
			switch {
			case test.err == "" && err != nil:
				t.Fatal(err)
			case test.err != "":
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want an error with %q", err, test.err)
				}
			case changed["a.go"] != test.want:
				t.Errorf("a.go: got %q, want %q", changed["a.go"], test.want)
			}
		})
	}
	if _, err := parsePatch("About it.\n\n@@ -1 +1 @@\n-x\n"); err == nil {
		t.Error("patch without a test accepted")
	}
}
