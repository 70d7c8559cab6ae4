package queue

import "time"

// expire gives up the messages at the head whose time is over. Only the head expires: a message with a short time to live
// waits behind one with a long one, as in RabbitMQ (https://www.rabbitmq.com/docs/ttl#message-ttl-dead-lettering).
func (q *Queue) expire() {
	head := q.ready.head()
	if head == nil || head.deadline.IsZero() {
		return
	}
	now := time.Now()
	for head != nil && head.expired(now) {
		q.ready.pop()
		q.die(head, Expired)
		head = q.ready.head()
	}
	if head != nil && !head.deadline.IsZero() {
		q.wakeAt(head.deadline, now)
	}
}

// wakeAt has the timer run no later than at the deadline. It may run too early, when the head it was set for has gone
// meanwhile: that costs less than stopping it each time.
func (q *Queue) wakeAt(deadline, now time.Time) {
	if !q.timerAt.IsZero() && !deadline.Before(q.timerAt) {
		return
	}
	q.timerAt = deadline
	if q.timer == nil {
		q.timer = time.AfterFunc(deadline.Sub(now), q.wake)
		return
	}
	q.timer.Reset(deadline.Sub(now))
}

func (q *Queue) wake() {
	q.mu.Lock()
	defer q.unlock()
	q.timerAt = time.Time{}
	if !q.deleted {
		q.dispatch()
	}
}
