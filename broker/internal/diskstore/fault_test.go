package diskstore

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

// broken is a file system that fails from one operation on: either that one alone, or all that write from then on.
type broken struct {
	from, seen atomic.Int64
	once       bool
	err        error
}

func (b *broken) inject(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	n, from := b.seen.Add(1), b.from.Load()
	if from == 0 || n < from || b.once && n > from {
		return nil
	}
	return b.err
}

// work puts messages, a few in each commit, and returns those that were said to be kept.
func work(d *disk, messages int) (kept []Key, err error) { return workWith(d, messages, "body") }

func workWith(d *disk, messages int, body string) (kept []Key, err error) {
	var some []Key
	for i := range uint64(messages) {
		k := keyOf(1, 0, i+1)
		d.Put(entry(k, body))
		if some = append(some, k); len(some) < 3 {
			continue
		}
		if err := d.sync(); err != nil {
			return kept, err
		}
		kept, some = append(kept, some...), nil
	}
	return kept, d.sync()
}

// Whatever write fails, and whether only that one does or the disk is full from then on: what was said to be kept is
// there after the power is cut, and once the store has failed it says so and keeps nothing more.
func TestNoFailedWriteIsTakenForKept(t *testing.T) {
	healthy := &broken{}
	d := openOn(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(healthy.inject)))
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
			b := &broken{once: once, err: syscall.EIO}
			d := openOn(t, errorfs.Wrap(power, errorfs.InjectorFunc(b.inject)))
			b.from.Store(n)
			kept, err := work(d, 30)
			if err != nil {
				failed++
				if again := d.sync(); again == nil || d.Err() == nil {
					t.Fatalf("write %d: %v, and yet a later commit was kept", n, err)
				}
				<-d.Failed()
				if err := d.Close(true); !errors.Is(err, syscall.EIO) {
					t.Fatalf("write %d: the error does not tell the cause: %v", n, err)
				}
			} else {
				_ = d.Close(true) // which may fail, on the same disk
			}
			checkKept(t, power.CrashClone(vfs.CrashCloneCfg{}), kept, fmt.Sprintf("write %d, once: %v", n, once))
		}
	}
	if failed == 0 {
		t.Fatal("no write that failed mattered")
	}
}

func checkKept(t *testing.T, fs vfs.FS, kept []Key, when string) {
	t.Helper()
	d := openOn(t, fs)
	defer d.Close(true)
	found, err := d.read(2, 1)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	for _, k := range kept {
		if _, ok := found.messages[k]; !ok {
			t.Fatalf("%s: %v was said to be kept and is not there", when, k)
		}
	}
}

// A disk that is full, or fails, while a store is opened or closed is an error, and neither hangs nor ends the process. What
// was kept is there when the disk is mended.
func TestADiskThatFailsWhileTheStoreIsOpenedOrClosed(t *testing.T) {
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
			b := &broken{err: cause}
			b.from.Store(n)
			s, err := Open(Options{Dir: dataDir, Log: discard, FS: errorfs.Wrap(power, errorfs.InjectorFunc(b.inject))})
			if err == nil {
				err = s.Close(true)
			}
			if err != nil && !errors.Is(err, cause) {
				t.Fatalf("write %d: %v", n, err)
			}
			checkKept(t, power.CrashClone(vfs.CrashCloneCfg{}), kept, fmt.Sprintf("write %d, %v", n, cause))
			if err == nil && b.seen.Load() < n {
				break // all writes have had their turn
			}
		}
	}
}

