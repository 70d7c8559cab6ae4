package stage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/topology"
)

// Clean calls run. With the flag -clean, it then deletes all new queues and exchanges of the topology, with their
// messages. An object is new if it did not exist before the call. Clean keeps queues that have consumers, and exchanges
// that have bindings, because other programs use them. It prints their names to stderr.
func (s *Stage) Clean(t topology.Topology, run func() error) error {
	if !s.clean {
		return run()
	}
	before, err := s.missing(t)
	if err != nil {
		return fmt.Errorf("-clean: %w", err)
	}
	err = run()
	if cleanErr := s.remove(before); cleanErr != nil {
		err = errors.Join(err, fmt.Errorf("-clean: %w", cleanErr))
	}
	return err
}

// connect returns a connection for passive declarations and deletions, which package reprise does not support.
func (s *Stage) connect() (*amqp.Connection, error) {
	config := amqp.Config{}
	if s.Embedded() {
		config.Dial = func(network, addr string) (net.Conn, error) {
			return s.DialContext(context.Background(), network, addr)
		}
	}
	return amqp.DialConfig(s.URL, config)
}

// missing returns the part of the topology that does not exist on the broker.
func (s *Stage) missing(t topology.Topology) (none topology.Topology, err error) {
	conn, err := s.connect()
	if err != nil {
		return none, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for _, q := range t.Queues {
		found, err := exists(conn, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(q.Name, true, false, false, false, nil)
			return err
		})
		if err != nil {
			return none, err
		}
		if !found {
			none.Queues = append(none.Queues, q)
		}
	}
	for _, x := range t.Exchanges {
		found, err := exists(conn, func(ch *amqp.Channel) error {
			return ch.ExchangeDeclarePassive(x.Name, x.Kind, true, false, false, false, nil)
		})
		if err != nil {
			return none, err
		}
		if !found {
			none.Exchanges = append(none.Exchanges, x)
		}
	}
	return none, nil
}

// exists reports whether ask succeeds. It calls ask with a separate channel, because the broker closes the channel if
// the object does not exist.
func exists(conn *amqp.Connection, ask func(*amqp.Channel) error) (bool, error) {
	ch, err := conn.Channel()
	if err != nil {
		return false, err
	}
	err = ask(ch)
	if no, ok := errors.AsType[*amqp.Error](err); ok && no.Code == amqp.NotFound {
		return false, nil
	}
	return true, errors.Join(err, ch.Close())
}

// remove deletes queues without consumers, and then exchanges without bindings. Quorum queues do not support if-unused,
// so remove first requests the number of consumers.
func (s *Stage) remove(t topology.Topology) (err error) {
	conn, err := s.connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for _, q := range t.Queues {
		used := false
		_, err := exists(conn, func(ch *amqp.Channel) error {
			state, err := ch.QueueDeclarePassive(q.Name, true, false, false, false, nil)
			if used = err == nil && state.Consumers > 0; err != nil || used {
				return err
			}
			_, err = ch.QueueDelete(q.Name, false, false, false)
			return err
		})
		if err != nil {
			return err
		}
		if used {
			fmt.Fprintf(os.Stderr, "-clean: queue %s remains, because another program consumes it\n", q.Name)
		}
	}
	for _, x := range t.Exchanges {
		_, err := exists(conn, func(ch *amqp.Channel) error {
			const ifUnused = true
			return ch.ExchangeDelete(x.Name, ifUnused, false)
		})
		if no, ok := errors.AsType[*amqp.Error](err); ok && no.Code == amqp.PreconditionFailed {
			fmt.Fprintf(os.Stderr, "-clean: exchange %s remains, because it has bindings\n", x.Name)
		} else if err != nil {
			return err
		}
	}
	return nil
}
