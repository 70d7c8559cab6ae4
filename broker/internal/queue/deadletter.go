package queue

import (
	"slices"
	"time"
)

// deadLetterBatch is the maximum number of dead letters that a queue publishes in one turn.
const deadLetterBatch = 256

// deadLetters contains the dead letters of the queue that have not yet arrived in another queue.
//
// A queue does not publish its dead letters itself. If it published them under its lock, it could deadlock with another
// queue. If it published them after unlocking, each queue in a chain of dead-letter queues would add a level of recursion.
// Instead, the virtual host calls [Queue.SendDeadLetters] on request, for one queue after the other, which preserves the
// order of the messages. The memory of dead letters is counted until they are published.
type deadLetters struct {
	next      []deadLetter
	requested bool         // a call to SendDeadLetters is requested or running
	stranded  []deadLetter // at-least-once dead letters that were unroutable or refused
	unloaded  int          // number of letters in stranded that unload has processed
	retry     *time.Timer  // timer of the next attempt; nil if not running

	// At-least-once dead letters count against the limits of the queue until they have arrived in another queue.
	held      int
	heldBytes int64
}

type deadLetter struct {
	message *Message // message before dead-lettering; nil if it must be read from the store
	item    *Item    // item in this queue; nil if this queue refused the message
	reason  Reason
	at      time.Time
	bytes   int64 // size counted against MaxBytes
	size    int64 // size in memory
	to      *DeadLetter
	resent  bool     // the letter was stranded before this attempt
	pending []string // queues that refused the letter; nil if it was not yet sent, or was unroutable
}

// stop drops the unsent dead letters of a deleted queue, and returns their total size in memory.
func (d *deadLetters) stop() (size int64) {
	for _, l := range slices.Concat(d.next, d.stranded) {
		size += l.size
	}
	d.unloaded = 0
	d.next, d.stranded, d.held, d.heldBytes = nil, nil, 0, 0
	return size
}

// die dead-letters a message of the queue, or drops it if the queue has no dead-letter target.
func (q *Queue) die(it *Item, reason Reason) {
	m := it.Message
	if it.deliveries != m.failures {
		m = m.failed(it.deliveries)
	}
	if !q.deadLetter(m, it, reason) {
		q.config.Meter.Add(-m.Size())
		q.deleteSaved(it)
	}
}

// deadLetter enqueues a message for dead-lettering, and reports whether the queue has a dead-letter target. The
// message stays in memory and in the store until it is sent.
func (q *Queue) deadLetter(m *Message, it *Item, reason Reason) bool {
	q.countDead(reason)
	if q.config.DeadLetter == nil {
		return false
	}
	l := deadLetter{message: m, item: it, reason: reason, at: q.config.Clock.Now(), bytes: q.config.bytes(m), size: m.Size(), to: q.config.DeadLetter}
	q.dead.next = append(q.dead.next, l)
	q.hold(l, 1)
	return true
}

// hold starts (n is 1) or stops (n is -1) counting a dead letter against the limits of the queue. Only at-least-once
// dead letters count.
func (q *Queue) hold(l deadLetter, n int) {
	if l.to.AtLeastOnce {
		q.dead.held += n
		q.dead.heldBytes += int64(n) * l.bytes
	}
}

// saveDelivered records in the store that a dead letter was delivered, because the letter may stay in this queue.
func (q *Queue) saveDelivered(l deadLetter) {
	if l.item != nil && l.item.Redelivered && l.item.Message != nil {
		q.update(l.item, q.key(l.item))
	}
}

// sendingDue reports whether the queue has unsent dead letters and has not yet requested a call to SendDeadLetters.
func (q *Queue) sendingDue() bool { return len(q.dead.next) > 0 && !q.dead.requested }

// unlock unlocks the queue. If necessary, it also starts loads, requests a call to SendDeadLetters, and calls onUnheld.
func (q *Queue) unlock() {
	ask := q.sendingDue()
	q.dead.requested = q.dead.requested || ask
	var onUnheld func()
	if q.onUnheld != nil && q.unacked == 0 && q.promised == 0 {
		onUnheld, q.onUnheld = q.onUnheld, nil
	}
	q.fetch()
	q.mu.Unlock()
	if ask {
		q.config.Ask(q)
	}
	if onUnheld != nil {
		onUnheld()
	}
}

// SendDeadLetters publishes up to deadLetterBatch dead letters, in order. If it returns true, the caller must call it
// again for the remaining letters. Calls on the same queue must not be concurrent.
func (q *Queue) SendDeadLetters() (more bool) {
	q.mu.Lock()
	n := min(len(q.dead.next), deadLetterBatch)
	letters := q.dead.next[:n:n]
	q.dead.next = q.dead.next[n:]
	q.mu.Unlock()

	stranded := q.send(letters)

	q.mu.Lock()
	defer q.mu.Unlock()
	q.sent(letters, stranded)
	q.dead.requested = len(q.dead.next) > 0
	q.fetch()
	return q.dead.requested
}

// send publishes dead letters. It returns the letters that must be sent again.
func (q *Queue) send(letters []deadLetter) (stranded []deadLetter) {
	for _, l := range letters {
		if !q.sendOne(&l) {
			stranded = append(stranded, l)
		}
	}
	return stranded
}

// sendOne publishes a dead letter, and returns false if the letter must be sent again. The letter leaves this queue
// and enters the target queues in one atomic change of the store.
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
	to := q.target(l)
	dead := m
	if q.config.Delay == nil {
		dead = m.die(q.config.Name, l.reason, to, l.at)
	}
	refused, routed := q.config.Publish(dead, l.reason, l.pending)
	if to.AtLeastOnce && (!routed || len(refused) > 0) {
		l.pending = refused
		return false
	}
	if l.item != nil && l.item.saved {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.deleteSaved(l.item)
	}
	return true
}

// target returns the target of a dead letter: that of the time when the message died or, for an at-least-once dead letter, the
// current target. An operator can therefore change the target of letters that are stranded.
func (q *Queue) target(l *deadLetter) *DeadLetter {
	if !l.to.AtLeastOnce {
		return l.to
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.config.DeadLetter == nil {
		return l.to
	}
	to := *q.config.DeadLetter
	to.AtLeastOnce = true
	return &to
}
