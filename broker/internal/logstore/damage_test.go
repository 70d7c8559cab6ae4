package logstore

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// If the disk is temporarily full, commits are delayed but do not fail.
func TestStoreWaitsForFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &faultFS{err: syscall.ENOSPC}
		power := vfs.NewCrashableMem()
		d := openOn(t, errorfs.Wrap(power, errorfs.InjectorFunc(b.inject)))
		b.from.Store(b.seen.Load() + 1)
		time.AfterFunc(time.Minute, func() { b.from.Store(0) })
		began := time.Now()
		kept, err := work(d, 30)
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited < time.Minute {
			t.Errorf("commit confirmed after %v, while the disk was full", waited)
		}
		if err := d.Close(true); err != nil {
			t.Error(err)
		}
		checkConfirmed(t, power.CrashClone(vfs.CrashCloneCfg{}), kept, "after the disk was full")
	})
}

// Close does not wait for a disk that stays full. It returns an error for the unsaved changes.
func TestCloseDoesNotWaitForFullDisk(t *testing.T) {
	b := &faultFS{err: syscall.ENOSPC}
	d := openOn(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(b.inject)))
	b.from.Store(b.seen.Load() + 1)
	d.Put(entry(keyOf(1, 0, 1), "message"))
	if err := d.Close(true); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close: got %v, want ENOSPC", err)
	}
}

func TestOpenReportsUnusableDirectory(t *testing.T) {
	filled := func(t *testing.T) vfs.FS {
		fs := vfs.NewMem()
		d := openOn(t, fs)
		if _, err := work(d, 30); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(true); err != nil {
			t.Fatal(err)
		}
		return fs
	}
	for name, test := range map[string]struct {
		harm func(t *testing.T, fs vfs.FS)
		want error
		says string
	}{
		"another process uses the directory": {func(t *testing.T, fs vfs.FS) { openOn(t, fs) }, ErrInUse, "stop that process"},
		"a newer version wrote the directory": {func(t *testing.T, fs vfs.FS) {
			write(t, fs, dataDir+"/FORMAT", "reprise 4\n")
		}, ErrFormat, `"reprise 4"`},
		"FORMAT is missing": {func(t *testing.T, fs vfs.FS) {
			if err := fs.Remove(dataDir + "/FORMAT"); err != nil {
				t.Fatal(err)
			}
		}, ErrDamaged, "without FORMAT"},
		"the log is missing": {func(t *testing.T, fs vfs.FS) {
			if err := fs.RemoveAll(dataDir + "/" + logDirName); err != nil {
				t.Fatal(err)
			}
		}, ErrDamaged, "backup"},
		"the segments are missing":         {func(t *testing.T, fs vfs.FS) { removeAll(t, fs, segmentSuffix) }, ErrDamaged, "backup"},
		"the segments are scrambled":       {func(t *testing.T, fs vfs.FS) { scramble(t, fs, segmentSuffix) }, ErrDamaged, "backup"},
		"the records of syncs are missing": {func(t *testing.T, fs vfs.FS) { removeAll(t, fs, "/SYNCED") }, ErrDamaged, "backup"},
		"the records of syncs are damaged": {func(t *testing.T, fs vfs.FS) { scramble(t, fs, "/SYNCED") }, ErrDamaged, "backup"},
		"the sealed segment is missing":    {func(t *testing.T, fs vfs.FS) { removeAll(t, fs, "2"+segmentSuffix) }, ErrDamaged, "backup"},
		"the newest segment is missing":    {func(t *testing.T, fs vfs.FS) { removeAll(t, fs, "3"+segmentSuffix) }, ErrDamaged, "3" + segmentSuffix},
		"the summary of a segment is zeroed": {func(t *testing.T, fs vfs.FS) {
			name := files(t, fs, "2"+segmentSuffix)[0]
			content := []byte(read(t, fs, name))
			clear(content[len(content)-20:])
			write(t, fs, name, string(content))
		}, ErrDamaged, "2" + segmentSuffix},
	} {
		t.Run(name, func(t *testing.T) {
			fs := filled(t)
			test.harm(t, fs)
			s, err := Open(Options{Dir: dataDir, Log: discard, FS: fs})
			if err == nil {
				_, err = s.(*disk).read(2, 1)
				_ = s.Close(true)
			}
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), dataDir) {
				t.Errorf("Open: got %v, want %v with %s", err, test.want, test.says)
			}
		})
	}
}

