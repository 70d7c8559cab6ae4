// Package move carries queues with their messages from a broker to another broker.
//
// It declares the objects that are missing on the target, and then moves the messages of one queue after the other: it
// consumes them, publishes them to the queue, and acknowledges them after the confirm (migrate.Passage). Therefore a
// message is always on the source, on the target, or on both, and an interruption can only duplicate the messages of one batch.
//
// The target keeps the only state: an exchange, through which the messages of a run reach the queue with their routing keys,
// and which an interrupted run leaves behind. Their number bounds the number of duplicates.
package move

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/doctor"
	"github.com/reprisemq/reprise/internal/inner"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/migrate"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// Broker is the source or the target of a move. Client and API are required, and have to belong to the same virtual host.
type Broker struct {
	Client *reprise.Client
	Name   string // reprise.Config.Name of the client. Only its connections have this name
	API    mgmtapi.API

	in       inner.Client
	conn     *amqpconn.Conn
	rabbitMQ bool
}

func (b *Broker) vhost() string { return b.API.VirtualHost() }

// Config configures Begin.
type Config struct {
	From, To Broker
	Queues   []string // patterns of names; none: all queues of the virtual host
	Delete   bool     // delete the queues of the source when they are empty and no other program is connected

	// Settle has to exceed the interval at which RabbitMQ collects statistics (by default 5 s). Default: 6 s for RabbitMQ, none
	// for the embedded broker.
	Settle time.Duration

	// Batch is the maximum number of messages that are published and not acknowledged yet. Default: 256.
	Batch int

	Step     func(text string)       // called when a step begins. Default: none
	Progress func(moved, left int64) // of a queue. Default: none
}

// Move is a planned move. It holds locks on both brokers until their clients are closed.
type Move struct {
	Plan *Plan

	cfg    Config
	stale  []string // exchanges of interrupted runs
	marker string
	result Result
}

// Result is the result of Run.
type Result struct {
	Begun      bool   `json:"-"` // otherwise nothing has changed
	Moved      int64  `json:"moved"`
	Duplicates int64  `json:"possible_duplicates"` // maximum number since the first run that was interrupted
	Left       []Left `json:"left,omitempty"`
	Deleted    int    `json:"deleted,omitempty"` // number of queues of the source
}

// Left describes messages that are on the source after a move.
type Left struct {
	Queue   string `json:"queue"`
	Ready   int64  `json:"ready"`
	Unacked int64  `json:"unacked"`
	Delayed int64  `json:"delayed"` // for a retry, in the queue itself
	Dead    int64  `json:"dead"`    // dead-lettered by the queue itself, and not confirmed
}

// markerPrefix is the prefix of the exchange of a run, and lock the name of the queue that prevents two moves at a time. The name of
// the exchange is different for each run, so that a frame of a killed run cannot reach another queue.
const (
	lock         = "reprise.move"
	markerPrefix = lock + "."
	probe        = markerPrefix + "check"
)

// lockTimeout is the time in which a broker notices the end of the previous run.
const lockTimeout = 5 * time.Second

// ErrRunning is returned if another process moves queues from or to a virtual host.
var ErrRunning = errors.New("another reprise move uses this virtual host, or its connection is still open (try again), or the source is the target")

// Begin locks both virtual hosts and plans a move.
func Begin(ctx context.Context, cfg Config) (*Move, error) {
	cfg.Batch = cmp.Or(cfg.Batch, migrate.DefaultBatch)
	m := &Move{cfg: cfg, marker: markerPrefix + rand.Text()}
	if err := m.cfg.From.open(ctx); err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	if err := m.cfg.To.open(ctx); err != nil {
		return nil, fmt.Errorf("target: %w", err)
	}
	if m.cfg.Settle == 0 && m.cfg.From.rabbitMQ {
		m.cfg.Settle = migrate.DefaultSettle
	}
	from, err := doctor.Read(ctx, m.cfg.From.API, m.cfg.From.vhost())
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	to, err := doctor.Read(ctx, m.cfg.To.API, m.cfg.To.vhost())
	if err != nil {
		return nil, fmt.Errorf("target: %w", err)
	}
	for _, x := range to.Exchanges {
		if strings.HasPrefix(x.Name, markerPrefix) {
			m.stale = append(m.stale, x.Name)
		}
	}
	if m.Plan, err = plan(ctx, m.cfg, from, to); err != nil {
		return nil, err
	}
	m.migrations("source", from)
	m.migrations("target", to)
	return m, m.permissions(ctx)
}

