package registry

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Different names result in different document names, and parseName restores the names.
func TestDocumentNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "name")) }), 0, 6)
		a, b := names.Draw(t, "a"), names.Draw(t, "b")
		back, err := parseName(documentName("kind", a), len(a))
		if err != nil || !slices.Equal(a, back) {
			t.Errorf("parseName: got %[2]q (%[3]v), want %[1]q", a, back, err)
		}
		if len(a) == len(b) && !slices.Equal(a, b) && documentName("kind", a) == documentName("kind", b) {
			t.Errorf("%q and %q have the same document name %q", a, b, documentName("kind", a))
		}
	})
}

// A nil registry, as in an in-memory broker, is empty and ignores changes.
func TestNilRegistry(t *testing.T) {
	var r *Registry
	r.Set(1, "kind", "name")
	r.Delete("kind", "name")
	r.Close()
	for range All[int](r, "kind", 1) {
		t.Error("nil registry has a document")
	}
	if r.Sync(context.Background()) != nil {
		t.Error("Sync of a nil registry returned an error")
	}
}
