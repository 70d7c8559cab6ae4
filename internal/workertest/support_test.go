package workertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

func TestMain(m *testing.M) { testkit.Main(testkit.Waiting{M: m}) }

// timeout is the maximum time that tests wait for an expected event. No test needs a short timeout.
const timeout = 2 * time.Minute

// client is a Client that reconnects almost without a delay, and the log of this Client.
type client struct {
	*reprise.Client
	log *recorder
}

func dial(t testing.TB, url string, options ...func(*reprise.Config)) client {
	t.Helper()
	log := newRecorder()
	config := &reprise.Config{
		Logger:    slog.New(log),
		Reconnect: backoff.Exponential{Initial: 5 * time.Millisecond, Max: 100 * time.Millisecond},
	}
	for _, o := range options {
		o(config)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	c, err := reprise.Dial(ctx, url, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("events:\n%s", log)
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("cannot close the client: %v", err)
		}
	})
	return client{c, log}
}

// start runs a worker until the test ends or stop is called. start returns when the worker consumes. stop waits for Run and
// returns the error of Run.
func start(t testing.TB, c client, cfg reprise.WorkerConfig) (stop func() error) {
	t.Helper()
	w, err := reprise.NewWorker(c.Client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return startWorker(t, c, w)
}

// startWorker does the same with an existing worker.
func startWorker(t testing.TB, c client, w *reprise.Worker) (stop func() error) {
	t.Helper()
	before := c.log.count("consuming")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	var once sync.Once
	var result error
	stop = func() error {
		once.Do(func() {
			cancel()
			result = <-ended
		})
		return result
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	c.log.wait(t, "consuming", before+1)
	return stop
}

// recorder is a slog.Handler that records log messages as events.
type recorder struct {
	*records
	attrs []slog.Attr
}

type records struct {
	mu     sync.Mutex
	events []event
	signal chan struct{} // closed and replaced after every event
}

type event struct {
	text string
	keys []string
	line string
}

func newRecorder() *recorder {
	return &recorder{records: &records{signal: make(chan struct{})}}
}

func (r *recorder) Enabled(context.Context, slog.Level) bool { return true }
func (r *recorder) WithGroup(string) slog.Handler            { return r }
func (r *recorder) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &recorder{r.records, append(slices.Clip(r.attrs), attrs...)}
}

func (r *recorder) Handle(_ context.Context, rec slog.Record) error {
	attrs := slices.Clone(r.attrs)
	rec.Attrs(func(a slog.Attr) bool { attrs = append(attrs, a); return true })
	e := event{text: rec.Message, line: rec.Time.Format("05.000 ") + rec.Message}
	for _, a := range attrs {
		e.keys = append(e.keys, a.Key)
		e.line += fmt.Sprintf(" %s=%.200v", a.Key, a.Value)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	close(r.signal)
	r.signal = make(chan struct{})
	return nil
}

func (r *records) count(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.countLocked(text)
}

func (r *records) countLocked(text string) (n int) {
	for _, e := range r.events {
		if e.text == text {
			n++
		}
	}
	return n
}

// wait waits for the nth event of a kind.
func (r *records) wait(t testing.TB, text string, n int) {
	t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		have, signal := r.countLocked(text), r.signal
		r.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-signal:
		case <-deadline.C:
			t.Fatalf("got %d events %q, want %d", have, text, n)
		}
	}
}

func (r *records) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, e := range r.events {
		b.WriteString(e.line + "\n")
	}
	return b.String()
}

// raw is a plain AMQP client for direct access to the broker.
type raw struct {
	t    testing.TB
	conn *amqp.Connection
	*amqp.Channel

	another func() *amqp.Connection // opens another connection; only set in a bubble
}

func newRaw(t testing.TB, url string) *raw {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	r := &raw{t: t, conn: conn}
	r.reopen()
	return r
}

// reopen replaces the channel after an error.
func (r *raw) reopen() {
	r.t.Helper()
	ch, err := r.conn.Channel()
	if err != nil {
		r.t.Fatal(err)
	}
	r.Channel = ch
}

// names returns a name for a work queue, and a strategy. At the end of the test, the work queue and the queues of the
// strategy are deleted.
func (r *raw) names(buckets topology.Buckets) (queue string, s topology.Strategy) {
	r.t.Helper()
	queue = testkit.Name(r.t, "work")
	r.deleteQueues(queue, queue+".failed")
	return queue, topology.Strategy{Route: cleanedRoute{buckets, r}}
}

// cleanedRoute is a route that deletes its queues at the end of the test.
type cleanedRoute struct {
	topology.Buckets
	r *raw
}

