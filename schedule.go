package reprise

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/publish"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// PublishAt publishes m so that it reaches its exchange or queue at t, with its routing key, its properties and its
// headers, as if it had been published at that time. Until then m waits in durable queues of the broker, and survives
// restarts of the broker and of this program. A scheduled message cannot be canceled. It never arrives early. It arrives
// less than a second late, plus a few milliseconds for each queue on its route (at most 29). If publishing has to wait,
// the wait is part of the delay, so the message is late only if it becomes due before the client can send it.
//
// The first message to a target (an exchange or a queue) declares up to 29 queues for the target, for example 13 for an
// hour and 23 for 30 days: see topology.Levels. If the only node of RabbitMQ is killed within 3 s after that, the queues and their
// messages can be lost.
//
// If t is in the past, the message is published immediately. The maximum delay is topology.MaxSchedule, 8.5 years.
// PublishAt uses the clock of this machine, so a wrong clock results in a wrong delay.
//
// A nil error means that the broker has stored the message. PublishAt returns the errors of Publish. It also returns a
// *DeclareError if the broker refuses to declare a queue for the delay, and an *UnroutableError if the target does not
// exist, which it checks once per connection. If the target is missing when the message becomes due, the message stays in
// the last queue of its delay until the target exists again.
//
// PublishAt returns ErrInvalidMessage if m.Expiration is set, because m would expire during the delay. It also returns
// ErrInvalidMessage if m has the header CC or BCC and is addressed to a queue, because these headers have no effect there.
// PublishAt removes the headers in which RabbitMQ counts earlier deliveries and dead-letterings (x-death and related
// headers), because RabbitMQ would treat them as its own.
//
// When m arrives, its x-death lists the queues of the delay. A worker does not count these entries as attempts, and
// other programs must not do so either. The published code of the CDN design does, and fails. PublishAt therefore returns
// ErrInvalidMessage for the targets in topology.Topology.NoSchedule that this client knows from a declaration or a worker.
// A message that is scheduled to a queue has the name of the queue as its routing key. If another program needs a
// different routing key, publish to an exchange.
func (c *Client) PublishAt(ctx context.Context, t time.Time, m *Message) error {
	err := c.before(ctx, m)
	var fresh *Message
	if err == nil {
		fresh, err = schedulable(m)
	}
	if err == nil && t.After(time.Now()) {
		err = c.scheduled.permits(targetOf(m))
	}
	if err != nil {
		c.published(m, nil, err)
		return err
	}
	if !t.After(time.Now()) {
		return c.publishNow(ctx, fresh)
	}
	pub, err := c.publishAt(ctx, t, fresh)
	if e, ok := errors.AsType[*UnroutableError](err); ok && e.Exchange != m.Exchange {
		pub, err = c.publishAt(ctx, t, fresh) // another program has deleted the declared queues
	}
	c.published(m, pub, err)
	return err
}

// PublishIn calls PublishAt with the time d from now.
func (c *Client) PublishIn(ctx context.Context, d time.Duration, m *Message) error {
	return c.PublishAt(ctx, time.Now().Add(d), m)
}

// schedulable returns a copy of m for the delay, or an error if m cannot be delayed. The copy does not have the headers
// of earlier waits. RabbitMQ before 4.0 assumes a cycle and drops a message if the x-death of the message contains the
// queue. Headers of earlier levels would route the message to the wrong queue.
func schedulable(m *Message) (*Message, error) {
	if m == nil {
		return nil, fmt.Errorf("%w: message must not be nil", ErrInvalidMessage)
	}
	_, cc := m.Headers[headerCC]
	_, bcc := m.Headers[headerBCC]
	switch {
	case m.Expiration != 0:
		return nil, fmt.Errorf("%w: Expiration of a scheduled message must be 0: got %s (the handler can check the age of messages)", ErrInvalidMessage, m.Expiration)
	case m.Exchange == "" && (cc || bcc):
		return nil, fmt.Errorf("%w: a message scheduled to a queue must not have the header CC or BCC (schedule it to an exchange, or once for each queue)", ErrInvalidMessage)
	}
	if m.MessageID == "" {
		m.MessageID = rand.Text()
	}
	fresh := *m
	fresh.Headers = maps.Clone(m.Headers)
	maps.DeleteFunc(fresh.Headers, func(name string, _ any) bool {
		return amqpvalue.IsBrokerHeader(name) || strings.HasPrefix(name, topology.HeaderLevel)
	})
	_, err := fresh.content() // before anything is declared for the message
	return &fresh, err
}

// publishAt makes one attempt to publish m for PublishAt.
func (c *Client) publishAt(ctx context.Context, t time.Time, m *Message) (*publish.Message, error) {
	hop, err := c.scheduled.prepare(ctx, t, m)
	if err != nil {
		return nil, err
	}
	relayed := *m
	relayed.Exchange, relayed.RoutingKey = hop.Exchange, hop.RoutingKey
	if relayed.Timestamp.IsZero() && !m.NoTimestamp {
		relayed.Timestamp = t // as if it had been published at that time
	}
	relayed.Headers = maps.Clone(m.Headers)
	if relayed.Headers == nil {
		relayed.Headers = map[string]any{}
	}
	maps.Copy(relayed.Headers, hop.Headers)
	now := &wait{exchange: m.Exchange, key: m.RoutingKey, until: t, hop: hop}
	most := len(hop.Headers) + 1 // number of queues on the route; a shorter delay may need more queues than a longer delay
	pub, err := c.publish(ctx, &relayed, amqpconn.RoomForStations(most), now)
	if _, ok := errors.AsType[*UnroutableError](err); ok {
		c.scheduled.forget(m, hop, now.hop)
	}
	return pub, err
}

