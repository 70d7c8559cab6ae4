package amqpconn

import (
	"errors"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/topology"
)

// amqp091 is a connection of amqp091-go.
type amqp091 struct {
	*amqp.Connection
	socket *socket

	done   chan struct{}
	reason *amqp.Error
}

// openAMQP091 performs the handshake. blocked is called when the broker blocks or unblocks the connection.
func openAMQP091(transport net.Conn, s *socket, a address, name string, heartbeat time.Duration, blocked func(blocking)) (client, tuning, error) {
	properties := amqp.NewConnectionProperties()
	properties["product"] = product
	properties.SetClientConnectionName(name)
	filtered := newFilter(transport)
	raw, err := amqp.Open(filtered, amqp.Config{
		SASL:       a.mechanisms(),
		Vhost:      a.Vhost,
		ChannelMax: a.ChannelMax,
		FrameSize:  maxFrame,
		Heartbeat:  heartbeat,
		Properties: properties,
		Locale:     "en_US",
		Recovery:   nil, // see Conn
	})
	if err != nil {
		if raw != nil {
			_ = raw.CloseDeadline(time.Now()) // stops the goroutines of the client
		}
		return nil, tuning{}, err
	}
	filtered.max.Store(int32(raw.Config.FrameSize)) // before the first content header
	version, _ := raw.Properties["version"].(string)
	platform, _ := raw.Properties["platform"].(string)
	c := &amqp091{Connection: raw, socket: s, done: make(chan struct{})}
	go c.watch(raw.NotifyClose(make(chan *amqp.Error, 1)), raw.NotifyBlocked(make(chan amqp.Blocking, 64)), blocked)
	return c, tuning{int(raw.Config.ChannelMax), raw.Config.FrameSize, raw.Config.Heartbeat, version, platform}, nil
}

// watch handles the notifications of the connection until it closes. The client drops a notification that is not received
// within 5 s.
func (c *amqp091) watch(closes <-chan *amqp.Error, blocks <-chan amqp.Blocking, blocked func(blocking)) {
	defer close(c.done)
	for {
		select {
		case err, ok := <-closes:
			if ok {
				c.reason = err
				continue // the channel closes next
			}
			return
		case b, ok := <-blocks:
			if !ok {
				blocks = nil
				continue
			}
			blocked(blocking{b.Active, b.Reason})
		}
	}
}

func (c *amqp091) updateSecret(secret string) error { return c.UpdateSecret(secret, "refreshed") }
func (c *amqp091) flush()                           { c.socket.flush() }
func (c *amqp091) close(deadline time.Time)         { _ = c.CloseDeadline(deadline) } // it is closed even after an error
func (c *amqp091) isClosed() bool                   { return c.IsClosed() }
func (c *amqp091) ended() <-chan struct{}           { return c.done }
func (c *amqp091) err() *amqp.Error                 { return c.reason }
func (c *amqp091) unreadable() bool {
	return c.reason != nil && !c.reason.Server && !c.socket.failed.Load()
}

func (c *amqp091) open() (channel, error) {
	raw, err := c.Channel()
	if err != nil {
		return nil, err
	}
	ch := &amqp091Channel{raw: raw, conn: c, done: make(chan struct{})}
	closes := raw.NotifyClose(make(chan *amqp.Error, 1))
	go func() {
		ch.reason = ErrGone // closed on this side, or before NotifyClose
		if reason, ok := <-closes; ok {
			ch.reason = ended(reason)
		}
		close(ch.done)
	}()
	return ch, nil
}

type amqp091Channel struct {
	raw  *amqp.Channel
	conn *amqp091

	done   chan struct{}
	reason error
}

func (ch *amqp091Channel) close() error           { return ch.raw.Close() }
func (ch *amqp091Channel) isClosed() bool         { return ch.raw.IsClosed() }
func (ch *amqp091Channel) ended() <-chan struct{} { return ch.done }
func (ch *amqp091Channel) err() error             { return ch.reason }
func (ch *amqp091Channel) qos(prefetch int) error { return ch.raw.Qos(prefetch, 0, false) }
func (ch *amqp091Channel) cancel(tag string) error {
	return ch.raw.Cancel(tag, false)
}
func (ch *amqp091Channel) ack(tag uint64, multiple bool) error { return ch.raw.Ack(tag, multiple) }
func (ch *amqp091Channel) nack(tag uint64, multiple, requeue bool) error {
	return ch.raw.Nack(tag, multiple, requeue)
}

func (ch *amqp091Channel) reject(tag uint64, requeue bool) error { return ch.raw.Reject(tag, requeue) }

// consume starts a consumer, and a goroutine that converts the deliveries.
func (ch *amqp091Channel) consume(c consumer) (Deliveries, error) {
	in, err := ch.raw.Consume(c.queue, c.tag, c.noAck, c.exclusive, false, false, clientTable(c.args))
	if err != nil {
		return nil, err
	}
	out := make(chan Incoming)
	go func() {
		defer close(out)
		for d := range in {
			select {
			case out <- Incoming{newDelivery(d), d.ConsumerTag}:
			case <-ch.done: // the deliveries can no longer be settled
			}
		}
	}()
	return out, nil
}

