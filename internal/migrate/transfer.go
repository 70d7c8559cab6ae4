package migrate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

const (
	poll = 100 * time.Millisecond // interval at which a transfer checks whether the old queue is unused

	// RabbitMQ returns the unacked messages of a connection before it removes the connection from its list, but later if the
	// client closes the socket in that moment.
	requeue = 500 * time.Millisecond

	// A quorum queue counts a message later than its channel has routed it: on a busy node, 44 of 50 messages were missing.
	routed = time.Second
)

// transfer moves the bindings and the messages of a queue to another queue, and deletes the first one:
//
//  1. It declares the second queue, and waits until RabbitMQ can no longer lose it.
//  2. For each binding, it binds the second queue, and then unbinds the first one. A message that arrives in between
//     reaches both queues.
//  3. It moves the messages until the first queue is empty and has no consumers and no unacked messages.
//  4. It deletes the first queue, if it is still empty and unused.
func (r *run) transfer(ctx context.Context, from string, to topology.Queue) error {
	mover := r.record.mover().Name
	if from == r.record.Queue {
		r.step("declare %s", to.Name)
	}
	err := r.do(ctx,
		func(ch *amqpconn.Channel) error { return ch.DeclareQueue(ctx, to, false) },
		func(ch *amqpconn.Channel) error {
			return ch.Bind(ctx, topology.Binding{Exchange: mover, Queue: to.Name})
		},
		func(ch *amqpconn.Channel) error {
			return ch.Unbind(ctx, topology.Binding{Exchange: mover, Queue: from})
		},
	)
	if err != nil {
		return fmt.Errorf("cannot declare queue %q: %w", to.Name, err)
	}
	if err := r.unlimited(ctx, to.Name); err != nil {
		return err
	}
	if err := retry.Sleep(ctx, r.conn.YoungQueue()); err != nil {
		return err
	}
	old, err := r.broker.queue(ctx, from)
	if err != nil || !old.Found {
		return err
	}
	for {
		if err := r.rebind(ctx, from, to.Name); err != nil {
			return err
		}
		if err := r.empty(ctx, old, to.Name); err != nil {
			return err
		}
		// The owner of a queue may have bound it again.
		bindings, err := r.broker.bindings(ctx, from)
		if err != nil {
			return err
		}
		if len(bindings) > 0 {
			continue
		}
		if err := r.guard(ctx, old); err != nil {
			return err
		}
		if err := r.delete(ctx, old); !errors.Is(err, errBusy) {
			return err
		}
	}
}

// unlimited returns an error if a policy could remove messages from the holding queue.
func (r *run) unlimited(ctx context.Context, name string) error {
	if name != r.record.hold().Name {
		return nil
	}
	hold, err := r.broker.queue(ctx, name)
	if err != nil {
		return err
	}
	if key := losing(hold.Effective); key != "" {
		return fmt.Errorf("policy %q sets %s also for queue %q, so messages could be lost there (limit its pattern)", hold.Policy, key, name)
	}
	return nil
}

// log adds an entry to the journal.
func (r *run) log(ctx context.Context, entry string) error {
	err := r.do(ctx, func(ch *amqpconn.Channel) error { return ch.Bind(ctx, r.entry(entry)) })
	if err == nil && !r.journal.has(entry) {
		r.journal = append(r.journal, entry)
	}
	return err
}

// unlog removes an entry from the journal.
func (r *run) unlog(ctx context.Context, entry string) error {
	err := r.do(ctx, func(ch *amqpconn.Channel) error { return ch.Unbind(ctx, r.entry(entry)) })
	if err == nil {
		r.journal = slices.DeleteFunc(r.journal, func(e string) bool { return e == entry })
	}
	return err
}

func (r *run) entry(key string) topology.Binding {
	return topology.Binding{Exchange: r.record.exchange().Name, ToExchange: r.record.mover().Name, RoutingKey: key}
}

// rebind moves the bindings. It counts the messages that may have reached both queues: at most those that have arrived in
// the second queue meanwhile or, if an earlier run was interrupted here, all messages of the second queue.
func (r *run) rebind(ctx context.Context, from, to string) error {
	bindings, err := r.broker.bindings(ctx, from)
	if err != nil {
		return err
	}
	intent := "rebind/" + to
	interrupted := r.journal.has(intent)
	if len(bindings) == 0 && !interrupted {
		return nil
	}
	r.step("move %d bindings from %s to %s", len(bindings), from, to)
	if err := r.log(ctx, intent); err != nil {
		return err
	}
	before, consumers, err := r.counts(ctx, to)
	if err != nil {
		return err
	}
	if interrupted {
		before = 0
	}
	for _, b := range bindings {
		added := b
		added.Queue = to
		err := r.do(ctx,
			func(ch *amqpconn.Channel) error { return ch.Bind(ctx, added) },
			func(ch *amqpconn.Channel) error { return ch.Unbind(ctx, b) },
		)
		if err != nil {
			return fmt.Errorf("cannot move the binding of exchange %q with key %q: %w", b.Exchange, b.RoutingKey, err)
		}
	}
	if err := r.unbindRest(ctx, from); err != nil {
		return err
	}
	if r.observes() {
		if err := retry.Sleep(ctx, routed); err != nil {
			return err
		}
	}
	after, more, err := r.counts(ctx, to)
	if err != nil {
		return err
	}
	if consumers+more > 0 {
		r.result.Uncounted = true
	}
	if n := after - before; n > 0 {
		if err := r.log(ctx, fmt.Sprintf("overlap/%s/%s/%d", to, rand.Text(), n)); err != nil {
			return err
		}
	}
	return r.unlog(ctx, intent)
}

