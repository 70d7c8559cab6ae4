package session

import (
	"slices"
	"unsafe"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// transaction holds back what a channel publishes and settles until it is committed. Others may see it half done, as in
// RabbitMQ, if it is about several queues (https://www.rabbitmq.com/docs/semantics#tx); the disk has all of it or nothing.
type transaction struct {
	published []pending
	settled   []settlement
}

// pending is a message that has been checked and not been published.
type pending struct {
	message   *queue.Message
	queues    []*vhost.Queue // found when it was published: what is deleted or bound since then changes nothing
	mandatory bool
}

// About how much memory they take, beside the message.
const (
	pendingSize    = int64(unsafe.Sizeof(pending{}))
	settlementSize = int64(unsafe.Sizeof(settlement{}))
	wordSize       = 8
)

// publish keeps a message until the commit. It takes memory of the connection's meanwhile: while it is not committed nobody
// can make room but its own client.
func (tx *transaction) publish(ch *channel, p pending) {
	p.queues = slices.Clone(p.queues)
	p.promise(1)
	p.message.Headers = nil // it has been routed
	tx.published = append(tx.published, p)
	ch.uncommitted.Add(p.message.Size() + pendingSize + wordSize*int64(len(p.queues)))
}

// promise lets the queues know for how many messages they are known here.
func (p pending) promise(n int) {
	for _, q := range p.queues {
		q.Promise(n)
	}
}

// settle keeps a settlement until the commit.
func (tx *transaction) settle(ch *channel, s settlement) {
	tx.settled = append(tx.settled, s)
	ch.uncommitted.Add(settlementSize + deliverySize*int64(cap(s.deliveries)))
}

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
	ch.uncommitted.Set(0)
	if err := ch.s.keepTogether(func() { tx.commit(ch) }); err != nil {
		return err
	}
	ch.send(&amqpwire.TxCommitOk{})
	return nil
}

func (tx *transaction) commit(ch *channel) {
	for _, p := range tx.published {
		ch.deliver(p)
		p.promise(-1)
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
	ch.uncommitted.Set(0)
	for _, p := range tx.published {
		p.promise(-1)
	}
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
