package logstore

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Other users of the machine cannot read the data or a backup, regardless of the permissions of the data directory.
func TestFilesArePrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the file system has no permission bits")
	}
	open := func(dir string) *disk {
		t.Helper()
		s, err := Open(Options{Dir: dir, Log: discard})
		if err != nil {
			t.Fatal(err)
		}
		return s.(*disk)
	}
	shared := func() string {
		t.Helper()
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	private := func(what, dir string) {
		t.Helper()
		seen := 0
		err := filepath.WalkDir(filepath.Join(dir, logDirName), func(path string, f fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := f.Info()
			if err != nil {
				return err
			}
			if info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: %s has mode %v", what, f.Name(), info.Mode())
			}
			seen++
			return nil
		})
		if err != nil || seen < 3 {
			t.Errorf("%s: got %d files and error %v, want at least 3 files", what, seen, err)
		}
	}
	data, copied, restored, backup := shared(), shared(), shared(), filepath.Join(shared(), "backup")
	d := open(data)
	d.Put(entry(keyOf(1, 0, 1), "secret"))
	if err := d.Backup(backup); err != nil {
		t.Fatal(err)
	}
	private("a running store", data)
	private("a backup of a running store", backup)
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	for _, step := range [][2]string{{data, copied}, {copied, restored}} {
		if err := Copy(step[0], step[1]); err != nil {
			t.Fatal(err)
		}
		private("a copy", step[1])
	}
	// Simulate a restore by another program or another version.
	err := filepath.WalkDir(filepath.Join(restored, logDirName), func(path string, f fs.DirEntry, err error) error {
		if f.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	d = open(restored)
	private("a store that was readable", restored)
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
}
