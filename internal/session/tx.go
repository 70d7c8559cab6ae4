package session

import (
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/exception"
	"github.com/reprisemq/reprise/internal/queue"
)

// transaction holds back what a channel publishes and settles until it is committed. It is as atomic as RabbitMQ's, which
// is to say that it is not, across several queues (https://www.rabbitmq.com/docs/semantics#tx).
type transaction struct {
	published []pending
	settled   []settlement
}

// pending is a message that has been checked and not been published.
type pending struct {
	message   *queue.Message
	mandatory bool
}

type settlement struct {
	deliveries []delivery
	how        func([]delivery)
}

func (ch *channel) txSelect() error {
	if ch.confirms.on {
		return exception.New(exception.PreconditionFailed, "cannot switch from confirm to tx mode")
	}
	if ch.tx == nil {
		ch.tx = &transaction{}
	}
	ch.send(&amqpwire.TxSelectOk{})
	return nil
}

func (ch *channel) txCommit() error {
	if ch.tx == nil {
		return notTransactional()
	}
	tx := ch.tx
	ch.tx = &transaction{}
	for _, p := range tx.published {
		if _, err := ch.route(p); err != nil {
			return err
		}
	}
	for _, s := range tx.settled {
		ch.finish(s)
	}
	ch.send(&amqpwire.TxCommitOk{})
	return nil
}

func (ch *channel) txRollback() error {
	if ch.tx == nil {
		return notTransactional()
	}
	ch.rollback()
	ch.send(&amqpwire.TxRollbackOk{})
	return nil
}

// rollback makes deliveries unsettled again, and forgets the rest.
func (ch *channel) rollback() {
	if ch.tx == nil {
		return
	}
	tx := ch.tx
	ch.tx = &transaction{}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, s := range tx.settled {
		ch.unacked.putBack(s.deliveries)
	}
}

func notTransactional() error {
	return exception.New(exception.PreconditionFailed, "channel is not transactional")
}
