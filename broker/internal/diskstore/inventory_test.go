package diskstore

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

// An update of the inventory during or after Close does not change the sealed inventory.
func TestLateUpdateDoesNotChangeSealedInventory(t *testing.T) {
	for range 20 {
		s, err := Open(Options{Dir: t.TempDir(), Log: discard})
		if err != nil {
			t.Fatal(err)
		}
		tracker := s.(*disk).fs.tracker
		closed, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-closed:
					return
				default:
					tracker.update()
				}
			}
		}()
		err = s.Close(true)
		close(closed)
		<-done
		tracker.update()
		v, wrong, inventoryErr := readInventory(tracker.fs, tracker.dir)
		if err := errors.Join(err, inventoryErr); err != nil || len(wrong) > 0 || !v.sealed {
			t.Fatalf("inventory: sealed %t, damage %v, error %v", v.sealed, wrong, err)
		}
	}
}
