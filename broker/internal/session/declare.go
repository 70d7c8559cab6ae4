package session

import (
	"cmp"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

func (ch *channel) exchangeDeclare(m *amqpwire.ExchangeDeclare) error {
	m.Exchange = vhost.Clean(m.Exchange)
	var err error
	if !m.Passive {
		err = cmp.Or(ch.s.mayExchange(access.Configure, m.Exchange), ch.s.mayForward("exchange", m.Exchange, m.Arguments, "alternate-exchange"))
	} else if m.Exchange != "" {
		err = ch.s.mayAny("exchange", m.Exchange)
	}
	if err != nil {
		return err
	}
	if err := ch.s.vhost.DeclareExchange(m); err != nil {
		return err
	}
	return ch.changed(m.NoWait, &amqpwire.ExchangeDeclareOk{})
}

func (ch *channel) exchangeDelete(m *amqpwire.ExchangeDelete) error {
	m.Exchange = vhost.Clean(m.Exchange)
	if err := ch.s.mayExchange(access.Configure, m.Exchange); err != nil {
		return err
	}
	if err := ch.s.vhost.DeleteExchange(m.Exchange, m.IfUnused); err != nil {
		return err
	}
	return ch.changed(m.NoWait, &amqpwire.ExchangeDeleteOk{})
}

func (ch *channel) queueDeclare(m *amqpwire.QueueDeclare) error {
	m.Queue = vhost.Clean(m.Queue)
	q, err := ch.s.vhost.DeclareQueue(m, ch.s, func(name string) error {
		if m.Passive {
			return ch.s.mayAny("queue", name)
		}
		if err := ch.s.mayQueue(access.Configure, name); err != nil || ch.s.vhost.FindQueue(name) != nil {
			return err
		}
		return ch.s.mayForward("queue", name, m.Arguments, "x-dead-letter-exchange")
	})
	if err != nil {
		return err
	}
	ch.lastQueue = q.Name()
	stats := q.Stats()
	return ch.changed(m.NoWait, &amqpwire.QueueDeclareOk{
		Queue: q.Name(), MessageCount: uint32(stats.Ready), ConsumerCount: uint32(stats.Declared),
	})
}

// named applies the defaults for empty names. An empty queue name selects the last declared queue. In that case, an
// empty routing key becomes the name of that queue.
func (ch *channel) named(queue, key string) (string, string, error) {
	switch {
	case queue != "":
		return queue, key, nil
	case ch.lastQueue == "":
		return "", "", exception.New(exception.NotFound, "no previously declared queue")
	case key == "":
		key = ch.lastQueue
	}
	return ch.lastQueue, key, nil
}

// queue returns the queue with the given name, or the last declared queue for an empty name. It returns an error if
// the user may not perform op.
func (ch *channel) queue(name string, op access.Operation) (*vhost.Queue, error) {
	name, _, err := ch.named(name, "")
	if err != nil {
		return nil, err
	}
	if err := ch.s.mayQueue(op, name); err != nil {
		return nil, err
	}
	return ch.s.vhost.Queue(name, ch.s)
}

// bind creates or removes a binding and replies.
func (ch *channel) bind(b vhost.BindingInfo, do func(vhost.BindingInfo, any) error, noWait bool, ok amqpwire.Method) (err error) {
	b.Source = vhost.Clean(b.Source)
	kind := "exchange"
	if b.ToExchange {
		b.Destination = vhost.Clean(b.Destination)
	} else {
		kind = "queue"
		if b.Destination, b.Key, err = ch.named(vhost.Clean(b.Destination), b.Key); err != nil {
			return err
		}
	}
	// Unbinding requires the same permissions as binding: write to the destination and read from the source.
	if err := cmp.Or(ch.s.may(access.Write, kind, b.Destination), ch.s.mayExchange(access.Read, b.Source),
		ch.s.mayTopics(access.Read, b.Source, b.Key)); err != nil {
		return err
	}
	if err := do(b, ch.s); err != nil {
		return err
	}
	return ch.changed(noWait, ok)
}

func (ch *channel) queuePurge(m *amqpwire.QueuePurge) error {
	q, err := ch.queue(m.Queue, access.Read)
	if err != nil {
		return err
	}
	n := 0
	if !q.Reply() {
		n = q.Purge()
	}
	return ch.changed(m.NoWait, &amqpwire.QueuePurgeOk{MessageCount: uint32(n)})
}

func (ch *channel) queueDelete(m *amqpwire.QueueDelete) error {
	m.Queue = vhost.Clean(m.Queue)
	if _, _, err := ch.named(m.Queue, ""); err != nil {
		return err
	}
	q, err := ch.queue(m.Queue, access.Configure)
	n := 0
	switch {
	case missing(err): // deleting a missing queue succeeds
	case err != nil:
		return err
	case q.Config().Quorum && (m.IfUnused || m.IfEmpty):
		flag := "if-empty"
		if m.IfUnused {
			flag = "if-unused"
		}
		return exception.New(exception.NotImplemented, "cannot delete %v. queue.delete operations with %s flag set "+
			"are not supported by quorum queues", q, flag)
	default:
		if n, err = ch.s.vhost.DeleteQueue(q, queue.Condition{Unused: m.IfUnused, Empty: m.IfEmpty}); err != nil {
			return err
		}
	}
	return ch.changed(m.NoWait, &amqpwire.QueueDeleteOk{MessageCount: uint32(n)})
}

func missing(err error) bool {
	e, ok := err.(*exception.Error)
	return ok && e.Code == exception.NotFound
}
