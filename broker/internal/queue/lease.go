package queue

import "time"

// lease deletes a queue that nobody has used for a while: no consumer, no declaration, no basic.get
// (https://www.rabbitmq.com/docs/ttl#queue-ttl).
type lease struct {
	timer *time.Timer
	until time.Time
}

// Touch tells that the queue is in use.
func (q *Queue) Touch() {
	q.mu.Lock()
	defer q.unlock()
	q.touch()
}

// touch is cheap: the timer finds out by itself that the lease was renewed.
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
		q.config.Expired() // which deletes it on condition, since it may be used again by now
	}
}

// leased reports whether the lease runs, and if so sees to it that its end is noticed.
func (q *Queue) leased() bool {
	left := time.Until(q.lease.until)
	if q.consumers.len() > 0 { // it begins anew when the last one goes
		left = q.config.Expires
	}
	if left > 0 {
		q.lease.timer.Reset(left)
	}
	return left > 0
}
