package queue

import (
	"cmp"
	"slices"
	"time"
)

// Waiting is a message that is in the queue and with nobody, as it was when somebody looked.
type Waiting struct {
	Message     *Message
	Properties  []byte // encoded, as they would be delivered
	Redelivered bool
}

// Look returns the messages that nobody has, in the order in which they would be delivered; those that wait for a delayed
// retry come last. It changes nothing, and sees only what is in memory.
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

// Outlook is what a queue does next by itself, whatever its clients do.
type Outlook struct {
	Leaving bool      // dead letters are on their way to other queues
	Expires time.Time // when the next message expires, if nobody takes one before; zero: none does
	Due     time.Time // when the next delayed retry is ready; zero: there is none
}

// Outlook tells what is going to happen.
func (q *Queue) Outlook() Outlook {
	q.mu.Lock()
	defer q.unlock()
	q.expire()
	o := Outlook{Leaving: q.dead.asked || q.sendingDue()}
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
