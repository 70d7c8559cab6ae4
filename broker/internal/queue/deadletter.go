package queue

import (
	"slices"
	"time"
)

// lettersAtATime is how many dead letters a queue publishes before others have their turn.
const lettersAtATime = 256

// deadLetters is what has left the queue and is not yet with another.
//
// A queue does not publish its dead letters itself. Under its lock it could deadlock with another queue; after the unlock, one
// publish could cause the next one in the same goroutine, as deep as there are queues. Instead the queue asks its virtual
// host to call [Queue.SendDeadLetters], for one queue after the other. That keeps the order. Until they are sent, dead
// letters count as memory.
type deadLetters struct {
	next     []deadLetter
	asked    bool         // SendDeadLetters is going to be called, or running
	stranded []deadLetter // somebody did not take them; they must not be lost
	unloaded int          // how many of those, from the first, have been looked at by unload
	retry    *time.Timer  // nil: it is not running

	// What must not be lost counts against the queue's limits until it has arrived.
	held      int
	heldBytes int64
}

type deadLetter struct {
	message *Message // as it was in the queue; nil: it is to be read again
	item    *Item    // it was in; nil: it was refused
	reason  Reason
	at      time.Time
	bytes   int64    // that count against the limit
	size    int64    // of memory
	again   bool     // it was stranded before
	left    []string // the queues that have not accepted it; nil: it was not sent yet, or there were none
}

// stop drops what has not been sent, when the queue is deleted, and returns how much memory that was.
func (d *deadLetters) stop() (size int64) {
	for _, l := range slices.Concat(d.next, d.stranded) {
		size += l.size
	}
	d.unloaded = 0
	d.next, d.stranded, d.held, d.heldBytes = nil, nil, 0, 0
	return size
}

// die gives up a message that is in the queue.
func (q *Queue) die(it *Item, reason Reason) {
	m := it.Message
	if it.deliveries != m.failures {
		m = m.failed(it.deliveries)
	}
	if !q.deadLetter(m, it, reason) {
		q.config.Meter.Add(-m.Size())
		q.unkeep(it)
	}
}

// deadLetter notes a message to be dead-lettered. It takes memory until then, and stays in the store. It reports whether
// there is a place for it.
func (q *Queue) deadLetter(m *Message, it *Item, reason Reason) bool {
	q.countDead(reason)
	if q.config.DeadLetter == nil {
		return false
	}
	l := deadLetter{message: m, item: it, reason: reason, at: time.Now(), bytes: q.config.bytes(m), size: m.Size()}
	q.dead.next = append(q.dead.next, l)
	q.hold(l, 1)
	return true
}

// hold counts a message that must not be lost, or with -1 no longer.
func (q *Queue) hold(l deadLetter, n int) {
	if q.config.DeadLetter.AtLeastOnce {
		q.dead.held += n
		q.dead.heldBytes += int64(n) * l.bytes
	}
}

// keepDelivered tells the store that a dead letter, which may stay in this queue, has been delivered.
func (q *Queue) keepDelivered(l deadLetter) {
	if l.item != nil && l.item.Redelivered {
		q.update(l.item, q.key(l.item))
	}
}

// sendingDue reports whether there are dead letters that nobody knows of.
func (q *Queue) sendingDue() bool { return len(q.dead.next) > 0 && !q.dead.asked }

// unlock releases the queue, and has the dead letters sent that were noted meanwhile.
func (q *Queue) unlock() {
	ask := q.sendingDue()
	q.dead.asked = q.dead.asked || ask
	var unheld func()
	if q.unheld != nil && q.unacked == 0 && q.promised == 0 {
		unheld, q.unheld = q.unheld, nil
	}
	q.fetch()
	q.mu.Unlock()
	if ask {
		q.config.Ask(q)
	}
	if unheld != nil {
		unheld()
	}
}

// SendDeadLetters publishes some of the dead letters there are, in order. It reports whether there are more, for which it
// must be called again. It must not run twice at a time for one queue.
func (q *Queue) SendDeadLetters() (more bool) {
	q.mu.Lock()
	n := min(len(q.dead.next), lettersAtATime)
	letters := q.dead.next[:n:n]
	q.dead.next = q.dead.next[n:]
	q.mu.Unlock()

	stranded := q.send(letters)

	q.mu.Lock()
	defer q.mu.Unlock()
	q.sent(letters, stranded)
	q.dead.asked = len(q.dead.next) > 0
	q.fetch()
	return q.dead.asked
}

// send publishes dead letters, and returns those that have to be sent again.
func (q *Queue) send(letters []deadLetter) (stranded []deadLetter) {
	for _, l := range letters {
		if !q.sendOne(&l) {
			stranded = append(stranded, l)
		}
	}
	return stranded
}

// sendOne publishes a dead letter, and reports whether that was all. In the store it leaves this queue when it enters the
// others.
func (q *Queue) sendOne(l *deadLetter) (done bool) {
	m := l.message
	if m == nil {
		var err error
		if m, err = q.reread(l.item); m == nil {
			return err == nil
		}
	}
	if q.config.Store != nil {
		q.config.Store.Hold()
		defer q.config.Store.Release()
	}
	to := q.config.DeadLetter
	dead := m.die(q.config.Name, l.reason, to, l.at)
	refused, routed := q.config.Publish(dead, l.reason, l.left)
	if to.AtLeastOnce && (!routed || len(refused) > 0) {
		l.left = refused
		return false
	}
	if l.item != nil && l.item.kept {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.unkeep(l.item)
	}
	return true
}
