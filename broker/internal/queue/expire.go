package queue

import "time"

// expire dead-letters expired messages at the head. Only the message at the head can expire, so a message with a short
// TTL waits behind a message with a long TTL, as in RabbitMQ
// (https://www.rabbitmq.com/docs/ttl#message-ttl-dead-lettering). A classic queue has one head, even with priorities,
// and a quorum queue has one head per priority.
func (q *Queue) expire() {
	if !q.config.Quorum {
		q.expireFrom(q.ready.head, time.Time{})
		return
	}
	var now time.Time
	for head := range q.ready.heads() {
		level := &q.ready.levels[head.priority]
		now = q.expireFrom(level.head, now)
	}
}

// expireFrom dead-letters expired messages at one head. It reads the clock only if now is zero and a message has a
// deadline, and returns the time that it used.
func (q *Queue) expireFrom(next func() *Item, now time.Time) time.Time {
	for head := next(); head != nil && !head.deadline.IsZero(); head = next() {
		if now.IsZero() {
			now = q.config.Clock.Now()
		}
		if now.Before(head.deadline) {
			q.wakeAt(head.deadline, now)
			break
		}
		q.ready.remove(head)
		q.die(head, Expired)
	}
	return now
}

// wakeAt sets the timer to fire at the given time, unless it fires earlier anyway. If the message leaves the queue
// before that time, the timer fires unnecessarily, which costs less than stopping the timer for each message.
func (q *Queue) wakeAt(at, now time.Time) {
	if !q.timerAt.IsZero() && !at.Before(q.timerAt) {
		return
	}
	q.timerAt = at
	if q.timer == nil {
		q.timer = q.config.Clock.AfterFunc(at.Sub(now), q.wake)
		return
	}
	q.timer.Reset(at.Sub(now))
}

func (q *Queue) wake() {
	q.mu.Lock()
	defer q.unlock()
	q.timerAt = time.Time{}
	if !q.deleted {
		q.releaseDue()
		q.dispatch()
		q.trim()
	}
}
