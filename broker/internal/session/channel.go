package session

import (
	"slices"
	"sync"

	"github.com/reprisemq/reprise/broker/internal/budget"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// channel is an AMQP channel.
type channel struct {
	s       *Session
	id      uint16
	counter stats.Counter

	// Guarded like Session.channels.
	closing    bool // channel.close was sent; channel.close-ok has not arrived
	parser     amqpwire.Parser
	content    content // message that the client is publishing
	routeCache routeCache
	tx         *transaction // nil: not transactional
	replies    *vhost.Queue // queue of the direct-reply consumer; nil: none
	lastQueue  string       // last declared queue, which an empty queue name selects
	prefetch   uint16       // for new consumers

	unconfirmed unconfirmedMessages

	// Shares of the connection's memory account.
	contentMemory budget.Share // message that the client is publishing
	txMemory      budget.Share // the transaction

	// Deliveries use these fields in any goroutine; mu guards them.
	mu             sync.Mutex
	released       bool
	lastTag        uint64
	unacked        unackedDeliveries
	consumers      map[string]*consumer
	consumerCount  uint64 // number of consumers started so far
	consumerMemory budget.Share
}

// channelSize is the approximate memory of a channel.
const channelSize = 3 << 10

func newChannel(s *Session, id uint16) *channel {
	ch := &channel{
		s: s, id: id, consumers: make(map[string]*consumer),
		contentMemory: s.account.Share(budget.Unfinished), txMemory: s.account.Share(budget.Uncommitted),
		consumerMemory: s.account.Share(budget.Consumers),
	}
	ch.unacked.share = s.account.Share(budget.Unacked)
	s.account.Take(budget.Channels, channelSize)
	ch.count()
	return ch
}

func (ch *channel) send(m amqpwire.Method) { ch.s.send(ch.id, m) }

// reply sends a method unless the client has set no-wait.
func (ch *channel) reply(noWait bool, m amqpwire.Method) {
	if !noWait {
		ch.send(m)
	}
}

// release requeues the unacked messages and cancels the consumers. Consumers refuse messages as soon as the call begins.
func (ch *channel) release() {
	ch.mu.Lock()
	if ch.released {
		ch.mu.Unlock()
		return
	}
	ch.released = true
	consumers := ch.consumers
	ch.consumers = nil
	ch.consumerMemory.Set(0)
	ch.mu.Unlock()

	ch.s.confirms.remove(ch)
	ch.dropContent()
	ch.rollback()
	ch.routeCache = routeCache{}
	ch.mu.Lock()
	rest := ch.unacked.takeAll(nil)
	ch.unacked.free()
	ch.mu.Unlock()
	slices.SortStableFunc(rest, byConsumer)
	ch.settleAll(settlement{rest, nack(true, true)})
	// The consumers are cancelled after the requeue, so that the next consumers of a queue receive the requeued messages
	// first.
	for _, c := range consumers {
		ch.cancelConsumer(c)
	}
	ch.detachCounts()
}

// method handles a method without content, or the start of a method with content.
func (ch *channel) method(m amqpwire.Method) error {
	switch m := m.(type) {
	case *amqpwire.ChannelOpen:
		return exception.New(exception.ChannelError, "second 'channel.open' seen")
	case *amqpwire.ChannelClose:
		ch.s.conclude(ch)
		ch.release()
		ch.s.drop(ch)
		ch.send(&amqpwire.ChannelCloseOk{})
	case *amqpwire.ChannelFlow:
		if !m.Active {
			return exception.New(exception.NotImplemented, "active=false")
		}
		ch.send(&amqpwire.ChannelFlowOk{Active: true})
	case *amqpwire.AccessRequest: // a method of AMQP 0-8 that some clients still send
		ch.send(&amqpwire.AccessRequestOk{})

	case *amqpwire.ExchangeDeclare:
		return ch.exchangeDeclare(m)
	case *amqpwire.ExchangeDelete:
		return ch.exchangeDelete(m)
	case *amqpwire.ExchangeBind:
		b := vhost.BindingInfo{Source: m.Source, Destination: m.Destination, ToExchange: true, Key: m.RoutingKey, Arguments: m.Arguments}
		return ch.bind(b, ch.s.vhost.Bind, m.NoWait, &amqpwire.ExchangeBindOk{})
	case *amqpwire.ExchangeUnbind:
		b := vhost.BindingInfo{Source: m.Source, Destination: m.Destination, ToExchange: true, Key: m.RoutingKey, Arguments: m.Arguments}
		return ch.bind(b, ch.s.vhost.Unbind, m.NoWait, &amqpwire.ExchangeUnbindOk{})

	case *amqpwire.QueueDeclare:
		return ch.queueDeclare(m)
	case *amqpwire.QueueBind:
		b := vhost.BindingInfo{Source: m.Exchange, Destination: m.Queue, Key: m.RoutingKey, Arguments: m.Arguments}
		return ch.bind(b, ch.s.vhost.Bind, m.NoWait, &amqpwire.QueueBindOk{})
	case *amqpwire.QueueUnbind:
		b := vhost.BindingInfo{Source: m.Exchange, Destination: m.Queue, Key: m.RoutingKey, Arguments: m.Arguments}
		return ch.bind(b, ch.s.vhost.Unbind, false, &amqpwire.QueueUnbindOk{})
	case *amqpwire.QueuePurge:
		return ch.queuePurge(m)
	case *amqpwire.QueueDelete:
		return ch.queueDelete(m)

	case *amqpwire.BasicPublish:
		return ch.basicPublish(m)
	case *amqpwire.ConfirmSelect:
		return ch.confirmSelect(m)

	case *amqpwire.BasicQos:
		return ch.basicQos(m)
	case *amqpwire.BasicConsume:
		return ch.basicConsume(m)
	case *amqpwire.BasicCancel:
		ch.basicCancel(m)
	case *amqpwire.BasicGet:
		return ch.basicGet(m)

	case *amqpwire.BasicAck:
		return ch.ack(m)
	case *amqpwire.BasicNack:
		return ch.settle(m.DeliveryTag, m.Multiple, nack(m.Requeue, false))
	case *amqpwire.BasicReject:
		return ch.settle(m.DeliveryTag, false, nack(m.Requeue, true))
	case *amqpwire.BasicRecover:
		return ch.basicRecover(m.Requeue, &amqpwire.BasicRecoverOk{})
	case *amqpwire.BasicRecoverAsync:
		return ch.basicRecover(m.Requeue, nil)

	case *amqpwire.TxSelect:
		return ch.txSelect()
	case *amqpwire.TxCommit:
		return ch.txCommit()
	case *amqpwire.TxRollback:
		return ch.txRollback()
	default:
		return exception.New(exception.CommandInvalid, "unimplemented method")
	}
	return nil
}
