package vhost

import (
	"time"

	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// waitingQueue returns the queue in which messages wait in an exchange of the type [route.Delayed]. It is not part of
// VHost.queues. A client cannot use its name, because [Clean] removes line breaks from names.
func (v *VHost) waitingQueue(exchange string, durable bool, id uint64) (q *Queue, err error) {
	q = &Queue{vhost: v, Durable: durable, waitsFor: exchange}
	c := queue.Defaults("exchange\n" + exchange)
	c.Delay = func(m *queue.Message) time.Duration { return route.Delay(withHeaders(m).Headers) }
	// The broker has confirmed the messages, so the queue keeps a message until all target queues have accepted it.
	c.DeadLetter = &queue.DeadLetter{AtLeastOnce: true}
	c.Publish = func(m *queue.Message, _ queue.Reason, only []string) (refused []string, routed bool) {
		return v.publishDue(q, m, only), true // an unroutable message is dropped
	}
	c.Ask, c.Clock, c.Meter = v.deadLetters.request, v.config.Clock, v.config.Meter
	c.Store, c.ID, c.Resident, c.Durable, c.Go = v.store, id, v.config.Resident, durable, v.reading.Go
	c.Trouble = func(err error) { v.log.Error("cannot read delayed messages", "exchange", exchange, "error", err) }
	if !v.loading {
		q.Queue = queue.New(c)
		return q, nil
	}
	q.Queue, err = queue.Restore(c)
	return q, err
}

// delaying returns the exchange whose messages wait in q, or nil if it was deleted. The caller holds VHost.mu.
func (v *VHost) delaying(q *Queue) (x *route.Exchange[*Queue]) {
	if x = v.routes.Exchange(q.waitsFor); x == nil || x.Waiting != q {
		return nil
	}
	return x
}

// publishDue publishes a message whose delay is over, and returns the queues that refused it. The list only contains the
// queues that refused an earlier attempt, or is nil.
func (v *VHost) publishDue(from *Queue, m *queue.Message, only []string) (refused []string) {
	due := released(m)
	v.mu.RLock()
	var queues []*Queue
	switch x := v.delaying(from); {
	case x == nil:
	case only == nil:
		queues = v.route(nil, x, due)
	default: // not routed again, because the route may be random
		for _, name := range only {
			queues = v.routeToName(queues, name)
		}
	}
	v.mu.RUnlock()

	due.Headers = nil // as in Deliver
	return offer(due, queues)
}

// withHeaders returns a copy of a message with its decoded headers.
func withHeaders(m *queue.Message) *queue.Message {
	c := *m
	var p amqpwire.Properties
	_ = p.Parse(m.Properties, amqpwire.PropHeaders) // cannot fail, because the properties were parsed on arrival
	c.Headers = p.Headers
	return &c
}

// released returns a message as it leaves its delay: with a negative delay, and with the TTL of its expiration property,
// which is not in the store.
func released(m *queue.Message) *queue.Message {
	c := *m
	var p amqpwire.Properties
	err := p.Parse(m.Properties, amqpwire.PropHeaders|amqpwire.PropReplyTo|amqpwire.PropExpiration)
	ms := route.Delay(p.Headers).Milliseconds()
	p.Headers = p.Headers.Delete(route.DelayHeader).Set(route.DelayHeader, -ms)
	if err == nil {
		c.Properties, err = editProperties(m.Properties, p)
	}
	if err != nil {
		return m // cannot happen, because the properties were parsed on arrival
	}
	c.Headers = p.Headers
	if p.Has(amqpwire.PropExpiration) {
		c.TTL, _ = expiration(p.Expiration)
	}
	return &c
}
