// Package demo simulates the cover art indexer of MusicBrainz in one process and shows
// failures, retries and results of its messages.
//
//	            publishes events
//	producer ──► broker ──► index, delete, move ──► store (503 SlowDown now and then)
//	                ▲            │
//	                └── .retry ◄─┴─► .failed
//
// The broker's protocol, the topology with its names and headers, the workers and the
// releases are real. The events, the handlers, the store (a map) and the retry delay
// (seconds instead of hours) are not. examples/coverart is the complete system.
//
// A run ends with a ledger, which compares three independent sources by message ID:
//
//	in                producer: messages that the broker confirmed
//	done              handlers: messages for which a handler returned nil;
//	                  workers: debounced messages
//	failed, waiting   broker: messages in its queues after the workers stopped
//
// If in = done + failed + waiting does not hold, a message was lost.
//
// The package does not import the embedded broker; the caller can start it.
package demo

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

// ErrUnbalanced is returned by Run if messages are missing in the ledger.
var ErrUnbalanced = errors.New("demo: ledger reports missing messages")

// Options contains the settings of Run. Out, and one of Dial and BrokerURL, are required.
type Options struct {
	Dial      func(ctx context.Context, network, addr string) (net.Conn, error) // connects to the embedded broker
	BrokerURL string                                                            // a RabbitMQ, amqp://user:password@host:5672/vhost

	// Once stops the run after Events events have been published and settled. Default: the run continues until ctx is
	// done.
	Once   bool
	Events int           // default 60
	Spread time.Duration // time in which Events events are published; default 5s.
	Seed   uint64        // for the events and the faults of the store; default: random.

	RetryDelay time.Duration // default 2s; 4h in production.
	Grace      time.Duration // time to wait for duplicates of an event; default 300ms; 10s in production.
	FaultRate  float64       // fraction of the requests that the store refuses; default 0.2, negative for none.
	Latency    time.Duration // longest duration of a request; default 40ms, negative for none.

	Out    io.Writer
	Logger *slog.Logger // of the worker library; default: none

	// After StopWaiting is closed, Run does not wait for messages in flight, and counts them as waiting.
	StopWaiting <-chan struct{}

	timeout time.Duration // the wait ends if messages in flight have been in no queue for this time; default 5s.
}

// maxFaultRate is low enough for retries to succeed.
const maxFaultRate = 0.9

func (o Options) withDefaults() Options {
	o.Events = cmp.Or(o.Events, 60)
	o.Spread = cmp.Or(o.Spread, 5*time.Second)
	o.Seed = cmp.Or(o.Seed, uint64(mathrand.Uint32N(9999))+1) // short enough to type
	o.RetryDelay = cmp.Or(o.RetryDelay, 2*time.Second)
	o.Grace = cmp.Or(o.Grace, 300*time.Millisecond)
	o.FaultRate = cmp.Or(o.FaultRate, 0.2)
	o.Latency = cmp.Or(o.Latency, 40*time.Millisecond)
	o.timeout = cmp.Or(o.timeout, 5*time.Second)
	return o
}

func (o Options) validate() error {
	switch {
	case o.Out == nil:
		return errors.New("demo: Options.Out must not be nil")
	case (o.Dial == nil) == (o.BrokerURL == ""):
		return errors.New("demo: either Options.Dial or Options.BrokerURL must be set")
	case o.Events < 1:
		return fmt.Errorf("demo: the number of events must be positive: got %d", o.Events)
	case o.Spread < 0 || o.Grace < 0:
		return fmt.Errorf("demo: durations must not be negative: got spread %s, grace %s", o.Spread, o.Grace)
	case o.FaultRate > maxFaultRate:
		return fmt.Errorf("demo: the fault rate must be at most %v: got %v", maxFaultRate, o.FaultRate)
	}
	return o.design().Validate()
}

func (o Options) design() preset.CoverArt { return preset.CoverArt{RetryDelay: o.RetryDelay} }

// queueNames contains the queues of the design, in the order of display.
var queueNames = []string{
	preset.CoverArtIndexQueue, preset.CoverArtDeleteQueue, preset.CoverArtMoveQueue,
	preset.CoverArtRetryQueue, preset.CoverArtFailedQueue,
}

// run is one run of the demo.
type run struct {
	o        Options
	client   *reprise.Client
	catalog  []release
	indexer  *indexer
	tracker  *tracker
	screen   *screen
	producer *producer
	workers  []*reprise.Worker
}

// Run runs the demo until Events events are settled (Once) or until ctx is done. It then stops publishing and waits for
// messages in flight, unless StopWaiting is closed. It prints the ledger, and returns ErrUnbalanced if messages are
// missing.
func Run(ctx context.Context, o Options) (err error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return err
	}
	catalog, err := loadCatalog()
	if err != nil {
		return err
	}
	url, broker := o.BrokerURL, redacted(o.BrokerURL)
	if o.Dial != nil {
		url, broker = "amqp://guest:guest@embedded/", "the embedded broker"
	}
	r := &run{o: o, catalog: catalog, indexer: newIndexer(o, catalog), screen: newScreen(o.Out)}
	r.tracker = newTracker(r.indexer.note, func(a attempt) { r.screen.print(attemptLine(a, r.screen.width)) })
	r.client, err = reprise.Dial(ctx, url, &reprise.Config{Name: "reprise demo", Dial: o.Dial, Logger: o.Logger, Observer: r.tracker})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(err, r.client.Close(ctx))
	}()
	if err := r.declare(ctx); err != nil {
		return err
	}
	if err := r.makeWorkers(); err != nil {
		return err
	}
	r.screen.print(introLines(broker, o.RetryDelay, r.screen.width)...)
	err = r.work(ctx)
	if err != nil {
		return err
	}
	r.screen.print(queueLines(r.depths())...)
	return r.printLedger()
}

