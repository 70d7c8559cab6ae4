// Package figures fetches and caches the live figures of a broker from its management API,
// and the rates of the ledger.
package figures

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/topology"
)

// Of the management HTTP API: how long an answer is used for, and how long one is
// waited for.
const (
	figuresAge     = 2 * time.Second
	topologyAge    = 10 * time.Second
	figuresTimeout = 3 * time.Second
)

// ErrNoFigures is what there is to say without a management API.
var ErrNoFigures = errors.New("no management API is configured")

// QueueFigures is what a broker says of a queue at the moment.
type QueueFigures struct {
	Name      string
	Ready     int64 // waits for a consumer
	Unacked   int64 // is with one
	Consumers int
	In        float64 // published, messages per second
	Args      topology.Table
}

// Depth is how many messages are in the queue.
func (q QueueFigures) Depth() int64 { return q.Ready + q.Unacked }

// Broker asks the management HTTP API of a broker, RabbitMQ's or the embedded one's,
// for what is in its queues. All methods are safe for concurrent use, and for a nil
// broker: nobody has to know whether there is one.
type Broker struct {
	api   mgmtapi.API
	vhost string

	figures Remembered[map[string]QueueFigures]
	layout  Remembered[topology.Topology]
}

// NewBroker returns nil without a URL.
func NewBroker(api mgmtapi.API, vhost string) *Broker {
	if api.URL == "" {
		return nil
	}
	client := http.Client{}
	if api.Client != nil {
		client = *api.Client
	}
	client.Timeout = figuresTimeout // a page waits for it
	api.Client = &client
	return &Broker{
		api:     api,
		vhost:   cmp.Or(vhost, "/"),
		figures: Remembered[map[string]QueueFigures]{Age: figuresAge},
		layout:  Remembered[topology.Topology]{Age: topologyAge},
	}
}

// Queues returns the figures of all queues by name, as old as figuresAge at most.
func (b *Broker) Queues(ctx context.Context) (map[string]QueueFigures, error) {
	if b == nil {
		return nil, ErrNoFigures
	}
	return b.figures.Get(ctx, b.fetchQueues)
}

// Topology returns the exchanges, queues and bindings that there are.
func (b *Broker) Topology(ctx context.Context) (topology.Topology, error) {
	if b == nil {
		return topology.Topology{}, ErrNoFigures
	}
	return b.layout.Get(ctx, b.fetchTopology)
}

// rate is a number of messages per second as the API writes it. It leaves out what
// has never happened.
type rate struct {
	Rate float64 `json:"rate"`
}

func (b *Broker) fetchQueues(ctx context.Context) (map[string]QueueFigures, error) {
	var answer []struct {
		Name      string         `json:"name"`
		Ready     int64          `json:"messages_ready"`
		Unacked   int64          `json:"messages_unacknowledged"`
		Consumers int            `json:"consumers"`
		Args      map[string]any `json:"arguments"`
		Stats     struct {
			In rate `json:"publish_details"`
		} `json:"message_stats"`
	}
	const columns = "name,messages_ready,messages_unacknowledged,consumers,arguments,message_stats.publish_details.rate"
	if err := b.api.Get(ctx, "queues/"+url.PathEscape(b.vhost)+"?columns="+columns, &answer); err != nil {
		return nil, b.denied(err)
	}
	queues := make(map[string]QueueFigures, len(answer))
	for _, q := range answer {
		if topology.IsControlQueue(q.Name) || strings.HasPrefix(q.Name, topology.OutcomeQueuePrefix) {
			continue // it has no messages of users
		}
		queues[q.Name] = QueueFigures{q.Name, q.Ready, q.Unacked, q.Consumers, q.Stats.In.Rate, mgmtapi.Arguments(q.Args)}
	}
	return queues, nil
}

func (b *Broker) fetchTopology(ctx context.Context) (t topology.Topology, err error) {
	queues, err := b.Queues(ctx)
	if err != nil {
		return t, err
	}
	there, err := b.api.Topology(ctx, b.vhost)
	if err != nil {
		return t, b.denied(err)
	}
	for name, q := range queues {
		t.Queues = append(t.Queues, topology.Queue{Name: name, Args: maps.Clone(q.Args)})
	}
	for _, x := range there.Exchanges {
		if !strings.HasPrefix(x.Name, "amq.") && x.Name != topology.WorkersExchange && x.Name != topology.ControlExchange && x.Name != topology.RetriesExchange {
			t.Exchanges = append(t.Exchanges, topology.Exchange{Name: x.Name, Kind: x.Kind})
		}
	}
	t.Bindings = there.Bindings
	return t, nil
}

// denied says of which virtual host the user may not see anything.
func (b *Broker) denied(err error) error {
	bad, ok := errors.AsType[*mgmtapi.StatusError](err)
	if ok && (bad.Code == http.StatusUnauthorized || bad.Code == http.StatusForbidden) {
		return fmt.Errorf("management API: the user may not see the virtual host %q (%s)", b.vhost, bad.Status)
	}
	return err
}

// Remembered is an answer that is asked for by many, and fetched by one of them once
// it is too old.
type Remembered[T any] struct {
	Age time.Duration

	mu    sync.Mutex
	busy  chan struct{} // closed when the fetch under way has ended; nil if none is
	at    time.Time
	value T
	err   error
}

// Get returns what is remembered, or fetches it. Who comes while it is being fetched
// waits for that. A failure is remembered as well, so that a broker that does not
// answer holds up one page in each age, not every one.
func (r *Remembered[T]) Get(ctx context.Context, fetch func(context.Context) (T, error)) (T, error) {
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

	// Whoever waits for this has a context of its own: this one's end is not theirs.
	value, err := fetch(context.WithoutCancel(ctx))

	r.mu.Lock()
	defer r.mu.Unlock()
	r.value, r.err, r.at, r.busy = value, err, time.Now(), nil
	close(done)
	return value, err
}
