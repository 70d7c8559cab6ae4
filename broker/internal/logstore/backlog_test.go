package logstore

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// openBlocked opens a store that blocks in the middle of a commit until the test calls resume.
func openBlocked(t *testing.T) (d *disk, resume func()) {
	t.Helper()
	answer := make(chan struct{})
	began := make(chan struct{}, 1)
	var hangs atomic.Bool
	d = openOn(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if hangs.Load() && strings.HasSuffix(op.Path, segmentSuffix) && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			select {
			case began <- struct{}{}:
			default:
			}
			<-answer
		}
		return nil
	})))
	hangs.Store(true)
	d.Put(entry(keyOf(1, 0, 1), "first"))
	<-began
	return d, func() { close(answer) }
}

// sized returns an entry whose message has the given size.
func sized(order uint64, bytes int64) Entry {
	e := entry(keyOf(1, 0, order), "body")
	e.Bytes = bytes
	return e
}

func raised(d *disk) bool { return d.Backlog() != nil }

// Publishers must wait while more than backlogBytes of changes are pending, even if they are much faster than the disk.
// An acknowledgement is therefore durable soon, when the running commit and the next one are complete.
func TestBacklogLimitsPendingCommits(t *testing.T) {
	d, resume := openBlocked(t)
	last := uint64(1)
	for !raised(d) {
		if last++; last > backlogBytes>>20+1 {
			t.Fatalf("no backlog after %d MiB", last)
		}
		d.Put(sized(last, 1<<20))
	}
	if last < backlogBytes>>20 {
		t.Errorf("backlog already after %d MiB", last)
	}
	acked := d.pending.ticket
	d.Delete(keyOf(1, 0, 1), Ref{Ticket: 1}, 5)
	begins := d.Backlog()
	resume()
	<-begins
	if err := d.Wait(t.Context(), acked); err != nil {
		t.Fatal(err)
	}
	if acked != 2 {
		t.Errorf("commit of the acknowledgement: got %d, want 2", acked)
	}
	if raised(d) {
		t.Error("backlog is still raised after the commit")
	}
	if err := d.Close(true); err != nil {
		t.Error(err)
	}
}

// Messages that are consumed before they are written do not count towards the backlog.
func TestBacklogExcludesConsumedMessages(t *testing.T) {
	d, resume := openBlocked(t)
	for order := uint64(2); order < 1000; order++ {
		d.Delete(keyOf(1, 0, order), d.Put(sized(order, 1<<20)), 1<<20)
	}
	if raised(d) {
		t.Error("consumed messages count towards the backlog")
	}
	ref := d.Put(sized(1000, 1<<30))
	if !raised(d) {
		t.Error("large message does not raise the backlog")
	}
	d.Delete(keyOf(1, 0, 1000), ref, 1<<30)
	if raised(d) {
		t.Error("consumed large message counts towards the backlog")
	}
	resume()
	if err := d.Close(true); err != nil {
		t.Error(err)
	}
}

// Documents count towards the backlog.
func TestBacklogIncludesDocuments(t *testing.T) {
	d, resume := openBlocked(t)
	n := 0
	for ; !raised(d); n++ {
		if n > backlogBytes>>20 {
			t.Fatalf("no backlog after %d MiB of documents", n)
		}
		d.SetDocument("large", make([]byte, 1<<20))
		d.DeleteDocument("large")
	}
	if n < backlogBytes>>20-1 {
		t.Errorf("backlog already after %d MiB of documents", n)
	}
	resume()
	if err := d.Close(true); err != nil {
		t.Error(err)
	}
}

// Publishers do not wait for a store that has failed.
func TestFailedStoreHasNoBacklog(t *testing.T) {
	d, resume := openBlocked(t)
	defer resume()
	d.Put(sized(2, 1<<30))
	begins := d.Backlog()
	d.GiveUp(errors.New("test"))
	<-begins
	d.Put(sized(3, 1<<30))
	d.SetDocument("large", make([]byte, 2*backlogBytes))
	if raised(d) {
		t.Error("failed store has a backlog")
	}
	_ = d.Close(true)
}
