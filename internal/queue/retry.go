package queue

import (
	"container/heap"
	"time"
)

// Retry is a quorum queue's own delayed retry, which RabbitMQ has since 4.3
// (https://www.rabbitmq.com/docs/quorum-queues#delayed-retries).
type Retry struct {
	Failed   bool          // messages whose delivery failed wait
	Returned bool          // messages that were given back on purpose wait
	Min      time.Duration // the delay, times the number of failed deliveries
	Max      time.Duration // but no more than this
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

// later is a message that is to be ready at its time.
type later struct {
	item *Item
	due  time.Time
}

// holdBack makes a message wait before it is ready again.
func (q *Queue) holdBack(it *Item, delay time.Duration) {
	now := time.Now()
	heap.Push(&q.delayed, later{it, now.Add(delay)})
	q.wakeAt(q.delayed[0].due, now)
}

// releaseDue makes ready what has waited long enough.
func (q *Queue) releaseDue() {
	now := time.Now()
	for len(q.delayed) > 0 {
		if now.Before(q.delayed[0].due) {
			q.wakeAt(q.delayed[0].due, now)
			return
		}
		q.ready.giveBack(heap.Pop(&q.delayed).(later).item)
	}
}

// byDue is a heap.
type byDue []later

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h byDue) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byDue) Push(x any)        { *h = append(*h, x.(later)) }

func (h *byDue) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = later{}
	*h = (*h)[:last]
	return l
}
