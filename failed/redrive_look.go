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

// RedrivePreview is what Redrive would do.
type RedrivePreview struct {
	Found        int           // messages to send
	Looked       int           // of them, those that were looked at: the first
	Destinations []Destination // of these, the most messages first
}

// MaxLook is how many messages LookBeforeRedrive looks at.
const MaxLook = 1000

// LookBeforeRedrive returns where Redrive would send the messages that are in the failed
// queue, for somebody to see before it begins. It looks at the first MaxLook, by
// reprise.Client.Peek, which says what a look costs; with RedriveConfig.To at none, since
// they all go there.
func LookBeforeRedrive(ctx context.Context, c *reprise.Client, cfg RedriveConfig) (RedrivePreview, error) {
	if c == nil {
		return RedrivePreview{}, errors.New("failed: LookBeforeRedrive needs a Client: reprise.Dial returns one")
	}
	if err := cfg.Validate(); err != nil {
		return RedrivePreview{}, err
	}
	p := RedrivePreview{}
	found, err := c.Depth(ctx, cfg.From)
	if p.Found = found; cfg.Limit > 0 {
		p.Found = min(found, cfg.Limit)
	}
	if err != nil || p.Found == 0 {
		return p, err
	}
	if cfg.To != nil {
		p.Looked = p.Found
		p.Destinations = []Destination{{Return: Return{Target: *cfg.To}, FailedQueue: cfg.From, Messages: int64(p.Found)}}
		return p, nil
	}
	var t tally
	r := newReturns(cfg.Routing, cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)))
	err = r.ask(ctx) // not while nobody else gets the messages
	if err != nil {
		return p, err
	}
	err = c.Peek(ctx, cfg.From, min(p.Found, MaxLook), func(m *reprise.Message) {
		at, to, err := cfg.target(ctx, m, r)
		t.add(Destination{Return: to, FailedQueue: cfg.From, Messages: 1, Unknown: err != nil, Claimed: at.claimed})
		p.Looked++
	})
	areBack(ctx, c, cfg.From, found)
	p.Destinations = t.all()
	return p, err
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
