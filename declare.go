package reprise

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/topology"
)

// declare makes sure that all objects in t exist.
func (c *Client) declare(ctx context.Context, l *amqpconn.Link, t topology.Topology) error {
	return c.declareOrCheck(ctx, l, t, false)
}

// declareOrCheck makes sure that all objects in t exist. If checkOnly is set, it creates nothing, and only reports existing objects
// that differ from their declarations, and missing objects that the user may not create. It uses a separate channel, because the broker closes the channel when it
// refuses a request.
func (c *Client) declareOrCheck(ctx context.Context, l *amqpconn.Link, t topology.Topology, checkOnly bool) error {
	if err := checkTopology(t); err != nil {
		return err
	}
	c.scheduled.exclude(t.NoSchedule)
	return c.declaration(ctx, l, checkOnly, func(ctx context.Context, d *declaration) error {
		if err := t.For(d.conn.Version()); err != nil {
			return &DeclareError{Kind: "topology", Advice: "the broker is too old", Err: err}
		}
		return d.all(ctx, t)
	})
}

// declaration calls f with a declaration, and limits its time.
func (c *Client) declaration(ctx context.Context, l *amqpconn.Link, checkOnly bool, f func(context.Context, *declaration) error) error {
	conn, err := l.Get(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.ConfirmTimeout,
		fmt.Errorf("%w: cannot declare: the broker did not answer within %s", ErrDisconnected, c.cfg.ConfirmTimeout))
	defer cancel()
	d := declaration{conn: conn, checkOnly: checkOnly, births: &c.births}
	err = f(ctx, &d)
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
	conn      *amqpconn.Conn
	ch        *amqpconn.Channel // nil until needed, and after the broker has closed it
	checkOnly bool
	refusals  []error
	births    *births
}

// all declares all objects. It reports all refusals, and stops at other errors.
func (d *declaration) all(ctx context.Context, t topology.Topology) error {
	for _, e := range t.Exchanges {
		err := d.object(func(how request) error {
			return d.try(ctx, func(ch *amqpconn.Channel) error {
				switch e := e; how {
				case passive:
					return ch.CheckExchange(ctx, e.Name)
				case impossible:
					e.Args = with(e.Args, "alternate-exchange", false)
					fallthrough
				default:
					return ch.DeclareExchange(ctx, e)
				}
			})
		})
		if !d.goesOn("exchange", e.Name, err) {
			return errors.Join(d.refusals...)
		}
	}
	for _, q := range t.Queues {
		if !d.goesOn("queue", q.Name, d.queue(ctx, q)) {
			return errors.Join(d.refusals...)
		}
	}
	if d.checkOnly { // the broker has no request that compares a binding
		return errors.Join(d.refusals...)
	}
	for _, b := range t.Bindings {
		err := d.try(ctx, func(ch *amqpconn.Channel) error { return ch.Bind(ctx, b) })
		if !d.goesOn("binding", b.String(), err) {
			break
		}
	}
	return errors.Join(d.refusals...)
}

// goesOn records the error of an object, and reports whether the declaration can continue.
func (d *declaration) goesOn(kind, name string, err error) bool {
	if err == nil {
		return true
	}
	err = explainDeclare(kind, name, err)
	d.refusals = append(d.refusals, err)
	_, refused := errors.AsType[*DeclareError](err)
	return refused
}

// request is a way to declare an object.
type request int

const (
	active     request = iota
	passive            // only checks that the object exists
	impossible         // cannot create the object, because of an invalid argument, which the broker checks after the permissions
)

// object declares an object. If the user may not configure the object, it only has to exist.
func (d *declaration) object(declare func(request) error) error {
	if d.checkOnly {
		if err := declare(passive); err != nil {
			return missing(err, declare)
		}
	}
	err := declare(active)
	if refusedWith(err, amqpconn.AccessRefused) && declare(passive) == nil {
		return nil
	}
	return err
}

