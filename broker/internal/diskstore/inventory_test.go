package diskstore

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A directory that belongs to others is left as it is.
func TestAnotherDirectoryIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "passwd"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	if _, err := Open(Options{Dir: dir, Log: discard}); !errors.Is(err, ErrDamaged) {
		t.Errorf("opened: %v", err)
	}
	if after := tree(t, dir); !maps.Equal(after, before) {
		t.Errorf("the directory has %v, and had %v", after, before)
	}
}

// tree returns the content of the files in a directory, and of those below.
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

// old makes a data directory of the format that had no inventory.
func old(t *testing.T) (power *vfs.MemFS, kept []Key) {
	t.Helper()
	power = vfs.NewCrashableMem()
	d := openOn(t, power)
	kept, err := workWith(d, 30, strings.Repeat("x", 1000))
	if err == nil {
		err = d.MakeRoom(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	write(t, power, dataDir+"/FORMAT", oldFormat)
	if err := syncDir(power, dataDir); err != nil {
		t.Fatal(err)
	}
	for _, name := range inventoryFiles {
		if err := power.Remove(dataDir + "/pebble/" + name); err != nil {
			t.Fatal(err)
		}
	}
	return power, kept
}

// A directory that the version before wrote is opened with all that is in it, and has an inventory from then on.
func TestADirectoryWithoutAnInventoryGetsOne(t *testing.T) {
	disk, kept := old(t)
	checkKept(t, disk, kept, "in the old format")
	if got := read(t, disk, dataDir+"/FORMAT"); got != format {
		t.Errorf("the format is %q", got)
	}
	scramble(t, disk, ".sst")
	if _, err := Open(Options{Dir: dataDir, Log: discard, FS: disk}); !errors.Is(err, ErrDamaged) {
		t.Errorf("a damaged table was not noticed: %v", err)
	}
}

// Whatever write fails while a directory gets its inventory, it can be opened later.
func TestADirectoryGetsItsInventoryInOneStep(t *testing.T) {
	for n := int64(1); ; n++ {
		disk, kept := old(t)
		b := &broken{err: errors.New("for the test")}
		b.from.Store(n)
		s, err := Open(Options{Dir: dataDir, Log: discard, FS: errorfs.Wrap(disk, errorfs.InjectorFunc(b.inject))})
		if err == nil {
			_ = s.Close(true)
		}
		checkKept(t, disk.CrashClone(vfs.CrashCloneCfg{}), kept, "after a failed write")
		if err == nil && b.seen.Load() < n {
			break
		}
	}
}

// A directory in the old format whose MANIFEST is damaged is not read as one with less in it.
func TestAnOldDirectoryIsExamined(t *testing.T) {
	disk, _ := old(t)
	for _, name := range files(t, disk, "/MANIFEST") {
		content := []byte(read(t, disk, name))
		content[20] ^= 1
		write(t, disk, name, string(content))
	}
	if _, err := Open(Options{Dir: dataDir, Log: discard, FS: disk}); !errors.Is(err, ErrDamaged) {
		t.Errorf("opened: %v", err)
	}
}