func (ch *amqp091Channel) get(queue string) (Delivery, bool, error) {
	d, found, err := ch.raw.Get(queue, false)
	if err != nil || !found {
		return Delivery{}, false, err
	}
	return newDelivery(d), true, nil
}

func (ch *amqp091Channel) send(exchange, key string, m *Message) error {
	p := m.publishing()
	p.DeliveryMode = amqp.Transient
	return ch.raw.Publish(exchange, key, false, false, p)
}

func (ch *amqp091Channel) declareExchange(e topology.Exchange, passive bool) error {
	declare := ch.raw.ExchangeDeclare
	if passive {
		declare = ch.raw.ExchangeDeclarePassive
	}
	return declare(e.Name, e.Kind, !e.Transient, e.AutoDelete, e.Internal, false, clientTable(e.Args))
}

func (ch *amqp091Channel) deleteExchange(name string) error {
	return ch.raw.ExchangeDelete(name, false, false)
}

func (ch *amqp091Channel) declareQueue(q topology.Queue, passive bool) (messages, consumers int, err error) {
	declare := ch.raw.QueueDeclare
	if passive {
		declare = ch.raw.QueueDeclarePassive
	}
	state, err := declare(q.Name, !q.Transient, q.AutoDelete, q.Exclusive, false, clientTable(q.Args))
	return state.Messages, state.Consumers, err
}

func (ch *amqp091Channel) deleteQueue(name string, ifIdle bool) error {
	_, err := ch.raw.QueueDelete(name, ifIdle, ifIdle, false)
	return err
}

func (ch *amqp091Channel) bind(b topology.Binding) error {
	if b.ToExchange != "" {
		return ch.raw.ExchangeBind(b.ToExchange, b.RoutingKey, b.Exchange, false, clientTable(b.Args))
	}
	return ch.raw.QueueBind(b.Queue, b.RoutingKey, b.Exchange, false, clientTable(b.Args))
}

func (ch *amqp091Channel) unbind(b topology.Binding) error {
	if b.ToExchange != "" {
		return ch.raw.ExchangeUnbind(b.ToExchange, b.RoutingKey, b.Exchange, false, clientTable(b.Args))
	}
	return ch.raw.QueueUnbind(b.Queue, b.RoutingKey, b.Exchange, clientTable(b.Args))
}

func (ch *amqp091Channel) confirm(window int) (publisher, error) {
	p := &amqp091Publisher{
		ch: ch, inFlight: inFlight{},
		returns: ch.raw.NotifyReturn(make(chan amqp.Return, window)),
	}
	return p, ch.raw.Confirm(false)
}

// amqp091Publisher avoids these faults of the client:
//
//   - The client reports confirms in the order of their tags. One message without a confirm therefore delays the
//     confirms of all later messages, and a following cumulative ack turns a delayed nack into an ack. The
//     DeferredConfirmation of each publication has neither fault.
//   - The client reports all messages in flight as refused when their channel closes.
//   - The client drops a return that is not received for 5 s, so an unroutable message would count as confirmed. A
//     publication in flight has at most one return, so a buffer with a place for each publication never overflows.
type amqp091Publisher struct {
	ch *amqp091Channel

	mu       sync.Mutex // not locked during a call to the client
	inFlight inFlight
	returns  <-chan amqp.Return
}

func (s *amqp091Publisher) publish(p *Publication) error {
	p.tag = s.ch.raw.GetNextPublishSeqNo()
	s.mu.Lock()
	s.inFlight[p.tag] = p // before its return can arrive
	s.mu.Unlock()
	s.ch.conn.socket.startBuffering()
	confirmation, err := s.ch.raw.PublishWithDeferredConfirm(p.Exchange, p.RoutingKey, true, false, p.Message.publishing())
	if err == nil {
		p.confirmation, p.answered = confirmation, confirmation.Done()
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inFlight, p.tag)
	p.returned = nil // any return belongs to an equal message
	if errors.Is(err, amqp.ErrClosed) {
		return ErrNotWritten // at least the last frame was not written
	}
	return err
}

func (s *amqp091Publisher) result(p *Publication) error {
	acked := p.confirmation.Acked()
	closed := !acked && s.ch.raw.IsClosed() // check this after Acked
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeReturns()
	delete(s.inFlight, p.tag)
	switch {
	case p.returned != nil:
		return p.returned
	case acked:
		return nil
	case closed:
		return errChannelClosed
	}
	return ErrNacked
}

// takeReturns applies the received returns. The client delivers a return before the confirm of its message, on the same
// goroutine. The return of a confirmed message is therefore already in the buffer.
func (s *amqp091Publisher) takeReturns() {
	for {
		select {
		case r, ok := <-s.returns:
			if !ok {
				s.returns = nil
				return
			}
			s.inFlight.returned(&Return{Code: int(r.ReplyCode), Text: r.ReplyText}, r.Exchange, r.RoutingKey, r.MessageId, r.Body)
		default:
			return
		}
	}
}
