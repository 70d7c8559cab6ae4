package demo

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology/preset"
)

// producer publishes the plan, as MusicBrainz does when somebody has edited.
type producer struct {
	client *reprise.Client
	store  *store
	prefix string        // of message ids
	every  time.Duration // between events, except inside of bursts
	limit  int           // events; 0 for no end
	took   func(id string, e planned)

	confirmed, unconfirmed []string // read them when run has returned
}

// run publishes until the limit, or until ctx ends.
func (p *producer) run(ctx context.Context, events iter.Seq[planned]) error {
	tick := time.NewTicker(max(p.every, time.Microsecond))
	defer tick.Stop()
	n := 0
	for e := range events {
		if n == p.limit && p.limit > 0 {
			return nil
		}
		n++
		if !e.burst {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
		if err := p.publish(ctx, fmt.Sprintf("%s%04d", p.prefix, n), e); err != nil {
			return err
		}
	}
	return nil
}

func (p *producer) publish(ctx context.Context, id string, e planned) error {
	if e.upload != nil {
		if err := p.store.upload(*e.upload); err != nil {
			return err
		}
	}
	// Not cut short by an interrupt: one would not know whether it arrived.
	err := p.client.Publish(context.WithoutCancel(ctx), &reprise.Message{
		Exchange: preset.CoverArtExchange, RoutingKey: e.event, Body: e.body,
		MessageID: id, AppID: "reprise demo", ContentType: "text/plain", Timestamp: time.Now(),
	})
	switch {
	case errors.Is(err, reprise.ErrUnconfirmed), errors.Is(err, reprise.ErrNacked),
		errors.Is(err, reprise.ErrDisconnected), errors.Is(err, reprise.ErrBlocked), errors.Is(err, reprise.ErrStalled):
		// It may have arrived or not: the ledger looks for it. Publishing it
		// again would be the way to be sure; here it is one event of many.
		p.unconfirmed = append(p.unconfirmed, id)
		return nil
	case err != nil:
		return fmt.Errorf("demo: publish: %w", err)
	}
	p.confirmed = append(p.confirmed, id)
	p.took(id, e)
	return nil
}