// wait describes the remaining delay of a scheduled message.
type wait struct {
	exchange, key string // the target
	until         time.Time
	hop           topology.Hop // first hop for the remaining delay, as last computed
}

// shorten adapts the route of a message to the remaining delay, just before the message is sent. The queues of the new
// route are a subset of the declared queues.
func (w *wait) shorten(pub *publish.Message) {
	left := time.Until(w.until)
	if w.hop.Delay == 0 || left > w.hop.Delay-time.Second {
		return
	}
	hop, err := topology.Levels{}.Schedule(w.exchange, w.key, left)
	if err != nil { // cannot fail, because a longer delay was valid
		return
	}
	for name := range w.hop.Headers {
		delete(pub.Message.Headers, name)
	}
	maps.Copy(pub.Message.Headers, hop.Headers)
	pub.Exchange, pub.RoutingKey, w.hop = hop.Exchange, hop.RoutingKey, hop
}

// scheduler declares the queues for delays. It uses the publishing connection.
type scheduler struct {
	client   *Client
	declared *declarer // separate from the declarer of copies, so that copies do not wait for declarations of levels
	known    onConnection[target]

	mu       sync.Mutex
	excluded map[target]bool // see topology.Topology.NoSchedule
}

// target is the destination of delayed messages: an exchange, or a queue.
type target struct{ exchange, queue string }

// String names the target in an error.
func (t target) String() string {
	if t.exchange == "" {
		return fmt.Sprintf("queue %q", t.queue)
	}
	return fmt.Sprintf("exchange %q", t.exchange)
}

func targetOf(m *Message) target {
	if m.Exchange == "" {
		return target{queue: m.RoutingKey}
	}
	return target{exchange: m.Exchange}
}

func newScheduler(c *Client) *scheduler {
	return &scheduler{client: c, declared: newDeclarer(c)}
}

// exclude makes permits refuse the given exchanges and queues.
func (s *scheduler) exclude(all []topology.Address) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range all {
		if s.excluded == nil {
			s.excluded = map[target]bool{}
		}
		s.excluded[target{a.Exchange, a.Key}] = true
	}
}

// permits returns an error if programs behind a target cannot read scheduled messages.
func (s *scheduler) permits(to target) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.excluded[to] {
		return nil
	}
	return fmt.Errorf("%w: message must not be scheduled to %s, because programs of its design compute their delay from x-death and fail (publish it when it is due, or set WorkersOnly of the preset if only Reprise workers consume)",
		ErrInvalidMessage, to)
}

// prepare declares the queues that m needs to arrive at t, and returns the first hop. It waits for a connection, as Publish
// does.
func (s *scheduler) prepare(ctx context.Context, t time.Time, m *Message) (topology.Hop, error) {
	hop, err := topology.Levels{}.Schedule(m.Exchange, m.RoutingKey, time.Until(t))
	if err != nil {
		return topology.Hop{}, fmt.Errorf("%w: %w", ErrInvalidMessage, err)
	}
	within, cancel := context.WithTimeoutCause(ctx, s.client.cfg.ConfirmTimeout, amqpconn.ErrExpired)
	defer cancel()
	for try := 1; ; try++ {
		if err = s.check(within, targetOf(m)); err == nil {
			err = s.declared.ensure(within, hop)
		}
		switch {
		case err == nil:
			return hop, nil
		case ctx.Err() != nil:
			return topology.Hop{}, publish.NotSent(ctx)
		case within.Err() != nil:
			return topology.Hop{}, s.client.messages.Unsent()
		case !isTransient(err):
			return topology.Hop{}, err
		}
		// The connection is lost, or will be lost soon.
		_ = retry.Sleep(within, s.client.cfg.Reconnect.Delay(try))
	}
}

// isTransient reports whether the error of a request results from a lost connection rather than from the broker's answer.
func isTransient(err error) bool {
	_, missing := errors.AsType[*UnroutableError](err)
	_, refused := errors.AsType[*RefusedError](err)
	_, undeclared := errors.AsType[*DeclareError](err)
	_, queueRefused := errors.AsType[*QueueError](err)
	return !missing && !refused && !undeclared && !queueRefused && !errors.Is(err, ErrClosed) && !errors.Is(err, amqpconn.ErrChannelMax)
}

// check verifies, once per connection, that a target exists. Otherwise an invalid target could remain unnoticed for years.
func (s *scheduler) check(ctx context.Context, to target) error {
	conn, err := s.client.publishing.Get(ctx)
	if err != nil {
		return err
	}
	if s.known.knows(conn.Generation(), to) {
		return nil
	}
	if err := checkTarget(ctx, conn, to); err != nil {
		return err
	}
	s.known.note(conn.Generation(), to)
	return nil
}

// checkTarget returns an error if a target does not exist, or if the user may not access it.
func checkTarget(ctx context.Context, conn *amqpconn.Conn, to target) error {
	err := conn.Do(ctx, func(ch *amqpconn.Channel) error {
		if to.exchange != "" {
			return ch.CheckExchange(ctx, to.exchange)
		}
		_, err := ch.Depth(ctx, to.queue)
		return err
	})
	if refusal, ok := amqpconn.RefusedChannel(err); ok {
		if refusal.Code == amqpconn.NotFound {
			return &UnroutableError{Exchange: to.exchange, RoutingKey: to.queue, Code: refusal.Code, Text: refusal.Text}
		}
		return &RefusedError{Exchange: to.exchange, RoutingKey: to.queue, Code: refusal.Code, Text: refusal.Text}
	}
	return err
}

// forget makes the next message check the target and declare the queues again.
func (s *scheduler) forget(m *Message, hops ...topology.Hop) {
	for _, hop := range hops {
		s.declared.forget(hop)
	}
	s.known.forget(targetOf(m))
}