// A new data directory that could not be made, or was only made in part, can be made later.
func TestADiskThatFailsWhileAStoreIsMade(t *testing.T) {
	for n := int64(1); ; n++ {
		power := vfs.NewCrashableMem()
		b := &broken{err: syscall.ENOSPC}
		b.from.Store(n)
		s, err := Open(Options{Dir: dataDir, Log: discard, FS: errorfs.Wrap(power, errorfs.InjectorFunc(b.inject))})
		if err == nil {
			_ = s.Close(true)
		}
		// All or nothing of what was not synced: file systems keep the order in which names came into a directory, which
		// Pebble relies on here.
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

// There are file systems that cannot reserve room.
func TestReservingRoomIsNotNeeded(t *testing.T) {
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

// Whoever waits for a store that is closed, or with a context that has ended, does not wait for ever.
func TestWaitingEnds(t *testing.T) {
	b := &broken{err: syscall.ENOSPC}
	d := openOn(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(b.inject)))
	b.from.Store(b.seen.Load() + 1)
	kept := d.Put(entry(keyOf(1, 0, 1), "message"))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if err := d.Wait(ctx, kept.Ticket); !errors.Is(err, context.Canceled) {
		t.Errorf("waited until %v", err)
	}
	b.from.Store(0)
	if err := d.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	if err := d.Close(true); err != nil {
		t.Error(err)
	}
	if err := d.Wait(t.Context(), kept.Ticket+10); !errors.Is(err, ErrClosed) {
		t.Errorf("waited until %v", err)
	}
}

// That others have all the files open is nothing to do with the disk, and passes.
func TestTooManyOpenFilesAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var exhausted atomic.Bool
		d := openOn(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if exhausted.Load() && op.Kind == errorfs.OpCreate {
				return syscall.EMFILE
			}
			return nil
		})))
		exhausted.Store(true)
		time.AfterFunc(10*time.Second, func() { exhausted.Store(false) })
		if _, err := workWith(d, 3000, strings.Repeat("x", 10_000)); err != nil { // several logs
			t.Error(err)
		}
		if exhausted.Load() {
			t.Error("no file was opened meanwhile")
		}
		if err := d.Close(true); err != nil {
			t.Error(err)
		}
	})
}

// What is asked of a store that has failed is not kept, and nobody is told that there is nothing to wait for.
func TestWhatComesAfterAFailureIsNotTakenForKept(t *testing.T) {
	d := openOn(t, vfs.NewMem())
	d.GiveUp(errors.New("for the test"))
	first := d.Put(entry(keyOf(1, 0, 1), "message"))
	for what, ref := range map[string]Ref{
		"put":     first,
		"updated": d.Update(entry(keyOf(1, 0, 1), "message"), first),
		"moved":   d.Move(keyOf(1, 0, 1), first, entry(keyOf(1, 0, 2), "message")),
	} {
		if d.Wait(t.Context(), ref.Ticket) == nil {
			t.Errorf("a message that was %s is taken for kept", what)
		}
	}
	if d.Wait(t.Context(), d.SetDocument("a", nil)) == nil {
		t.Error("a document is taken for kept")
	}
	d.Delete(keyOf(1, 0, 2), first, 7)
}

// A store that is given up commits nothing more, even if the disk would: what it was given up for is not known to the disk.
func TestAStoreThatIsGivenUpTellsNobodyOfCommits(t *testing.T) {
	d := openOn(t, vfs.NewMem())
	d.GiveUp(errors.New("for the test"))
	told := make(told, 1)
	d.Notify(told)
	select {
	case <-d.stopped:
	case <-told:
		t.Error("somebody was told of a commit")
	case <-time.After(2 * time.Minute):
		t.Error("it goes on committing")
	}
}

type told chan Ticket

func (c told) Committed(upTo Ticket) { c <- upTo }

// A store that has failed starts nothing more: Pebble would wait for ever.
func TestAFailedStoreMakesNoRoom(t *testing.T) {
	b := &broken{err: syscall.EIO}
	d := openOn(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(b.inject)))
	b.from.Store(1)
	if _, err := work(d, 30); err == nil {
		t.Fatal("no write has failed")
	}
	<-d.Failed()
	before := runtime.NumGoroutine()
	for range 1000 {
		if err := d.MakeRoom(t.Context()); !errors.Is(err, syscall.EIO) {
			t.Fatalf("%v, want the cause", err)
		}
	}
	if n := runtime.NumGoroutine(); n > before+100 { // tests that run beside this one have goroutines, too
		t.Errorf("%d goroutines, want %d", n, before)
	}
	_ = d.Close(true) // which fails
}
