package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// retryUndeliverable is how long a dead letter that must not be lost waits when there was no queue to take it.
// RabbitMQ waits 180 s (dead_letter_worker_publisher_confirm_timeout); nothing is gained by that here, where a try is
// cheap, and no more than maxDead are tried at a time.
const retryUndeliverable = 5 * time.Second

// sent notes what has become of dead letters: those that are stranded are to be sent again.
func (q *Queue) sent(letters, stranded []deadLetter) {
	if q.deleted {
		stranded = nil
	}
	var size int64
	taken := 0 // of those that nobody took before
	for _, l := range letters {
		size -= l.size
		if l.again {
			taken++
		}
		if !q.deleted {
			q.hold(l, -1)
		}
	}
	for i := range stranded {
		l := &stranded[i]
		size += l.size
		if l.again {
			taken--
		} else {
			q.keepDelivered(*l)
		}
		l.again = true
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
		q.resend() // somebody is there now
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

// resend has those sent again that have been stranded for longest.
func (q *Queue) resend() {
	d := &q.dead
	n := min(len(d.stranded), maxDead)
	d.next = append(d.next, d.stranded[:n]...)
	d.stranded = d.stranded[n:]
	d.unloaded = max(0, d.unloaded-n)
}

// unload lets go of stranded messages that are on disk: there may be as many of them as a queue can hold. It reports
// whether there are others that are on their way there.
func (q *Queue) unload(committed store.Ticket) (left bool) {
	d := &q.dead
	for ; d.unloaded < len(d.stranded); d.unloaded++ {
		l := &d.stranded[d.unloaded]
		if l.message == nil || l.item == nil || !l.item.kept {
			continue
		}
		if l.item.ref.Ticket > committed {
			return true
		}
		on := *l.item // whoever rejected it may still look at the message
		on.Message, on.holder, on.ref = nil, nil, store.Ref{}
		l.message, l.item = nil, &on
		q.config.Meter.Add(itemOverhead - l.size)
		l.size = itemOverhead
	}
	return false
}

// reread reads a stranded message that was let go of. It returns neither a message nor an error if there is nothing to be
// sent any more.
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
		q.config.Trouble(fmt.Errorf("%w: a dead letter", err))
		q.unkeep(it) // for the count
		return nil, nil
	}
	q.config.Trouble(err)
	return nil, err
}
