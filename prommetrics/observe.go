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

// Observe implements reprise.Observer: it counts e.
func (m *Metrics) Observe(e reprise.Event) {
	switch e.Kind {
	case reprise.EventPublished:
		m.publishing.observe(e)
	case reprise.EventConnected, reprise.EventDisconnected, reprise.EventBlocked, reprise.EventUnblocked:
		m.connections.get(e.Connection).observe(e)
	case reprise.EventConsuming, reprise.EventInterrupted, reprise.EventPaused, reprise.EventResumed:
		m.consumers.get(e.Queue).observe(e)
		if e.AsDelivered {
			m.takers.get(e.Queue) // so that all series are there from the first event on
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

// maxAge is the age beyond which a timestamp is taken for a mistake: any publisher
// can write one, and the age since 1970 would spoil the sum for good.
const maxAge = 365 * 24 * time.Hour

// queue is the metrics of one work queue.
type queue struct {
	counts map[reprise.EventKind]prometheus.Counter

	running                       prometheus.Gauge
	succeeded, failed             prometheus.Observer // how long handlers ran
	attemptsToDone, attemptsToEnd prometheus.Observer
	age, delay                    prometheus.Observer

	lastSuccess prometheus.Gauge
	begun       sync.Once // before any success
}

// consumer is the metrics of those who consume a queue, be it a work queue or not.
type consumer struct {
	interruptions, pauses prometheus.Counter
	consuming, paused     workers
}

// workers are those of a queue that are in some state, and the gauge that counts them.
type workers struct {
	gauge prometheus.Gauge
	mu    sync.Mutex
	in    map[int]bool // by Event.Worker
}

// note says whether a worker is in the state.
func (w *workers) note(worker int, in bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if in {
		w.in[worker] = true
	} else {
		delete(w.in, worker)
	}
	w.gauge.Set(float64(len(w.in)))
}

func (m *Metrics) queue(name string) *queue {
	m.consumers.get(name) // so that all series are there from the first event on
	return &queue{
		counts: map[reprise.EventKind]prometheus.Counter{
			reprise.EventDone:        m.attempts.WithLabelValues(name, "done"),
			reprise.EventRetried:     m.attempts.WithLabelValues(name, "retried"),
			reprise.EventParked:      m.attempts.WithLabelValues(name, "parked"),
			reprise.EventGivenBack:   m.attempts.WithLabelValues(name, "given_back"),
			reprise.EventDropped:     m.attempts.WithLabelValues(name, "dropped"),
			reprise.EventLost:        m.attempts.WithLabelValues(name, "lost"),
			reprise.EventCopyFailed:  m.copiesFailed.WithLabelValues(name),
			reprise.EventDebounced:   m.debounced.WithLabelValues(name),
			reprise.EventTimeoutNear: m.timeoutsNear.WithLabelValues(name),
		},

		running:        m.running.WithLabelValues(name),
		succeeded:      m.handlerDuration.WithLabelValues(name, "ok"),
		failed:         m.handlerDuration.WithLabelValues(name, "error"),
		attemptsToDone: m.messageAttempts.WithLabelValues(name, "done"),
		attemptsToEnd:  m.messageAttempts.WithLabelValues(name, "parked"),
		age:            m.messageAge.WithLabelValues(name),
		delay:          m.retryDelay.WithLabelValues(name),

		lastSuccess: m.lastSuccess.WithLabelValues(name),
	}
}

func (m *Metrics) taker(name string) *prometheus.Counter {
	c := m.taken.WithLabelValues(name)
	return &c
}

func (m *Metrics) consumer(name string) *consumer {
	return &consumer{
		interruptions: m.interruptions.WithLabelValues(name),
		pauses:        m.pauses.WithLabelValues(name),
		consuming:     workers{gauge: m.consuming.WithLabelValues(name), in: map[int]bool{}},
		paused:        workers{gauge: m.paused.WithLabelValues(name), in: map[int]bool{}},
	}
}

func (q *queue) observe(e reprise.Event) {
	if counter := q.counts[e.Kind]; counter != nil {
		counter.Inc()
	}
	switch e.Kind {
	case reprise.EventStarted:
		q.running.Inc()
		// Of a later attempt it would tell the delays over again.
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
		c.consuming.note(e.Worker, true)
		c.paused.note(e.Worker, false)
	case reprise.EventInterrupted:
		c.consuming.note(e.Worker, false)
		if errors.Is(e.Err, reprise.ErrClosed) { // it has ended
			c.paused.note(e.Worker, false)
			return
		}
		c.interruptions.Inc()
	case reprise.EventPaused:
		c.pauses.Inc()
		c.paused.note(e.Worker, true)
		c.consuming.note(e.Worker, false)
	case reprise.EventResumed:
		c.paused.note(e.Worker, false)
	}
}

// connection is the metrics of one of a client's connections.
type connection struct {
	up, blocked prometheus.Gauge
	reconnects  prometheus.Counter
	connected   atomic.Bool // ever
}

func (m *Metrics) connection(name string) *connection {
	return &connection{
		up:         m.up.WithLabelValues(name),
		blocked:    m.blocked.WithLabelValues(name),
		reconnects: m.reconnects.WithLabelValues(name),
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
		c.blocked.Set(0) // the next connection hears of it by itself
	case reprise.EventBlocked:
		c.blocked.Set(1)
	case reprise.EventUnblocked:
		c.blocked.Set(0)
	}
}

// publishing is the metrics of what is published.
type publishing struct {
	results map[string]prometheus.Counter
	took    prometheus.Observer
}

func (m *Metrics) newPublishing() publishing {
	p := publishing{results: map[string]prometheus.Counter{}, took: m.publishDuration.WithLabelValues()}
	for _, result := range published.Results() {
		p.results[result] = m.published.WithLabelValues(result)
	}
	return p
}

func (p *publishing) observe(e reprise.Event) {
	p.results[published.Result(e.Err)].Inc()
	if e.Err == nil {
		p.took.Observe(e.Took.Seconds())
	}
}
