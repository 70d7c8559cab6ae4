package main

import (
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The loops "by hand" call the AMQP library directly, and do less than package reprise. For example, they stop when the
// connection is lost.

// byHand is a connection with a channel.
type byHand struct {
	conn *amqp.Connection
	ch   *amqp.Channel
}

func dial(url string) (*byHand, error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return nil, err
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &byHand{conn, ch}, nil
}

func (h *byHand) close() { _ = h.conn.Close() }

// consumer is a byHand that consumes from a queue.
type consumer struct {
	*byHand
	deliveries <-chan amqp.Delivery
}

func (j *job) consume(autoAck bool) (*consumer, error) {
	h, err := dial(j.url)
	if err != nil {
		return nil, err
	}
	c := &consumer{byHand: h}
	if err = h.ch.Qos(j.prefetch, 0, false); err == nil {
		c.deliveries, err = h.ch.Consume(j.queue, "", autoAck, false, false, false, nil)
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return c, nil
}

// grace is the time for which a channel stays open after its last ack. If the channel closes earlier, RabbitMQ drops
// the acks that a quorum queue has not yet processed.
const grace = 500 * time.Millisecond

// finish ends the measurement when the broker has read all acks, then waits for grace and closes the channel.
func (j *job) finish(c *consumer) error {
	if err := c.ch.Qos(1, 0, false); err != nil {
		return err
	}
	j.meter.end()
	time.Sleep(grace)
	return c.ch.Close()
}

// publisher is a byHand in confirm mode.
type publisher struct {
	*byHand
	confirms <-chan amqp.Confirmation
	returns  <-chan amqp.Return
}

// publish opens a channel for up to inFlight unconfirmed messages. The buffers have this size because the AMQP library
// blocks while one of them is full.
func (j *job) publish(inFlight int) (*publisher, error) {
	h, err := dial(j.url)
	if err != nil {
		return nil, err
	}
	p := &publisher{
		byHand:   h,
		confirms: h.ch.NotifyPublish(make(chan amqp.Confirmation, inFlight)),
		returns:  h.ch.NotifyReturn(make(chan amqp.Return, inFlight)),
	}
	if err := h.ch.Confirm(false); err != nil {
		h.close()
		return nil, err
	}
	return p, nil
}

var errGone = errors.New("channel closed")

// check returns an error if a message was not confirmed or not routed. The broker sends a return before the confirm.
func (p *publisher) check(c amqp.Confirmation, ok bool) error {
	switch {
	case !ok:
		return errGone
	case !c.Ack:
		return fmt.Errorf("message %d was not confirmed", c.DeliveryTag)
	}
	select {
	case r := <-p.returns:
		return fmt.Errorf("message for %q returned as unroutable: %s", r.RoutingKey, r.ReplyText)
	default:
		return nil
	}
}
