package registry

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/broker/internal/diskstore"
)

func open(t *testing.T, fs diskstore.FS) (*Registry, func()) {
	t.Helper()
	s, err := diskstore.Open(diskstore.Options{Dir: "data", Log: slog.New(slog.DiscardHandler), FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return r, func() {
		r.Close()
		if err := s.Close(true); err != nil {
			t.Error(err)
		}
	}
}

// Whatever is in names, documents of different things have different names, from which the things' can be had again.
func TestNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "name")) }), 0, 6)
		a, b := names.Draw(t, "a"), names.Draw(t, "b")
		back, err := parseName(documentName("kind", a), len(a))
		if err != nil || !slices.Equal(a, back) {
			t.Errorf("%q came back as %q (%v)", a, back, err)
		}
		if len(a) == len(b) && !slices.Equal(a, b) && documentName("kind", a) == documentName("kind", b) {
			t.Errorf("%q and %q are both %q", a, b, documentName("kind", a))
		}
	})
}

func TestThingsAreKept(t *testing.T) {
	fs := vfs.NewMem()
	r, closeIt := open(t, fs)
	r.Set(1, "kind", "a", "b")
	r.Set(2, "kind", "a", "c")
	r.Set(3, "kinds", "a", "b")
	r.Set(4, "kind", "a", "c")
	r.Delete("kind", "a", "b")
	if err := r.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	closeIt()
	r.Set(5, "kind", "too", "late")
	r.Delete("kind", "a", "c")
	if err := r.Sync(context.Background()); err != nil {
		t.Error(err)
	}

	r, closeIt = open(t, fs)
	defer closeIt()
	var found []string
	for d, err := range r.All("kind", 2) {
		var n int
		if err != nil || d.Decode(&n) != nil || n != 4 {
			t.Errorf("%+v is %d (%v)", d, n, err)
		}
		found = append(found, d.Names...)
	}
	if !slices.Equal(found, []string{"a", "c"}) {
		t.Errorf("found %q", found)
	}
}

func TestBeginOnce(t *testing.T) {
	fs := vfs.NewMem()
	for i := range 2 {
		r, closeIt := open(t, fs)
		if begun, err := r.Begun(); begun != (i > 0) || err != nil {
			t.Errorf("the %d. time: begun is %v (%v)", i+1, begun, err)
		}
		r.Begin()
		closeIt()
	}
}

// No number is given twice, also not to what was there before a restart.
func TestNumbers(t *testing.T) {
	fs := vfs.NewMem()
	last := uint64(0)
	for range 3 {
		r, closeIt := open(t, fs)
		for range idBlock + 5 {
			id := r.QueueID()
			if id <= last {
				t.Fatalf("%d comes after %d", id, last)
			}
			last = id
		}
		closeIt()
	}
}

// A broker in memory has no registry.
func TestNoRegistry(t *testing.T) {
	var r *Registry
	r.Set(1, "kind", "name")
	r.Delete("kind", "name")
	r.Close()
	for range r.All("kind", 1) {
		t.Error("something is there")
	}
	if r.Sync(context.Background()) != nil {
		t.Error("nothing to wait for")
	}
}
