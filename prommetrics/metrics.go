package prommetrics

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reprisemq/reprise"
)

// Metrics is a reprise.Observer that counts, and a prometheus.Collector that
// tells. It is safe for concurrent use, starts nothing, and needs no end:
// unregister it, or forget it.
type Metrics struct {
	all []prometheus.Collector

	attempts        *prometheus.CounterVec
	running         *prometheus.GaugeVec
	handlerDuration *prometheus.HistogramVec
	messageAttempts *prometheus.HistogramVec
	messageAge      *prometheus.HistogramVec
	retryDelay      *prometheus.HistogramVec
	lastSuccess     *prometheus.GaugeVec
	copiesFailed    *prometheus.CounterVec
	debounced       *prometheus.CounterVec
	timeoutsNear    *prometheus.CounterVec
	consuming       *prometheus.GaugeVec
	interruptions   *prometheus.CounterVec
	paused          *prometheus.GaugeVec
	pauses          *prometheus.CounterVec
	taken           *prometheus.CounterVec

	up              *prometheus.GaugeVec
	blocked         *prometheus.GaugeVec
	reconnects      *prometheus.CounterVec
	published       *prometheus.CounterVec
	publishDuration *prometheus.HistogramVec

	stores *prometheus.GaugeVec

	// The same once more, by the label's values, so that an event looks up one
	// map and no vector.
	queues      byName[queue]
	consumers   byName[consumer]
	takers      byName[prometheus.Counter] // of workers AsDelivered
	connections byName[connection]
	publishing  publishing
}

var (
	_ reprise.Observer     = (*Metrics)(nil)
	_ prometheus.Collector = (*Metrics)(nil)
)

// New returns Metrics to put into reprise.Config.Observer and to register. It returns
// the error of cfg.Validate, and none for the zero Config.
func New(cfg Config) (*Metrics, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	m := &Metrics{}

	m.attempts = m.counter("attempts_total", "Attempts by what became of the message.", "queue", "outcome")
	m.running = m.gauge("attempts_running", "Handlers that are running now.", "queue")
	m.handlerDuration = m.histogram(cfg, "handler_duration_seconds", "How long handlers ran.", cfg.HandlerDuration, "queue", "result")
	m.messageAttempts = m.histogram(cfg, "message_attempts", "How many attempts messages took until they were done or parked.", cfg.MessageAttempts, "queue", "outcome")
	m.messageAge = m.histogram(cfg, "message_age_seconds", "Age of messages, by their timestamp, when their first attempt began.", cfg.MessageAge, "queue")
	m.retryDelay = m.histogram(cfg, "retry_delay_seconds", "How long retried messages are to wait.", cfg.RetryDelay, "queue")
	m.lastSuccess = m.gauge("last_success_timestamp_seconds", "When a message was last done; before the first one, when consuming began.", "queue")
	m.copiesFailed = m.counter("copies_failed_total", "Copies of failed messages that the broker did not take at once. They are tried again.", "queue")
	m.timeoutsNear = m.counter("consumer_timeouts_near_total", "Messages being handled that the worker has had for so long that the broker loses patience soon.", "queue")
	m.debounced = m.counter("debounced_total", "Messages acknowledged with another one like them, and not handled.", "queue")
	m.consuming = m.gauge("consuming", "Workers that have a consumer.", "queue")
	m.interruptions = m.counter("interruptions_total", "How often consuming was interrupted, or could not begin.", "queue")
	m.paused = m.gauge("paused", "Workers that consume nothing on purpose.", "queue")
	m.pauses = m.counter("pauses_total", "How often workers have paused.", "queue")
	m.taken = m.counter("taken_total", "Messages taken out of a queue to be archived or moved, and not counted as attempts.", "queue")

	m.up = m.gauge("connection_up", "Whether the connection to the broker stands.", "connection")
	m.blocked = m.gauge("connection_blocked", "Whether the broker takes nothing on the connection.", "connection")
	m.reconnects = m.counter("reconnects_total", "Connections after the first.", "connection")
	m.published = m.counter("published_total", "Messages published, by what the broker said.", "result")
	m.publishDuration = m.histogram(cfg, "publish_duration_seconds", "How long the broker took to confirm messages that it confirmed.", cfg.PublishDuration)

	m.stores = m.gauge("store_up", "Whether the database can be used.", "store")

	m.queues.make = m.queue
	m.consumers.make = m.consumer
	m.takers.make = m.taker
	m.connections.make = m.connection
	m.connections.get("publish")
	m.connections.get("consume")
	m.publishing = m.newPublishing()
	return m, nil
}

// Store counts whether a database that the program needs can be used, by a name such as
// "archive": whoever checks it, with failed.Archive.Healthy for instance, calls this now and
// then.
func (m *Metrics) Store(name string, up bool) {
	value := 0.
	if up {
		value = 1
	}
	m.stores.WithLabelValues(strings.ToValidUTF8(name, "\uFFFD")).Set(value)
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

// byName makes one T for each value of a label.
type byName[T any] struct {
	known sync.Map // string to *T
	make  func(label string) *T
}

func (b *byName[T]) get(name string) *T {
	if known, ok := b.known.Load(name); ok {
		return known.(*T)
	}
	// AMQP's names are bytes, labels are text.
	known, _ := b.known.LoadOrStore(name, b.make(strings.ToValidUTF8(name, "\uFFFD")))
	return known.(*T)
}
