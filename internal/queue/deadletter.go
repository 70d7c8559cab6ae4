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
	heldBytes int64 // of the bodies
	heldSize  int64 // of everything
}

type deadLetter struct {
	message *Message // as it was in the queue
	reason  Reason
	at      time.Time
	left    []string // the queues that have not accepted it; nil: it was not sent yet, or there were none
}

// hold counts messages that must not be lost, n being 1 or -1 for each.
func (d *deadLetters) hold(letters []deadLetter, n int) (size int64) {
	for _, l := range letters {
		d.heldBytes += int64(n * len(l.message.Body))
		size += l.message.size()
	}
	d.held += n * len(letters)
	d.heldSize += int64(n) * size
	return size
}

// stop drops what has not been sent, when the queue is deleted, and returns how much memory that was.
func (d *deadLetters) stop() (size int64) {
	if d.retry != nil {
		d.retry.Stop()
	}
	size = d.heldSize
	d.next, d.stranded, d.held, d.heldBytes, d.heldSize = nil, nil, 0, 0, 0
	return size
}

// die notes a message to be dead-lettered as soon as the lock is released.
func (q *Queue) die(it *Item, reason Reason) {
	if held := q.deadLetter(it.Message, reason); !held {
		q.config.Meter.add(-it.Message.size())
	}
}

func (q *Queue) deadLetter(m *Message, reason Reason) (held bool) {
	q.countDead(reason)
	to := q.config.DeadLetter
	if to == nil {
		return false
	}
	l := deadLetter{message: m, reason: reason, at: time.Now()}
	q.dead.next = append(q.dead.next, l)
	if to.AtLeastOnce {
		q.dead.hold([]deadLetter{l}, 1)
	}
	return to.AtLeastOnce
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
	q.config.Meter.add(q.dead.hold(stranded, 1) - q.dead.hold(letters, -1))
	if len(stranded) == 0 {
		return
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
