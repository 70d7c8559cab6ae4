package rehearsal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/coverart/coverart"
	"github.com/reprisemq/reprise/examples/coverart/internal/standin"
	"github.com/reprisemq/reprise/internal/preset"
)

// rehearsal contains the state of one run.
type rehearsal struct {
	Config
	tally     *tally
	catalogue *coverart.Postgres
	archive   *coverart.S3
	service   *coverart.HTTPWebService
	client    *reprise.Client
	closing   []func() error // called in reverse order
}

// Run runs the indexer with the events of the plan. It returns ErrNotAsPlanned if an outcome differs from the plan.
func Run(ctx context.Context, c Config) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	r := &rehearsal{Config: c.withDefaults()}
	defer func() {
		for _, closeIt := range slices.Backward(r.closing) {
			err = errors.Join(err, closeIt())
		}
	}()
	events := plan()
	if err := r.open(ctx, events); err != nil {
		return err
	}
	if err := r.declare(ctx); err != nil {
		return err
	}
	if err := r.introduce(ctx); err != nil {
		return err
	}
	return r.play(ctx, events)
}

func (r *rehearsal) atEnd(f func() error) { r.closing = append(r.closing, f) }

// open opens the database, the store, the web service and the client.
func (r *rehearsal) open(ctx context.Context, events []plannedEvent) error {
	db, remove, err := NewDatabase(ctx, r.Postgres)
	if err != nil {
		return err
	}
	r.atEnd(remove)
	r.catalogue = &coverart.Postgres{DB: db}
	if err := r.openStore(ctx, events); err != nil {
		return err
	}
	service, err := standin.Serve(&overloadedService{gid: volcano, times: busyTimes, next: standin.WebService(r.catalogue)})
	if err != nil {
		return err
	}
	r.atEnd(service.Close)
	transport := newTransport()
	r.atEnd(func() error { transport.CloseIdleConnections(); return nil })
	r.service = &coverart.HTTPWebService{
		BaseURL: service.URL, UserAgent: UserAgent,
		Client: &http.Client{Transport: transport},
	}
	r.tally = newTally(r.Out)
	r.client, err = reprise.Dial(ctx, r.Broker, &reprise.Config{Dial: r.DialContext, Logger: r.Logger, Observer: r.tally})
	if err != nil {
		return err
	}
	r.atEnd(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), tidyUp)
		defer cancel()
		return r.client.Close(ctx)
	})
	return nil
}

// declare declares the queues. If a queue exists with different settings, declare returns an error that explains the
// flags.
func (r *rehearsal) declare(ctx context.Context) error {
	err := r.client.Declare(ctx, r.design().Topology())
	if refusal, ok := errors.AsType[*amqp.Error](err); ok && refusal.Code == amqp.PreconditionFailed {
		return fmt.Errorf("%w\nThe queues of this design already exist with different settings. To use them unchanged, pass their settings with -retry-delay and -queue-type", err)
	}
	return err
}

// newTransport returns a transport for one service, so that the connections to this service can be closed.
func newTransport() *http.Transport {
	if t, ok := http.DefaultTransport.(*http.Transport); ok {
		return t.Clone()
	}
	return &http.Transport{}
}

func (r *rehearsal) openStore(ctx context.Context, events []plannedEvent) error {
	endpoint := r.S3
	if endpoint == "" {
		server, err := standin.Serve(standin.NewStore())
		if err != nil {
			return err
		}
		r.atEnd(server.Close)
		endpoint = server.URL
	}
	transport := newTransport()
	r.atEnd(func() error { transport.CloseIdleConnections(); return nil })
	var err error
	r.archive, err = coverart.NewS3(coverart.S3Config{
		Endpoint: endpoint, Credentials: r.S3Credentials,
		Transport: refusingTransport{bucket: coverart.Bucket(refused), next: transport},
	})
	if err == nil && r.S3 != "" {
		err = makeBuckets(ctx, r.Config, buckets(events))
	}
	return err
}

// introduce prints the services and the delays of the run.
func (r *rehearsal) introduce(ctx context.Context) error {
	var version string
	if err := r.catalogue.DB.QueryRowContext(ctx, "SHOW server_version").Scan(&version); err != nil {
		return fmt.Errorf("rehearsal: cannot read the version of PostgreSQL: %w", err)
	}
	on, store := "RabbitMQ", r.S3
	if r.DialContext != nil {
		on = "the broker in this process"
	}
	if store == "" {
		store = "in this process"
	}
	fmt.Fprintf(r.Out, "The cover art indexer, on %s.\n\n", on)
	fmt.Fprintf(r.Out, "  database      PostgreSQL %s, with a few releases in a new database\n", version)
	fmt.Fprintf(r.Out, "  S3            %s; one bucket refuses all requests\n", store)
	fmt.Fprintf(r.Out, "  web service   in this process; refuses %d requests for one release\n", busyTimes)
	fmt.Fprintf(r.Out, "  delays        retries after %s, in production after %s;\n", r.RetryDelay, preset.CoverArtRetryDelay)
	fmt.Fprintf(r.Out, "                debounce for %s, in production for %s\n\n", r.Grace, coverart.Grace)
	return nil
}

