package config

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what is reported for testdata/problems beside the files")

// TestProblems compares the problems of each file with the expected text.
func TestProblems(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "problems", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("found no files: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Parse(filepath.Base(file), data, environment)
			if err == nil {
				t.Fatal("file was accepted")
			}
			got := err.Error() + "\n"
			if strings.Contains(got, "hush") {
				t.Errorf("error shows a password:\n%s", got)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// Excessive nesting is refused before a parser recurses into it.
func TestNestingIsLimited(t *testing.T) {
	for name, text := range map[string]string{
		"brackets":    strings.Repeat("[", 100_000),
		"braces":      strings.Repeat("{a: ", 100_000),
		"entries":     strings.Repeat("- ", 100_000),
		"mappings":    strings.Repeat("a: ", 100_000),
		"indentation": staircase(700),
		"anchors":     strings.Repeat("&a ", 100_000),
		"tags":        strings.Repeat("!a ", 100_000),
		"lines":       strings.Repeat("[\n", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse("x.yaml", []byte(text), environment); err == nil {
				t.Error("file was accepted")
			}
		})
	}
}

// staircase returns a mapping with n levels of indentation.
func staircase(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}
