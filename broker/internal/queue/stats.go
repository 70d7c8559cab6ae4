package queue

import "github.com/reprisemq/reprise/broker/internal/stats"

// Stats contains the statistics of a queue at one point in time. Messages that wait for a delayed retry count only in
// Delayed. At-least-once dead letters that are not yet in another queue count only in Dead and DeadBytes.
type Stats struct {
	Ready, Unacked, Consumers int
	OnDisk                    int   // ready messages that are not in memory
	ReadyBytes, UnackedBytes  int64 // sizes counted against MaxBytes
	OnDiskBytes               int64
	Memory                    int64 // memory use of the ready messages
	Delayed, Dead             int
	DeadBytes                 int64
	Counts                    stats.Counts // since the declaration of the queue

	// Declared is the number of consumers in the reply to a declaration. As in RabbitMQ, a quorum queue does not count
	// consumers that wait for the single active consumer to leave, but counts each unacked message from basic.get, and
	// each cancelled consumer that holds unacked messages.
	Declared int
}

// Stats returns the current statistics of the queue.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.unlock()
	q.expire()
	return Stats{
		OnDisk: q.ready.onDisk, OnDiskBytes: q.ready.onDiskBytes(),
		Ready: q.ready.len(), Unacked: q.unacked, Consumers: q.consumers.len(), Declared: q.declared(),
		ReadyBytes: q.ready.bytes, UnackedBytes: q.held, Memory: q.ready.size,
		Delayed: len(q.delayed), Dead: q.dead.held, DeadBytes: q.dead.heldBytes, Counts: q.counts,
	}
}

// Active reports whether the consumer c may receive messages. With Config.SingleActive, this is true only for the
// active consumer.
func (q *Queue) Active(c *Consumer) bool {
	q.mu.Lock()
	defer q.unlock()
	return !q.config.SingleActive || q.consumers.active() == c
}

// countDead counts a message that the queue dead-letters or drops.
func (q *Queue) countDead(reason Reason) {
	if q.config.Dead == nil {
		return
	}
	strategy := stats.Disabled
	switch to := q.config.DeadLetter; {
	case to == nil:
	case to.AtLeastOnce:
		strategy = stats.AtLeastOnce
	default:
		strategy = stats.AtMostOnce
	}
	q.config.Dead.Add(counted[reason], q.config.Quorum, strategy)
}

var counted = map[Reason]stats.Reason{
	Rejected: stats.Rejected, Expired: stats.Expired, MaxLength: stats.MaxLength, DeliveryLimit: stats.DeliveryLimit,
}

func (q *Queue) declared() int {
	switch n := q.consumers.len(); {
	case !q.config.Quorum:
		return n
	case q.config.SingleActive:
		return min(n, 1) + q.otherHolders
	default:
		return n + q.otherHolders
	}
}
