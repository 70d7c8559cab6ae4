package reprise

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/topology"
)

// declare makes sure that all objects in t exist. It uses a separate channel, because the broker closes the channel when it
// refuses a request.
func (c *Client) declare(ctx context.Context, l *amqpconn.Link, t topology.Topology) error {
	if err := checkTopology(t); err != nil {
		return err
	}
	conn, err := l.Get(ctx)
	if err != nil {
		return err
	}
	if err := t.For(conn.Version()); err != nil {
		return &DeclareError{Kind: "topology", Advice: "the broker is too old", Err: err}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.ConfirmTimeout,
		fmt.Errorf("%w: cannot declare: the broker did not answer within %s", ErrDisconnected, c.cfg.ConfirmTimeout))
	defer cancel()
	d := declaration{conn: conn}
	err = d.all(ctx, t)
	if d.ch != nil {
		d.ch.Close(ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// checkTopology reports objects that no broker accepts, and arguments that AMQP cannot encode.
func checkTopology(t topology.Topology) error {
	return errors.Join(t.Validate(), amqpconn.CheckTopology(t))
}

// declaration is the state of one call of declare.
type declaration struct {
	conn *amqpconn.Conn
	ch   *amqpconn.Channel // nil until needed, and after the broker has closed it
}

func (d *declaration) all(ctx context.Context, t topology.Topology) error {
	for _, e := range t.Exchanges {
		if err := d.try(ctx, func(ch *amqpconn.Channel) error { return ch.DeclareExchange(ctx, e) }); err != nil {
			return explainDeclare("exchange", e.Name, err)
		}
	}
	for _, q := range t.Queues {
		if err := d.queue(ctx, q); err != nil {
			return explainDeclare("queue", q.Name, err)
		}
	}
	for _, b := range t.Bindings {
		if err := d.try(ctx, func(ch *amqpconn.Channel) error { return ch.Bind(ctx, b) }); err != nil {
			return explainDeclare("binding", b.String(), err)
		}
	}
	return nil
}

// try sends a request on an open channel. If the broker refuses the request and closes the channel, the next request
// opens a new channel.
func (d *declaration) try(ctx context.Context, request func(ch *amqpconn.Channel) error) (err error) {
	if d.ch == nil {
		if d.ch, err = d.conn.OpenWritable(ctx); err != nil {
			return err
		}
	}
	err = request(d.ch)
	if err != nil && d.ch.IsClosed() {
		d.ch = nil
	}
	return err
}

func (d *declaration) queue(ctx context.Context, q topology.Queue) error {
	declare := func(passive bool) error {
		return d.try(ctx, func(ch *amqpconn.Channel) error { return ch.DeclareQueue(ctx, q, passive) })
	}
	if !q.IfAbsent {
		return declare(false)
	}
	if err := declare(true); !refusedWith(err, amqpconn.NotFound) {
		return err
	}
	err := declare(false)
	if refusedWith(err, amqpconn.PreconditionFailed) {
		return declare(true) // another program has since declared the queue with different arguments
	}
	return err
}

func refusedWith(err error, code int) bool {
	refusal, ok := amqpconn.RefusedChannel(err)
	return ok && refusal.Code == code
}

var inequivalent = regexp.MustCompile(`inequivalent arg '([^']*)' for (?:queue|exchange) .* in vhost .*: received (.*) but current is (.*)`)

// explainDeclare adds advice to a refusal.
func explainDeclare(kind, name string, err error) error {
	refusal, ok := errors.AsType[*amqpconn.Refusal](err)
	switch {
	case errors.Is(err, ErrInvalidMessage), errors.Is(err, amqpconn.ErrChannelMax):
		return fmt.Errorf("reprise: cannot declare %s %q: %w", kind, name, err)
	case !ok || refusal.Code == amqpconn.ConnectionForced, isBrokerFailure(refusal): // the broker has not refused the object itself
		return fmt.Errorf("%w: cannot declare %s %q: %w", ErrDisconnected, kind, name, err)
	}
	advice := "the broker refused the request"
	switch refusal.Code {
	case amqpconn.PreconditionFailed:
		advice = "the broker does not accept these arguments"
		if m := inequivalent.FindStringSubmatch(refusal.Text); m != nil {
			advice = fmt.Sprintf("already exists with a different %s: the broker has %s, the declaration has %s; correct the declaration, use another name, or delete the object if it is empty", m[1], m[3], m[2])
		}
	case amqpconn.NotFound:
		advice = "another object that it needs was not found; declare that object too"
	case amqpconn.AccessRefused:
		advice = "the user may not configure it, or its name is reserved; grant the configure permission, or declare it as another user"
	case amqpconn.InternalError:
		advice = "the broker does not permit a deprecated feature; declare it without the feature, or permit the feature in the broker"
	case amqpconn.ResourceLocked:
		advice = "another connection owns it exclusively; close that connection, or use another name"
	}
	return &DeclareError{Kind: kind, Name: name, Advice: advice, Err: refusal}
}

// isBrokerFailure reports whether the broker failed to process a request, as opposed to refusing it. RabbitMQ sends the
// code 541 in both cases. It fails, and closes the connection, if its nodes take too long to agree on a quorum queue. It
// refuses a request for a deprecated feature that the operator has disabled (deprecated_features.permit.* = false), and
// the text then names that feature.
func isBrokerFailure(refusal *amqpconn.Refusal) bool {
	return refusal.Code == amqpconn.InternalError && !strings.Contains(refusal.Text, "deprecated")
}

// declarer declares the objects that a hop needs. It does so when a connection first uses the hop, and again after forget.
type declarer struct {
	client *Client
	turn   chan struct{} // semaphore with one slot; its holder declares
	done   onConnection[hopKey]
}

// hopKey identifies objects that are declared together. It omits the routing key if there is an exchange, because
// messages can have any number of different keys.
type hopKey struct{ exchange, queue string }

func keyOf(hop topology.Hop) hopKey {
	if hop.Exchange == "" {
		return hopKey{queue: hop.RoutingKey}
	}
	return hopKey{exchange: hop.Exchange}
}

func newDeclarer(c *Client) *declarer {
	return &declarer{client: c, turn: make(chan struct{}, 1)}
}

func (d *declarer) ensure(ctx context.Context, hop topology.Hop) error {
	key := keyOf(hop)
	if d.isDone(ctx, key) {
		return nil
	}
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if d.isDone(ctx, key) {
		return nil // the previous holder of the semaphore has declared it
	}
	conn, err := d.client.publishing.Get(ctx)
	if err != nil {
		return err
	}
	if err := d.client.declare(ctx, d.client.publishing, hop.Topology); err != nil {
		return err
	}
	d.done.note(conn.Generation(), key)
	return nil
}

func (d *declarer) isDone(ctx context.Context, key hopKey) bool {
	conn, err := d.client.publishing.Get(ctx)
	return err == nil && d.done.knows(conn.Generation(), key)
}

// forget makes the next call of ensure declare the objects of the hop again.
func (d *declarer) forget(hop topology.Hop) { d.done.forget(keyOf(hop)) }

// maxKnown is the maximum number of keys in an onConnection. When this number is reached, the method note removes all
// earlier keys.
const maxKnown = 10_000

// onConnection is a set of keys that is valid for one generation of a connection.
type onConnection[K comparable] struct {
	mu   sync.Mutex
	gen  uint64
	seen map[K]struct{}
}

func (o *onConnection[K]) knows(gen uint64, key K) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, seen := o.seen[key]
	return seen && gen == o.gen
}

// note adds a key. It removes the keys of older generations. It also removes all other keys if there are maxKnown of
// them, because a program may schedule messages to any number of queues. A removed key only costs another request.
func (o *onConnection[K]) note(gen uint64, key K) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if gen < o.gen {
		return
	}
	if gen > o.gen || o.seen == nil || len(o.seen) >= maxKnown {
		o.gen, o.seen = gen, map[K]struct{}{}
	}
	o.seen[key] = struct{}{}
}

func (o *onConnection[K]) forget(key K) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.seen, key)
}
