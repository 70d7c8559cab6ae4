package simulation

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
)

// Book is what is known of all messages of a life, from those who publish and handle them.
type Book struct {
	l *Life

	mu       sync.Mutex
	messages map[string]*Message // by id
	order    []*Message
	pending  int // publishes that have not returned
	drained  bool
}

func newBook(l *Life) *Book { return &Book{l: l, messages: make(map[string]*Message)} }

// Message is a message and all that happened to it. The book's lock guards it.
type Message struct {
	ID        string // begins its body; unique in a life
	Work      string // name of the work it is for; "": none
	Plan      Plan
	MessageID string // the property, as published; "": none
	Headers   map[string]any
	Body      []byte
	Due       time.Time // not before; zero: at once

	Sendings []*Sending
	Runs     []*Run
	Stripped bool // another program has dropped its headers
	Found    []time.Time
	Parked   int      // copies in the failed queue at the end
	Losses   []string // announced, by an act that destroys it
	history  []string
}

// Sending is one attempt to publish a message.
type Sending struct {
	Began, Ended time.Time
	Open         bool  // not known yet
	Err          error // of Publish
}

// Run is one run of a handler.
type Run struct {
	Who         string // owner of the worker's connections
	process     any    // that it ran in
	Attempt     int
	Redelivered bool
	MessageID   string
	Began       time.Time
	Ended       time.Time // zero: it runs
	Manner      manner
	Cut         bool          // the handler's context or process ended before the handler did
	Asked       time.Duration // delay; negative: none
	Settled     time.Time
	How         reprise.EventKind // 0: not known
}

const maxHistory = 60

// Note adds a line to the history of a message, which is printed when a promise about it is broken. The book's lock is held.
func (b *Book) note(m *Message, format string, args ...any) {
	clock.Store(int64(b.l.Now()))
	if len(m.history) < maxHistory {
		m.history = append(m.history, fmt.Sprintf("%v ", b.l.Now())+fmt.Sprintf(format, args...))
	}
}

// Note adds a line to the history of a message.
func (b *Book) Note(id, format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := b.messages[id]; m != nil {
		b.note(m, format, args...)
	}
}

// History returns what happened to a message, for the detail of a violation.
func (m *Message) History() string {
	return fmt.Sprintf("%s (%+v)\n\t\t%s", m.ID, m.Plan, strings.Join(m.history, "\n\t\t"))
}

// Add makes a message for a work.
func (b *Book) Add(id, work string, padding int) *Message {
	m := &Message{ID: id, Work: work, Plan: planOf(id), MessageID: id}
	if work == steadyName {
		m.Plan = steadyPlan(id)
	}
	random := source(id, -1)
	m.Headers = map[string]any{"own": "kept", "n": int32(random.IntN(100)), "list": []any{"a", int64(7), true}}
	m.Body = append([]byte(id+" "), bytes.Repeat([]byte{byte(random.Uint32())}, padding)...)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages[id] = m
	b.order = append(b.order, m)
	return m
}

// Find returns the message of a body.
func (b *Book) Find(body []byte) *Message {
	id, _, _ := bytes.Cut(body, []byte(" "))
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.messages[string(id)]
}

// Of returns the messages of a work, in the order of their first publish; of all works if it is "*".
func (b *Book) Of(work string) (all []*Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.order {
		if m.Work == work || work == "*" {
			all = append(all, m)
		}
	}
	return all
}

// waiting returns the histories of some messages whose last attempt has put them back.
func (b *Book) waiting(most int) string {
	var histories strings.Builder
	for _, m := range b.Of("*") {
		if n := len(m.Runs); most > 0 && n > 0 && m.done() == 0 && m.Runs[n-1].How == reprise.EventRetried {
			most--
			fmt.Fprintf(&histories, "\n\t%s", m.History())
		}
	}
	return histories.String()
}

func (b *Book) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.order)
}

// Sending notes that a message is about to be published.
func (b *Book) Sending(m *Message) *Sending {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending++
	s := &Sending{Began: time.Now(), Open: true}
	m.Sendings = append(m.Sendings, s)
	b.note(m, "publish")
	return s
}

// Sent notes what came of it.
func (b *Book) Sent(m *Message, s *Sending, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending--
	s.Ended, s.Open, s.Err = time.Now(), false, err
	if err == nil {
		b.note(m, "confirmed")
	} else {
		b.note(m, "publish: %v", err)
	}
}

// Lost notes that somebody has taken away a message, or a copy of it, on purpose.
func (b *Book) Lost(m *Message, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.Losses = append(m.Losses, why)
	b.note(m, "%s", why)
}

const (
	promiseKnown = "nothing is made up: each message that comes was published"
	promiseKept  = "a message keeps its body, its properties and its headers, with their types"
	promiseBack  = "a retry returns to the queue that failed and to no other"
)