// work starts the three workers and returns when all of them are consuming. The function stop stops the workers after
// they have settled the deliveries in flight.
func (r *rehearsal) work(ctx context.Context) (stop func() error, err error) {
	indexer := &coverart.Indexer{Catalogue: r.catalogue, Archive: r.archive, WebService: r.service, Logger: r.Logger}
	handlers := map[string]reprise.HandlerFunc{"index": indexer.Index, "delete": indexer.Delete, "move": indexer.Move}
	ended := make(chan error, len(handlers))
	var workers []*reprise.Worker
	stop = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), r.Grace+tidyUp)
		defer cancel()
		var err error
		for _, w := range workers {
			err = errors.Join(err, w.Shutdown(ctx), <-ended)
		}
		return err
	}
	for event, h := range handlers {
		w, err := reprise.NewWorker(r.client, reprise.WorkerConfig{
			Queue:    workQueues[event],
			Strategy: r.design().Strategy(),
			Handler:  h,
			Debounce: &reprise.Debounce{Window: r.Grace, Key: reprise.ContentKey},
		})
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		workers = append(workers, w)
		go func() { ended <- w.Run(context.WithoutCancel(ctx)) }()
	}
	if err := r.consuming(ctx, workers); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// consuming waits until all workers are consuming.
func (r *rehearsal) consuming(ctx context.Context, workers []*reprise.Worker) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for _, w := range workers {
		for w.Status().Err != nil {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("rehearsal: %w: %w", context.Cause(ctx), w.Status().Err)
			}
		}
	}
	return nil
}

// play publishes the planned events and waits for their outcomes.
func (r *rehearsal) play(ctx context.Context, events []plannedEvent) error {
	conn, err := dialRaw(r.Config)
	if err != nil {
		return err
	}
	r.atEnd(conn.Close)
	others, err := consumers(conn)
	if err != nil {
		return err
	}
	stop, err := r.work(ctx)
	if err != nil {
		return err
	}
	err = r.publish(ctx, events)
	if err == nil {
		err = r.settled(ctx, func() (bool, error) {
			n, err := consumers(conn)
			return n > len(workQueues), err // this program has one consumer on each work queue
		})
	}
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	now, err := consumers(conn) // the workers of this program have stopped, so these consumers belong to other programs
	if err != nil {
		return err
	}
	others = max(others, now)
	found, err := inFailed(conn, func(id string) bool { _, ours := r.tally.ours[id]; return ours })
	if err != nil {
		return err
	}
	return r.report(ctx, events, found, others)
}

func (r *rehearsal) publish(ctx context.Context, events []plannedEvent) error {
	run := rand.Text()
	for i, p := range events {
		for _, l := range p.upload {
			if err := upload(ctx, r.archive, l); err != nil {
				return err
			}
		}
		for n := range p.copies() {
			id := fmt.Sprintf("%s-%d-%d", run, i+1, n+1)
			r.tally.expect(id, p)
			err := r.client.Publish(ctx, &reprise.Message{
				Exchange: preset.CoverArtExchange, RoutingKey: p.event, Body: p.body, MessageID: id,
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// settled waits until the outcome of every message is known. It waits at most about as long as all retries of a message
// can take. If other programs also consume, it returns when no outcome has changed for longer than one retry delay.
func (r *rehearsal) settled(ctx context.Context, others func() (bool, error)) error {
	limit := time.NewTimer(spent*(r.RetryDelay+r.Grace) + 30*time.Second)
	defer limit.Stop()
	quiet := time.NewTimer(r.quiet())
	defer quiet.Stop()
	for {
		n, changed := r.tally.unsettled()
		if n == 0 {
			return nil
		}
		select {
		case <-changed:
			quiet.Reset(r.quiet())
		case <-quiet.C:
			if yes, err := others(); yes || err != nil {
				return err
			}
		case <-limit.C:
			return nil // the ledger reports the result
		case <-ctx.Done():
			return fmt.Errorf("rehearsal: interrupted with %d unfinished messages, which remain in the queues", n)
		}
	}
}

// quiet returns a duration after which every message that waits for a retry has been retried.
func (r *rehearsal) quiet() time.Duration { return r.RetryDelay + r.Grace + 3*time.Second }
