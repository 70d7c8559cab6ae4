package session

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/exception"
	"github.com/reprisemq/reprise/internal/queue"
	"github.com/reprisemq/reprise/internal/stats"
	"github.com/reprisemq/reprise/internal/vhost"
)

// delivery is a message that a client has and has not settled.
type delivery struct {
	tag      uint64
	item     *queue.Item // nil: settled, out of turn
	queue    *vhost.Queue
	consumer *consumer // nil: it was asked for by basic.get
	due      time.Time // when it has to be settled; zero: never
	released bool      // it was not, and is back in its queue
}

// unacked holds a channel's deliveries by tag. Tags only grow and are mostly settled in order, so they are a list, with
// holes where one was settled before its elders.
type unacked struct {
	list  []delivery
	holes int
}

func (u *unacked) len() int { return len(u.list) - u.holes }

func (u *unacked) add(d delivery) { u.list = append(u.list, d) }

// take removes one delivery, or with multiple all up to that tag, where zero stands for all there are. It fails when the
// tag is not that of an unsettled delivery.
func (u *unacked) take(tag uint64, multiple bool) ([]delivery, bool) {
	if multiple && tag == 0 {
		return u.takeAll(), true
	}
	i := sort.Search(len(u.list), func(i int) bool { return u.list[i].tag >= tag })
	if i == len(u.list) || u.list[i].tag != tag || u.list[i].item == nil {
		return nil, false
	}
	if multiple {
		return u.takeFirst(i + 1), true
	}
	if i == 0 {
		return u.takeFirst(1), true
	}
	d := u.list[i]
	u.list[i].item = nil
	if u.holes++; u.holes > len(u.list)/2 {
		u.list = slices.DeleteFunc(u.list, settled)
		u.holes = 0
	}
	return []delivery{d}, true
}

func (u *unacked) takeAll() []delivery { return u.takeFirst(len(u.list)) }

func (u *unacked) takeFirst(n int) []delivery {
	first := u.list[:n:n]
	u.list = u.list[n:]
	for len(u.list) > 0 && settled(u.list[0]) { // so that the first one is never a hole
		u.list = u.list[1:]
		u.holes--
	}
	if len(u.list) == 0 {
		u.list = nil // lets go of the array, which only creeps forward
	}
	whole := len(first)
	first = slices.DeleteFunc(first, settled)
	u.holes -= whole - len(first)
	return first
}

// putBack undoes take.
func (u *unacked) putBack(ds []delivery) {
	u.list = append(slices.DeleteFunc(u.list, settled), ds...)
	u.holes = 0
	slices.SortFunc(u.list, func(a, b delivery) int { return cmp.Compare(a.tag, b.tag) })
}

// byConsumer compares deliveries by who has them: the consumers as they came, then whoever asked by basic.get. In this order
// they come back to a quorum queue when their channel ends; to a classic one they come back in their own.
func byConsumer(a, b delivery) int {
	number := func(d delivery) uint64 {
		if d.consumer == nil {
			return math.MaxUint64
		}
		return d.consumer.number
	}
	return cmp.Compare(number(a), number(b))
}

func settled(d delivery) bool { return d.item == nil }

// The ways to settle deliveries.
func ack(ch *channel, ds []delivery) {
	byQueue(ds, func(q *vhost.Queue, items []*queue.Item) {
		ch.counter.AddFrom(q.Quorum(), stats.Ack, uint64(len(items)))
		q.Ack(items...)
	})
}

func reject(_ *channel, ds []delivery) {
	byQueue(ds, func(q *vhost.Queue, items []*queue.Item) { q.Reject(false, items...) })
}

func rejectFailed(_ *channel, ds []delivery) {
	byQueue(ds, func(q *vhost.Queue, items []*queue.Item) { q.Reject(true, items...) })
}

func giveBack(_ *channel, ds []delivery)       { requeue(ds, false) }
func giveBackFailed(_ *channel, ds []delivery) { requeue(ds, true) }

// requeue gives deliveries back. Those that failed are counted: by basic.reject or the end of a channel, but not by
// basic.nack (https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling).
func requeue(ds []delivery, counted bool) {
	byQueue(ds, func(q *vhost.Queue, items []*queue.Item) { q.Requeue(counted, items...) })
}

// byQueue calls f for each queue with its items, in the order of delivery. It makes room in ds for the purpose.
func byQueue(ds []delivery, f func(*vhost.Queue, []*queue.Item)) {
	ds = slices.DeleteFunc(ds, func(d delivery) bool { return d.released })
	for len(ds) > 0 {
		q := ds[0].queue
		var buffer [1]*queue.Item
		items, others := buffer[:0], ds[:0]
		for _, d := range ds {
			if d.queue == q {
				items = append(items, d.item)
			} else {
				others = append(others, d)
			}
		}
		f(q, items)
		ds = others
	}
}

func (ch *channel) settle(tag uint64, multiple bool, how func(*channel, []delivery)) error {
	ch.mu.Lock()
	taken, ok := ch.unacked.take(tag, multiple)
	if !ok {
		ch.mu.Unlock()
		return exception.New(exception.PreconditionFailed, "unknown delivery tag %d", tag)
	}
	ch.mu.Unlock()
	s := settlement{taken, how}
	if ch.tx != nil {
		ch.tx.settled = append(ch.tx.settled, s)
		return nil
	}
	ch.finish(s)
	return nil
}

// finish tells the queues, and gives the consumers their credit back.
func (ch *channel) finish(s settlement) {
	var credited []*consumer
	ch.mu.Lock()
	for _, d := range s.deliveries {
		if d.consumer == nil || d.released {
			continue
		}
		d.consumer.window.used--
		if d.consumer.refused { // a message, for want of the credit that it now has
			d.consumer.refused = false
			credited = append(credited, d.consumer)
		}
	}
	ch.mu.Unlock()

	// A message that is given back may go to the consumer that has just made room for it.
	for _, c := range credited {
		c.queue.Credit(&c.Consumer)
	}
	s.how(ch, s.deliveries)
	for _, c := range credited {
		c.queue.Dispatch()
	}
}

func (ch *channel) basicRecover(again bool, ok amqpwire.Method) error {
	if !again {
		return exception.New(exception.NotImplemented, "requeue=false")
	}
	ch.mu.Lock()
	all := ch.unacked.takeAll()
	ch.mu.Unlock()
	ch.finish(settlement{all, giveBack}) // transaction or not
	if ok != nil {
		ch.send(ok)
	}
	return nil
}