// missing returns an error if the object does not exist, according to err, and the user may not create it.
func missing(err error, declare func(request) error) error {
	if !refusedWith(err, amqpconn.NotFound) {
		return err
	}
	if err := declare(impossible); !refusedWith(err, amqpconn.PreconditionFailed) {
		return err
	}
	return nil
}

// with returns a copy of args with an additional argument.
func with(args topology.Table, name string, value any) topology.Table {
	args = args.Clone()
	args[name] = value
	return args
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
	declare := func(how request) error {
		q := q
		if how == impossible {
			q.Args = with(q.Args, locator, noLocator)
		}
		return d.try(ctx, func(ch *amqpconn.Channel) error { return ch.DeclareQueue(ctx, q, how == passive) })
	}
	create := func() error {
		err := declare(active)
		if _, refused := amqpconn.RefusedChannel(err); !refused { // also if the answer is lost
			d.births.add(q.Name, d.conn.YoungQueue())
		}
		return err
	}
	if !q.IfAbsent {
		if !d.checkOnly && d.conn.YoungQueue() > 0 && refusedWith(declare(passive), amqpconn.NotFound) {
			return create()
		}
		return d.object(declare)
	}
	if err := declare(passive); !refusedWith(err, amqpconn.NotFound) {
		return err
	} else if d.checkOnly {
		return missing(err, declare)
	}
	err := create()
	if refusedWith(err, amqpconn.PreconditionFailed) {
		return declare(passive) // another program has since declared the queue with different arguments
	}
	return err
}

// risks returns the risks of an existing queue that its declaration own does not have. If checkOnly is set, no request can create
// the queue.
func (d *declaration) risks(ctx context.Context, own topology.Queue) ([]string, error) {
	err := d.try(ctx, func(ch *amqpconn.Channel) error {
		if !d.checkOnly {
			return ch.DeclareQueue(ctx, own, false)
		}
		return ch.DeclareQueue(ctx, topology.Queue{Name: own.Name}, true)
	})
	switch {
	case refusedWith(err, amqpconn.NotFound), err == nil && !d.checkOnly:
		return nil, nil
	case err != nil && !refusedWith(err, amqpconn.PreconditionFailed):
		return nil, explainDeclare("queue", own.Name, err)
	}
	q, err := d.learn(ctx, own.Name)
	if err != nil {
		return nil, explainDeclare("queue", own.Name, err)
	}
	return newRisks(q, own), nil
}

// newRisks returns the risks of q that its declaration own does not have.
func newRisks(q, own topology.Queue) []string {
	known := own.Risks()
	return slices.DeleteFunc(q.Risks(), func(risk string) bool { return slices.Contains(known, risk) })
}

const (
	locator      = "x-queue-leader-locator"
	noLocator    = "reprise reads the arguments" // visible in the broker's log
	maxArguments = 32                            // more than RabbitMQ has
)

// learn returns the properties and the arguments of an existing queue. AMQP has no request for them, but a broker refuses a
// declaration that differs from the queue, and reports one difference. The declarations have an invalid argument that
// brokers compare last, so that none of them can create a queue. https://www.rabbitmq.com/docs/queues#property-equivalence
func (d *declaration) learn(ctx context.Context, name string) (q topology.Queue, err error) {
	q = topology.Queue{Name: name, Args: topology.Table{}}
	for range maxArguments {
		declared := q
		declared.Args = with(q.Args, locator, noLocator)
		err = d.try(ctx, func(ch *amqpconn.Channel) error { return ch.DeclareQueue(ctx, declared, false) })
		refusal, _ := amqpconn.RefusedChannel(err)
		if err == nil || refusal == nil {
			return q, err
		}
		difference := inequivalent.FindStringSubmatch(refusal.Text)
		if difference == nil {
			return q, err
		}
		current, complete := argument(difference[3])
		switch name := difference[1]; {
		case name == locator:
			return q, nil
		case name == "durable":
			q.Transient = current != true
		case name == "auto_delete":
			q.AutoDelete = current == true
		case current != nil:
			q.Args[name] = current
		case !complete && q.Args[name] == nil:
			q.Args[name] = "" // makes the text of the next refusal shorter
		case !complete:
			return q, err
		default:
			delete(q.Args, name)
		}
	}
	return q, err
}

