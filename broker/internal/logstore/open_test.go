package logstore

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// Open does not change a directory that belongs to another program.
func TestOpenDoesNotChangeOtherDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "passwd"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	if _, err := Open(Options{Dir: dir, Log: discard}); !errors.Is(err, ErrDamaged) {
		t.Errorf("Open: got %v, want ErrDamaged", err)
	}
	if after := tree(t, dir); !maps.Equal(after, before) {
		t.Errorf("directory changed: got %v, want %v", after, before)
	}
}

// tree returns the content of each file in a directory and its subdirectories.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		all[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
