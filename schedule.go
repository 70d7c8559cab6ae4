package reprise

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/publish"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// PublishAt publishes m for a time to come: it reaches its exchange, or queue, at
// t, as if it had been published just then, with its routing key, its properties
// and its headers. Until then it waits in durable queues of the broker's, and
// survives restarts of the broker and of this program; it cannot be cancelled. It
// is never early, and late by less than a second, and by some milliseconds for
// each of the up to 29 queues on its way. Where publishing has to wait, that counts
// as waiting: it is late only if it was due before it could be sent.
//
// The first message of a target declares up to 29 queues for it: 13 for an hour, 23
// for 30 days (see topology.Levels for why it cannot be fewer).
//
// A time in the past means at once; the farthest is topology.MaxSchedule, 8.5
// years. The clock is this machine's: with one that is wrong, the delay is.
//
// Nil means that the message is stored. The errors are those of Publish, and
// *DeclareError if the queues it is to wait in, which are declared on first use
// (see topology.Levels), are refused. The exchange, or the queue, has to exist:
// *UnroutableError, if it does not do so now. Where it is gone when the message is
// due, the message stays in its queue until there is one again.
//
// An m.Expiration is ErrInvalidMessage: it would end the wait. So is a header CC
// or BCC on the way to a queue, since nothing follows them from there. Headers in
// which RabbitMQ accounts for earlier deliveries and deaths (x-death and its kin)
// are not sent: it would take them for its own. When m arrives it has an x-death with
// the queues that it has waited in, which a worker does not take for attempts; other
// programs must not either. For those publish to an exchange, since a message that is
// scheduled to a queue has the queue's name as its routing key.
func (c *Client) PublishAt(ctx context.Context, t time.Time, m *Message) error {
	err := c.before(ctx, m)
	var fresh *Message
	if err == nil {
		fresh, err = schedulable(m)
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
		pub, err = c.publishAt(ctx, t, fresh) // somebody has deleted what was declared
	}
	c.published(m, pub, err)
	return err
}

// PublishIn is PublishAt for the time that is d from now.
func (c *Client) PublishIn(ctx context.Context, d time.Duration, m *Message) error {
	return c.PublishAt(ctx, time.Now().Add(d), m)
}

// schedulable returns m as it may wait, and reports what cannot. RabbitMQ before
// 4.0 drops a message whose x-death says that it was in the same queue before, as
// one that goes in circles; and the levels of an earlier wait would lead it astray.
func schedulable(m *Message) (*Message, error) {
	if m == nil {
		return nil, fmt.Errorf("%w: it is nil", ErrInvalidMessage)
	}
	_, cc := m.Headers[headerCC]
	_, bcc := m.Headers[headerBCC]
	switch {
	case m.Expiration != 0:
		return nil, fmt.Errorf("%w: it is to wait, and its Expiration would end that: leave it out, and have the handler see to the age of messages", ErrInvalidMessage)
	case m.Exchange == "" && (cc || bcc):
		return nil, fmt.Errorf("%w: a message that waits for a queue reaches no other, whatever its header CC or BCC: publish it to an exchange, or once for each queue", ErrInvalidMessage)
	}
	if m.MessageID == "" {
		m.MessageID = rand.Text()
	}
	fresh := *m
	fresh.Headers = maps.Clone(m.Headers)
	maps.DeleteFunc(fresh.Headers, func(name string, _ any) bool {
		return amqpvalue.IsBrokerHeader(name) || strings.HasPrefix(name, topology.HeaderLevel)
	})
	_, err := fresh.encode() // before anything is declared for it
	return &fresh, err
}