func (b cleanedRoute) Wait(d topology.Delivery, delay time.Duration) (topology.Hop, error) {
	hop, err := b.Buckets.Wait(d, delay)
	for _, q := range hop.Topology.Queues {
		b.r.deleteQueues(q.Name)
	}
	return hop, err
}

// declareQueue declares a queue with the plain client, which waits without a timeout. The queue is deleted at the end of the
// test.
func (r *raw) declareQueue() string {
	r.t.Helper()
	name := testkit.Name(r.t, "q")
	if _, err := r.QueueDeclare(name, true, false, false, false, nil); err != nil {
		r.t.Fatal(err)
	}
	r.deleteQueues(name)
	return name
}

func (r *raw) deleteQueues(names ...string) {
	r.t.Cleanup(func() {
		ch, err := r.conn.Channel()
		if err != nil {
			return // the broker was stopped
		}
		for _, name := range names {
			if _, err := ch.QueueDelete(name, false, false, false); err != nil {
				r.t.Errorf("cannot delete queue %s: %v", name, err)
			}
		}
		_ = ch.Close()
	})
}

func (r *raw) deleteExchanges(names ...string) {
	r.t.Cleanup(func() {
		ch, err := r.conn.Channel()
		if err != nil {
			return
		}
		for _, name := range names {
			if err := ch.ExchangeDelete(name, false, false); err != nil {
				r.t.Errorf("cannot delete exchange %s: %v", name, err)
			}
		}
		_ = ch.Close()
	})
}

// publish publishes a message with the plain client, and waits for the confirm.
func (r *raw) publish(exchange, key string, msg amqp.Publishing) {
	r.t.Helper()
	ch, err := r.conn.Channel()
	if err != nil {
		r.t.Fatal(err)
	}
	defer ch.Close()
	if err := ch.Confirm(false); err != nil {
		r.t.Fatal(err)
	}
	msg.DeliveryMode = amqp.Persistent
	confirm, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, msg)
	if err != nil {
		r.t.Fatal(err)
	}
	if !confirm.Wait() {
		r.t.Fatalf("publish to exchange %q, key %q: not confirmed", exchange, key)
	}
}

// depth returns the number of ready messages, or -1 if the queue does not exist.
func (r *raw) depth(queue string) int {
	r.t.Helper()
	ch, err := r.conn.Channel()
	if err != nil {
		r.t.Fatal(err)
	}
	defer ch.Close()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		return -1
	}
	return q.Messages
}

// take waits for a message and removes it from the queue.
func (r *raw) take(queue string) amqp.Delivery {
	r.t.Helper()
	var d amqp.Delivery
	testkit.Eventually(r.t, timeout, func() error {
		ch, err := r.conn.Channel()
		if err != nil {
			return err
		}
		defer ch.Close()
		var ok bool
		if d, ok, err = ch.Get(queue, true); err != nil || !ok {
			return fmt.Errorf("queue %s has no message: %v", queue, err)
		}
		return nil
	})
	return d
}

// script is a handler that records all messages. The function answer determines the result for a message.
type script struct {
	mu     sync.Mutex
	seen   []*reprise.Delivery
	answer func(m *reprise.Delivery) error
	signal chan struct{} // closed and replaced after every message
}

func newScript(answer func(m *reprise.Delivery) error) *script {
	return &script{answer: answer, signal: make(chan struct{})}
}

func (s *script) Handle(_ context.Context, m *reprise.Delivery) error {
	s.mu.Lock()
	s.seen = append(s.seen, m)
	close(s.signal)
	s.signal = make(chan struct{})
	s.mu.Unlock()
	return s.answer(m)
}

// wait waits until the handler has received n messages, and returns the first n messages.
func (s *script) wait(t testing.TB, n int) []*reprise.Delivery {
	t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for {
		s.mu.Lock()
		seen, signal := slices.Clone(s.seen), s.signal
		s.mu.Unlock()
		if len(seen) >= n {
			return seen[:n]
		}
		select {
		case <-signal:
		case <-deadline.C:
			t.Fatalf("handler got %d messages, want %d", len(seen), n)
		}
	}
}

func (s *script) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

var errScripted = errors.New("scripted failure")

// keys returns the sorted keys of a table.
func keys[M ~map[string]V, V any](m M) []string { return slices.Sorted(maps.Keys(m)) }

func quick(max int) reprise.Policy {
	return reprise.Policy{MaxAttempts: max, Backoff: backoff.Fixed(10 * time.Millisecond)}
}