// begin notes that a handler has been given a message.
func (b *Book) begin(who string, process any, work string, d *reprise.Message) (*Message, *Run) {
	m := b.Find(d.Body)
	if m == nil {
		b.l.Broken(promiseKnown, "%s was given %q", who, d.Body)
		return nil, nil
	}
	if m.Work != work {
		b.l.Broken(promiseBack, "a message of %s came to %s: %s", m.Work, work, m.History())
	}
	if !bytes.Equal(m.Body, d.Body) {
		b.l.Broken(promiseKept, "%s: the body has %d bytes rather than %d", m.ID, len(d.Body), len(m.Body))
	}
	if diff := cmp.Diff(m.Headers, d.Headers); diff != "" && !m.Stripped {
		b.l.Broken(promiseKept, "%s: headers, -published +handled:\n%s", m.ID, diff)
	}
	if m.MessageID != "" && m.MessageID != d.MessageID {
		b.l.Broken(promiseKept, "%s: the message id is %q", m.ID, d.MessageID)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &Run{Who: who, process: process, Attempt: d.Attempt, Redelivered: d.Redelivered, MessageID: d.MessageID, Began: time.Now(), Asked: -1}
	m.Runs = append(m.Runs, r)
	redelivered := ""
	if d.Redelivered {
		redelivered = ", redelivered"
	}
	b.note(m, "attempt %d at %s%s", d.Attempt, who, redelivered)
	return m, r
}

// end notes that a handler has returned.
func (b *Book) end(m *Message, r *Run, a attempt, cut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.Ended, r.Manner, r.Cut = time.Now(), a.manner, cut
	if a.manner == asks || a.manner == pauses {
		r.Asked = a.asked
	}
	if cut {
		b.note(m, "attempt %d was cut short", r.Attempt)
	} else {
		b.note(m, "attempt %d: %s", r.Attempt, []string{"success", "park", "error", "panic", "exit", "retry after", "pause"}[a.manner])
	}
}

// observe notes what a worker says.
func (b *Book) observe(process any, e reprise.Event) {
	switch e.Kind {
	case reprise.EventDone, reprise.EventRetried, reprise.EventParked, reprise.EventGivenBack, reprise.EventDropped, reprise.EventLost:
	default:
		return
	}
	if e.Message == nil {
		return
	}
	m := b.Find(e.Message.Body)
	if m == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range m.Runs { // the handler of one that is settled has returned
		if r.process == process && r.Attempt == e.Attempt && r.How == 0 && !r.Ended.IsZero() {
			r.How, r.Settled = e.Kind, time.Now()
			b.note(m, "attempt %d %s", r.Attempt, e.Kind)
			return
		}
	}
}

// unsettled returns how many attempts a process has not settled.
func (b *Book) unsettled(process any) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.order {
		for _, r := range m.Runs {
			if r.process == process && r.How == 0 {
				n++
			}
		}
	}
	return n
}

// over notes that a process has ended: what it has not settled is delivered again.
func (b *Book) over(process any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.order {
		for _, r := range m.Runs {
			if r.process == process && r.How == 0 {
				r.How, r.Settled = reprise.EventDropped, time.Now()
				b.note(m, "attempt %d ended with its process", r.Attempt)
			}
		}
	}
}

// drain takes everything out of the failed queues, when the life is quiet.
func (b *Book) drain() {
	if b.drained {
		return
	}
	b.drained = true
	for _, w := range b.l.Script.Shape.Works {
		if b.takeFailed(w) < 0 {
			b.l.Broken(promiseQuiet, "the failed queue of %s cannot be read", w.Name)
		}
	}
}

// takeFailed takes everything out of the failed queue of a work. It returns how many messages these were; negative: it cannot.
func (b *Book) takeFailed(w Work) (n int) {
	conn, err := b.l.Open(keeperName)
	if err != nil {
		return -1
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return -1
	}
	for failed := findDesign(w.Design).Build(w).failed; ; n++ {
		d, ok, err := ch.Get(failed, false) // or an answer that is cut off would take the message with it
		if err != nil {
			return -1
		}
		if !ok {
			return n
		}
		b.parked(w, d)
		if err := d.Ack(false); err != nil {
			return -1
		}
	}
}

// parked notes a message that was found in a failed queue.
func (b *Book) parked(w Work, d amqp.Delivery) {
	m := b.Find(d.Body)
	if m == nil {
		b.l.Broken(promiseKnown, "the failed queue of %s has %q", w.Name, d.Body)
		return
	}
	if m.Work != w.Name || !bytes.Equal(m.Body, d.Body) || m.MessageID != "" && m.MessageID != d.MessageId {
		b.l.Broken(promiseKept, "parked by %s with id %q: %s", w.Name, d.MessageId, m.History())
	}
	for name, v := range m.Headers {
		if diff := cmp.Diff(v, d.Headers[name]); diff != "" && !m.Stripped {
			b.l.Broken(promiseKept, "parked %s: header %s, -published +parked:\n%s", m.ID, name, diff)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m.Parked++
	m.Found = append(m.Found, time.Now())
	b.note(m, "found parked, %v attempts, reason %v", d.Headers["x-reprise-attempts"], d.Headers["x-reprise-reason"])
}
