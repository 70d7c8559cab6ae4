package store_test

import (
	"context"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// carryOut executes a replay that passes its messages to the function publish.
func carryOut(ctx context.Context, a *store.Archive, id failed.ReplayID, publish func(*reprise.Message) error) (*failed.Replay, error) {
	r := replay.NewFor(archivetest.PublisherFunc(publish), a, replay.Config{Batch: 3}, a.Config().Redact...)
	return r.Finish(ctx, id)
}
