package replay

import (
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A redrive does not add a timestamp to a message without a timestamp.
func TestRedriveAddsNoTimestamp(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := archivetest.NewWire(t, b.URL)
		work, from := w.Queue("work", nil), w.Queue("failed", nil)
		archivetest.Must(t, w.Client.Publish(t.Context(), &reprise.Message{
			RoutingKey: from, Headers: map[string]any{topology.HeaderQueue: work}, NoTimestamp: true,
		}))
		if _, err := redriveFrom(t.Context(), w.Client, RedriveConfig{From: from}); err != nil {
			t.Fatal(err)
		}
		all := w.Take(work)
		if len(all) != 1 || !all[0].Timestamp.IsZero() {
			t.Errorf("got %+v, want one message without a timestamp", all)
		}
	})
}
