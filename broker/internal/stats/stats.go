// Package stats counts messages, connections and queues of a broker.
//
// Each channel has a [Counter]. Only one goroutine at a time adds to a Counter, so counting causes no contention. A
// [Totals] adds up the counters of open channels and the sums of closed channels.
package stats

import (
	"sync"
	"sync/atomic"
)

// Kind is a kind of message event. The names are from message_stats in RabbitMQ's management API.
type Kind uint8

// Dropped and the kinds before it occur between a client and an exchange. Get and the kinds after it occur between a
// client and a queue.
const (
	Publish   Kind = iota
	Confirm        // the broker confirmed the message
	Confirmed      // published on a channel with confirms
	Returned       // mandatory and unroutable
	Dropped        // not mandatory and unroutable
	Get
	GetNoAck
	GetEmpty
	Deliver
	DeliverNoAck
	Redeliver
	Ack
	kinds
)

// Counts contains the number of events of each kind.
type Counts [kinds]uint64

// Of returns the number of events of a kind.
func (c *Counts) Of(k Kind) uint64 { return c[k] }

// DeliverGet returns the number of messages that clients received in any way.
func (c *Counts) DeliverGet() uint64 { return c[Get] + c[GetNoAck] + c[Deliver] + c[DeliverNoAck] }

// Add adds other to c.
func (c *Counts) Add(other *Counts) {
	for k := range c {
		c[k] += other[k]
	}
}

// Split contains separate counts for classic queues and quorum queues. Events without a queue count as classic.
type Split struct{ Classic, Quorum Counts }

// Sum returns the counts of both queue types together.
func (s *Split) Sum() Counts {
	sum := s.Classic
	sum.Add(&s.Quorum)
	return sum
}

func (s *Split) add(other *Split) {
	s.Classic.Add(&other.Classic)
	s.Quorum.Add(&other.Quorum)
}

// Counter counts the events of one channel.
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

// Out counts a message that a client received. The argument way must be Get or a later Kind.
func (c *Counter) Out(quorum, redelivered bool, way Kind) {
	c.AddFrom(quorum, way, 1)
	if redelivered {
		c.AddFrom(quorum, Redeliver, 1)
	}
}

// Split returns the counts by queue type.
func (c *Counter) Split() Split {
	var s Split
	for k := range kinds {
		s.Classic[k], s.Quorum[k] = c.byType[0][k].Load(), c.byType[1][k].Load()
	}
	return s
}

// Counts returns the counts of both queue types together.
func (c *Counter) Counts() Counts {
	s := c.Split()
	return s.Sum()
}

// Totals adds up counters. The results never decrease. A Totals is safe for concurrent use.
type Totals struct {
	mu   sync.Mutex
	gone Split
	live map[*Counter]struct{}
}

// Join adds a counter.
func (t *Totals) Join(c *Counter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == nil {
		t.live = make(map[*Counter]struct{})
	}
	t.live[c] = struct{}{}
}

// Add adds the counts of a counter that has not joined.
func (t *Totals) Add(c *Counter) {
	t.Join(c)
	t.Leave(c)
}

// Leave removes a counter, and keeps its counts in the totals.
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

// Split returns the sums by queue type.
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

// Counts returns the sums of both queue types together.
func (t *Totals) Counts() Counts {
	s := t.Split()
	return s.Sum()
}
