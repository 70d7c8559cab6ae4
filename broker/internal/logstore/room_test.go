package logstore

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// smallFS is a file system with a capacity in bytes.
type smallFS struct {
	vfs.FS
	power    *vfs.MemFS
	capacity int64

	mu    sync.Mutex
	used  map[string]int64 // by file
	least int64            // least free space so far
}

func newSmallFS(capacity int64) *smallFS {
	power := vfs.NewCrashableMem()
	return &smallFS{FS: power, power: power, capacity: capacity, used: make(map[string]int64), least: capacity}
}

// killed returns the file system after its process was killed and another program has filled the disk.
func (f *smallFS) killed() *smallFS {
	f.mu.Lock()
	defer f.mu.Unlock()
	power := f.power.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))})
	image := &smallFS{FS: power, power: power, capacity: f.capacity, used: maps.Clone(f.used)}
	image.used["another program"] = image.free()
	return image
}

// take makes a file use at least size bytes. It returns false if the file system does not have the space.
func (f *smallFS) take(name string, size int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if size <= f.used[name] {
		return true
	}
	free := f.free() - (size - f.used[name])
	if free < 0 {
		return false
	}
	f.used[name] = size
	f.least = min(f.least, free)
	return true
}

func (f *smallFS) free() int64 {
	free := f.capacity
	for _, used := range f.used {
		free -= used
	}
	return free
}

func (f *smallFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	free := uint64(f.free())
	return vfs.DiskUsage{AvailBytes: free, TotalBytes: uint64(f.capacity), UsedBytes: uint64(f.capacity) - free}, nil
}

func (f *smallFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	f.moved(name, "")
	return f.wrap(name, file, err)
}

func (f *smallFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, o...)
	return f.wrap(name, file, err)
}

func (f *smallFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(from, to, c)
	f.moved(from, to)
	return f.wrap(to, file, err)
}

func (f *smallFS) Rename(from, to string) error {
	err := f.FS.Rename(from, to)
	f.moved(from, to)
	return err
}

func (f *smallFS) Remove(name string) error {
	err := f.FS.Remove(name)
	f.moved(name, "")
	return err
}

// moved moves the used space of a file to another name; "": the space becomes free.
func (f *smallFS) moved(from, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	used := f.used[from]
	delete(f.used, from)
	if to != "" {
		f.used[to] = used
	}
}

func (f *smallFS) Unwrap() vfs.FS { return f.FS }

func (f *smallFS) wrap(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &smallFile{File: file, fs: f, name: name}, nil
}

type smallFile struct {
	vfs.File
	fs      *smallFS
	name    string
	written int64
}

func (f *smallFile) Write(b []byte) (int, error) {
	if !f.fs.take(f.name, f.written+int64(len(b))) {
		return 0, syscall.ENOSPC
	}
	n, err := f.File.Write(b)
	f.written += int64(n)
	return n, err
}

func (f *smallFile) WriteAt(b []byte, at int64) (int, error) {
	if !f.fs.take(f.name, at+int64(len(b))) {
		return 0, syscall.ENOSPC
	}
	return f.File.WriteAt(b, at)
}

func (f *smallFile) Preallocate(at, length int64) error {
	if !f.fs.take(f.name, at+length) {
		return syscall.ENOSPC
	}
	return nil
}

const smallReserve = 2 << 20

func openSmall(t *testing.T, fs vfs.FS) *disk {
	t.Helper()
	s, err := Open(Options{Dir: dataDir, Log: discard, FS: fs, Segment: 256 << 10, Reserve: smallReserve})
	if err != nil {
		t.Fatal(err)
	}
	return s.(*disk)
}

// MakeRoom never needs more space than the disk has, for messages of any size and any number of them that remain. After
// it, the broker can restart, and as messages are deleted, their space becomes free.
func TestMakeRoomOnAlmostFullDisk(t *testing.T) {
	const capacity, limit = 24 << 20, 6 << 20
	for _, size := range []int{100, 1000, 50_000} {
		for _, every := range []int{1, 3} { // every third message is deleted soon, or none
			t.Run(fmt.Sprint(size, " bytes, deleted 1 of ", every), func(t *testing.T) {
				fs := newSmallFS(capacity)
				d := openSmall(t, fs)
				defer func() { _ = d.Close(true) }()
				random := rand.New(rand.NewPCG(1, 1))
				remaining := make(map[Key]int64)
				free := func() int64 {
					free, err := d.Free()
					if err != nil {
						t.Fatal(err)
					}
					return int64(free)
				}
				for n := uint64(1); free() > limit; n++ {
					body := make([]byte, size)
					for i := range body {
						body[i] = byte(random.Uint32())
					}
					k := keyOf(1, 0, n)
					d.Put(entry(k, string(body)))
					if n%uint64(max(20, 50_000/size)) == 0 {
						if err := d.sync(); err != nil {
							t.Fatal(err)
						}
					}
					if remaining[k] = int64(size); every > 1 && n%uint64(every) == 0 && n > 300 {
						old := keyOf(1, 0, n-300)
						d.Delete(old, Ref{Slot: -1}, remaining[old])
						delete(remaining, old)
					}
				}
				fs.mu.Lock()
				fs.least = fs.free()
				fs.mu.Unlock()
				makeRoom := func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if err := d.MakeRoom(ctx); err != nil {
						t.Fatal(err)
					}
				}
				makeRoom()
				fs.mu.Lock()
				least := fs.least
				fs.mu.Unlock()
				if least < limit/4 {
					t.Errorf("least free space: got %d bytes, want at least %d", least, limit/4)
				}
				if err := d.Close(true); err != nil {
					t.Fatal(err)
				}
				d = openSmall(t, fs)
				if _, err := d.Levels(1); err != nil {
					t.Fatal(err)
				}
				for k, bytes := range remaining {
					d.Delete(k, Ref{Slot: -1}, bytes)
				}
				if err := d.sync(); err != nil {
					t.Fatal(err)
				}
				makeRoom()
				if err := d.Close(true); err != nil { // obsolete files are removed at the latest by Close
					t.Fatal(err)
				}
				d = openSmall(t, fs)
				if got := free(); got < capacity/2 {
					t.Errorf("free space after all messages were deleted: got %d bytes of %d", got, capacity)
				}
			})
		}
	}
}

// A broker starts although other programs have filled the disk after it was killed.
func TestOpenOnFullDisk(t *testing.T) {
	fs := newSmallFS(16 << 20)
	d := openSmall(t, fs)
	confirmed, err := workWith(d, 60, string(make([]byte, 5000)))
	if err != nil {
		t.Fatal(err)
	}
	d = openSmall(t, fs.killed())
	found, err := d.read(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.messages) != len(confirmed) {
		t.Errorf("messages: got %d, want %d", len(found.messages), len(confirmed))
	}
	if err := d.Close(true); err != nil {
		t.Error(err)
	}
}

// The reserve lets the broker start on a full disk. On a disk that is too small for it, the log says so.
func TestMissingReserveIsLogged(t *testing.T) {
	for capacity, want := range map[int64]bool{48 << 20: true, 1 << 30: false} {
		var log bytes.Buffer
		s, err := Open(Options{Dir: "data", Log: slog.New(slog.NewTextHandler(&log, nil)), FS: newSmallFS(capacity)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(false); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), "no room for a reserve"); got != want {
			t.Errorf("capacity %d: warning is %t, want %t; log: %s", capacity, got, want, log.String())
		}
	}
}
