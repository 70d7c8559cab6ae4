package queue

import (
	"time"

	"github.com/reprisemq/reprise/broker/internal/clock"
)

// queueTTL expires a queue after Config.Expires without a consumer, a declaration or a basic.get
// (https://www.rabbitmq.com/docs/ttl#queue-ttl).
type queueTTL struct {
	timer *clock.Timer
	until time.Time
}

// Touch restarts the queue TTL.
func (q *Queue) Touch() {
	q.mu.Lock()
	defer q.unlock()
	q.touch()
}

// touch only records the new end of the TTL, because resetting the timer each time would be expensive. When the timer
// fires, expireUnused checks the recorded time.
func (q *Queue) touch() {
	if q.config.Expires == 0 {
		return
	}
	q.ttl.until = q.config.Clock.Now().Add(q.config.Expires)
	if q.ttl.timer == nil {
		q.ttl.timer = q.config.Clock.AfterFunc(q.config.Expires, q.expireUnused)
	}
}

// restartTTL starts the queue TTL again, after Expires has changed.
func (q *Queue) restartTTL() {
	if q.ttl.timer != nil {
		q.ttl.timer.Stop()
		q.ttl.timer = nil
	}
	q.touch()
}

func (q *Queue) expireUnused() {
	q.mu.Lock()
	over := !q.deleted && !q.ttlRunning()
	q.unlock()
	if over {
		q.config.Expired() // Expired deletes the queue only if it is still unused
	}
}

// ttlRunning reports whether the queue TTL is still running, or was removed since the timer fired. If it is running, ttlRunning
// resets the timer.
func (q *Queue) ttlRunning() bool {
	if q.config.Expires == 0 {
		return true
	}
	left := q.config.Clock.Until(q.ttl.until)
	if q.consumers.len() > 0 { // the TTL restarts when the last consumer leaves
		left = q.config.Expires
	}
	if left > 0 {
		q.ttl.timer.Reset(left)
	}
	return left > 0
}
