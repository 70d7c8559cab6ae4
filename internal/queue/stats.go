package queue

import "github.com/reprisemq/reprise/internal/stats"

// Stats is what a queue has at a moment. Messages that wait for a delayed retry are in none of the counts but Delayed, dead
// letters that must not be lost and are not with another queue yet in none but Dead.
type Stats struct {
	Ready, Unacked, Consumers int
	ReadyBytes, UnackedBytes  int64 // of the bodies
	Memory                    int64 // of everything that is ready
	Delayed, Dead             int
	DeadBytes                 int64
	Counts                    stats.Counts // since the queue was declared
}

// Stats counts what the queue has.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.unlock()
	q.expire()
	return Stats{
		Ready: q.ready.len(), Unacked: q.unacked, Consumers: q.consumers.len(),
		ReadyBytes: q.ready.bytes, UnackedBytes: q.held, Memory: q.ready.size,
		Delayed: len(q.delayed), Dead: q.dead.held, DeadBytes: q.dead.heldBytes, Counts: q.counts,
	}
}

// Active reports whether a consumer may be given messages: of a queue with a single active consumer, only one may.
func (q *Queue) Active(c *Consumer) bool {
	q.mu.Lock()
	defer q.unlock()
	return !q.config.SingleActive || q.consumers.len() > 0 && q.consumers.all[0] == c
}

// countDead counts a message that the queue gives up.
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
