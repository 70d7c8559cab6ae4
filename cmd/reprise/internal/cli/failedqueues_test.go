package cli

import (
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/topology"
	"github.com/reprisemq/reprise/topology/preset"
)

// The cover art indexer parks messages without the header of the work queue, so the routing key identifies the work queue.
func TestGuessedQueueDependsOnRoutingKey(t *testing.T) {
	of := guessed()
	for key, want := range map[string]string{
		"index": "cover-art-archive.index", "delete": "cover-art-archive.delete", "move": "cover-art-archive.move", "other": "",
	} {
		m := &reprise.Message{Queue: "cover-art-archive.failed", RoutingKey: key}
		if got := of(m); got != want {
			t.Errorf("key %s: got queue %q, want %q", key, got, want)
		}
	}
	if got := of(&reprise.Message{Queue: "orders.failed", RoutingKey: "index"}); got != "" {
		t.Errorf("message of another failed queue: got queue %q", got)
	}
}

// The configuration determines the possible work queues of a failed queue. The header of a message selects one of them, but
// cannot select another queue.
func TestOriginIgnoresForgedHeader(t *testing.T) {
	work := func(queue string, strategy topology.Strategy) config.Worker {
		return config.Worker{WorkerConfig: reprise.WorkerConfig{Queue: queue, Strategy: strategy}}
	}
	shared := preset.CoverArt{}.Strategy()
	of := originOf([]config.Worker{
		work("orders", topology.Strategy{}), work("refunds", topology.Strategy{}),
		work(preset.CoverArtIndexQueue, shared), work(preset.CoverArtMoveQueue, shared),
	})
	for _, tc := range []struct{ failed, header, key, want string }{
		{"orders.failed", "", "", "orders"},
		{"orders.failed", "orders", "", "orders"},
		{"orders.failed", "refunds", "", "orders"},
		{"other.failed", "refunds", "", ""},
		{"cover-art-archive.failed", "", "move", preset.CoverArtMoveQueue},
		{"cover-art-archive.failed", preset.CoverArtIndexQueue, "move", preset.CoverArtIndexQueue},
		{"cover-art-archive.failed", "refunds", "move", "cover-art-archive.failed"},
		{"cover-art-archive.failed", "", "other", ""},
	} {
		m := &reprise.Message{Queue: tc.failed, RoutingKey: tc.key, Headers: map[string]any{}}
		if tc.header != "" {
			m.Headers[topology.HeaderQueue] = tc.header
		}
		if got := of(m); got != tc.want {
			t.Errorf("%+v: got queue %q, want %q", tc, got, tc.want)
		}
	}
}
