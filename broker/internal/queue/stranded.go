package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// retryUndeliverable is the delay before the queue sends stranded dead letters again. RabbitMQ waits 180 s
// (dead_letter_worker_publisher_confirm_timeout). A shorter delay suffices here, because an attempt is cheap and the
// queue sends at most maxDead letters at a time.
const retryUndeliverable = 5 * time.Second

// sent updates the queue after dead letters were published, and schedules the next attempt for stranded letters.
func (q *Queue) sent(letters, stranded []deadLetter) {
	if q.deleted {
		stranded = nil
	}
	var size int64
	taken := 0 // number of previously stranded letters that have now been sent
	for _, l := range letters {
		size -= l.size
		if l.resent {
			taken++
		}
		if !q.deleted {
			q.hold(l, -1)
		}
	}
	for i := range stranded {
		l := &stranded[i]
		size += l.size
		if l.resent {
			taken--
		} else {
			q.saveDelivered(*l)
		}
		l.resent = true
		q.hold(*l, 1)
	}
	q.config.Meter.Add(size)
	q.dead.stranded = append(q.dead.stranded, stranded...)
	if q.unload(0) {
		q.awaitDisk()
	}
	switch {
	case q.deleted || len(q.dead.stranded) == 0:
	case taken > 0:
		q.resend() // a target queue accepts messages again, so do not wait
	case q.dead.retry == nil:
		q.dead.retry = time.AfterFunc(retryUndeliverable, q.retryStranded)
	}
}

func (q *Queue) retryStranded() {
	q.mu.Lock()
	defer q.unlock()
	q.dead.retry = nil
	q.resend()
}

// resend enqueues the oldest stranded letters again.
func (q *Queue) resend() {
	d := &q.dead
	n := min(len(d.stranded), maxDead)
	d.next = append(d.next, d.stranded[:n]...)
	d.stranded = d.stranded[n:]
	d.unloaded = max(0, d.unloaded-n)
}

// unload evicts from memory the stranded messages that are on disk, because there can be any number of them within the
// limits of the queue. It reports whether it stopped at a stranded message that is not yet committed.
func (q *Queue) unload(committed store.Ticket) (left bool) {
	d := &q.dead
	for ; d.unloaded < len(d.stranded); d.unloaded++ {
		l := &d.stranded[d.unloaded]
		if l.message == nil || l.item == nil || !l.item.saved {
			continue
		}
		if l.item.ref.Ticket > committed {
			return true
		}
		on := *l.item // a copy, because the caller that rejected the message may still read the item
		on.Message, on.holder, on.ref = nil, nil, store.Ref{}
		l.message, l.item = nil, &on
		q.config.Meter.Add(itemOverhead - l.size)
		l.size = itemOverhead
	}
	return false
}

// reread reads an evicted stranded message from the store. If the queue is deleted or the message is missing, reread
// returns neither a message nor an error.
func (q *Queue) reread(it *Item) (*Message, error) {
	at := q.key(it)
	items, err := q.read(at.Level, at.Order-1, at.Order+1, 1)
	if err == nil {
		m := items[0].Message
		if it.deliveries != m.failures {
			m = m.failed(it.deliveries)
		}
		return m, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.deleted:
		return nil, nil
	case errors.Is(err, errMissing):
		q.config.Trouble(fmt.Errorf("%w: 1 dead letter", err))
		q.deleteSaved(it) // to update the count in the store
		return nil, nil
	}
	q.config.Trouble(err)
	return nil, err
}