// migrations refuses an interrupted migration of a queue: its messages are in two queues, and it has exchanges with markerPrefix.
func (m *Move) migrations(side string, b *doctor.Broker) {
	for _, x := range b.Exchanges {
		if queue, found := strings.CutPrefix(x.Name, migrate.RecordPrefix); found {
			m.Plan.problem("a migration of queue %s on the %s was interrupted (finish it first: reprise migrate)", queue, side)
		}
	}
}

// open locks a virtual host. The connection that publishes has the lock of the target: while a message of an earlier run can still
// arrive, the lock exists.
func (b *Broker) open(ctx context.Context) (err error) {
	b.in = inner.Of(b.Client)
	if b.conn, err = b.in.Publishing.Get(ctx); err != nil {
		return err
	}
	b.rabbitMQ = b.conn.IsRabbitMQ()
	owned := topology.Queue{Name: lock, Transient: true, Exclusive: true}
	for deadline := time.Now().Add(lockTimeout); ; {
		err = b.conn.Do(ctx, func(ch *amqpconn.Channel) error { return ch.DeclareQueue(ctx, owned, false) })
		if refusal, ok := amqpconn.RefusedChannel(err); !ok || refusal.Code != amqpconn.ResourceLocked {
			break
		}
		if time.Now().After(deadline) {
			return ErrRunning
		}
		if err := retry.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	_, err = b.API.Declaration(ctx, lock)
	if status, ok := errors.AsType[*mgmtapi.StatusError](err); ok && status.Code == http.StatusNotFound {
		return fmt.Errorf("the management API at %s and the URL belong to different brokers or virtual hosts", status.Host)
	}
	return err
}

// permissions adds a problem for each missing object that the user of the target may not create. The requests have no effect.
func (m *Move) permissions(ctx context.Context) error {
	to := &m.cfg.To
	t := m.Plan.missing
	t.Exchanges = append(slices.Clone(t.Exchanges), topology.Exchange{Name: m.marker, Kind: topology.Fanout})
	err := to.in.Check(ctx, topology.Topology{Exchanges: t.Exchanges, Queues: t.Queues})
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range all.Unwrap() {
			if _, refused := errors.AsType[*reprise.DeclareError](err); !refused {
				return err
			}
			m.Plan.problem("%s", strings.TrimPrefix(err.Error(), "reprise: "))
		}
	} else if err != nil {
		return err
	}
	for _, b := range t.Bindings {
		err := to.conn.Do(ctx, func(ch *amqpconn.Channel) error { return ch.Unbind(ctx, b) }) // it does not exist
		if refusal, ok := amqpconn.RefusedChannel(err); ok && refusal.Code == amqpconn.AccessRefused {
			m.Plan.problem("cannot create the binding %v on the target: %s", b, refusal.Text)
		} else if err != nil && !ok {
			return err
		}
	}
	for _, exchange := range []string{"", m.marker} {
		err := to.Client.Publish(ctx, &reprise.Message{Exchange: exchange, RoutingKey: m.marker}) // no queue has this name
		if refused, ok := errors.AsType[*reprise.RefusedError](err); ok {
			m.Plan.problem("cannot publish on the target: %s", strings.TrimPrefix(refused.Error(), "reprise: "))
		} else if !errors.Is(err, reprise.ErrUnroutable) {
			return err
		}
	}
	return nil
}

