package diskstore

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
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

// A process can be killed at any moment, also while a table or a value file is unfinished and an unrelated sync of the
// directory has made the name of this file durable. The inventory must not list an unfinished file, because Open would
// report it as damaged.
func TestImageWithUnfinishedFileOpens(t *testing.T) {
	power := vfs.NewCrashableMem()
	var d *disk
	var taking atomic.Bool
	var images []vfs.FS
	d = openOn(t, errorfs.Wrap(power, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead || !isBulk(op.Path) || !taking.CompareAndSwap(false, true) {
			return nil
		}
		defer taking.Store(false)
		if err := errors.Join(d.fs.tracker.syncNames(), d.fs.tracker.write(false)); err != nil {
			t.Error(err)
		}
		images = append(images, power.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))}))
		return nil
	})))
	body := strings.Repeat("body", 100) // large enough for a value file
	confirmed, err := workWith(d, 30, body)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second call compacts the tables of the first call
		if err := d.MakeRoom(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.Delete(confirmed[0], Ref{Slot: -1}, int64(len(body)))
		confirmed = confirmed[1:]
		if err := d.sync(); err != nil {
			t.Fatal(err)
		}
	}
	taking.Store(true) // an image does not describe a running Close
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	if len(images) < 4 {
		t.Fatalf("images with an unfinished file: got %d, want at least 4", len(images))
	}
	for i, image := range images {
		checkConfirmed(t, image, confirmed, fmt.Sprint("image ", i))
	}
}

// Earlier versions listed unfinished tables and value files with length 0. Open accepts such a directory.
func TestInventoryOfEarlierVersionOpens(t *testing.T) {
	power := vfs.NewCrashableMem()
	confirmed, err := work(openOn(t, power), 30)
	if err != nil {
		t.Fatal(err)
	}
	image := power.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))})
	path := dataDir + "/" + databaseDir
	v, _, err := readInventory(image, path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"000998.sst", "000999.blob"} {
		v.files[name] = extent{}
		write(t, image, path+"/"+name, "unfinished")
	}
	if err := writeInventory(image, path, v); err != nil {
		t.Fatal(err)
	}
	checkConfirmed(t, image, confirmed, "with the inventory of an earlier version")
}