// declare declares the topology and checks that no other program uses it.
func (r *run) declare(ctx context.Context) error {
	const advice = "use a separate virtual host (rabbitmqctl add_vhost demo; amqp://…/demo)"
	err := r.client.Declare(ctx, r.o.design().Topology())
	if _, differs := errors.AsType[*reprise.DeclareError](err); differs {
		return fmt.Errorf("demo: the queues exist with different settings (%s, or pass the same --retry-delay): %w", advice, err)
	} else if err != nil {
		return err
	}
	// The connection of a run holds this queue as a lock.
	lock := topology.Queue{Name: preset.CoverArtExchange + ".demo", Transient: true, Exclusive: true}
	if err := r.client.Declare(ctx, topology.Topology{Queues: []topology.Queue{lock}}); err != nil {
		return fmt.Errorf("demo: another demo uses these queues (%s): %w", advice, err)
	}
	for _, name := range queueNames {
		n, err := r.client.Depth(ctx, name)
		if err != nil {
			return err
		}
		if n > 0 && name != preset.CoverArtFailedQueue {
			return fmt.Errorf("demo: queue %s must be empty: got %d messages (%s)", name, n, advice)
		}
	}
	return nil
}

func (r *run) makeWorkers() error {
	for _, w := range []struct {
		queue       string
		handler     reprise.HandlerFunc
		concurrency int
	}{
		{preset.CoverArtIndexQueue, r.indexer.index, 6},
		{preset.CoverArtDeleteQueue, r.indexer.delete, 2},
		{preset.CoverArtMoveQueue, r.indexer.move, 2},
	} {
		worker, err := reprise.NewWorker(r.client, reprise.WorkerConfig{
			Queue: w.queue, Strategy: r.o.design().Strategy(), Concurrency: w.concurrency, Handler: r.indexer.count(w.handler),
			Debounce: &reprise.Debounce{Window: r.o.Grace, Key: reprise.ContentKey}, DrainTimeout: 5 * time.Second,
		})
		if err != nil {
			return err
		}
		r.workers = append(r.workers, worker)
	}
	return nil
}

// errEnough stops the work. Run does not return it.
var errEnough = errors.New("no more work")

// work runs the producer and the workers, and returns after all of them have stopped. The producer stops when ctx is
// done or after the last event. The workers stop when settled returns. StopWaiting stops both.
func (r *run) work(ctx context.Context) error {
	working, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var parts sync.WaitGroup
	start := func(part func() error) { // the first error stops all parts
		parts.Go(func() {
			if err := part(); err != nil {
				stop(err)
			}
		})
	}
	publishing, stopPublishing := context.WithCancel(working)
	defer context.AfterFunc(ctx, stopPublishing)()
	for _, w := range r.workers {
		start(func() error { return w.Run(working) })
	}
	r.producer = &producer{client: r.client, store: r.indexer.store, tracker: r.tracker, prefix: newPrefix(), interval: r.o.Spread / time.Duration(r.o.Events)}
	every := period
	if r.o.Once {
		r.producer.limit, every = r.o.Events, r.o.Events
	}
	published := make(chan struct{})
	start(func() error {
		defer close(published)
		return r.producer.run(publishing, plan(r.o.Seed, r.catalog, every))
	})
	start(func() error {
		select {
		case <-r.o.StopWaiting:
			return errEnough
		case <-working.Done():
			return nil
		}
	})
	start(func() error {
		select {
		case <-published:
			return r.settled(working)
		case <-working.Done():
			return nil
		}
	})
	parts.Wait()
	if err := context.Cause(working); err != errEnough {
		return err
	}
	return nil
}

// settled returns errEnough when no message is in flight, or when messages in flight have been in no queue for the
// timeout. The ledger counts such messages as missing.
func (r *run) settled(ctx context.Context) error {
	if !r.o.Once {
		r.screen.print(line{}.add(bold, "no more events; waiting for messages in flight (press Ctrl-C again to stop immediately)"))
	}
	const interval = 100 * time.Millisecond
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for idle := interval; ; idle += interval {
		counts := r.tracker.snapshot()
		for name, depth := range r.depths() {
			if counts.running+depth > 0 && name != preset.CoverArtFailedQueue {
				idle = 0
			}
		}
		if idle > 0 && counts.waiting() == 0 || idle >= r.o.timeout {
			return errEnough
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// depths returns the number of ready messages by queue. If it cannot read a depth, it omits the queue. It does not
// report the error, because the client logs a lost connection.
func (r *run) depths() map[string]int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	all := map[string]int{}
	for _, name := range queueNames {
		if n, err := r.client.Depth(ctx, name); err == nil {
			all[name] = n
		}
	}
	return all
}

// newPrefix returns the prefix of the message IDs of a run. It is random, because the failed queue may contain
// messages of earlier runs.
func newPrefix() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return "demo-" + hex.EncodeToString(b[:]) + "-"
}

// redacted returns the URL of a broker without user and password.
func redacted(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "a broker"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
