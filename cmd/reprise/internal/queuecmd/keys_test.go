package queuecmd

import (
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/protocol"
)

// The list distinguishes keys that nobody can copy as an argument: a key that the status contains only in part, and the empty key.
func TestKeysTextMarksKeys(t *testing.T) {
	now := time.Now()
	for due, want := range map[time.Time]string{{}: "now", now.Add(-20 * time.Second): "now", now.Add(time.Hour): "in 1h"} {
		if got := dueText(due, now); got != want {
			t.Errorf("due %s: got %q, want %q", due, got, want)
		}
	}
	all := fleet.BlockedKeys{Queue: "orders", Blocked: 3, Keys: []protocol.BlockedKey{
		{Key: "customer-1", Since: now},
		{Key: "a long key", Inexact: true, Since: now},
		{Since: now},
	}}
	text := keysText(all, now, 200)
	if !strings.Contains(text, "\na long key…  ") || !strings.Contains(text, "\ncustomer-1   ") || !strings.Contains(text, "\n\"\"  ") {
		t.Errorf("got %s\nwant an ellipsis after only the second key, and quotes for the empty key", text)
	}
}
