// Package stats counts what a broker does with messages, connections and queues.
//
// A message is counted where it passes, without a lock of its own: by a [Counter] for each channel, which one goroutine at
// a time adds to, so that no two processors fight over it. Whoever asks sums up: a [Totals] knows the counters of the
// channels there are, and keeps what those have counted that are gone.
package stats

import (
	"sync"
	"sync/atomic"
)

// Kind is something that happens to messages. The names are those of message_stats in RabbitMQ's management API.
type Kind uint8

// The kinds. Those up to Unroutable happen between a client and an exchange, those from Get on between it and a queue.
const (
	Publish   Kind = iota
	Confirm        // the client was told that its message is safe
	Confirmed      // published on a channel with confirms
	Returned       // mandatory, and no queue was found
	Dropped        // not mandatory, and no queue was found
	Get
	GetNoAck
	GetEmpty
	Deliver
	DeliverNoAck
	Redeliver
	Ack
	kinds
)

// Counts are numbers of messages by kind.
type Counts [kinds]uint64

// Of returns the number of one kind.
func (c *Counts) Of(k Kind) uint64 { return c[k] }

// DeliverGet is how many messages clients were given, in whatever way.
func (c *Counts) DeliverGet() uint64 { return c[Get] + c[GetNoAck] + c[Deliver] + c[DeliverNoAck] }

// Add adds other numbers.
func (c *Counts) Add(other *Counts) {
	for k := range c {
		c[k] += other[k]
	}
}

// Split are numbers of messages, and of those that came out of queues, apart by the type of queue.
type Split struct{ Classic, Quorum Counts }

// Sum returns the numbers for all queues.
func (s *Split) Sum() Counts {
	sum := s.Classic
	sum.Add(&s.Quorum)
	return sum
}

func (s *Split) add(other *Split) {
	s.Classic.Add(&other.Classic)
	s.Quorum.Add(&other.Quorum)
}

// Counter counts for one channel.
type Counter struct {
	byType [2][kinds]atomic.Uint64
}

// Add counts messages between a client and an exchange.
func (c *Counter) Add(k Kind, n uint64) { c.byType[0][k].Add(n) }

// AddFrom counts messages between a client and a queue.
func (c *Counter) AddFrom(quorum bool, k Kind, n uint64) {
	if quorum {
		c.byType[1][k].Add(n)
		return
	}
	c.byType[0][k].Add(n)
}

// Out counts a message that a client was given, in one of the ways from Get on.
func (c *Counter) Out(quorum, redelivered bool, way Kind) {
	c.AddFrom(quorum, way, 1)
	if redelivered {
		c.AddFrom(quorum, Redeliver, 1)
	}
}

// Split returns the numbers.
func (c *Counter) Split() Split {
	var s Split
	for k := range kinds {
		s.Classic[k], s.Quorum[k] = c.byType[0][k].Load(), c.byType[1][k].Load()
	}
	return s
}

// Counts returns the numbers for all queues.
func (c *Counter) Counts() Counts {
	s := c.Split()
	return s.Sum()
}

// Totals sums counters up. What it returns never gets less.
type Totals struct {
	mu   sync.Mutex
	gone Split
	live map[*Counter]struct{}
}

// Join adds a counter from now on.
func (t *Totals) Join(c *Counter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == nil {
		t.live = make(map[*Counter]struct{})
	}
	t.live[c] = struct{}{}
}

// Add keeps what a counter has that has not joined.
func (t *Totals) Add(c *Counter) {
	t.Join(c)
	t.Leave(c)
}

// Leave keeps what the counter has, and forgets it.
func (t *Totals) Leave(c *Counter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.live[c]; !known {
		return
	}
	s := c.Split()
	t.gone.add(&s)
	delete(t.live, c)
}

// Split returns the sums.
func (t *Totals) Split() Split {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := t.gone
	for c := range t.live {
		s := c.Split()
		sum.add(&s)
	}
	return sum
}

// Counts returns the sums for all queues.
func (t *Totals) Counts() Counts {
	s := t.Split()
	return s.Sum()
}
