package failed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// RedriveConfig says what to redrive. From is required.
type RedriveConfig struct {
	From string  // the failed queue
	To   *Target // where to; nil: to the work queue that each message failed in

	// Origin names the work queue that a message failed in, as IngestConfig.Origin
	// does. Default: none.
	Origin func(*reprise.Message) string

	// Believe is asked whether a message is to go to a work queue that nothing but a header
	// names, x-reprise-queue or x-first-death-queue, which whoever published it can have
	// written. What it does not believe ends the redrive with a *ClaimError. It is not asked
	// where Origin, the broker's x-death or the name of the failed queue says the same.
	// LookBeforeRedrive tells what there is to be believed. Default: all is.
	Believe func(queue string) bool

	// Routing is what is known of the way back, as ReplayerConfig.Routing.
	Routing Routing

	// Marks are those of workers that messages go back to, as ReplayerConfig.Marks.
	Marks []topology.Marks

	// Limit is the most messages to send, the first of the queue. Default 0: all that
	// are there.
	Limit int

	// Rate is the most messages to send per second. Default 0: no limit.
	Rate float64

	// Progress is called after each message that was sent, one call at a time, with the numbers
	// that Redrive returns. Default: none.
	Progress func(found, sent int)

	// Logger receives "redrive waits" with queue, error and next_try (Warn) while the
	// broker takes nothing, "redrive sends by queue name" with queue and warning (Warn, see
	// Destination.Warning), and "bindings cannot be read" with error and next_try (Warn).
	// Default: none.
	Logger *slog.Logger
}

// Validate reports what is missing and what to write instead.
func (c RedriveConfig) Validate() error {
	var errs []error
	if c.From == "" {
		errs = append(errs, errors.New("failed: RedriveConfig.From is empty: name the failed queue, such as orders.failed"))
	}
	if c.To != nil && *c.To == (Target{}) {
		errs = append(errs, errors.New("failed: RedriveConfig.To is empty: name a routing key, and an exchange unless it is a queue; or leave it nil for the queue that each message failed in"))
	}
	if slices.Contains(c.Marks, nil) {
		errs = append(errs, errors.New("failed: RedriveConfig.Marks has a nil entry: leave it out"))
	}
	if c.Limit < 0 || !(c.Rate >= 0) { // written so that NaN fails too
		errs = append(errs, fmt.Errorf("failed: RedriveConfig.Limit %d, Rate %v: use numbers above zero, or 0 for no limit", c.Limit, c.Rate))
	}
	return errors.Join(errs...)
}

// target is where a message goes, and in which queue it failed, if that decides it.
func (c RedriveConfig) target(ctx context.Context, m *reprise.Message, r *returns) (place, way, error) {
	if c.To != nil {
		return place{}, way{Target: *c.To}, nil
	}
	a := take(m, c.Origin)
	at := placeOf(m, historyOf(m.Headers), deaths(m.Headers), c.Origin).orByName(c.From)
	to, err := r.to(ctx, sentFrom{at.queue, c.From, a.Exchange, a.RoutingKey}, nil)
	return at, to, err
}