// unbindRest removes the bindings that AMQP has not removed: the management API does not show the exact types of their
// arguments, and RabbitMQ ignores an unbind with other types.
func (r *run) unbindRest(ctx context.Context, from string) error {
	var rest []struct {
		Source     string `json:"source"`
		Properties string `json:"properties_key"`
	}
	if err := r.broker.get(ctx, r.broker.path("queues", from)+"/bindings", &rest); err != nil {
		return err
	}
	for _, b := range rest {
		if b.Source == "" || strings.HasPrefix(b.Source, movePrefix) {
			continue
		}
		path := "bindings" + r.broker.api.Within() + "/e/" + url.PathEscape(b.Source) + "/q/" + url.PathEscape(from) + "/" + url.PathEscape(b.Properties)
		if err := r.broker.api.Delete(ctx, path); err != nil {
			return fmt.Errorf("cannot remove the binding of exchange %q: %w", b.Source, err)
		}
	}
	return nil
}

// counts returns the number of ready messages and of consumers, which are exact, unlike those of the management API.
func (r *run) counts(ctx context.Context, name string) (messages, consumers int, err error) {
	err = r.do(ctx, func(ch *amqpconn.Channel) (err error) {
		messages, consumers, err = ch.Counts(ctx, topology.Queue{Name: name}, true)
		return err
	})
	return messages, consumers, err
}

// moves reports whether the run itself moves messages from a queue. Otherwise its consumers have to empty it.
func (r *run) moves(from string) bool {
	return from != r.record.Queue || !r.record.Ordered || !r.paused.IsZero()
}

// empty moves messages until the queue is empty and unused.
func (r *run) empty(ctx context.Context, from *queue, to string) (err error) {
	token := fmt.Sprintf("run/%s/%d", rand.Text(), r.cfg.Batch)
	if r.moves(from.Name) {
		if err := r.log(ctx, token); err != nil {
			return err
		}
		r.step("move the messages from %s to %s", from.Name, to)
	}
	var idle *statistics
	defer func() { idle.end(r) }()
	for last := ""; ; {
		if r.moves(from.Name) {
			if err := r.move(ctx, from.Name, to); err != nil {
				return fmt.Errorf("cannot move the messages of queue %q: %w", from.Name, err)
			}
		}
		current := false
		if idle != nil {
			current, err = idle.current(ctx, r)
		}
		if err != nil {
			return err
		}
		use := r.busy
		pausing := r.record.Disconnect && r.paused.IsZero() && from.Name == r.record.Queue && r.record.To == r.record.Queue
		if pausing {
			use = r.returning // during the pause, messages must not return
		}
		reason, err := use(ctx, from)
		switch {
		case err != nil:
			return err
		case reason != "":
			idle.end(r)
			idle = nil
			if reason != last {
				r.step("wait: %s", reason)
			}
			last = reason
		case pausing && (current || !from.holds()):
			idle.end(r)
			idle = nil
			if err := r.pause(ctx, func() error { return r.move(ctx, from.Name, to) }); err != nil {
				return err
			}
			continue
		case idle == nil && (r.paused.IsZero() || from.holds()):
			idle = r.since(2) // a queue reports its counts at an interval, and the management API collects them at the same one
		case idle == nil:
			idle = &statistics{begin: time.Now(), least: requeue}
		case current:
			return r.unlog(ctx, token)
		}
		if err := retry.Sleep(ctx, poll); err != nil {
			return err
		}
	}
}

// busy returns why a queue must not be deleted yet, or "".
func (r *run) busy(ctx context.Context, q *queue) (string, error) {
	ready, consumers, err := r.counts(ctx, q.Name)
	if err != nil {
		return "", err
	}
	if ready > 0 && consumers == 0 && !r.moves(q.Name) {
		return fmt.Sprintf("%s has messages, but no consumers (start them, or use --disconnect)", q.Name), nil
	}
	now, err := r.broker.queue(ctx, q.Name)
	switch {
	case err != nil:
		return "", err
	case ready > 0 || consumers > 0:
		return fmt.Sprintf("%s has %s", q.Name, users(ready, consumers, now.Consumers)), nil
	// Messages that are unacked, without a consumer, are only in the counts of the API, and would be lost. The holding queue has
	// some while an operator looks at its messages. The counts are too late for a pause, in which no other program has messages.
	case r.paused.IsZero() && now.Found && !now.Counted && r.observes():
		return fmt.Sprintf("the management API does not show the unacked messages of %s yet", q.Name), nil
	case r.paused.IsZero() && (now.Unacked > 0 || len(now.Consumers) > 0):
		return fmt.Sprintf("%s has unacked messages or consumers, according to the management API", q.Name), nil
	}
	if reason, err := r.held(now); reason != "" || err != nil {
		return reason, err
	}
	if q.Name == r.record.Queue && r.record.To == r.record.Queue {
		return r.returning(ctx, q)
	}
	return "", nil
}

