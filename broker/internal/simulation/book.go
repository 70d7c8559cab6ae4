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
	"github.com/reprisemq/reprise/topology"
)

// Book records the messages of a life, and what their publishers and handlers report.
type Book struct {
	l *Life

	mu       sync.Mutex
	messages map[string]*Message // by ID
	order    []*Message
	pending  int // publishes that have not returned
	drained  bool
	events   int // number of events with a position
}

func newBook(l *Life) *Book { return &Book{l: l, messages: make(map[string]*Message)} }

// Message is a message and its history. The lock of the Book guards it.
type Message struct {
	ID        string // first word of the body; unique in a life
	Work      string // name of the message's work; "": none
	Plan      Plan
	Key       string // of its order or lane; also the header headerKey
	MessageID string // the message ID property, as published; "": none
	Headers   map[string]any
	Body      []byte
	Due       time.Time // earliest delivery; zero: immediately

	Sendings []*Sending
	Runs     []*Run
	Stripped bool // a program other than Reprise has dropped the headers
	Found    []time.Time
	Parked   int      // number of copies found in the failed queue
	FailedIn []any    // queues of the last attempts of these copies
	Losses   []string // reasons for a deliberate loss, reported by the act that destroys the message
	history  []string
}

// Sending is an attempt to publish a message.
type Sending struct {
	Began, Ended time.Time
	began, ended int   // positions in the order of all events; 0: none
	Open         bool  // the publish has not returned
	Err          error // result of Publish
}

// Run is one call of a handler.
type Run struct {
	Who         string // owner of the connections of the process
	process     any    // process that runs the handler
	Attempt     int
	Epoch       int64
	Redelivered bool
	MessageID   string
	Began       time.Time
	Ended       time.Time // zero: the handler is running
	Held        time.Time // the handler knows that it holds the lease; zero: it does not
	Manner      manner
	Cut         bool          // the context was canceled or the process exited before the handler returned
	Asked       time.Duration // requested delay; negative: none
	Settled     time.Time
	How         reprise.EventKind // 0: unknown

	began, ended int // positions in the order of all events; 0: none
}

const maxHistory = 60

// note adds a line to the history of a message. The report of a broken promise contains the history. The caller holds the
// lock.
func (b *Book) note(m *Message, format string, args ...any) {
	clock.Store(int64(b.l.Now()))
	if len(m.history) < maxHistory {
		m.history = append(m.history, fmt.Sprintf("%v ", b.l.Now())+fmt.Sprintf(format, args...))
	}
}

// position returns the position of the next event. The caller holds the lock.
func (b *Book) position() int {
	b.events++
	return b.events
}

// Note adds a line to the history of a message.
func (b *Book) Note(id, format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := b.messages[id]; m != nil {
		b.note(m, format, args...)
	}
}

// History returns the plan and the recorded events of a message, for the report of a violation.
func (m *Message) History() string {
	return fmt.Sprintf("%s (%+v)\n\t\t%s", m.ID, m.Plan, strings.Join(m.history, "\n\t\t"))
}

// Add records a new message for a work and returns it.
func (b *Book) Add(id, work string, padding int) *Message {
	m := &Message{ID: id, Work: work, Plan: planOf(id), MessageID: id, Key: fmt.Sprint("key", source(id, -3).IntN(keys))}
	m.Plan.Brief, m.Plan.Long = work == orderName, work == leasesName
	if work == steadyName {
		m.Plan = steadyPlan(id)
	}
	random := source(id, -1)
	m.Headers = map[string]any{"own": "kept", "n": int32(random.IntN(100)), "list": []any{"a", int64(7), true}, headerKey: m.Key}
	m.Body = append([]byte(id+" "), bytes.Repeat([]byte{byte(random.Uint32())}, padding)...)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages[id] = m
	b.order = append(b.order, m)
	return m
}

// Find returns the message with this body, or nil.
func (b *Book) Find(body []byte) *Message {
	id, _, _ := bytes.Cut(body, []byte(" "))
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.messages[string(id)]
}

// Of returns the messages of a work, in the order in which they were added. The name "*" selects all works.
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

// waiting returns the histories of messages that wait for a retry. The argument most is the maximum number of histories.
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

// Sending records the start of a publish.
func (b *Book) Sending(m *Message) *Sending {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending++
	s := &Sending{Began: time.Now(), began: b.position(), Open: true}
	m.Sendings = append(m.Sendings, s)
	b.note(m, "publish")
	return s
}

// Sent records the result of a publish.
func (b *Book) Sent(m *Message, s *Sending, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending--
	s.Ended, s.ended, s.Open, s.Err = time.Now(), b.position(), false, err
	if err == nil {
		b.note(m, "confirmed")
	} else {
		b.note(m, "publish: %v", err)
	}
}

// Lost records that an act has deliberately removed a message or a copy of it.
func (b *Book) Lost(m *Message, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.Losses = append(m.Losses, why)
	b.note(m, "%s", why)
}

