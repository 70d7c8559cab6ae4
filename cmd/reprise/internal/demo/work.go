package demo

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reprisemq/reprise/topology/preset"
)

const (
	sampleEvery = 100 * time.Millisecond // how often the view gets a new state
	redrawEvery = 2                      // samples; the view is calm, the end is noticed soon
)

// Reasons why work ends.
var (
	errSettled = errors.New("every message is settled")
	errHurry   = errors.New("told to hurry")
	errLost    = errors.New("messages are missing from every queue")
)

// work lets producer and workers run until there is nothing more to do, and
// returns when all of them have stopped. The error is a real one: that
// something could not run.
//
//	ctx ends, or the events run out     producer stops
//	nothing is under way any more       workers stop
//	Hurry                               both stop
func (r *run) work(ctx context.Context) error {
	// The workers outlive ctx: they are needed to bring in what is under way.
	working, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	publishing, stopPublishing := context.WithCancel(ctx)
	defer stopPublishing()

	var wg sync.WaitGroup
	for _, w := range r.workers {
		wg.Go(func() {
			if err := w.Run(working); err != nil {
				stop(err)
			}
		})
	}
	limit := 0
	if r.o.Once {
		limit, r.state.target = r.o.Events, r.o.Events
	}
	r.producer = producer{
		client: r.client, store: r.store, prefix: newPrefix(), every: r.o.Spread / time.Duration(r.o.Events), limit: limit,
		took: r.tracker.published,
	}
	published := make(chan struct{})
	wg.Go(func() {
		defer close(published)
		if err := r.producer.run(publishing, plan(r.o.Seed, r.catalog.Releases, r.planPeriod())); err != nil {
			stop(err)
		}
	})
	wg.Go(func() {
		select {
		case <-r.o.Hurry:
			stop(errHurry)
		case <-working.Done():
		}
	})

	r.watch(working, published, stop)
	stopPublishing()
	wg.Wait()
	switch cause := context.Cause(working); {
	case errors.Is(cause, errSettled), errors.Is(cause, errHurry), errors.Is(cause, errLost):
		return nil
	default:
		return cause
	}
}

// planPeriod fits one of each special event into a run that ends by itself.
func (r *run) planPeriod() int {
	if r.o.Once {
		return r.o.Events
	}
	return period
}

// watch feeds the view until ctx ends, and ends it itself when everything was
// published and nothing is under way.
func (r *run) watch(ctx context.Context, published <-chan struct{}, stop context.CancelCauseFunc) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	idle := 0
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s := r.sample()
		if n%redrawEvery == 0 {
			r.view.update(s)
		}
		select {
		case <-published:
		default:
			continue
		}
		if !r.o.Once {
			r.state.phase = "no more events; waiting for what is under way (Ctrl-C again stops that, too)"
		}
		switch {
		case !s.empty():
			idle = 0
		case s.figures.waiting() == 0:
			stop(errSettled)
		default:
			if idle++; time.Duration(idle)*sampleEvery >= r.o.patience {
				stop(errLost)
			}
		}
	}
}

// sample asks everybody how things are.
func (r *run) sample() state {
	var depths []Depth
	if r.o.Embedded != nil {
		depths = r.o.Embedded.Queues()
	} else {
		depths, _ = r.probe.depths() // shown as they last were: the client reports a broker that is away
	}
	for i := range r.state.queues {
		q := &r.state.queues[i]
		for _, d := range depths {
			if d.Name == q.Name {
				q.push(d)
			}
		}
	}
	s := r.state
	s.figures = r.tracker.figures()
	s.elapsed = time.Since(r.tracker.began)
	return s
}

// empty tells whether no message is under way, as far as the queues tell.
func (s state) empty() bool {
	for _, q := range s.queues {
		if q.Name != preset.CoverArtFailedQueue && q.Ready+max(0, q.Unacked) > 0 {
			return false
		}
	}
	return s.figures.running == 0
}
