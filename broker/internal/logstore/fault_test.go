package logstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// faultFS makes the write with the number from fail and, unless once is set, all later writes. If from is 0, writes do
// not fail.
type faultFS struct {
	from, seen atomic.Int64
	once       bool
	syncs      bool // only fsyncs count as writes
	err        error
}

func (b *faultFS) inject(op errorfs.Op) error {
	sync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead || b.syncs && !sync {
		return nil
	}
	n, from := b.seen.Add(1), b.from.Load()
	if from == 0 || n < from || b.once && n > from {
		return nil
	}
	return b.err
}

// work saves messages, a few in each commit, and returns the keys of the confirmed messages.
func work(d *disk, messages int) (confirmed []Key, err error) { return workWith(d, messages, "body") }

func workWith(d *disk, messages int, body string) (confirmed []Key, err error) {
	var some []Key
	for i := range uint64(messages) {
		k := keyOf(1, 0, i+1)
		d.Put(entry(k, body))
		if some = append(some, k); len(some) < 3 {
			continue
		}
		if err := d.sync(); err != nil {
			return confirmed, err
		}
		confirmed, some = append(confirmed, some...), nil
	}
	return confirmed, d.sync()
}

// The test repeats the same work and makes each write fail in turn, alone or together with all later writes. The
// confirmed messages must survive a power failure. After a failed commit, the store must report the failure and must
// not confirm further messages.
func TestFailedWriteIsNotConfirmed(t *testing.T) { failEachWrite(t, syscall.EIO, false) }

// Unlike a write, an fsync is not repeated on a full disk.
func TestFailedSyncOnFullDiskIsNotConfirmed(t *testing.T) { failEachWrite(t, syscall.ENOSPC, true) }

func failEachWrite(t *testing.T, cause error, syncs bool) {
	for _, size := range []int{segmentBytes, 400} { // with small segments, the store also copies messages
		failEachWriteTo(t, cause, syncs, size)
	}
}

func failEachWriteTo(t *testing.T, cause error, syncs bool, size int) {
	healthy := &faultFS{syncs: syncs}
	d := openSegments(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(healthy.inject)), size)
	opened := healthy.seen.Load()
	if _, err := work(d, 30); err != nil {
		t.Fatal(err)
	}
	last := healthy.seen.Load()
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}

	failed := 0
	for n := opened + 1; n <= last; n++ {
		for _, once := range []bool{true, false} {
			power := vfs.NewCrashableMem()
			b := &faultFS{once: once, syncs: syncs, err: cause}
			d := openSegments(t, errorfs.Wrap(power, errorfs.InjectorFunc(b.inject)), size)
			b.from.Store(n)
			kept, err := work(d, 30)
			if err != nil {
				failed++
				if again := d.sync(); again == nil || d.Err() == nil {
					t.Fatalf("write %d: failed with %v, but a later commit succeeded", n, err)
				}
				<-d.Failed()
				if err := d.Close(true); !errors.Is(err, cause) {
					t.Fatalf("write %d: Close: got %v, want %v", n, err, cause)
				}
			} else {
				_ = d.Close(true) // returns an error only if one of its writes fails
			}
			checkConfirmed(t, power.CrashClone(vfs.CrashCloneCfg{}), kept, fmt.Sprintf("write %d, once: %v", n, once))
		}
	}
	if failed == 0 {
		t.Fatal("no failed write caused an error")
	}
}

func checkConfirmed(t *testing.T, fs vfs.FS, confirmed []Key, when string) {
	t.Helper()
	d := openOn(t, fs)
	defer d.Close(true)
	found, err := d.read(2, 1)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	for _, k := range confirmed {
		if _, ok := found.messages[k]; !ok {
			t.Fatalf("%s: confirmed message %v is missing", when, k)
		}
	}
}

// If the disk is full or fails, Open and Close return an error, and do not block or terminate the process. The
// confirmed messages are available when the disk works again.
func TestDiskErrorDuringOpenOrClose(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EIO} {
		for n := int64(1); ; n++ {
			power := vfs.NewCrashableMem()
			before := openOn(t, power)
			kept, err := work(before, 3)
			if err == nil {
				err = before.Close(true)
			}
			if err != nil {
				t.Fatal(err)
			}
			b := &faultFS{err: cause}
			b.from.Store(n)
			s, err := Open(Options{Dir: dataDir, Log: discard, FS: errorfs.Wrap(power, errorfs.InjectorFunc(b.inject))})
			if err == nil {
				err = s.Close(true)
			}
			if err != nil && !errors.Is(err, cause) {
				t.Fatalf("write %d: %v", n, err)
			}
			checkConfirmed(t, power.CrashClone(vfs.CrashCloneCfg{}), kept, fmt.Sprintf("write %d, %v", n, cause))
			if err == nil && b.seen.Load() < n {
				break // each write has failed once
			}
		}
	}
}