const (
	promiseKnown = "each delivered message was published"
	promiseKept  = "body, properties, headers and types of a message do not change"
	promiseBack  = "a retry returns to the work queue of the failed attempt"
)

// begin records the start of a handler, and checks the content of the message.
func (b *Book) begin(who string, process any, work string, d *reprise.Delivery) (*Message, *Run) {
	m := b.Find(d.Body)
	if m == nil {
		b.l.Broken(promiseKnown, "%s received %q", who, d.Body)
		return nil, nil
	}
	if m.Work != work {
		b.l.Broken(promiseBack, "work queue %[2]s delivered a message of %[1]s: %[3]s", m.Work, work, m.History())
	}
	if !bytes.Equal(m.Body, d.Body) {
		b.l.Broken(promiseKept, "%s: body: got %d bytes, want %d", m.ID, len(d.Body), len(m.Body))
	}
	if diff := cmp.Diff(m.Headers, d.Headers); diff != "" && !m.Stripped {
		b.l.Broken(promiseKept, "%s: headers, -published +delivered:\n%s", m.ID, diff)
	}
	if m.MessageID != "" && m.MessageID != d.MessageID {
		b.l.Broken(promiseKept, "%s: message ID: got %q, want %q", m.ID, d.MessageID, m.MessageID)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &Run{Who: who, process: process, Attempt: d.Attempt, Epoch: d.Epoch, Redelivered: d.Redelivered, MessageID: d.MessageID, Began: time.Now(), began: b.position(), Asked: -1}
	m.Runs = append(m.Runs, r)
	redelivered := ""
	if d.Redelivered {
		redelivered = ", redelivered"
	}
	b.note(m, "attempt %d at %s%s", d.Attempt, who, redelivered)
	return m, r
}

// end records the return of a handler.
func (b *Book) end(m *Message, r *Run, a attempt, cut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.Ended, r.ended, r.Manner, r.Cut = time.Now(), b.position(), a.manner, cut
	if a.manner == asks || a.manner == pauses {
		r.Asked = a.asked
	}
	if cut {
		b.note(m, "attempt %d was interrupted", r.Attempt)
	} else {
		b.note(m, "attempt %d: %s", r.Attempt, []string{"success", "park", "error", "panic", "exit", "retry after", "pause"}[a.manner])
	}
}

// observe records an event that a worker reports.
func (b *Book) observe(process any, e reprise.Event) {
	switch e.Kind {
	case reprise.EventDone, reprise.EventRetried, reprise.EventParked, reprise.EventRequeued, reprise.EventDropped, reprise.EventLost:
	default:
		return
	}
	if e.Delivery == nil {
		return
	}
	m := b.Find(e.Delivery.Body)
	if m == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range m.Runs { // a handler returns before its message is settled
		if r.process == process && r.Attempt == e.Attempt && r.How == 0 && !r.Ended.IsZero() {
			r.How, r.Settled = e.Kind, time.Now()
			b.note(m, "attempt %d %s", r.Attempt, e.Kind)
			return
		}
	}
}

// unsettled returns the number of attempts that a process has not settled.
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

// processEnded records that a process has exited. The broker redelivers the messages that the process had not settled.
func (b *Book) processEnded(process any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.order {
		for _, r := range m.Runs {
			if r.process == process && r.How == 0 {
				r.How, r.Settled = reprise.EventDropped, time.Now()
				b.note(m, "attempt %d was interrupted: process exited", r.Attempt)
			}
		}
	}
}

// drain empties the failed queues at the end of a life. Further calls do nothing.
func (b *Book) drain() {
	if b.drained {
		return
	}
	b.drained = true
	for _, w := range b.l.Script.Shape.Works {
		if b.takeFailed(w) < 0 {
			b.l.Broken(promiseQuiet, "cannot read the failed queue of %s", w.Name)
		}
	}
}

// takeFailed empties the failed queue of a work. It returns the number of removed messages, or a negative number if the
// queue cannot be read.
func (b *Book) takeFailed(w Work) (n int) {
	conn, err := b.l.Open(operatorName)
	if err != nil {
		return -1
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return -1
	}
	for failed := findDesign(w.Design).Build(w).failed; ; n++ {
		d, ok, err := ch.Get(failed, false) // with auto-ack, a connection failure during the reply would lose the message
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

// parked records a message from a failed queue.
func (b *Book) parked(w Work, d amqp.Delivery) {
	m := b.Find(d.Body)
	if m == nil {
		b.l.Broken(promiseKnown, "unpublished message in the failed queue of %s: %q", w.Name, d.Body)
		return
	}
	if m.Work != w.Name || !bytes.Equal(m.Body, d.Body) || m.MessageID != "" && m.MessageID != d.MessageId {
		b.l.Broken(promiseKept, "message changed by parking: got work %s and ID %q, want %s and %q: %s", w.Name, d.MessageId, m.Work, m.MessageID, m.History())
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
	m.FailedIn = append(m.FailedIn, d.Headers[topology.HeaderQueue])
	b.note(m, "found parked, %v attempts, reason %v", d.Headers["x-reprise-attempts"], d.Headers["x-reprise-reason"])
}
