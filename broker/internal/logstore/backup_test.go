package logstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A backup shares the files of sealed segments, which the store must not overwrite, and remains readable and complete while the
// store continues.
func TestBackupDoesNotChange(t *testing.T) {
	fs := vfs.NewMem()
	s, err := Open(Options{Dir: dataDir, Log: discard, FS: fs, Segment: 2000})
	if err != nil {
		t.Fatal(err)
	}
	d := s.(*disk)
	order, want := uint64(0), newContent()
	flow := func(messages int) {
		for range messages {
			order++
			k, body := keyOf(1, 0, order), fmt.Sprintf("message %0200d", order)
			d.Put(entry(k, body))
			want.messages[k] = body
			if order > 20 {
				old := keyOf(1, 0, order-20)
				d.Delete(old, Ref{Slot: -1}, int64(len(want.messages[old])))
				delete(want.messages, old)
			}
			if err := d.sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	flow(200)
	d.SetDocument("a", []byte("b"))
	want.documents["a"] = "b"
	if err := d.Backup("backup"); err != nil {
		t.Fatal(err)
	}
	expected := want.clone()
	flow(200)
	if found, err := d.read(2, 1); err != nil || !found.equal(want) { // from files that were reused
		t.Errorf("open store: got %d messages, %v, want %d", len(found.messages), err, len(want.messages))
	}
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]content{dataDir: want, "backup": expected} {
		s, err := Open(Options{Dir: dir, Log: discard, FS: fs, Everything: true})
		if err != nil {
			t.Fatal(err)
		}
		found, err := s.(*disk).read(2, 1)
		if err := errors.Join(err, s.Close(true)); err != nil || !found.equal(want) {
			t.Errorf("%s: got %d messages, %v, want %d: %v", dir, len(found.messages), found.documents, len(want.messages), err)
		}
	}
}
