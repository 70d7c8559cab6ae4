package store

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"

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
		k := Key{1, 0, i + 1}
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
	if err := d.Close(); err != nil {
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
				if err := d.Close(); !errors.Is(err, syscall.EIO) {
					t.Fatalf("write %d: the error does not tell the cause: %v", n, err)
				}
			} else {
				_ = d.Close() // which may fail, on the same disk
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
	defer d.Close()
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
