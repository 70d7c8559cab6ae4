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

// A look is taken at the queues of a way, over a connection that nothing breaks.
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

// atRest returns an error while a queue other than the failed one has a message
// for somebody, or the work queue has not exactly one consumer: the one before it
// has messages until the broker knows that it is gone.
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
			return fmt.Errorf("%d messages in %s", is.Messages, q.Name)
		case q.Name == work && is.Consumers != 1:
			return fmt.Errorf("%d consumers of %s", is.Consumers, q.Name)
		}
	}
	return nil
}

// remove removes what a way has declared.
func (l *look) remove(t topology.Topology) error {
	ch, err := l.conn.Channel() // a look at what is not there ends the other one
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

// until asks, every now and then, until a condition has held three times in a row;
// it says what is missing.
func until(ctx context.Context, pause, within time.Duration, condition func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(pause)
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
