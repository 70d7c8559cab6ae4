package cli

import (
	"testing"

	"github.com/reprisemq/reprise"
)

// The cover art indexer parks without a header that says where: its routing key does.
func TestPublishedDesignsAreKnownByTheirKeys(t *testing.T) {
	of := originOf(published())
	for key, want := range map[string]string{
		"index": "cover-art-archive.index", "delete": "cover-art-archive.delete", "move": "cover-art-archive.move", "other": "",
	} {
		m := &reprise.Message{Queue: "cover-art-archive.failed", RoutingKey: key}
		if got := of(m); got != want {
			t.Errorf("key %s: %q, want %q", key, got, want)
		}
	}
	if got := of(&reprise.Message{Queue: "orders.failed", RoutingKey: "index"}); got != "" {
		t.Errorf("a message of another queue is taken for one of %q", got)
	}
}
