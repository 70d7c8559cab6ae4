package prommetrics

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/published"
)

// Observe implements reprise.Observer.
func (m *Metrics) Observe(e reprise.Event) {
	switch e.Kind {
	case reprise.EventPublished:
		m.publishing.observe(e)
	case reprise.EventConnected, reprise.EventDisconnected, reprise.EventBlocked, reprise.EventUnblocked:
		m.connections.get(e.Connection).observe(e)
	case reprise.EventConsuming, reprise.EventInterrupted, reprise.EventPaused, reprise.EventResumed:
		m.consumers.get(e.Queue).observe(e)
		if e.AsDelivered {
			m.takers.get(e.Queue) // creates all series at the first event
		} else {
			m.queues.get(e.Queue).observe(e)
		}
	default:
		switch {
		case !e.AsDelivered:
			m.queues.get(e.Queue).observe(e)
		case e.Kind == reprise.EventDone:
			(*m.takers.get(e.Queue)).Inc()
		}
	}
}

// maxAge is the maximum age that counts as valid. Any publisher can set a wrong timestamp, and the age of a message
// from 1970 would distort the sum permanently.
const maxAge = 365 * 24 * time.Hour

// queue contains the metrics of one work queue.
type queue struct {
	counts map[reprise.EventKind]prometheus.Counter

	running                       prometheus.Gauge
	succeeded, failed             prometheus.Observer // durations of handlers
	attemptsToDone, attemptsToEnd prometheus.Observer
	age, delay                    prometheus.Observer

	lastSuccess prometheus.Gauge
	begun       sync.Once // initializes lastSuccess when consumption begins
}

// consumer contains the metrics of all workers of a queue. The queue need not be a work queue.
type consumer struct {
	interruptions, pauses prometheus.Counter
	consuming, paused     workers
}

// workers is the set of a queue's workers in one state, and the gauge with their number.
type workers struct {
	gauge prometheus.Gauge
	mu    sync.Mutex
	in    map[int]bool // key: Event.Worker
}

// set records whether a worker is in the state.
func (w *workers) set(worker int, in bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if in {
		w.in[worker] = true
	} else {
		delete(w.in, worker)
	}
	w.gauge.Set(float64(len(w.in)))
}

// newQueues creates the metrics of work queues. It returns a function that returns the metrics of one queue.
func (m *Metrics) newQueues(cfg Config) func(name string) *queue {
	attempts := m.counter("attempts_total", "Attempts by outcome.", "queue", "outcome")
	running := m.gauge("attempts_running", "Handlers that are running now.", "queue")
	handlerDuration := m.histogram(cfg, "handler_duration_seconds", "Running time of handlers.", cfg.HandlerDuration, "queue", "result")
	messageAttempts := m.histogram(cfg, "message_attempts", "Attempts of messages until they were done or parked.", cfg.MessageAttempts, "queue", "outcome")
	messageAge := m.histogram(cfg, "message_age_seconds", "Age of messages, by their timestamp, when their first attempt began.", cfg.MessageAge, "queue")
	retryDelay := m.histogram(cfg, "retry_delay_seconds", "Delays of retries.", cfg.RetryDelay, "queue")
	lastSuccess := m.gauge("last_success_timestamp_seconds", "Time of the last done message. Before the first such message: time at which consumption began.", "queue")
	copiesFailed := m.counter("copies_failed_total", "Copies of failed messages that the broker did not confirm. The worker publishes them again.", "queue")
	copiesRefused := m.counter("copies_refused_total", "Copies of failed messages that the broker permanently refused. The worker parks the message in another way, or holds it.", "queue")
	timeoutsNear := m.counter("consumer_timeouts_near_total", "Messages that were handled for most of the consumer timeout of the broker.", "queue")
	unreported := m.counter("outcomes_unreported_total", "Outcomes of replayed messages that were not reported to the archive.", "queue")
	debounced := m.counter("debounced_total", "Messages acknowledged together with an equal message, and not handled.", "queue")

	return func(name string) *queue {
		m.consumers.get(name) // creates all series at the first event
		return &queue{
			counts: map[reprise.EventKind]prometheus.Counter{
				reprise.EventDone:        attempts.WithLabelValues(name, "done"),
				reprise.EventRetried:     attempts.WithLabelValues(name, "retried"),
				reprise.EventParked:      attempts.WithLabelValues(name, "parked"),
				reprise.EventRequeued:    attempts.WithLabelValues(name, "given_back"),
				reprise.EventDropped:     attempts.WithLabelValues(name, "dropped"),
				reprise.EventLost:        attempts.WithLabelValues(name, "lost"),
				reprise.EventCopyFailed:  copiesFailed.WithLabelValues(name),
				reprise.EventCopyRefused: copiesRefused.WithLabelValues(name),
				reprise.EventDebounced:   debounced.WithLabelValues(name),
				reprise.EventTimeoutNear: timeoutsNear.WithLabelValues(name),
				reprise.EventUnreported:  unreported.WithLabelValues(name),
			},

			running:        running.WithLabelValues(name),
			succeeded:      handlerDuration.WithLabelValues(name, "ok"),
			failed:         handlerDuration.WithLabelValues(name, "error"),
			attemptsToDone: messageAttempts.WithLabelValues(name, "done"),
			attemptsToEnd:  messageAttempts.WithLabelValues(name, "parked"),
			age:            messageAge.WithLabelValues(name),
			delay:          retryDelay.WithLabelValues(name),

			lastSuccess: lastSuccess.WithLabelValues(name),
		}
	}
}

