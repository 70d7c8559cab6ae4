package queue

import (
	"cmp"
	"container/heap"
	"time"
)

// Retry configures the delayed retry of a quorum queue, as in RabbitMQ since 4.3
// (https://www.rabbitmq.com/docs/quorum-queues#delayed-retries).
type Retry struct {
	Failed   bool          // delay messages after a failed delivery
	Returned bool          // delay messages that a consumer requeued intentionally
	Min      time.Duration // delay, multiplied by the number of failed deliveries (at least 1)
	Max      time.Duration // maximum delay
}

func (r Retry) delay(it *Item, failed bool) time.Duration {
	if failed && !r.Failed || !failed && !r.Returned || r.Min == 0 {
		return 0
	}
	times := max(1, it.deliveries)
	if times > int64(r.Max/r.Min) {
		return r.Max
	}
	return r.Min * time.Duration(times)
}

// delay makes the message wait until it is due.
func (q *Queue) delay(it *Item) {
	heap.Push(&q.delayed, it)
	q.wakeAt(q.delayed[0].due, q.config.Clock.Now())
}

// releaseDue releases the due messages.
func (q *Queue) releaseDue() {
	now := q.config.Clock.Now()
	for len(q.delayed) > 0 {
		if now.Before(q.delayed[0].due) {
			q.wakeAt(q.delayed[0].due, now)
			return
		}
		q.releaseFirst()
	}
}

// byDue is a min-heap by due time, and then by order.
type byDue []*Item

func (h byDue) Len() int { return len(h) }
func (h byDue) Less(i, j int) bool {
	return cmp.Or(h[i].due.Compare(h[j].due), cmp.Compare(h[i].order, h[j].order)) < 0
}
func (h byDue) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *byDue) Push(x any)   { *h = append(*h, x.(*Item)) }

func (h *byDue) Pop() any {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return it
}
