package session

import (
	"slices"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// settlement is a set of deliveries and the action that settles them.
type settlement struct {
	deliveries []delivery
	settle     disposition
}

// disposition settles deliveries of one queue.
type disposition func(*channel, *vhost.Queue, []*queue.Item)

func ack(ch *channel, q *vhost.Queue, items []*queue.Item) {
	ch.counter.AddFrom(q.Quorum(), stats.Ack, uint64(len(items)))
	q.Ack(items...)
}

// nack requeues or rejects deliveries. If failed is set, they count as failed deliveries. It is set for basic.reject
// and for a closed channel, but not for basic.nack
// (https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling).
func nack(requeue, failed bool) disposition {
	return func(_ *channel, q *vhost.Queue, items []*queue.Item) {
		if requeue {
			q.Requeue(failed, items...)
		} else {
			q.Reject(failed, items...)
		}
	}
}

// settleAll settles the deliveries of each queue, in order. It overwrites the slice of the settlement.
func (ch *channel) settleAll(s settlement) {
	ds := slices.DeleteFunc(s.deliveries, func(d delivery) bool { return d.released })
	for len(ds) > 0 {
		q := ds[0].queue
		items, others := ch.s.items[:0], ds[:0]
		for _, d := range ds {
			if d.queue == q {
				items = append(items, d.item)
			} else {
				others = append(others, d)
			}
		}
		s.settle(ch, q, items)
		clear(items)
		ch.s.items, ds = items, others
	}
	if cap(ch.s.items) > unackedKeep {
		ch.s.items = nil
	}
}

func (ch *channel) settle(tag uint64, multiple bool, how disposition) error {
	ch.mu.Lock()
	taken, err := ch.take(nil, tag, multiple)
	ch.mu.Unlock()
	if err != nil {
		return err
	}
	s := settlement{taken, how}
	if ch.tx != nil {
		ch.tx.settle(ch, s)
		return nil
	}
	ch.finish(s)
	return nil
}

// take appends the deliveries that a method of the client settles. The caller must hold the lock of the channel.
func (ch *channel) take(dst []delivery, tag uint64, multiple bool) ([]delivery, error) {
	taken, ok := ch.unacked.take(dst, tag, multiple)
	if !ok {
		return taken, exception.New(exception.PreconditionFailed, "unknown delivery tag %d", tag)
	}
	return taken, nil
}

// finish settles deliveries at their queues and returns credit to the consumers.
func (ch *channel) finish(s settlement) {
	var credited []*consumer
	ch.mu.Lock()
	for _, d := range s.deliveries {
		if d.consumer == nil || d.released {
			continue
		}
		d.consumer.settled()
		if d.consumer.refused { // refused a message, and has credit now
			d.consumer.refused = false
			credited = append(credited, d.consumer)
		}
	}
	ch.mu.Unlock()

	// Return credit first, because a requeued message may go to the same consumer.
	for _, c := range credited {
		c.queue.Credit(&c.Consumer)
	}
	ch.settleAll(s)
	for _, c := range credited {
		c.queue.Dispatch()
	}
}

func (ch *channel) basicRecover(again bool, ok amqpwire.Method) error {
	if !again {
		return exception.New(exception.NotImplemented, "requeue=false")
	}
	ch.mu.Lock()
	all := ch.unacked.takeAll(nil)
	ch.mu.Unlock()
	ch.finish(settlement{all, nack(true, false)}) // immediately, even in a transaction
	if ok != nil {
		ch.send(ok)
	}
	return nil
}
