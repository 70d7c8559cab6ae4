package config

import (
	"os"
	"path/filepath"
	"testing"
)

// This version accepts the files of earlier versions. Each file is a copy of docs/reprise.example.yaml at a release, so
// that it contains all keys of that version. Add a file at each release, and do not change the existing files.
func TestParseEarlierVersions(t *testing.T) {
	names, err := filepath.Glob("testdata/earlier/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("found the files %q: %v", names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(name, text, environment); err != nil {
			t.Errorf("this version refuses the file:\n%v", err)
		}
	}
}
