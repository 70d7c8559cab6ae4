package queue

import "github.com/reprisemq/reprise/broker/internal/stats"

// Stats is what a queue has at a moment. Messages that wait for a delayed retry are in none of the counts but Delayed, dead
// letters that must not be lost and are not with another queue yet in none but Dead.
type Stats struct {
	Ready, Unacked, Consumers int
	OnDisk                    int   // of those that are ready: they are not in memory
	ReadyBytes, UnackedBytes  int64 // as they count against the limit
	OnDiskBytes               int64
	Memory                    int64 // of everything that is ready
	Delayed, Dead             int
	DeadBytes                 int64
	Counts                    stats.Counts // since the queue was declared

	// Declared is how many consumers a declaration counts. In a quorum queue it leaves out those that wait for the single
	// active one to leave, and takes for a consumer whoever has a message, be it by basic.get or from before it cancelled.
	Declared int
}

// Stats counts what the queue has.
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

// Active reports whether a consumer may be given messages: of a queue with a single active consumer, only one may.
func (q *Queue) Active(c *Consumer) bool {
	q.mu.Lock()
	defer q.unlock()
	return !q.config.SingleActive || q.consumers.active() == c
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

func (q *Queue) declared() int {
	switch n := q.consumers.len(); {
	case !q.config.Quorum:
		return n
	case q.config.SingleActive:
		return min(n, 1) + q.absent
	default:
		return n + q.absent
	}
}
