package session

import (
	"cmp"
	"slices"
	"unsafe"

	"github.com/reprisemq/reprise/broker/internal/erlang"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// transaction delays the publications and settlements of a channel until the commit. The commit is atomic on disk. As in
// RabbitMQ, it is not atomic for other clients if it affects several queues (https://www.rabbitmq.com/docs/semantics#tx).
type transaction struct {
	published []pendingMessage
	settled   []settlement
}

// pendingMessage is a message that was checked and routed but not yet delivered.
type pendingMessage struct {
	message   *queue.Message
	queues    []*vhost.Queue // determined when the client published; later changes to the topology have no effect
	mandatory bool
}

// Approximate memory of the entries of a transaction, without the messages.
const (
	pendingSize    = int64(unsafe.Sizeof(pendingMessage{}))
	settlementSize = int64(unsafe.Sizeof(settlement{}))
	wordSize       = 8
)

// publish stores a message until the commit. The message counts against the memory limit of the connection, because
// only the client can free the memory.
func (tx *transaction) publish(ch *channel, p pendingMessage) {
	p.queues = slices.Clone(p.queues)
	p.promise(1)
	p.message.Headers = nil // routing is complete
	tx.published = append(tx.published, p)
	ch.txMemory.Add(p.message.Size() + pendingSize + wordSize*int64(len(p.queues)))
}

// promise adds n to the promised messages of each target queue.
func (p pendingMessage) promise(n int) {
	for _, q := range p.queues {
		q.Promise(n)
	}
}

// settle stores a settlement until the commit.
func (tx *transaction) settle(ch *channel, s settlement) {
	tx.settled = append(tx.settled, s)
	ch.txMemory.Add(settlementSize + deliverySize*int64(cap(s.deliveries)))
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
	ch.txMemory.Set(0)
	var refused error
	err := ch.s.saveAtomically(func() { refused = ch.tx.commit(ch) })
	if err = cmp.Or(err, refused); err != nil {
		return err
	}
	ch.send(&amqpwire.TxCommitOk{})
	return nil
}

// commit publishes and settles. It returns an error if a queue has not accepted a message. Like RabbitMQ, it performs all
// other actions in this case, unless a queue was deleted. The error then closes the connection, which requeues the
// deliveries that the transaction has not settled.
func (tx *transaction) commit(ch *channel) (refused error) {
	for len(tx.published) > 0 {
		p := tx.published[0]
		if i := slices.IndexFunc(p.queues, (*vhost.Queue).Deleted); i >= 0 {
			return exception.New(exception.ResourceError,
				"failed to deliver message: {not_found,{resource,%s,queue,%s}}", erlang.Term(ch.s.vhost.Name()), erlang.Term(p.queues[i].Name()))
		}
		tx.published = tx.published[1:]
		if accepted, _ := ch.deliver(p); !accepted {
			refused = exception.New(exception.PreconditionFailed, "partial tx completion")
		}
		p.promise(-1)
	}
	for _, s := range tx.settled {
		ch.finish(s)
	}
	*tx = transaction{}
	return refused
}

func (ch *channel) txRollback() error {
	if ch.tx == nil {
		return notTransactional()
	}
	ch.rollback()
	ch.send(&amqpwire.TxRollbackOk{})
	return nil
}

// rollback drops the pending messages, and makes the settled deliveries unacked again.
func (ch *channel) rollback() {
	if ch.tx == nil {
		return
	}
	tx := ch.tx
	ch.tx = &transaction{}
	ch.txMemory.Set(0)
	for _, p := range tx.published {
		p.promise(-1)
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	var all []delivery
	for _, s := range tx.settled {
		all = append(all, s.deliveries...)
	}
	ch.unacked.restore(all)
	for _, d := range all {
		if !d.due.IsZero() {
			ch.s.awaitAck(d.due)
		}
	}
}

func notTransactional() error {
	return exception.New(exception.PreconditionFailed, "channel is not transactional")
}
