package load

import (
	"fmt"
	"sync"
	"testing"
)

// A Ledger records the confirmed and the delivered messages of a broker over all lives of the broker. It is safe for
// concurrent use.
type Ledger struct {
	t *testing.T

	mu        sync.Mutex
	life      int // number of starts of the broker
	over      bool
	published map[string]int // last published number, by queue
	confirmed int
	missing   map[message]bool           // confirmed messages that have not arrived
	delivered map[string]map[message]int // number of deliveries, by queue
	last      map[way]int                // last delivered number since the start of the broker
	history   map[message]string         // events of the message, for errors
}

// message identifies a message by its queue and a number.
type message struct {
	queue  string
	number int
}

func (m message) String() string { return fmt.Sprintf("%s %d", m.queue, m.number) }

func parse(body []byte) (m message, err error) {
	_, err = fmt.Sscan(string(body), &m.queue, &m.number)
	return m, err
}

// way is the pair of the first and the last queue of a message.
type way struct{ from, to string }

// NewLedger returns an empty Ledger that reports errors to t.
func NewLedger(t *testing.T) *Ledger {
	return &Ledger{
		t:         t,
		published: make(map[string]int),
		missing:   make(map[message]bool),
		delivered: make(map[string]map[message]int),
		history:   make(map[message]string),
	}
}

// begin records that the broker has started.
func (l *Ledger) begin() (life int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.life++
	l.over = false
	l.last = make(map[way]int)
	return l.life
}

// End records that the test is about to kill the broker. Later replies of the broker do not count.
func (l *Ledger) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}

// next returns the next message to publish.
func (l *Ledger) next(queue string) message {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.published[queue]++
	return message{queue, l.published[queue]}
}

func (l *Ledger) confirm(life int, m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || l.life != life {
		return
	}
	l.confirmed++
	if l.delivered[destination(m)][m] == 0 {
		l.missing[m] = true
	}
	l.note(m, "confirmed")
}

// deliver records a delivery. If it returns true, the caller should settle the delivery. If the test has already killed
// the broker, deliver ignores the delivery and returns false.
func (l *Ledger) deliver(life int, from string, m message, redelivered bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || l.life != life {
		return false
	}
	if from == destination(m) {
		delete(l.missing, m)
	}
	if l.delivered[from] == nil {
		l.delivered[from] = make(map[message]int)
	}
	l.note(m, fmt.Sprintf("delivered from %s (redelivered: %v)", from, redelivered))
	if l.delivered[from][m]++; l.delivered[from][m] > 1 && !redelivered {
		l.t.Errorf("message %v from %s: delivery %d must have the flag redelivered:%s", m, from, l.delivered[from][m], l.history[m])
	}
	w := way{m.queue, from}
	if m.number <= l.last[w] {
		l.t.Errorf("message %v from %s must be delivered before number %d:%s", m, from, l.last[w], l.history[m])
	}
	l.last[w] = m.number
	return true
}

func (l *Ledger) note(m message, what string) {
	l.history[m] += fmt.Sprintf("\n\tlife %d: %s", l.life, what)
}

// complete reports whether all confirmed messages have arrived.
func (l *Ledger) complete() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.missing) == 0
}

// Lives returns the number of lives of the broker so far.
func (l *Ledger) Lives() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.life
}

// Check fails the test if a confirmed message has not arrived, or if no message was confirmed.
func (l *Ledger) Check() {
	l.t.Helper()
	if l.confirmed == 0 {
		l.t.Error("no message confirmed")
	}
	for m := range l.missing {
		l.t.Errorf("confirmed message %v is lost:%s", m, l.history[m])
	}
	l.t.Logf("lives: %d, confirmed messages: %d", l.life, l.confirmed)
}
