package queue

import "time"

// expire gives up the messages at the head whose time is over. Only the head expires: a message with a short time to live
// waits behind one with a long one, as in RabbitMQ (https://www.rabbitmq.com/docs/ttl#message-ttl-dead-lettering). With
// priorities, a classic queue has one head and a quorum queue one for each.
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

// expireFrom looks at one head. The time is asked for once, and only if there is a deadline.
func (q *Queue) expireFrom(next func() *Item, now time.Time) time.Time {
	for head := next(); head != nil && !head.deadline.IsZero(); head = next() {
		if now.IsZero() {
			now = time.Now()
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

// wakeAt has the timer run no later than at that time. It may run too early, when what it was set for has gone meanwhile:
// that costs less than stopping it each time.
func (q *Queue) wakeAt(at, now time.Time) {
	if !q.timerAt.IsZero() && !at.Before(q.timerAt) {
		return
	}
	q.timerAt = at
	if q.timer == nil {
		q.timer = time.AfterFunc(at.Sub(now), q.wake)
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
