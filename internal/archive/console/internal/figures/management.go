// Package figures fetches and caches the live figures of a broker from its management API, and the rates of the ledger.
package figures

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/doctor"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

// Maximum ages of cached responses of the management API, and the timeout of requests.
const (
	figuresAge     = 2 * time.Second
	topologyAge    = 10 * time.Second
	figuresTimeout = 3 * time.Second

	reportAge     = 10 * time.Second
	reportTimeout = 30 * time.Second
)

// ErrNoFigures is returned if no management API is configured.
var ErrNoFigures = errors.New("no management API is configured")

// Broker reads the figures of queues from the management API of RabbitMQ or of the embedded broker. Its methods are
// safe for concurrent use. The methods of a nil Broker return ErrNoFigures.
type Broker struct {
	api mgmtapi.API

	figures Cached[map[string]mgmtapi.Queue]
	layout  Cached[topology.Topology]

	slow   mgmtapi.API // with a longer timeout
	report Cached[doctor.Report]
}

// NewBroker returns a Broker, or nil if api has no URL.
func NewBroker(api mgmtapi.API) *Broker {
	if api.URL == "" {
		return nil
	}
	within := func(timeout time.Duration) mgmtapi.API {
		client, limited := http.Client{}, api
		if api.Client != nil {
			client = *api.Client
		}
		client.Timeout = timeout
		limited.Client = &client
		return limited
	}
	return &Broker{
		api: within(figuresTimeout), slow: within(reportTimeout), // most pages wait for the response
		report:  Cached[doctor.Report]{Age: reportAge},
		figures: Cached[map[string]mgmtapi.Queue]{Age: figuresAge},
		layout:  Cached[topology.Topology]{Age: topologyAge},
	}
}

// Queues returns the figures of all queues, except internal queues of Reprise, by name. The figures are at most
// figuresAge old.
func (b *Broker) Queues(ctx context.Context) (map[string]mgmtapi.Queue, error) {
	if b == nil {
		return nil, ErrNoFigures
	}
	return b.figures.Get(ctx, b.fetchQueues)
}

// Topology returns the queues, exchanges and bindings, without predeclared exchanges and the internal queues and
// exchanges of Reprise. Exchanges and bindings are at most topologyAge old, queues at most topologyAge + figuresAge.
func (b *Broker) Topology(ctx context.Context) (topology.Topology, error) {
	if b == nil {
		return topology.Topology{}, ErrNoFigures
	}
	return b.layout.Get(ctx, b.fetchTopology)
}

// Report returns the findings of package doctor in the virtual host of the console. They are at most reportAge old.
func (b *Broker) Report(ctx context.Context) (doctor.Report, error) {
	if b == nil {
		return doctor.Report{}, ErrNoFigures
	}
	return b.report.Get(ctx, func(ctx context.Context) (doctor.Report, error) {
		found, err := doctor.Read(ctx, b.slow, b.slow.VirtualHost())
		if err != nil {
			return doctor.Report{}, b.denied(err)
		}
		return doctor.Check(found), nil
	})
}

func (b *Broker) fetchQueues(ctx context.Context) (map[string]mgmtapi.Queue, error) {
	found, err := b.api.Queues(ctx)
	if err != nil {
		return nil, b.denied(err)
	}
	queues := make(map[string]mgmtapi.Queue, len(found))
	for _, q := range found {
		if protocol.IsControlQueue(q.Name) || strings.HasPrefix(q.Name, protocol.OutcomeQueuePrefix) {
			continue // an internal queue of Reprise
		}
		queues[q.Name] = q
	}
	return queues, nil
}

func (b *Broker) fetchTopology(ctx context.Context) (t topology.Topology, err error) {
	queues, err := b.Queues(ctx)
	if err != nil {
		return t, err
	}
	there, err := b.api.Topology(ctx)
	if err != nil && !errors.Is(err, mgmtapi.ErrIncomplete) {
		return t, b.denied(err)
	}
	for name, q := range queues {
		t.Queues = append(t.Queues, topology.Queue{Name: name, Args: maps.Clone(q.Args)})
	}
	for _, x := range there.Exchanges {
		if !strings.HasPrefix(x.Name, "amq.") && x.Name != protocol.WorkersExchange && x.Name != protocol.ControlExchange && x.Name != protocol.RetriesExchange {
			t.Exchanges = append(t.Exchanges, topology.Exchange{Name: x.Name, Kind: x.Kind})
		}
	}
	t.Bindings = there.Bindings
	return t, nil
}

// denied adds the virtual host to err if err is an authorization error.
func (b *Broker) denied(err error) error {
	bad, ok := errors.AsType[*mgmtapi.StatusError](err)
	if ok && (bad.Code == http.StatusUnauthorized || bad.Code == http.StatusForbidden) {
		return fmt.Errorf("management API: the user may not see the virtual host %s (%s)", brief.Quoted(b.api.VirtualHost()), bad.Status)
	}
	return err
}

// Cached caches a value for concurrent callers. If the value is older than Age, one caller fetches it again.
type Cached[T any] struct {
	Age time.Duration

	mu    sync.Mutex
	busy  chan struct{} // closed when the current fetch completes; nil without a fetch
	at    time.Time
	value T
	err   error
}

// Get returns the cached value, or fetches it. If another caller is already fetching it, Get waits for the result. Get
// also caches errors, so that a broker that does not respond delays pages only once per Age.
func (r *Cached[T]) Get(ctx context.Context, fetch func(context.Context) (T, error)) (T, error) {
	for {
		r.mu.Lock()
		if !r.at.IsZero() && time.Since(r.at) < r.Age {
			defer r.mu.Unlock()
			return r.value, r.err
		}
		busy := r.busy
		if busy == nil {
			break
		}
		r.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
	}
	done := make(chan struct{})
	r.busy = done
	r.mu.Unlock()

	// Other callers wait for this fetch, so the cancellation of this caller's context must not cancel it.
	value, err := fetch(context.WithoutCancel(ctx))

	r.mu.Lock()
	defer r.mu.Unlock()
	r.value, r.err, r.at, r.busy = value, err, time.Now(), nil
	close(done)
	return value, err
}