// arguments returns a *ProblemsError if the target refuses the arguments of queues, or policies. A queue or policy with another name
// has them for a moment.
func (m *Move) arguments(ctx context.Context) error {
	var p Plan
	var tried []topology.Queue
	for _, q := range m.Plan.missing.Queues {
		name := q.Name
		q.Name = probe
		if slices.ContainsFunc(tried, func(t topology.Queue) bool { return reflect.DeepEqual(t, q) }) {
			continue
		}
		tried = append(tried, q)
		err := m.cfg.To.conn.Do(ctx, func(ch *amqpconn.Channel) error {
			return errors.Join(ch.DeleteQueue(ctx, probe), ch.DeclareQueue(ctx, q, false))
		})
		if err == nil {
			err = m.cfg.To.conn.Do(ctx, func(ch *amqpconn.Channel) error { return ch.DeleteQueue(ctx, probe) })
		}
		if refusal, ok := amqpconn.RefusedChannel(err); ok {
			p.problem("the target refuses the arguments of queue %s: %s", name, refusal.Text)
		} else if err != nil {
			return err
		}
	}
	for _, policy := range m.Plan.policies {
		tried := policy
		tried.Name, tried.Pattern = probe, "^"+regexp.QuoteMeta(probe)+"$"
		err := m.cfg.To.put(ctx, &tried)
		if status, ok := errors.AsType[*mgmtapi.StatusError](err); ok && status.Code == http.StatusBadRequest {
			p.problem("the target refuses the definition of %v, %v (%v)", &policy, policy.Definition, err)
		} else if err != nil {
			return err
		} else if err := m.cfg.To.API.Delete(ctx, m.cfg.To.policy(probe)); err != nil {
			return err
		}
	}
	return p.Err()
}

func (b *Broker) policy(name string) string {
	return "policies" + b.API.Within() + "/" + url.PathEscape(name)
}

// put creates a policy.
func (b *Broker) put(ctx context.Context, p *doctor.Policy) error {
	value := map[string]any{"pattern": p.Pattern, "definition": p.Definition, "priority": p.Priority, "apply-to": cmp.Or(p.ApplyTo, "all")}
	if err := b.API.Put(ctx, b.policy(p.Name), value); err != nil {
		return fmt.Errorf("cannot create %v: %w", p, err)
	}
	return nil
}

// Run moves the messages until the queues of the source are empty or, if messages arrive at a steady rate, until their number does not
// decrease any more.
func (m *Move) Run(ctx context.Context) (Result, error) {
	err := m.run(ctx)
	if err != nil && m.result.Begun {
		m.result.Duplicates += int64(m.cfg.Batch)
	}
	if err == nil && m.cfg.Delete {
		err = m.delete(ctx)
	}
	return m.result, err
}

func (m *Move) run(ctx context.Context) error {
	if err := m.Plan.Err(); err != nil {
		return err
	}
	m.result.Duplicates = int64(len(m.stale) * m.cfg.Batch)
	if err := m.arguments(ctx); err != nil {
		return err
	}
	if err := m.declare(ctx); err != nil {
		return err
	}
	if err := m.rounds(ctx); err != nil {
		return err
	}
	if err := m.left(ctx); err != nil {
		return err
	}
	for _, exchange := range append(m.stale, m.marker) {
		if err := m.cfg.To.conn.Do(ctx, func(ch *amqpconn.Channel) error { return ch.DeleteExchange(ctx, exchange) }); err != nil {
			return err
		}
	}
	return nil
}

func (m *Move) step(format string, args ...any) {
	if m.cfg.Step != nil {
		m.cfg.Step(fmt.Sprintf(format, args...))
	}
}

// declare creates the missing objects, the policies first, so that queues have their limits from the beginning.
func (m *Move) declare(ctx context.Context) error {
	m.result.Begun = true
	to := &m.cfg.To
	if n := len(m.Plan.Create); n > 0 {
		m.step("create %d objects on the target", n)
	}
	for _, p := range m.Plan.policies {
		if err := to.put(ctx, &p); err != nil {
			return err
		}
	}
	t := m.Plan.missing
	t.Exchanges = append(slices.Clone(t.Exchanges), topology.Exchange{Name: m.marker, Kind: topology.Fanout})
	if err := to.in.Declare(ctx, t); err != nil {
		return err
	}
	return to.in.AwaitMature(ctx)
}

