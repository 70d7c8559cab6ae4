package session

import (
	"slices"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// transaction holds back what a channel publishes and settles until it is committed. Others may see it half done, as in
// RabbitMQ, if it is about several queues (https://www.rabbitmq.com/docs/semantics#tx); the disk has all of it or nothing.
type transaction struct {
	published []pending
	size      int64 // of them, in memory
	settled   []settlement
}

// pending is a message that has been checked and not been published.
type pending struct {
	message   *queue.Message
	queues    []*vhost.Queue // found when it was published: what is deleted or bound since then changes nothing
	mandatory bool
}

// largestShare is by what the memory for messages is divided to be the most that a transaction may take. While it is not
// committed nobody can make room but its own client, who would be blocked like all others.
const largestShare = 4

// publish keeps a message until the commit. It takes memory meanwhile.
func (tx *transaction) publish(ch *channel, p pending) error {
	memory := ch.s.config.Memory
	if most := memory.Limit() / largestShare; tx.size+p.message.Size() > most {
		return exception.New(exception.PreconditionFailed,
			"transaction larger than %d bytes: commit more often", most)
	}
	p.queues = slices.Clone(p.queues)
	tx.published = append(tx.published, p)
	tx.size += p.message.Size()
	memory.Add(p.message.Size())
	return nil
}

// release gives back the memory of what was published.
func (tx *transaction) release(ch *channel) { ch.s.config.Memory.Add(-tx.size) }

func (ch *channel) txSelect() error {
	if ch.unconfirmed.on {
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
	tx.release(ch)
	if err := ch.s.keepTogether(func() { tx.commit(ch) }); err != nil {
		return err
	}
	ch.send(&amqpwire.TxCommitOk{})
	return nil
}

func (tx *transaction) commit(ch *channel) {
	for _, p := range tx.published {
		ch.deliver(p)
	}
	for _, s := range tx.settled {
		ch.finish(s)
	}
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
	tx.release(ch)
	ch.mu.Lock()
	defer ch.mu.Unlock()
	var all []delivery
	for _, s := range tx.settled {
		all = append(all, s.deliveries...)
	}
	ch.unacked.putBack(all)
	for _, d := range all {
		if !d.due.IsZero() {
			ch.s.awaitAck(d.due)
		}
	}
}

func notTransactional() error {
	return exception.New(exception.PreconditionFailed, "channel is not transactional")
}