// held returns why a queue has messages that no consumer receives, and that would be lost with it. A pause must not wait for them.
func (r *run) held(q *queue) (reason string, err error) {
	if q.Held == 0 {
		return "", nil
	}
	reason = fmt.Sprintf("%s has %d messages that wait for a delayed retry, or for the confirm of their dead letters (does a queue receive and accept them?)", q.Name, q.Held)
	if !r.paused.IsZero() {
		return "", errors.New(reason)
	}
	return reason, nil
}

func users(ready, consumers int, connections []string) string {
	if consumers == 0 {
		return fmt.Sprintf("%d messages", ready)
	}
	text := fmt.Sprintf("%d messages and %d consumers (stop them)", ready, consumers)
	if len(connections) > 0 {
		slices.Sort(connections)
		connections = slices.Compact(connections)
		text += ": " + strings.Join(connections[:min(3, len(connections))], ", ")
	}
	return text
}

// returning returns which queue has messages that return to a queue by its name when they expire, so that they would be
// lost while the queue does not exist.
func (r *run) returning(ctx context.Context, q *queue) (string, error) {
	name := q.Name
	now, err := r.broker.queue(ctx, name)
	if err != nil {
		return "", err
	}
	if reason, err := r.held(now); reason != "" || err != nil {
		return reason, err
	}
	sources, err := r.broker.namedBy(ctx, name)
	if err != nil {
		return "", err
	}
	for _, source := range sources {
		now, err := r.broker.queue(ctx, source)
		if err != nil {
			return "", err
		}
		ready, _, err := r.counts(ctx, source)
		if err != nil {
			return "", err
		}
		if ready == 0 && now.Unacked == 0 {
			continue
		}
		if !r.paused.IsZero() {
			return "", fmt.Errorf("queue %q has messages that return to queue %q by its name (stop the consumers of %[2]s, wait until %[1]s is empty, and run the command again)", source, name)
		}
		return fmt.Sprintf("%s has messages that return to %s by its name", source, name), nil
	}
	return "", nil
}

// KeptError is returned if the old queue is empty, but must not be deleted, because later messages would be lost. The
// bindings are moved.
type KeptError struct {
	Queue  string
	Reason string
}

func (e *KeptError) Error() string {
	return fmt.Sprintf("queue %q is not deleted: %s", e.Queue, e.Reason)
}

// guard returns a *KeptError if messages reach the queue without a binding.
func (r *run) guard(ctx context.Context, old *queue) error {
	if old.Name != r.record.Queue || !r.paused.IsZero() {
		return nil
	}
	if r.byName > 0 || old.ByName || r.record.ByName {
		if r.record.To == r.record.Queue {
			return &KeptError{old.Name, "programs publish to it by its name, and RabbitMQ would drop messages that they publish while it does not exist; messages wait in " + old.Name + holding + " until you run the command again with --disconnect, which stops these programs for that time, or with --undo"}
		}
		if !r.record.Delete {
			return &KeptError{old.Name, "programs have published to it by its name; change them first, and run the command again with --delete"}
		}
	}
	if r.record.To == r.record.Queue {
		return nil
	}
	if r.record.Unseen && !r.record.Delete {
		return &KeptError{old.Name, "the broker does not tell whether programs publish to it by its name (rates_mode is not detailed); if no program does any more, run the command again with --delete"}
	}
	sources, err := r.broker.namedBy(ctx, old.Name)
	if err == nil && len(sources) > 0 {
		err = &KeptError{old.Name, "dead letters of " + strings.Join(sources, ", ") + " go to it by its name"}
	}
	return err
}

// errBusy is returned if a queue is in use again.
var errBusy = errors.New("the queue is in use again")

// delete deletes an empty, unused queue. RabbitMQ checks this only for classic queues. For quorum queues, the last check
// precedes the request: no binding leads to the queue, and all other programs are disconnected or do not use its name.
func (r *run) delete(ctx context.Context, q *queue) error {
	r.step("delete %s", q.Name)
	if q.Kind != "quorum" {
		err := r.do(ctx, func(ch *amqpconn.Channel) error { return ch.DeleteIdleQueue(ctx, q.Name) })
		if refusal, ok := amqpconn.RefusedChannel(err); ok && refusal.Code == amqpconn.PreconditionFailed {
			return errBusy
		}
		return err
	}
	ready, consumers, err := r.counts(ctx, q.Name)
	if err != nil {
		return err
	}
	if ready+consumers > 0 {
		return errBusy
	}
	return r.do(ctx, func(ch *amqpconn.Channel) error { return ch.DeleteQueue(ctx, q.Name) })
}
