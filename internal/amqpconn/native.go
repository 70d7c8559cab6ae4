package amqpconn

import (
	"errors"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/amqpclient"
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/topology"
)

// native is a connection of package amqpclient.
type native struct{ *amqpclient.Conn }

func openNative(transport net.Conn, a address, name string, heartbeat time.Duration, blocked func(blocking)) (client, tuning, error) {
	var logins []amqpclient.Mechanism
	for _, m := range a.mechanisms() {
		logins = append(logins, amqpclient.Mechanism{Name: m.Mechanism(), Response: m.Response()})
	}
	conn, err := amqpclient.Open(transport, amqpclient.Config{
		Mechanisms: logins,
		Vhost:      a.Vhost,
		ChannelMax: a.ChannelMax,
		FrameMax:   maxFrame,
		Heartbeat:  heartbeat,
		Properties: amqpwire.Table{
			{Name: "product", Value: product},
			{Name: "platform", Value: "Go"},
			{Name: "connection_name", Value: name},
			{Name: "capabilities", Value: amqpwire.Table{
				{Name: "connection.blocked", Value: true},
				{Name: "consumer_cancel_notify", Value: true},
				{Name: "basic.nack", Value: true},
				{Name: "publisher_confirms", Value: true},
				{Name: "authentication_failure_close", Value: true},
			}},
		},
		Blocked: func(active bool, reason string) { blocked(blocking{active, reason}) },
	})
	if err != nil {
		return nil, tuning{}, clientError(err)
	}
	text := func(name string) string {
		v, _ := conn.Server.Get(name)
		s, _ := v.(string)
		return s
	}
	return native{conn}, tuning{int(conn.ChannelMax), int(conn.FrameMax), conn.Heartbeat, text("version"), text("platform")}, nil
}

// clientError converts an error of package amqpclient.
func clientError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, amqpclient.ErrClosed):
		return amqp.ErrClosed
	case errors.Is(err, amqpclient.ErrEncode):
		return err
	case errors.Is(err, amqpclient.ErrChannelMax):
		return amqp.ErrChannelMax
	case errors.Is(err, amqpclient.ErrMechanism):
		return amqp.ErrSASL
	case errors.Is(err, amqpclient.ErrLogin):
		return amqp.ErrCredentials
	}
	if e, ok := errors.AsType[*amqpclient.Error](err); ok {
		return closeError(e)
	}
	return &amqp.Error{Code: amqp.FrameError, Reason: err.Error()}
}

func closeError(e *amqpclient.Error) *amqp.Error {
	if e == nil {
		return nil
	}
	return &amqp.Error{Code: e.Code, Reason: e.Text, Server: e.Server, Recover: e.Channel}
}

func (n native) open() (channel, error) {
	ch := &nativeChannel{maxFrame: int(n.FrameMax), consumers: map[string]*nativeConsumer{}, publisher: nativePublisher{next: 1, oldest: 1, inFlight: inFlight{}}}
	var err error
	if ch.Channel, err = n.Open(ch); err != nil {
		return nil, clientError(err)
	}
	return ch, nil
}

func (n native) updateSecret(secret string) error {
	return clientError(n.UpdateSecret(secret, "refreshed"))
}
func (n native) flush()                   { n.Flush() }
func (n native) close(deadline time.Time) { n.Close(deadline) }
func (n native) isClosed() bool           { return n.Closing() }
func (n native) ended() <-chan struct{}   { return n.Ended() }
func (n native) err() *amqp.Error         { return closeError(n.Err()) }
func (n native) unreadable() bool {
	e := n.Err()
	return e != nil && !e.Server && !e.Lost
}

// nativeChannel is a channel of package amqpclient.
type nativeChannel struct {
	*amqpclient.Channel
	publisher nativePublisher
	maxFrame  int

	mu        sync.Mutex
	consumers map[string]*nativeConsumer
}

func (ch *nativeChannel) close() error           { return clientError(ch.Close()) }
func (ch *nativeChannel) isClosed() bool         { return ch.IsClosed() }
func (ch *nativeChannel) ended() <-chan struct{} { return ch.Ended() }
func (ch *nativeChannel) err() error {
	if e := ch.Err(); e != nil {
		return ended(closeError(e))
	}
	return ErrGone
}

func (ch *nativeChannel) call(m amqpwire.Method) error {
	_, err := ch.Call(m)
	return clientError(err)
}

func (ch *nativeChannel) qos(prefetch int) error {
	return ch.call(&amqpwire.BasicQos{PrefetchCount: uint16(prefetch)})
}

func (ch *nativeChannel) ack(tag uint64, multiple bool) error {
	return clientError(ch.Send(&amqpwire.BasicAck{DeliveryTag: tag, Multiple: multiple}))
}

