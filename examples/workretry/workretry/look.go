package workretry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/topology"
)

func (b Broker) dial() dialFunc {
	if b.Dial != nil {
		return b.Dial
	}
	return (&net.Dialer{}).DialContext
}

// look inspects the queues of a way. Failures are not injected into its connection.
type look struct {
	conn *amqp.Connection
	ch   *amqp.Channel
}

func newLook(ctx context.Context, b Broker) (*look, error) {
	conn, err := amqp.DialConfig(b.URL, amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		return b.dial()(ctx, network, addr)
	}})
	if err != nil {
		return nil, err
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &look{conn, ch}, nil
}

func (l *look) close() error { return l.conn.Close() }

// atRest returns an error if a queue other than the failed queue contains a ready message, or if the work queue does
// not have exactly one consumer. A second consumer can have unacked messages until the broker detects that the
// connection of this consumer is closed.
func (l *look) atRest(t topology.Topology, work string) error {
	for _, q := range t.Queues {
		if q.Name == topology.FailedQueue(work) {
			continue
		}
		is, err := l.ch.QueueDeclarePassive(q.Name, true, false, false, false, nil)
		switch {
		case err != nil:
			return err
		case is.Messages > 0:
			return fmt.Errorf("queue %[2]s must be empty: got %[1]d messages", is.Messages, q.Name)
		case q.Name == work && is.Consumers != 1:
			return fmt.Errorf("queue %[2]s must have one consumer: got %[1]d", is.Consumers, q.Name)
		}
	}
	return nil
}

// remove deletes the queues and exchanges of a way.
func (l *look) remove(t topology.Topology) error {
	ch, err := l.conn.Channel() // a passive declaration of a missing queue may have closed l.ch
	if err != nil {
		return err
	}
	for _, q := range t.Queues {
		_, e := ch.QueueDelete(q.Name, false, false, false)
		err = errors.Join(err, e)
	}
	for _, e := range t.Exchanges {
		err = errors.Join(err, ch.ExchangeDelete(e.Name, false, false))
	}
	return err
}

// until calls condition at the given interval, and returns nil when condition has succeeded three times in a row. If
// this takes longer than limit, until returns an error that wraps the last error of condition.
func until(ctx context.Context, interval, limit time.Duration, condition func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for held := 0; ; {
		err := condition()
		if err != nil {
			held = 0
		} else if held++; held == 3 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