// newTakers is like newQueues, but for queues with AsDelivered workers.
func (m *Metrics) newTakers() func(name string) *prometheus.Counter {
	taken := m.counter("taken_total", "Messages taken out of a queue to be archived or moved, and not counted as attempts.", "queue")
	return func(name string) *prometheus.Counter { return new(taken.WithLabelValues(name)) }
}

// newConsumers is like newQueues, but for queues with workers of any kind.
func (m *Metrics) newConsumers() func(name string) *consumer {
	consuming := m.gauge("consuming", "Workers that have a consumer.", "queue")
	interruptions := m.counter("interruptions_total", "Interruptions and failed starts of consumers.", "queue")
	paused := m.gauge("paused", "Workers that are paused.", "queue")
	pauses := m.counter("pauses_total", "Pauses of workers.", "queue")
	return func(name string) *consumer {
		return &consumer{
			interruptions: interruptions.WithLabelValues(name),
			pauses:        pauses.WithLabelValues(name),
			consuming:     workers{gauge: consuming.WithLabelValues(name), in: map[int]bool{}},
			paused:        workers{gauge: paused.WithLabelValues(name), in: map[int]bool{}},
		}
	}
}

func (q *queue) observe(e reprise.Event) {
	if counter := q.counts[e.Kind]; counter != nil {
		counter.Inc()
	}
	switch e.Kind {
	case reprise.EventStarted:
		q.running.Inc()
		// The age at a later attempt would include the retry delays, which q.delay already counts.
		if e.Attempt == 1 && e.Age > 0 && e.Age <= maxAge {
			q.age.Observe(e.Age.Seconds())
		}
	case reprise.EventHandled:
		q.running.Dec()
		if e.Err == nil {
			q.succeeded.Observe(e.Took.Seconds())
		} else {
			q.failed.Observe(e.Took.Seconds())
		}
	case reprise.EventDone:
		q.attemptsToDone.Observe(float64(e.Attempt))
		q.lastSuccess.SetToCurrentTime()
	case reprise.EventRetried:
		q.delay.Observe(e.Delay.Seconds())
	case reprise.EventParked:
		q.attemptsToEnd.Observe(float64(e.Attempt))
	case reprise.EventConsuming:
		q.begun.Do(q.lastSuccess.SetToCurrentTime)
	}
}

func (c *consumer) observe(e reprise.Event) {
	switch e.Kind {
	case reprise.EventConsuming:
		c.consuming.set(e.Worker, true)
		c.paused.set(e.Worker, false)
	case reprise.EventInterrupted:
		c.consuming.set(e.Worker, false)
		if errors.Is(e.Err, reprise.ErrClosed) { // the worker has stopped
			c.paused.set(e.Worker, false)
			return
		}
		c.interruptions.Inc()
	case reprise.EventPaused:
		c.pauses.Inc()
		c.paused.set(e.Worker, true)
		c.consuming.set(e.Worker, false)
	case reprise.EventResumed:
		c.paused.set(e.Worker, false)
	}
}

// connection contains the metrics of one connection of a client.
type connection struct {
	up, blocked prometheus.Gauge
	reconnects  prometheus.Counter
	connected   atomic.Bool // at least once
}

// newConnections is like newQueues, but for connections.
func (m *Metrics) newConnections() func(name string) *connection {
	up := m.gauge("connection_up", "1 if connected to the broker, else 0.", "connection")
	blocked := m.gauge("connection_blocked", "Whether the broker blocks the connection.", "connection")
	reconnects := m.counter("reconnects_total", "Connections after the first.", "connection")
	return func(name string) *connection {
		return &connection{
			up:         up.WithLabelValues(name),
			blocked:    blocked.WithLabelValues(name),
			reconnects: reconnects.WithLabelValues(name),
		}
	}
}

func (c *connection) observe(e reprise.Event) {
	switch e.Kind {
	case reprise.EventConnected:
		if c.connected.Swap(true) {
			c.reconnects.Inc()
		}
		c.up.Set(1)
		c.blocked.Set(0)
	case reprise.EventDisconnected:
		c.up.Set(0)
		c.blocked.Set(0) // after a reconnect, the broker reports an alarm again
	case reprise.EventBlocked:
		c.blocked.Set(1)
	case reprise.EventUnblocked:
		c.blocked.Set(0)
	}
}

type publicationMetrics struct {
	results map[string]prometheus.Counter
	took    prometheus.Observer
}

func (m *Metrics) newPublishing(cfg Config) publicationMetrics {
	messages := m.counter("published_total", "Published messages by result.", "result")
	took := m.histogram(cfg, "publish_duration_seconds", "Time from publish to confirm.", cfg.PublishDuration)
	p := publicationMetrics{results: map[string]prometheus.Counter{}, took: took.WithLabelValues()}
	for _, result := range published.Results() {
		p.results[result] = messages.WithLabelValues(result)
	}
	return p
}

func (p *publicationMetrics) observe(e reprise.Event) {
	p.results[published.Result(e.Err)].Inc()
	if e.Err == nil {
		p.took.Observe(e.Took.Seconds())
	}
}
