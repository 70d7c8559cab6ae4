package queue

import "time"

// lease expires a queue that had no consumer, declaration or basic.get for some time
// (https://www.rabbitmq.com/docs/ttl#queue-ttl).
type lease struct {
	timer *time.Timer
	until time.Time
}

// Touch renews the queue TTL.
func (q *Queue) Touch() {
	q.mu.Lock()
	defer q.unlock()
	q.touch()
}

// touch is cheap, because it does not reset the timer. The timer detects the renewal when it fires.
func (q *Queue) touch() {
	if q.config.Expires == 0 {
		return
	}
	q.lease.until = time.Now().Add(q.config.Expires)
	if q.lease.timer == nil {
		q.lease.timer = time.AfterFunc(q.config.Expires, q.leaseOver)
	}
}

func (q *Queue) leaseOver() {
	q.mu.Lock()
	over := !q.deleted && !q.leased()
	q.unlock()
	if over {
		q.config.Expired() // deletes the queue conditionally, because the queue may be in use again
	}
}

// leased reports whether the queue TTL has not yet expired. In this case it resets the timer.
func (q *Queue) leased() bool {
	left := time.Until(q.lease.until)
	if q.consumers.len() > 0 { // the time restarts when the last consumer leaves
		left = q.config.Expires
	}
	if left > 0 {
		q.lease.timer.Reset(left)
	}
	return left > 0
}
