package failed

import (
	"context"

	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testhook"
)

func init() {
	testhook.Sent = func(ctx context.Context, archive any, replay int64, messages ...int64) error {
		ids := make([]ID, len(messages))
		for i, id := range messages {
			ids[i] = ID(id)
		}
		return archive.(*Archive).markSent(ctx, ReplayID(replay), ids, asked)
	}
	testhook.Refused = func(ctx context.Context, archive any, replay, message int64, why string) error {
		return archive.(*Archive).markRefused(ctx, ReplayID(replay), []refusal{{ID(message), why}})
	}
	testhook.Retried = func(ctx context.Context, archive any, report []byte) error {
		r, _ := protocol.ReadRetryReport(report)
		return archive.(*Archive).noteRetries(ctx, []protocol.RetryReport{r})
	}
}
