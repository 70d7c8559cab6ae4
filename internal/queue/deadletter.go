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
	stranded []deadLetter // nobody took them; they must not be lost
	retry    *time.Timer
}

type deadLetter struct {
	message *Message // as it was in the queue
	reason  Reason
	at      time.Time
}

// stop drops what has not been sent, when the queue is deleted.
func (d *deadLetters) stop() {
	d.next, d.stranded = nil, nil
	if d.retry != nil {
		d.retry.Stop()
	}
}

// die notes a message to be dead-lettered as soon as the lock is released.
func (q *Queue) die(it *Item, reason Reason) {
	if q.config.DeadLetter != nil {
		q.dead.next = append(q.dead.next, deadLetter{it.Message, reason, time.Now()})
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
		var stranded []deadLetter
		for _, l := range letters {
			to := q.config.DeadLetter
			dead := l.message.die(q.config.Name, l.reason, to, l.at)
			if !q.config.Publish(dead, l.reason) && to.AtLeastOnce {
				stranded = append(stranded, l)
			}
		}
		q.mu.Lock()
		q.strand(stranded)
	}
	q.dead.sending = false
	q.mu.Unlock()
}

func (q *Queue) strand(letters []deadLetter) {
	if len(letters) == 0 || q.deleted {
		return
	}
	q.dead.stranded = append(q.dead.stranded, letters...)
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