func (ch *nativeChannel) nack(tag uint64, multiple, requeue bool) error {
	return clientError(ch.Send(&amqpwire.BasicNack{DeliveryTag: tag, Multiple: multiple, Requeue: requeue}))
}

func (ch *nativeChannel) reject(tag uint64, requeue bool) error {
	return clientError(ch.Send(&amqpwire.BasicReject{DeliveryTag: tag, Requeue: requeue}))
}

func (ch *nativeChannel) declareExchange(e topology.Exchange, passive bool) error {
	return ch.call(&amqpwire.ExchangeDeclare{
		Exchange: e.Name, Type: e.Kind, Passive: passive, Durable: !e.Transient, AutoDelete: e.AutoDelete, Internal: e.Internal, Arguments: wireTable(e.Args),
	})
}

func (ch *nativeChannel) deleteExchange(name string) error {
	return ch.call(&amqpwire.ExchangeDelete{Exchange: name})
}

func (ch *nativeChannel) declareQueue(q topology.Queue, passive bool) (messages, consumers int, err error) {
	answer, err := ch.Call(&amqpwire.QueueDeclare{
		Queue: q.Name, Passive: passive, Durable: !q.Transient, Exclusive: q.Exclusive, AutoDelete: q.AutoDelete, Arguments: wireTable(q.Args),
	})
	if err != nil {
		return 0, 0, clientError(err)
	}
	ok := answer.(*amqpwire.QueueDeclareOk)
	return int(ok.MessageCount), int(ok.ConsumerCount), nil
}

func (ch *nativeChannel) deleteQueue(name string, ifIdle bool) error {
	return ch.call(&amqpwire.QueueDelete{Queue: name, IfUnused: ifIdle, IfEmpty: ifIdle})
}

func (ch *nativeChannel) bind(b topology.Binding) error {
	if b.ToExchange != "" {
		return ch.call(&amqpwire.ExchangeBind{Destination: b.ToExchange, Source: b.Exchange, RoutingKey: b.RoutingKey, Arguments: wireTable(b.Args)})
	}
	return ch.call(&amqpwire.QueueBind{Queue: b.Queue, Exchange: b.Exchange, RoutingKey: b.RoutingKey, Arguments: wireTable(b.Args)})
}

func (ch *nativeChannel) unbind(b topology.Binding) error {
	if b.ToExchange != "" {
		return ch.call(&amqpwire.ExchangeUnbind{Destination: b.ToExchange, Source: b.Exchange, RoutingKey: b.RoutingKey, Arguments: wireTable(b.Args)})
	}
	return ch.call(&amqpwire.QueueUnbind{Queue: b.Queue, Exchange: b.Exchange, RoutingKey: b.RoutingKey, Arguments: wireTable(b.Args)})
}

func (ch *nativeChannel) get(queue string) (d Delivery, found bool, err error) {
	var unreadable error
	_, err = ch.Take(&amqpwire.BasicGet{Queue: queue}, func(m amqpwire.Method, c *amqpclient.Content) {
		if ok, is := m.(*amqpwire.BasicGetOk); is {
			found = true
			d, unreadable = received(c, ch.maxFrame)
			d.Tag, d.Redelivered, d.Exchange, d.RoutingKey = ok.DeliveryTag, ok.Redelivered, ok.Exchange, ok.RoutingKey
		}
	})
	if err == nil {
		err = unreadable
	}
	return d, found && err == nil, clientError(err)
}

// Cancel implements amqpclient.Handler.
func (ch *nativeChannel) Cancel(tag string) { ch.drop(tag) }

// Return implements amqpclient.Handler.
func (ch *nativeChannel) Return(m *amqpwire.BasicReturn, c *amqpclient.Content) {
	ch.publisher.returned(m, c)
}

// Confirm implements amqpclient.Handler.
func (ch *nativeChannel) Confirm(tag uint64, multiple, nack bool) {
	ch.publisher.confirmed(tag, multiple, nack)
}

// End implements amqpclient.Handler.
func (ch *nativeChannel) End() {
	ch.mu.Lock()
	all := ch.consumers
	ch.consumers = map[string]*nativeConsumer{}
	ch.mu.Unlock()
	for _, c := range all {
		c.close()
	}
	ch.publisher.end()
}

func (ch *nativeChannel) send(exchange, key string, m *Message) error {
	p := m.properties(transient)
	return clientError(ch.Publish(&amqpwire.BasicPublish{Exchange: exchange, RoutingKey: key}, &p, m.Body, true, nil))
}

func (ch *nativeChannel) confirm(int) (publisher, error) {
	ch.publisher.ch = ch
	return &ch.publisher, ch.call(&amqpwire.ConfirmSelect{})
}