// rounds moves messages until the queues are empty. It ends early if as many messages arrive as it moves, or if the source does not
// deliver the rest, for example because it is in use by the single active consumer. A message that becomes due can change from a
// queue that a round has not seen yet to one that it has seen, therefore two rounds must find nothing that is left.
func (m *Move) rounds(ctx context.Context) error {
	least := int64(math.MaxInt64)
	for empty, arriving, stuck := 0, 0, 0; empty < 2 && arriving < 2 && stuck < 10; {
		before := m.result.Moved
		left, err := m.round(ctx)
		switch {
		case err != nil:
			return err
		case left == 0:
			empty++
		case left < least:
			least, arriving, stuck = left, 0, 0
		case m.result.Moved > before:
			arriving++
		default:
			stuck++
		}
	}
	return nil
}

// round moves the messages of all queues, and returns the number of messages that are ready on the source afterwards.
func (m *Move) round(ctx context.Context) (left int64, err error) {
	for _, q := range m.Plan.Queues {
		ready, err := m.ready(ctx, q.Name)
		if err == nil && ready > 0 {
			if err = m.move(ctx, q); err == nil {
				ready, err = m.ready(ctx, q.Name)
			}
		}
		if err != nil {
			return 0, fmt.Errorf("cannot move queue %q: %w", q.Name, err)
		}
		left += int64(ready)
	}
	return left, nil
}

// ready returns the number of ready messages of a queue of the source. It is exact, unlike that of the management API.
func (m *Move) ready(ctx context.Context, queue string) (n int, err error) {
	err = m.cfg.From.conn.Do(ctx, func(ch *amqpconn.Channel) error {
		n, _, err = ch.Counts(ctx, topology.Queue{Name: queue}, true)
		return err
	})
	return n, err
}

// move moves the messages of a queue.
func (m *Move) move(ctx context.Context, q Queue) error {
	from, to := &m.cfg.From, &m.cfg.To
	m.step("move %s", q.Name)
	binding := topology.Binding{Exchange: m.marker, Queue: q.Name}
	if err := to.in.Declare(ctx, topology.Topology{Bindings: []topology.Binding{binding}}); err != nil {
		return err
	}
	consuming, err := from.in.Consuming.Get(ctx)
	if err != nil {
		return err
	}
	p := migrate.Passage{
		From: consuming, Client: to.Client, Batch: cmp.Or(q.batch, m.cfg.Batch), Order: true, Lull: time.Second, Progress: m.cfg.Progress,
		Copy: func(d *amqpconn.Delivery) *reprise.Message { return m.copy(d, q) },
	}
	if !from.rabbitMQ {
		p.Args = topology.Table{expiryHeader: true}
	}
	err = p.Move(ctx, q.Name)
	m.result.Moved += p.Moved
	if err != nil {
		return err
	}
	return to.conn.Do(ctx, func(ch *amqpconn.Channel) error { return ch.Unbind(ctx, binding) })
}

// copy returns the message for the target. Only a message that reached the queue by its name can reach it by its name again: others
// have another routing key, which wait queues and consumers need, or the header CC, by which the default exchange would route the
// message also to other queues.
func (m *Move) copy(d *amqpconn.Delivery, q Queue) *reprise.Message {
	msg := migrate.Unchanged(m.cfg.From.in, d, m.cfg.To.in.Publishing.User())
	if _, copied := msg.Headers["CC"]; msg.Exchange != "" || msg.RoutingKey != q.Name || copied {
		msg.Exchange = m.marker
	}
	var expiry time.Time
	if !m.cfg.From.rabbitMQ {
		expiry = takeExpiry(msg)
	}
	q.shorten(msg, expiry, time.Now())
	return msg
}