var quotedValue = regexp.MustCompile(`^(?:the value )?'(.*?)'(?: of type '([a-z]+)')?$`)

// argument returns the value that a broker describes, for example: the value '1000' of type 'signedint'. The value of none is
// nil. It returns false if the description is incomplete, because AMQP limits its size.
func argument(text string) (value any, complete bool) {
	m := quotedValue.FindStringSubmatch(text)
	if m == nil {
		return nil, text == "none"
	}
	if n, err := strconv.ParseInt(m[1], 10, 64); err == nil && m[2] != "longstr" {
		return n, true
	}
	if yes, err := strconv.ParseBool(m[1]); err == nil && m[2] != "longstr" {
		return yes, true
	}
	return m[1], true
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
	case errors.Is(err, ErrInvalidMessage), errors.Is(err, amqpconn.ErrChannelMax), errors.Is(err, amqpconn.ErrEncode):
		return fmt.Errorf("reprise: cannot declare %s %q: %w", kind, name, err)
	case !ok || refusal.Code == amqpconn.ConnectionForced, isBrokerFailure(refusal): // the broker has not refused the object itself
		return fmt.Errorf("%w: cannot declare %s %q: %w", ErrDisconnected, kind, name, err)
	}
	advice := "the broker refused the request"
	switch refusal.Code {
	case amqpconn.PreconditionFailed:
		advice = "the broker does not accept these arguments"
		queue, members := strings.CutSuffix(name, consume.MembersQueue(""))
		switch m := inequivalent.FindStringSubmatch(refusal.Text); {
		case m != nil && members: // it is always empty, but must not be deleted
			advice = fmt.Sprintf("workers of queue %q have another number of partitions (x-max-length) or another header (the hash x-max-length-bytes) in OrderBy; use the same settings, or change all workers as docs/ordering.md describes", queue)
		case m != nil:
			advice = fmt.Sprintf("already exists with a different %s: the broker has %s, the declaration has %s; correct the declaration, use another name, or delete the object if it is empty", m[1], m[3], m[2])
		}
	case amqpconn.NotFound:
		advice = "another object that it needs was not found; declare that object too"
	case amqpconn.AccessRefused:
		advice = refusedAdvice(kind, refusal.Text)
	case amqpconn.InternalError:
		advice = "the broker does not permit a deprecated feature; declare it without the feature, or permit the feature in the broker"
	case amqpconn.ResourceLocked:
		advice = "another connection owns it exclusively; close that connection, or use another name"
	}
	return &DeclareError{Kind: kind, Name: name, Advice: advice, Err: refusal}
}

// deadLetterRefused matches the refusal of a queue that the user may declare, but not with its dead-letter exchange.
var deadLetterRefused = regexp.MustCompile(`access to exchange '(.*)' in vhost`)

// refusedAdvice returns the advice for a user without permission. If the object existed and the user had another permission
// for it, the declaration would have succeeded.
func refusedAdvice(kind, refusal string) string {
	if kind == "binding" {
		return "the user may not bind it; grant the write permission for the destination and the read permission for the source, or declare the binding as another user"
	}
	if m := deadLetterRefused.FindStringSubmatch(refusal); m != nil && kind == "queue" {
		return fmt.Sprintf("its dead-letter exchange requires the write permission for the exchange %q; grant it, or declare the queue as another user", m[1])
	}
	return "it does not exist, or the user has no permission for it, or its name is reserved; declare it as another user, or grant the configure permission (or, if it exists, read or write)"
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
