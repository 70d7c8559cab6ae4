package replay

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/background"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/framework"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/protocol"
)

// ClaimError is returned if only a header of a message names its work queue, and RedriveConfig.Believe returns false
// for this queue.
type ClaimError struct {
	Queue string
}

func (e *ClaimError) Error() string {
	return "only a header, which every publisher can set, names the queue " + brief.Quoted(e.Queue)
}

// lost returns the reason why a redrive refuses a message, because its consumer would lose it, or "".
func lost(m *reprise.Delivery) string {
	content := failed.ContentOf(m)
	if _, err := framework.Restore(content, m.Queue, content); err != nil {
		return err.Error()
	}
	return ""
}

// maxLook is the maximum number of messages that LookBeforeRedrive reads.
const maxLook = 1000

// LookBeforeRedrive returns the number of messages that Redrive would send, and their destinations, sorted by the
// number of messages in descending order. An operator can inspect them before a redrive. LookBeforeRedrive reads at
// most the first 1000 messages with reprise.Client.Peek, whose documentation describes the cost, and returns only the
// destinations of these messages. It returns reprise.ErrPeekLimit if it cannot read the first message. If
// RedriveConfig.To has an exchange, it does not read messages, because all of them have the same destination.
func LookBeforeRedrive(ctx context.Context, c *reprise.Client, cfg RedriveConfig) (found int, all []Destination, err error) {
	if err := protocol.CheckNotKeyed(cfg.From); err != nil {
		return 0, nil, err
	}
	depth, err := c.Depth(ctx, cfg.From)
	if found = depth; cfg.Limit > 0 {
		found = min(depth, cfg.Limit)
	}
	if err != nil || found == 0 {
		return found, nil, err
	}
	if cfg.To != nil && cfg.To.Exchange != "" {
		return found, []Destination{{Target: *cfg.To, Route: RouteGiven, FailedQueue: cfg.From, Messages: int64(found)}}, nil
	}
	var t tally
	r := newRouter(cfg.Routing, cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)))
	err = r.ask(ctx) // Peek withholds the messages from other consumers, so read the bindings before it
	if err != nil {
		return found, nil, err
	}
	// A Peek at only some of the messages would change the order of a quorum queue, so cfg.Limit does not limit it.
	looked := 0
	err = c.Peek(ctx, cfg.From, min(depth, maxLook), func(m *reprise.Delivery) {
		if looked++; looked > found {
			return
		}
		at, to, err := cfg.target(ctx, m, r)
		if cfg.To != nil {
			to.Queue = ""
		}
		t.add(Destination{
			Target: to.Target, Queue: to.Queue, Route: to.Route, Warning: to.Warning, Refused: to.check(cfg.ByQueueName) != nil,
			FailedQueue: cfg.From, Messages: 1, Unknown: err != nil, Claimed: at.Claimed, Lost: lost(m),
		})
	})
	background.AwaitRequeued(ctx, c, cfg.From, depth)
	all = t.all()
	if errors.Is(err, reprise.ErrPeekLimit) && len(all) > 0 {
		err = nil // the messages before the limit are known
	}
	for i := range all {
		all[i].Claimed = all[i].Claimed && !r.deadLetters(ctx, all[i].Queue, cfg.From)
	}
	return found, all, err
}
