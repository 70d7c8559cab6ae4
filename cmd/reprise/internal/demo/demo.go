package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/coverart"
	"github.com/reprisemq/reprise/examples/coverart/standin"
	"github.com/reprisemq/reprise/topology/preset"
)

// ErrUnbalanced is returned by Run when the ledger does not balance.
var ErrUnbalanced = errors.New("demo: the ledger does not balance, messages are missing")

// run is one run and what it is made of.
type run struct {
	o       Options
	url     string
	dial    func(ctx context.Context, network, addr string) (net.Conn, error) // nil for the network
	store   *store
	client  *reprise.Client
	probe   *probe
	tracker *tracker
	view    view
	state   state // sampled by one goroutine at a time

	producer producer
	workers  []*reprise.Worker
	catalog  *coverart.Memory
}

// Run runs the demo: until Events events are dealt with (Once), or until ctx
// ends; it then stops publishing, and waits for what is under way, unless Hurry
// is closed. It prints the ledger, and returns ErrUnbalanced when that does not
// balance. When it returns, everything it started has ended.
func Run(ctx context.Context, o Options) (err error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return err
	}
	r := &run{o: o, url: o.BrokerURL}
	broker := redacted(o.BrokerURL)
	if o.Embedded != nil {
		r.url, r.dial, broker = "amqp://guest:guest@embedded/", o.Embedded.Dial, "the embedded broker"
	}
	var closers []func() error
	defer func() {
		for i := len(closers) - 1; i >= 0; i-- {
			err = errors.Join(err, closers[i]())
		}
	}()
	closing := func(f func() error) { closers = append(closers, f) }

	if r.catalog, err = loadCatalogue(); err != nil {
		return err
	}
	r.view = newView(o)
	r.tracker = newTracker(titlesOf(r.catalog), r.view.attempt)
	indexer, err := r.startDownstream(closing)
	if err != nil {
		return err
	}
	if err := r.connect(ctx, closing); err != nil {
		return err
	}
	if err := r.makeWorkers(indexer); err != nil {
		return err
	}
	r.view.begin(intro{broker: broker, retryDelay: o.RetryDelay})
	err = r.work(ctx)
	r.state.phase = ""
	r.view.end(r.sample())
	if err != nil {
		return err
	}
	return r.settleAccounts()
}

// startDownstream starts what the workers work with.
func (r *run) startDownstream(closing func(func() error)) (*coverart.Indexer, error) {
	store, err := startStore(newFaults(r.o))
	if err != nil {
		return nil, err
	}
	closing(store.Close)
	r.store = store
	service, err := standin.Serve(standin.WebService(r.catalog))
	if err != nil {
		return nil, err
	}
	closing(service.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	closing(func() error { transport.CloseIdleConnections(); return nil })
	archive, err := coverart.NewS3(coverart.S3Config{Endpoint: store.URL, Transport: transport})
	if err != nil {
		return nil, err
	}
	return &coverart.Indexer{
		Catalogue: r.catalog, Archive: archive,
		WebService: &coverart.HTTPWebService{
			BaseURL: service.URL, UserAgent: "reprise-demo (https://github.com/reprisemq/reprise)",
			Client: &http.Client{Transport: transport},
		},
		Logger: slog.New(remarks{r.o.Logger.Handler()}),
	}, nil
}

// connect connects to the broker, declares the topology, and checks that
// nobody else uses it.
func (r *run) connect(ctx context.Context, closing func(func() error)) error {
	client, err := reprise.Dial(ctx, r.url, &reprise.Config{Name: "reprise demo", Dial: r.dial, Logger: r.o.Logger, Observer: r.tracker})
	if err != nil {
		return err
	}
	r.client = client
	closing(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return client.Close(ctx)
	})
	err = client.Declare(ctx, r.o.design().Topology())
	if _, differs := errors.AsType[*reprise.DeclareError](err); differs {
		return fmt.Errorf("demo: another run, or the real indexer, has these queues with other settings: "+
			"give the demo a virtual host of its own, or the same --retry-delay: %w", err)
	} else if err != nil {
		return err
	}
	r.probe = newProbe(r.url, r.dial)
	closing(r.probe.close)
	return r.probe.unused()
}

func (r *run) makeWorkers(x *coverart.Indexer) error {
	for _, w := range []struct {
		event, queue string
		handler      reprise.HandlerFunc
		concurrency  int
	}{
		{"index", preset.CoverArtIndexQueue, x.Index, 6},
		{"delete", preset.CoverArtDeleteQueue, x.Delete, 2},
		{"move", preset.CoverArtMoveQueue, x.Move, 2},
	} {
		worker, err := reprise.NewWorker(r.client, reprise.WorkerConfig{
			Queue: w.queue, Strategy: r.o.design().Strategy(), Concurrency: w.concurrency,
			Handler: r.tracker.watch(w.event, w.handler), Debounce: &reprise.Debounce{Window: r.o.Grace, Key: reprise.ContentKey}, DrainTimeout: 5 * time.Second,
		})
		if err != nil {
			return err
		}
		r.workers = append(r.workers, worker)
	}
	for _, name := range queueNames {
		r.state.queues = append(r.state.queues, queueState{Depth: Depth{Name: name, Unacked: Unknown}})
	}
	return nil
}

// settleAccounts prints the ledger.
func (r *run) settleAccounts() error {
	a := accounts{
		prefix: r.producer.prefix, confirmed: r.producer.confirmed, unconfirmed: r.producer.unconfirmed,
		handled: r.tracker.handled(), debounced: r.tracker.debounced(),
	}
	if err := a.askBroker(r.probe); err != nil {
		return err
	}
	l := a.balance()
	width, colour := plainWidth, false
	if live, ok := r.view.(*liveView); ok {
		width, colour = live.shape()
	}
	text := strings.Builder{}
	for _, line := range append([]line{{}}, ledgerLines(l, r.o, width)...) {
		text.WriteString(line.render(width, colour) + "\n")
	}
	if _, err := io.WriteString(r.o.Out, text.String()); err != nil {
		return fmt.Errorf("demo: print the ledger: %w", err)
	}
	if !l.balanced() {
		return ErrUnbalanced
	}
	return nil
}

// newPrefix makes the message ids of a run differ from every other's: a broker
// may still have messages of an earlier one.
func newPrefix() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return "demo-" + hex.EncodeToString(b[:]) + "-"
}

// redacted names a broker without its password.
func redacted(rawURL string) string {
	u, err := amqp.ParseURI(rawURL)
	if err != nil {
		return "a broker"
	}
	return (&url.URL{Scheme: u.Scheme, Host: net.JoinHostPort(u.Host, fmt.Sprint(u.Port)), Path: "/" + u.Vhost}).String()
}
