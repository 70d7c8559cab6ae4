package vhosttest

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/reprisemq/reprise/broker/internal/diskstore"
	"github.com/reprisemq/reprise/broker/internal/registry"
)

func openRegistry(t *testing.T, fs diskstore.FS) (*registry.Registry, func()) {
	t.Helper()
	s, err := diskstore.Open(diskstore.Options{Dir: "data", Log: slog.New(slog.DiscardHandler), FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	r, err := registry.New(s)
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

func TestRegistrySavesDocuments(t *testing.T) {
	fs := vfs.NewMem()
	r, closeIt := openRegistry(t, fs)
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

	r, closeIt = openRegistry(t, fs)
	defer closeIt()
	var found []string
	for d, err := range registry.All[int](r, "kind", 2) {
		if err != nil || d.Value != 4 {
			t.Fatalf("unexpected document: %+v (%v)", d, err)
		}
		found = append(found, d.Names...)
	}
	if !slices.Equal(found, []string{"a", "c"}) {
		t.Errorf("documents: got %q, want [a c]", found)
	}
}

func TestRegistryBeginsOnce(t *testing.T) {
	fs := vfs.NewMem()
	for i := range 2 {
		r, closeIt := openRegistry(t, fs)
		if begun, err := r.Begun(); begun != (i > 0) || err != nil {
			t.Errorf("start %d: Begun: got %v, %v, want %v, nil", i+1, begun, err, i > 0)
		}
		r.Begin()
		closeIt()
	}
}

// The registry assigns each number once, even after a restart.
func TestRegistryAssignsUniqueIDs(t *testing.T) {
	fs := vfs.NewMem()
	last := uint64(0)
	for range 3 {
		r, closeIt := openRegistry(t, fs)
		for range 1005 {
			id := r.QueueID()
			if id <= last {
				t.Fatalf("ID %d is not greater than the previous ID %d", id, last)
			}
			last = id
		}
		closeIt()
	}
}
