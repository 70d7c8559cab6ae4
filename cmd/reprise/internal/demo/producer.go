package demo

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
)

type event struct {
	kind   string // index, delete or move: the routing key
	body   string
	about  string // title of the release
	upload string // key of an image to put into the store first
	burst  bool   // follows the previous event without a pause
}

// period is the number of events after which an endless plan repeats the special events.
const period = 60

// plan returns an endless sequence of events, which is the same for equal seeds. Each period contains each special
// event once:
//
//	refused     an index event of refusedGID: its retries are exhausted (early, to fit into a short run)
//	malformed   a delete and a move event with an invalid body: parked immediately
//	unknown     an index event of unknownGID: skipped
//
// The events of an image either all delete it or all move it to the same release, because events in different queues
// can overtake each other.
func plan(seed uint64, catalog []release, every int) iter.Seq[event] {
	every = max(every, 8)
	special := map[int]event{
		every / 4: {kind: "delete", body: catalog[0].image()},
		every / 3: {kind: "index", body: unknownGID, about: "(a release nobody knows)"},
		every / 2: {kind: "move", body: catalog[1].image() + "\n" + catalog[1].GID + "\nnone"},
	}
	var ordinary []release
	for _, r := range catalog {
		if r.GID == refusedGID {
			special[1] = event{kind: "index", body: r.GID, about: r.String()}
		} else {
			ordinary = append(ordinary, r)
		}
	}
	return func(yield func(event) bool) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var repeated event
		left := 0
		for n := 0; ; n++ {
			e, found := special[n%every]
			switch {
			case found:
			case left > 0:
				e, left = repeated, left-1
			default:
				e = ordinaryEvent(rng, ordinary)
				if e.kind == "index" && rng.IntN(5) == 0 {
					repeated, left = e, 2+rng.IntN(3)
					repeated.burst = true
				}
			}
			if e.about == "" {
				e.about = "(an invalid body)"
			}
			if !yield(e) {
				return
			}
		}
	}
}

func ordinaryEvent(rng *rand.Rand, catalog []release) event {
	i := rng.IntN(len(catalog))
	r := catalog[i]
	e := event{kind: "index", body: r.GID, about: r.String()}
	if rng.IntN(5) < 2 {
		e.kind, e.body, e.upload = "delete", r.image()+"\n"+r.GID, imageKey(r.GID, r.image())
		if i%2 == 1 {
			e.kind = "move"
			e.body += "\n" + catalog[(i+1)%len(catalog)].GID
		}
	}
	return e
}

// producer publishes events.
type producer struct {
	client   *reprise.Client
	store    *store
	tracker  *tracker
	prefix   string        // of message ids
	interval time.Duration // between events, except in a burst
	limit    int           // number of events; 0 for no limit

	confirmed, unconfirmed []string // valid after run returned
}

// run publishes until the limit is reached or ctx is done.
func (p *producer) run(ctx context.Context, events iter.Seq[event]) error {
	tick := time.NewTicker(max(p.interval, time.Microsecond))
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

func (p *producer) publish(ctx context.Context, id string, e event) error {
	if e.upload != "" {
		p.store.upload(e.upload)
	}
	p.tracker.publishing(id, e)
	// An interrupted publish would have an unknown outcome.
	err := p.client.Publish(context.WithoutCancel(ctx), &reprise.Message{
		Exchange: preset.CoverArtExchange, RoutingKey: e.kind, Body: []byte(e.body),
		MessageID: id, AppID: "reprise demo", ContentType: "text/plain", Timestamp: time.Now(),
	})
	switch {
	case errors.Is(err, reprise.ErrUnconfirmed), errors.Is(err, reprise.ErrNacked),
		errors.Is(err, reprise.ErrDisconnected), errors.Is(err, reprise.ErrBlocked), errors.Is(err, reprise.ErrStalled):
		p.unconfirmed = append(p.unconfirmed, id) // the ledger looks for it in the queues
		return nil
	case err != nil:
		return fmt.Errorf("demo: cannot publish: %w", err)
	}
	p.confirmed = append(p.confirmed, id)
	p.tracker.confirmed()
	return nil
}
