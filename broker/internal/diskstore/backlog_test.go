package diskstore

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// hanging opens a store whose disk blocks in the middle of a commit until the returned function is called.
func hanging(t *testing.T) (d *disk, resume func()) {
	t.Helper()
	answer := make(chan struct{})
	began := make(chan struct{}, 1)
	var hangs atomic.Bool
	d = openOn(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if hangs.Load() && isLog(op.Path) && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
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

// sized returns a message with the given size.
func sized(order uint64, bytes int64) Entry {
	e := entry(keyOf(1, 0, order), "body")
	e.Bytes = bytes
	return e
}

func raised(d *disk) bool { return d.Backlog() != nil }

// A commit contains at most the messages that publishers may publish before they wait, even if the publishers are much
// faster than the disk. An acknowledgement is durable after the running commit and the next one.
func TestABacklogBoundsTheCommitsBehindAnAcknowledgement(t *testing.T) {
	d, resume := hanging(t)
	last := uint64(1)
	for !raised(d) {
		if last++; last > backlogBytes>>20+1 {
			t.Fatalf("publishers may go on after %d MiB", last)
		}
		d.Put(sized(last, 1<<20))
	}
	if last < backlogBytes>>20 {
		t.Errorf("publishers wait after %d MiB", last)
	}
	acked := d.gathering.ticket
	d.Delete(keyOf(1, 0, 1), Ref{Ticket: 1}, 5)
	begins := d.Backlog()
	resume()
	<-begins
	if err := d.Wait(t.Context(), acked); err != nil {
		t.Fatal(err)
	}
	if acked != 2 {
		t.Errorf("the acknowledgement is in commit %d, while the first one is written", acked)
	}
	if raised(d) {
		t.Error("publishers wait for nothing")
	}
	if err := d.Close(true); err != nil {
		t.Error(err)
	}
}

// Messages that are consumed while the disk does not respond do not count for the backlog.
func TestWhatIsTakenBackIsNoBacklog(t *testing.T) {
	d, resume := hanging(t)
	for order := uint64(2); order < 1000; order++ {
		d.Delete(keyOf(1, 0, order), d.Put(sized(order, 1<<20)), 1<<20)
	}
	if raised(d) {
		t.Error("publishers wait for messages that are gone")
	}
	ref := d.Put(sized(1000, 1<<30))
	if !raised(d) {
		t.Error("publishers do not wait for a large message")
	}
	d.Delete(keyOf(1, 0, 1000), ref, 1<<30)
	if raised(d) {
		t.Error("publishers wait for a large message that is gone")
	}
	resume()
	if err := d.Close(true); err != nil {
		t.Error(err)
	}
}

// Documents count for the backlog.
func TestDocumentsAreABacklog(t *testing.T) {
	d, resume := hanging(t)
	n := 0
	for ; !raised(d); n++ {
		if n > backlogBytes>>20 {
			t.Fatalf("nobody waits after %d MiB", n)
		}
		d.SetDocument("large", make([]byte, 1<<20))
		d.DeleteDocument("large")
	}
	if n < backlogBytes>>20-1 {
		t.Errorf("clients wait after %d MiB", n)
	}
	resume()
	if err := d.Close(true); err != nil {
		t.Error(err)
	}
}

// Publishers do not wait for commits of a store that has failed.
func TestAStoreThatIsGivenUpHasNoBacklog(t *testing.T) {
	d, resume := hanging(t)
	defer resume()
	d.Put(sized(2, 1<<30))
	begins := d.Backlog()
	d.GiveUp(errors.New("test"))
	<-begins
	d.Put(sized(3, 1<<30))
	d.SetDocument("large", make([]byte, 2*backlogBytes))
	if raised(d) {
		t.Error("publishers wait for ever")
	}
	_ = d.Close(true)
}
