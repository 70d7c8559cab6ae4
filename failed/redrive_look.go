package failed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise"
)

// ClaimError says that nothing but a header of a message names the work queue that it failed
// in, and that this is not believed: RedriveConfig.Believe.
type ClaimError struct {
	Queue string
}

func (e *ClaimError) Error() string {
	return fmt.Sprintf("nothing but a header of the message says that it failed in %q, and whoever published it can have written that", e.Queue)
}

// maxLook is how many messages LookBeforeRedrive looks at.
const maxLook = 1000

// LookBeforeRedrive returns how many messages Redrive would send, and where, the most messages
// first, for somebody to see before it begins. It looks at the first 1000, by
// reprise.Client.Peek, which says what a look costs; with RedriveConfig.To at none, since they
// all go there. The destinations are those of the messages that it looked at.
func LookBeforeRedrive(ctx context.Context, c *reprise.Client, cfg RedriveConfig) (found int, all []Destination, err error) {
	if c == nil {
		return 0, nil, errors.New("failed: LookBeforeRedrive needs a Client: reprise.Dial returns one")
	}
	if err := cfg.Validate(); err != nil {
		return 0, nil, err
	}
	depth, err := c.Depth(ctx, cfg.From)
	if found = depth; cfg.Limit > 0 {
		found = min(depth, cfg.Limit)
	}
	if err != nil || found == 0 {
		return found, nil, err
	}
	if cfg.To != nil {
		return found, []Destination{{Target: *cfg.To, FailedQueue: cfg.From, Messages: int64(found)}}, nil
	}
	var t tally
	r := newReturns(cfg.Routing, cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)))
	err = r.ask(ctx) // not while nobody else gets the messages
	if err != nil {
		return found, nil, err
	}
	err = c.Peek(ctx, cfg.From, min(found, maxLook), func(m *reprise.Message) {
		at, to, err := cfg.target(ctx, m, r)
		t.add(Destination{Target: to.Target, Queue: to.Queue, Warning: to.Warning, FailedQueue: cfg.From, Messages: 1, Unknown: err != nil, Claimed: at.claimed})
	})
	areBack(ctx, c, cfg.From, depth)
	return found, t.all(), err
}

// areBack waits until a queue has as many messages as before, lest a redrive that begins
// now find fewer: a quorum queue counts what is given back a little later. Others may take
// some meanwhile, so it does not wait for long.
func areBack(ctx context.Context, c *reprise.Client, queue string, found int) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for sleep(ctx, 10*time.Millisecond) == nil {
		if n, err := c.Depth(ctx, queue); err != nil || n >= found {
			return
		}
	}
}
