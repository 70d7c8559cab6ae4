package queue

import (
	"cmp"
	"slices"
	"time"
)

// Waiting describes a message that waits in a queue.
type Waiting struct {
	Message     *Message
	Properties  []byte // encoded, as in a delivery
	Redelivered bool
}

// Look returns, without delivering them, the ready messages in delivery order, followed by the messages that wait for a
// delayed retry. It omits messages that are only on disk.
func (q *Queue) Look() []Waiting {
	q.mu.Lock()
	defer q.unlock()
	q.expire()
	var all []Waiting
	add := func(it *Item) {
		all = append(all, Waiting{Message: it.Message, Properties: it.DeliveryProperties(), Redelivered: it.Redelivered})
	}
	for _, l := range slices.Backward(q.ready.levels) {
		items := slices.AppendSeq(slices.Clone(l.returned), l.fresh.all())
		slices.SortFunc(items, func(a, b *Item) int { return cmp.Compare(a.order, b.order) })
		for _, it := range slices.AppendSeq(items, l.tail.all()) {
			add(it)
		}
	}
	for _, it := range slices.SortedFunc(slices.Values(q.delayed), func(a, b *Item) int { return a.due.Compare(b.due) }) {
		add(it)
	}
	return all
}

// Outlook describes the actions that a queue will take next without a request from a client.
type Outlook struct {
	Leaving bool      // dead letters are in flight to other queues
	Expires time.Time // earliest expiry of a message at a head, unless it is delivered before; zero: none
	Due     time.Time // end of the next delayed retry; zero: none
}

// Outlook returns the outlook of the queue.
func (q *Queue) Outlook() Outlook {
	q.mu.Lock()
	defer q.unlock()
	q.expire()
	o := Outlook{Leaving: q.dead.requested || q.sendingDue()}
	if !q.config.Quorum {
		if head := q.ready.head(); head != nil {
			o.Expires = head.deadline
		}
	} else {
		for head := range q.ready.heads() {
			if at := head.deadline; !at.IsZero() && (o.Expires.IsZero() || at.Before(o.Expires)) {
				o.Expires = at
			}
		}
	}
	if len(q.delayed) > 0 {
		o.Due = q.delayed[0].due
	}
	return o
}
