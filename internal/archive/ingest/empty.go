package ingest

import (
	"context"
	"errors"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/framework"
	"github.com/reprisemq/reprise/internal/archive/sift"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/protocol"
)

// EmptyConfig specifies the messages that Empty removes. Queue, Limit and Reason are required.
type EmptyConfig struct {
	Queue  string
	Limit  int    // maximum number of messages to remove, oldest first
	Reason string // for the audit log
	Drop   bool   // whether to skip saving the messages in the archive
}

// Validate reports missing and invalid fields.
func (c EmptyConfig) Validate() error {
	switch {
	case c.Queue == "":
		return failed.Invalid("EmptyConfig.Queue must not be empty")
	case c.Limit < 1:
		return failed.Invalid("EmptyConfig.Limit must be positive: got %d", c.Limit)
	case strings.TrimSpace(c.Reason) == "":
		return failed.Invalid("EmptyConfig.Reason must not be empty")
	}
	return protocol.CheckNotKeyed(c.Queue)
}

// Limits of a batch of Empty.
const (
	emptyBatch = 500
	emptyBytes = 16 << 20 // total size of the bodies
)

// Empty removes ready messages from a queue, the oldest first, and returns their number. It removes at most
// cfg.Limit messages. It does not use queue.purge, which would also remove messages that arrived after the operator
// counted them. It does not remove unacked messages. While Empty runs, consumers receive the other messages of the
// queue, but not the current batch of up to 500 messages.
//
// Unless cfg.Drop is set, Empty saves each message in the archive in state discarded before it removes the
// message. Restore and a replay can then return the message to its queue. A message that cannot be stored stays in the
// queue. Empty writes an Act for each batch before it removes the batch. After a crash or an error between these
// two steps, the batch may be both in the archive and in the queue.
//
// If Drop is set and Queue is a work queue, the ledger reports the removed messages as missing.
func Empty(ctx context.Context, c *reprise.Client, a *store.Archive, cfg EmptyConfig, who failed.Actor) (n int, err error) {
	defer failed.Annotate(&err, "cannot empty queue %q", cfg.Queue)
	if err := errors.Join(who.Validate(), cfg.Validate()); err != nil {
		return 0, err
	}
	for n < cfg.Limit {
		size, removed := 0, 0
		var noted error
		pick := func(m *reprise.Delivery) (picked, last bool) {
			size += len(m.Body)
			return true, size > emptyBytes
		}
		_, _, err := sift.Queue(ctx, c, cfg.Queue, min(emptyBatch, cfg.Limit-n), pick, func(batch []*reprise.Delivery) []sift.Verdict {
			verdicts := make([]sift.Verdict, len(batch))
			var saved []*store.Arrival
			for i, m := range batch {
				if !cfg.Drop {
					e, err := a.EncodeDiscarded(framework.Take(m, nil).Message, cfg.Reason)
					if err != nil {
						noted = errors.Join(noted, err)
						continue // the message stays in the queue
					}
					saved = append(saved, e)
				}
				verdicts[i] = sift.Acknowledge
				removed++
			}
			if removed == 0 {
				return nil
			}
			if err := a.NoteEmptied(ctx, store.Emptied{Queue: cfg.Queue, Reason: cfg.Reason, Messages: removed, Saved: !cfg.Drop}, saved, who); err != nil {
				noted, removed = err, 0
				return nil
			}
			return verdicts
		})
		n += removed
		if err := errors.Join(err, noted); err != nil || removed == 0 {
			return n, err
		}
	}
	return n, nil
}