// Open reports a changed bit in the log instead of losing records. Only at the end of the log, a changed bit looks like
// an interrupted write.
func TestOpenDetectsDamagedLog(t *testing.T) {
	power := vfs.NewCrashableMem()
	d := openOn(t, power)
	const block = 32 << 10
	kept, err := workWith(d, 30, strings.Repeat("x", 5000))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(true)
	logs := files(t, power, segmentSuffix)
	if slices.Sort(logs); len(logs) == 0 {
		t.Fatal("no log found")
	}
	logs = logs[len(logs)-1:]
	size := len(read(t, power, logs[0]))
	if size < 3*block {
		t.Fatalf("log is too small: %d bytes", size)
	}
	for at := 0; at < size-block/2; at += 3001 {
		fs := power.CrashClone(vfs.CrashCloneCfg{})
		content := []byte(read(t, fs, logs[0]))
		content[at] ^= 0x10
		write(t, fs, logs[0], string(content))
		s, err := Open(Options{Dir: dataDir, Log: discard, FS: fs})
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("byte %d: %v", at, err)
			}
			continue
		}
		found, err := s.(*disk).read(2, 1)
		if err != nil {
			t.Errorf("byte %d: %v", at, err)
		}
		for _, k := range kept {
			if _, ok := found.messages[k]; !ok {
				t.Errorf("byte %d of %d: %v is missing without an error", at, size, k)
				break
			}
		}
		_ = s.Close(true)
	}
}

func files(t *testing.T, fs vfs.FS, like string) (all []string) {
	t.Helper()
	names, err := fs.List(dataDir + "/" + logDirName)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name = dataDir + "/" + logDirName + "/" + name; strings.Contains(name, like) {
			all = append(all, name)
		}
	}
	return all
}

func removeAll(t *testing.T, fs vfs.FS, like string) {
	t.Helper()
	for _, name := range files(t, fs, like) {
		if err := fs.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// scramble changes a byte in the middle of each file whose name contains the string like.
func scramble(t *testing.T, fs vfs.FS, like string) {
	t.Helper()
	for _, name := range files(t, fs, like) {
		content := []byte(read(t, fs, name))
		content[len(content)/2] ^= 0xff
		write(t, fs, name, string(content))
	}
}

func read(t *testing.T, fs vfs.FS, name string) string {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func write(t *testing.T, fs vfs.FS, name, content string) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write([]byte(content))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
}

// MakeRoom frees the disk space of deleted messages, even if the store does not save further messages.
func TestMakeRoomFreesDiskSpace(t *testing.T) {
	fs := vfs.NewMem()
	d := openOn(t, fs)
	defer d.Close(true)
	kept, err := workWith(d, 3000, strings.Repeat("x", 10_000))
	if err != nil {
		t.Fatal(err)
	}
	last := len(kept) / 2
	for _, k := range kept[:last] {
		d.Delete(k, Ref{}, 10_000)
	}
	d.DeleteRange(1, 0, kept[last-1].Order, kept[len(kept)-1].Order+1, len(kept)-last, int64(len(kept)-last)*10_000)
	if err := d.sync(); err != nil {
		t.Fatal(err)
	}
	if err := d.MakeRoom(t.Context()); err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, name := range files(t, fs, segmentSuffix) {
		about, err := fs.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		size += about.Size()
	}
	if size > 500_000 {
		t.Errorf("files still have %d bytes: %v", size, files(t, fs, "/"))
	}
}