// If the creation of a data directory fails or is interrupted, a later Open completes it.
func TestDiskErrorDuringCreation(t *testing.T) {
	for n := int64(1); ; n++ {
		power := vfs.NewCrashableMem()
		b := &faultFS{err: syscall.ENOSPC}
		b.from.Store(n)
		s, err := Open(Options{Dir: dataDir, Log: discard, FS: errorfs.Wrap(power, errorfs.InjectorFunc(b.inject))})
		if err == nil {
			_ = s.Close(true)
		}
		// Keep all or none of the unsynced data. Pebble relies on the order in which names are added to a directory, and
		// file systems preserve this order.
		for _, percent := range []int{0, 100} {
			d := openOn(t, power.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(n), 0))}))
			if _, err := work(d, 3); err != nil {
				t.Errorf("write %d: %v", n, err)
			}
			if err := d.Close(true); err != nil {
				t.Errorf("write %d: %v", n, err)
			}
		}
		if err == nil && b.seen.Load() < n {
			break
		}
	}
}

// Some file systems do not support preallocation.
func TestStoreWorksWithoutPreallocation(t *testing.T) {
	d := openOn(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFilePreallocate {
			return syscall.EOPNOTSUPP
		}
		return nil
	})))
	if _, err := work(d, 3); err != nil {
		t.Error(err)
	}
	if err := d.Close(true); err != nil {
		t.Error(err)
	}
}

// Wait returns if the store is closed or the context is canceled.
func TestWaitReturnsAfterCloseOrCancel(t *testing.T) {
	b := &faultFS{err: syscall.ENOSPC}
	d := openOn(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(b.inject)))
	b.from.Store(b.seen.Load() + 1)
	kept := d.Put(entry(keyOf(1, 0, 1), "message"))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if err := d.Wait(ctx, kept.Ticket); !errors.Is(err, context.Canceled) {
		t.Errorf("unexpected result of Wait: %v", err)
	}
	b.from.Store(0)
	if err := d.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	if err := d.Close(true); err != nil {
		t.Error(err)
	}
	if err := d.Wait(t.Context(), kept.Ticket+10); !errors.Is(err, ErrClosed) {
		t.Errorf("unexpected result of Wait: %v", err)
	}
}

// A lack of file descriptors delays a commit, but does not make the store fail, because the lack is temporary and does
// not affect data on disk.
func TestStoreWaitsForFileDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var exhausted atomic.Bool
		d := openSmall(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if exhausted.Load() && op.Kind == errorfs.OpCreate {
				return syscall.EMFILE
			}
			return nil
		})))
		exhausted.Store(true)
		time.AfterFunc(10*time.Second, func() { exhausted.Store(false) })
		if _, err := workWith(d, 3000, strings.Repeat("x", 10_000)); err != nil { // enough data for several segments
			t.Error(err)
		}
		if exhausted.Load() {
			t.Error("store opened no file while descriptors were exhausted")
		}
		if err := d.Close(true); err != nil {
			t.Error(err)
		}
	})
}

// A failed store does not save changes, and Wait returns an error for the tickets of these changes.
func TestFailedStoreDoesNotSaveChanges(t *testing.T) {
	d := openOn(t, vfs.NewMem())
	d.GiveUp(errors.New("for the test"))
	first := d.Put(entry(keyOf(1, 0, 1), "message"))
	for what, ref := range map[string]Ref{
		"put":     first,
		"updated": d.Update(entry(keyOf(1, 0, 1), "message"), first),
		"moved":   d.Move(keyOf(1, 0, 1), first, entry(keyOf(1, 0, 2), "message")),
	} {
		if d.Wait(t.Context(), ref.Ticket) == nil {
			t.Errorf("Wait succeeded for a message that was %s after the failure", what)
		}
	}
	if d.Wait(t.Context(), d.SetDocument("a", nil)) == nil {
		t.Error("Wait succeeded for a document after the failure")
	}
	d.Delete(keyOf(1, 0, 2), first, 7)
}

// After GiveUp, a store does not report commits, even if the disk works.
func TestFailedStoreDoesNotReportCommits(t *testing.T) {
	d := openOn(t, vfs.NewMem())
	d.GiveUp(errors.New("for the test"))
	commitResults := make(commitResults, 1)
	d.Notify(commitResults)
	select {
	case <-d.stopped:
	case <-commitResults:
		t.Error("failed store reported a commit")
	case <-time.After(2 * time.Minute):
		t.Error("failed store did not stop")
	}
}

type commitResults chan Ticket

func (c commitResults) Committed(upTo Ticket) { c <- upTo }

// A failed store does not start further work in Pebble, because this work would never end.
func TestMakeRoomReturnsErrorOfFailedStore(t *testing.T) {
	b := &faultFS{err: syscall.EIO}
	d := openOn(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(b.inject)))
	b.from.Store(1)
	if _, err := work(d, 30); err == nil {
		t.Fatal("no write failed")
	}
	<-d.Failed()
	before := runtime.NumGoroutine()
	for range 1000 {
		if err := d.MakeRoom(t.Context()); !errors.Is(err, syscall.EIO) {
			t.Fatalf("MakeRoom: got %v, want EIO", err)
		}
	}
	if n := runtime.NumGoroutine(); n > before+100 { // concurrent tests also start goroutines
		t.Errorf("goroutines: got %d, want about %d", n, before)
	}
	_ = d.Close(true) // returns the error of the disk
}