// publishAt does so once.
func (c *Client) publishAt(ctx context.Context, t time.Time, m *Message) (*publish.Message, error) {
	hop, err := c.scheduled.prepare(ctx, t, m)
	if err != nil {
		return nil, err
	}
	onTheWay := *m
	onTheWay.Exchange, onTheWay.RoutingKey = hop.Exchange, hop.RoutingKey
	if onTheWay.Timestamp.IsZero() && !m.NoTimestamp {
		onTheWay.Timestamp = t // as if it had been published just then
	}
	onTheWay.Headers = maps.Clone(m.Headers)
	if onTheWay.Headers == nil {
		onTheWay.Headers = map[string]any{}
	}
	maps.Copy(onTheWay.Headers, hop.Headers)
	now := &wait{exchange: m.Exchange, key: m.RoutingKey, until: t, hop: hop}
	most := len(hop.Headers) + 1 // stations; a shorter wait may have more than a longer one
	pub, err := c.publish(ctx, &onTheWay, amqpconn.RoomForStations(most), now)
	if _, ok := errors.AsType[*UnroutableError](err); ok {
		c.scheduled.forget(m, hop, now.hop)
	}
	return pub, err
}

// wait is the way of a message that is to arrive later.
type wait struct {
	exchange, key string // where to
	until         time.Time
	hop           topology.Hop // as of the last time that somebody looked at the clock
}

// shorten routes a message that is about to be written for what is left of its wait. The
// queues that it needs now are among those that were declared.
func (w *wait) shorten(pub *publish.Message) {
	left := time.Until(w.until)
	if w.hop.Delay == 0 || left > w.hop.Delay-time.Second {
		return
	}
	hop, err := topology.Levels{}.Schedule(w.exchange, w.key, left)
	if err != nil { // not where more than that was possible
		return
	}
	for name := range w.hop.Headers {
		delete(pub.Message.Headers, name)
	}
	maps.Copy(pub.Message.Headers, hop.Headers)
	pub.Exchange, pub.RoutingKey, w.hop = hop.Exchange, hop.RoutingKey, hop
}

// scheduler sees to the queues that messages wait in, on the publishing connection.
type scheduler struct {
	client   *Client
	declared *declarer // other than that of copies, which do not wait for it
	known    onConnection[target]
}

// target is where messages are to arrive: an exchange, or a queue.
type target struct{ exchange, queue string }

func targetOf(m *Message) target {
	if m.Exchange == "" {
		return target{queue: m.RoutingKey}
	}
	return target{exchange: m.Exchange}
}

func newScheduler(c *Client) *scheduler {
	return &scheduler{client: c, declared: newDeclarer(c)}
}

// prepare declares what m needs to arrive at t, and returns where to publish it. As
// Publish does it waits while there is no connection.
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
		case !passes(err):
			return topology.Hop{}, err
		}
		// The connection is lost, or is about to be.
		_ = retry.Sleep(within, s.client.cfg.Reconnect.Delay(try))
	}
}

// passes reports whether an error of declaring is that of a connection, which is
// replaced, and not an answer.
func passes(err error) bool {
	_, missing := errors.AsType[*UnroutableError](err)
	_, refused := errors.AsType[*RefusedError](err)
	_, undeclared := errors.AsType[*DeclareError](err)
	_, untold := errors.AsType[*QueueError](err)
	return !missing && !refused && !undeclared && !untold && !errors.Is(err, ErrClosed) && !errors.Is(err, amqpconn.ErrChannelMax)
}

// check makes sure, once per connection, that a target exists. A message that waits
// for one that never will would be found after years.
func (s *scheduler) check(ctx context.Context, to target) error {
	conn, err := s.client.publishing.Get(ctx)
	if err != nil {
		return err
	}
	if s.known.knows(conn.Generation(), to) {
		return nil
	}
	err = conn.Do(ctx, func(ch *amqpconn.Channel) error {
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
	if err != nil {
		return err
	}
	s.known.note(conn.Generation(), to)
	return nil
}

// forget has everything looked at, and declared, again.
func (s *scheduler) forget(m *Message, hops ...topology.Hop) {
	for _, hop := range hops {
		s.declared.forget(hop)
	}
	s.known.forget(targetOf(m))
}
