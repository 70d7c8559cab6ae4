package store

import (
	"context"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testhook"
)

func init() {
	testhook.Sent = func(ctx context.Context, archive any, replay int64, messages ...int64) error {
		ids := make([]failed.ID, len(messages))
		for i, id := range messages {
			ids[i] = failed.ID(id)
		}
		return archive.(*Archive).MarkSent(ctx, failed.ReplayID(replay), ids, Asked, "")
	}
	testhook.Refused = func(ctx context.Context, archive any, replay, message int64, why string) error {
		return archive.(*Archive).MarkRefused(ctx, failed.ReplayID(replay), []Refusal{{failed.ID(message), why}})
	}
	testhook.Retried = func(ctx context.Context, archive any, report []byte) error {
		r, _ := protocol.ReadRetryReport(report)
		return archive.(*Archive).NoteRetries(ctx, []protocol.RetryReport{r})
	}
}
