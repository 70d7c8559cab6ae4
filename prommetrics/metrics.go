package prommetrics

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reprisemq/reprise"
)

// Metrics counts events as a reprise.Observer and exports the counts as a prometheus.Collector. It is safe for
// concurrent use. It does not start goroutines, so it does not need a Close method.
type Metrics struct {
	all []prometheus.Collector

	stores        *prometheus.GaugeVec
	notifications *prometheus.CounterVec
	results       *prometheus.CounterVec
	outbox        struct{ lag, next, relay *prometheus.GaugeVec }

	// These maps have label values as keys, so that an event needs one map lookup and no vector lookup.
	queues      byName[queue]
	consumers   byName[consumer]
	takers      byName[prometheus.Counter] // messages processed by AsDelivered workers
	connections byName[connection]
	publishing  publicationMetrics
}

var (
	_ reprise.Observer     = (*Metrics)(nil)
	_ prometheus.Collector = (*Metrics)(nil)
)

// New returns Metrics for reprise.Config.Observer and for registration in Prometheus. It returns the error of
// cfg.Validate, which is nil for the zero Config.
func New(cfg Config) (*Metrics, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	m := &Metrics{}
	m.stores = m.gauge("store_up", "Whether the database is available.", "store")
	m.notifications = m.counter("notifications_total", "Attempts to send a notification.", "result")
	m.results = m.counter("results_total", "Results of handlers that were published.", "queue", "result")
	m.outbox.lag = m.gauge("outbox_lag_seconds", "Time for which the first due message of the outbox has waited.")
	m.outbox.next = m.gauge("outbox_next_due_timestamp_seconds", "Time at which the first message of the outbox is due; 0 if it is empty.")
	m.outbox.relay = m.gauge("outbox_relay", "Whether a process publishes the messages of the outbox.")
	m.queues.make = m.newQueues(cfg)
	m.consumers.make = m.newConsumers()
	m.takers.make = m.newTakers()
	m.connections.make = m.newConnections()
	m.publishing = m.newPublishing(cfg)
	m.connections.get("publish")
	m.connections.get("consume")
	return m, nil
}

// Store records whether a database that the program needs is available. The name identifies the database, for example
// "archive". Call Store after each health check, such as store.Archive.Healthy.
func (m *Metrics) Store(name string, up bool) {
	m.stores.WithLabelValues(strings.ToValidUTF8(name, "\uFFFD")).Set(oneIf(up))
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// Outbox records the fields of an outbox.Status. Call it with the result of each outbox.Box.Status.
func (m *Metrics) Outbox(lag time.Duration, next time.Time, relay bool) {
	due := 0.
	if !next.IsZero() {
		due = float64(next.UnixMilli()) / 1000
	}
	m.outbox.lag.WithLabelValues().Set(lag.Seconds())
	m.outbox.next.WithLabelValues().Set(due)
	m.outbox.relay.WithLabelValues().Set(oneIf(relay))
}

// Notified counts an attempt to send a notification. The result is "sent", "retried" or "given_up".
func (m *Metrics) Notified(result string) {
	for _, r := range []string{"sent", "retried", "given_up"} {
		m.notifications.WithLabelValues(r)
	}
	m.notifications.WithLabelValues(result).Inc()
}

// Result counts the result of a handler of "reprise up". The value result is "sent", "dropped" (the reply queue does not
// exist or is full) or "failed".
func (m *Metrics) Result(queue, result string) {
	for _, r := range []string{"sent", "dropped", "failed"} {
		m.results.WithLabelValues(queue, r)
	}
	m.results.WithLabelValues(queue, result).Inc()
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	return collected(m, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "reprise", Name: name, Help: help}, labels))
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return collected(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "reprise", Name: name, Help: help}, labels))
}

func (m *Metrics) histogram(cfg Config, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	opts := prometheus.HistogramOpts{Namespace: "reprise", Name: name, Help: help, Buckets: buckets}
	if cfg.NativeHistograms {
		opts.NativeHistogramBucketFactor = 1.1
		opts.NativeHistogramMaxBucketNumber = 160
		opts.NativeHistogramMinResetDuration = time.Hour
	}
	return collected(m, prometheus.NewHistogramVec(opts, labels))
}

func collected[C prometheus.Collector](m *Metrics, c C) C {
	m.all = append(m.all, c)
	return c
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(descs)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(metrics)
	}
}

// byName creates one T for each value of a label.
type byName[T any] struct {
	known sync.Map // map from string to *T
	make  func(label string) *T
}

func (b *byName[T]) get(name string) *T {
	label := strings.ToValidUTF8(name, "\uFFFD") // AMQP names are bytes; names that differ only in invalid bytes share a T
	if known, ok := b.known.Load(label); ok {
		return known.(*T)
	}
	known, _ := b.known.LoadOrStore(label, b.make(label))
	return known.(*T)
}
