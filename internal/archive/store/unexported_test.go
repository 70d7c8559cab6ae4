package store

import (
	"context"
	"fmt"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// Ingest calls AddDelivered with a session of its own for each Open.
func (a *Archive) Ingest(ctx context.Context, arrivals []failed.Arrived) ([]failed.ID, error) {
	for i := range arrivals {
		if arrivals[i].Session == "" {
			arrivals[i].Session = fmt.Sprintf("%p", a)
		}
	}
	return a.AddDelivered(ctx, arrivals)
}

func (a *Archive) Sent(ctx context.Context, id failed.ReplayID, ids []failed.ID) error {
	return a.MarkSent(ctx, id, ids, Asked, "")
}

// SentUnasked records that messages were sent without a report request.
func (a *Archive) SentUnasked(ctx context.Context, id failed.ReplayID, ids []failed.ID) error {
	return a.MarkSent(ctx, id, ids, NoRoom, "")
}
