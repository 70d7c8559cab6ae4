package reprise

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/topology"
)

// declare makes sure that everything in t exists, over a channel of its own:
// the broker answers a refusal by closing the channel.
func (c *Client) declare(ctx context.Context, l *link, t topology.Topology) error {
	if err := validateTopology(t); err != nil {
		return err
	}
	conn, err := l.get(ctx)
	if err != nil {
		return err
	}
	version, _ := conn.Properties["version"].(string)
	if err := t.For(version); err != nil {
		return &DeclareError{Kind: "topology", Advice: "the broker is too old", Err: err}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.ConfirmTimeout,
		fmt.Errorf("%w: cannot declare: the broker gave no answer within %s", ErrDisconnected, c.cfg.ConfirmTimeout))
	defer cancel()
	if err := conn.unblocked(ctx); err != nil {
		return err
	}
	_, err = call(ctx, c, func() (struct{}, error) {
		d := declaration{conn: conn}
		err := d.all(t)
		if d.ch != nil {
			conn.closeChannel(d.ch)
		}
		return struct{}{}, err
	}, nil)
	return err
}

// validateTopology reports what no broker accepts, and arguments that cannot be sent.
func validateTopology(t topology.Topology) error {
	errs := []error{t.Validate()}
	check := func(kind, name string, args topology.Table) {
		if _, err := encodeTable(args); err != nil {
			errs = append(errs, fmt.Errorf("reprise: cannot declare %s %q with these arguments: %w", kind, name, err))
		}
	}
	for _, e := range t.Exchanges {
		check("exchange", e.Name, e.Args)
	}
	for _, q := range t.Queues {
		check("queue", q.Name, q.Args)
	}
	for _, b := range t.Bindings {
		check("binding", b.String(), b.Args)
	}
	return errors.Join(errs...)
}

// declaration is one run through a topology.
type declaration struct {
	conn *conn
	ch   *amqp.Channel // nil until needed, and after the broker closed it
}

func (d *declaration) all(t topology.Topology) error {
	for _, e := range t.Exchanges {
		if err := d.exchange(e); err != nil {
			return explainDeclare("exchange", e.Name, err)
		}
	}
	for _, q := range t.Queues {
		if err := d.queue(q); err != nil {
			return explainDeclare("queue", q.Name, err)
		}
	}
	for _, b := range t.Bindings {
		if err := d.binding(b); err != nil {
			return explainDeclare("binding", b.String(), err)
		}
	}
	return nil
}

// try runs a request on an open channel.
func (d *declaration) try(request func(ch *amqp.Channel) error) error {
	if d.ch == nil {
		ch, err := d.conn.open()
		if err != nil {
			return err
		}
		d.ch = ch
	}
	err := d.conn.ask(func() error { return request(d.ch) })
	if err != nil && d.ch.IsClosed() {
		d.ch = nil
	}
	return err
}

func (d *declaration) exchange(e topology.Exchange) error {
	args, err := encodeTable(e.Args)
	if err != nil {
		return err
	}
	return d.try(func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(e.Name, e.Kind, !e.Transient, e.AutoDelete, e.Internal, false, args)
	})
}

func (d *declaration) queue(q topology.Queue) error {
	args, err := encodeTable(q.Args)
	if err != nil {
		return err
	}
	passive := func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(q.Name, !q.Transient, q.AutoDelete, q.Exclusive, false, args)
		return err
	}
	active := func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(q.Name, !q.Transient, q.AutoDelete, q.Exclusive, false, args)
		return err
	}
	if !q.IfAbsent {
		return d.try(active)
	}
	if err := d.try(passive); !hasCode(err, amqp.NotFound) {
		return err
	}
	err = d.try(active)
	if hasCode(err, amqp.PreconditionFailed) {
		return d.try(passive) // somebody else has declared it in between, in another way
	}
	return err
}

func (d *declaration) binding(b topology.Binding) error {
	args, err := encodeTable(b.Args)
	if err != nil {
		return err
	}
	return d.try(func(ch *amqp.Channel) error {
		if b.ToExchange != "" {
			return ch.ExchangeBind(b.ToExchange, b.RoutingKey, b.Exchange, false, args)
		}
		return ch.QueueBind(b.Queue, b.RoutingKey, b.Exchange, false, args)
	})
}

func hasCode(err error, code int) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && e.Code == code
}

var inequivalent = regexp.MustCompile(`inequivalent arg '([^']*)' for (?:queue|exchange) .* in vhost .*: received (.*) but current is (.*)`)

// explainDeclare says what to do about a refusal.
func explainDeclare(kind, name string, err error) error {
	refusal, ok := errors.AsType[*amqp.Error](err)
	switch {
	case errors.Is(err, ErrInvalidMessage), errors.Is(err, amqp.ErrChannelMax):
		return fmt.Errorf("reprise: cannot declare %s %q: %w", kind, name, err)
	case !ok || !refusal.Server || refusal.Code == amqp.ConnectionForced, stumbled(refusal): // the broker itself has said nothing about it
		return fmt.Errorf("%w: cannot declare %s %q: %w", ErrDisconnected, kind, name, err)
	}
	advice := "the broker refuses it"
	switch refusal.Code {
	case amqp.PreconditionFailed:
		advice = "the broker does not accept these arguments: correct them"
		if m := inequivalent.FindStringSubmatch(refusal.Reason); m != nil {
			advice = fmt.Sprintf("it exists with another %s: the broker has %s, wanted is %s. "+
				"What exists cannot be changed: declare it as it is, use another name, or delete it once it is empty", m[1], m[3], m[2])
		}
	case amqp.NotFound:
		advice = "it needs something that does not exist: declare that too"
	case amqp.AccessRefused:
		advice = "the user may not configure it (or its name is reserved): have the permission granted, or have it declared by someone who may"
	case amqp.InternalError:
		advice = "the broker's configuration forbids it: declare it without the deprecated feature it names, or have that permitted"
	case amqp.ResourceLocked:
		advice = "another connection has it exclusively: close that one, or use another name"
	}
	return &DeclareError{Kind: kind, Name: name, Advice: advice, Err: refusal}
}

// stumbled tells a broker that failed at a request, as RabbitMQ does when its nodes
// are slow to agree on a quorum queue (541, and the connection is closed), from one
// that does not allow it: it says 541 also of what its operator has forbidden
// (deprecated_features.permit.* = false), naming the deprecated feature.
func stumbled(refusal *amqp.Error) bool {
	return refusal.Code == amqp.InternalError && !strings.Contains(refusal.Reason, "deprecated")
}

// declarer declares what a copy's next hop needs: on first use, once per
// connection, and again after forget.
type declarer struct {
	client *Client
	turn   chan struct{} // semaphore of one: the holder may declare
	done   onConnection[hopKey]
}

// hopKey says what is declared together. The routing key is left out where
// there is an exchange: messages bring any number of keys.
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
		return nil // by whoever had the turn before
	}
	conn, err := d.client.publishing.get(ctx)
	if err != nil {
		return err
	}
	if err := d.client.declare(ctx, d.client.publishing, hop.Topology); err != nil {
		return err
	}
	d.done.note(conn.gen, key)
	return nil
}

func (d *declarer) isDone(ctx context.Context, key hopKey) bool {
	conn, err := d.client.publishing.get(ctx)
	return err == nil && d.done.knows(conn.gen, key)
}

// forget has the hop declared again before it is next used.
func (d *declarer) forget(hop topology.Hop) { d.done.forget(keyOf(hop)) }
