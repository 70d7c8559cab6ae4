package queue

import "time"

// retryUndeliverable is how long a dead letter that must not be lost waits when there was no queue to take it.
// RabbitMQ waits 180 s (dead_letter_worker_publisher_confirm_timeout); nothing is gained by that here, where a try is a
// look-up in memory.
const retryUndeliverable = 5 * time.Second

// deadLetters is what has left the queue and is not yet with another.
type deadLetters struct {
	next     []deadLetter
	sending  bool         // somebody is at it
	stranded []deadLetter // somebody did not take them; they must not be lost
	retry    *time.Timer

	// What must not be lost counts against the queue's limits until it has arrived.
	held      int
	heldBytes int64
}

type deadLetter struct {
	message *Message // as it was in the queue
	reason  Reason
	at      time.Time
	left    []string // the queues that have not accepted it; nil: it was not sent yet, or there were none
}

// stop drops what has not been sent, when the queue is deleted.
func (d *deadLetters) stop() {
	d.next, d.stranded = nil, nil
	d.held, d.heldBytes = 0, 0
	if d.retry != nil {
		d.retry.Stop()
	}
}

// die notes a message to be dead-lettered as soon as the lock is released.
func (q *Queue) die(it *Item, reason Reason) { q.dieAt(it.Message, reason, time.Now()) }

func (q *Queue) dieAt(m *Message, reason Reason, now time.Time) {
	if q.config.DeadLetter == nil {
		return
	}
	q.dead.next = append(q.dead.next, deadLetter{message: m, reason: reason, at: now})
	if q.config.DeadLetter.AtLeastOnce {
		q.dead.held++
		q.dead.heldBytes += int64(len(m.Body))
	}
}

// unlock releases the queue and then publishes the dead letters that were noted meanwhile. One goroutine at a time does
// so, which keeps their order; what others note while it is at it, it publishes too.
func (q *Queue) unlock() {
	if len(q.dead.next) == 0 || q.dead.sending {
		q.mu.Unlock()
		return
	}
	q.dead.sending = true
	for len(q.dead.next) > 0 {
		letters := q.dead.next
		q.dead.next = nil
		q.mu.Unlock()
		stranded := q.send(letters)
		q.mu.Lock()
		q.sent(letters, stranded)
	}
	q.dead.sending = false
	q.mu.Unlock()
}

// send publishes dead letters, and returns those that have to be sent again.
func (q *Queue) send(letters []deadLetter) (stranded []deadLetter) {
	to := q.config.DeadLetter
	for _, l := range letters {
		dead := l.message.die(q.config.Name, l.reason, to, l.at)
		refused, routed := q.config.Publish(dead, l.reason, l.left)
		if to.AtLeastOnce && (!routed || len(refused) > 0) {
			l.left = refused
			stranded = append(stranded, l)
		}
	}
	return stranded
}

func (q *Queue) sent(letters, stranded []deadLetter) {
	if q.deleted || !q.config.DeadLetter.AtLeastOnce {
		return
	}
	for _, l := range letters {
		q.dead.held--
		q.dead.heldBytes -= int64(len(l.message.Body))
	}
	if len(stranded) == 0 {
		return
	}
	for _, l := range stranded {
		q.dead.held++
		q.dead.heldBytes += int64(len(l.message.Body))
	}
	q.dead.stranded = append(q.dead.stranded, stranded...)
	if q.dead.retry == nil {
		q.dead.retry = time.AfterFunc(retryUndeliverable, q.retryStranded)
		return
	}
	q.dead.retry.Reset(retryUndeliverable)
}

func (q *Queue) retryStranded() {
	q.mu.Lock()
	defer q.unlock()
	q.dead.next = append(q.dead.next, q.dead.stranded...)
	q.dead.stranded = nil
}
