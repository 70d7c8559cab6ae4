// Package telemetry exports the traces and metrics of a process by OTLP, as the key telemetry of the configuration and the
// environment variables of OpenTelemetry specify.
//
// Guarantees:
//
//   - Without the key, and without an endpoint or an exporter in the environment, New returns nil and starts nothing.
//   - Spans wait in a queue of limited length, in which a full queue drops new spans. Workers never wait for a collector.
//   - The log reports the first of consecutive failures of a signal, and its end.
//   - Stop takes at most five seconds, or one if the last export has failed.
//
// The package imports the packages reprise, oteltrace, outbox and cmd/reprise/internal/config, and OpenTelemetry.
package telemetry

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/internal/loglimit"
	"github.com/reprisemq/reprise/oteltrace"
	"github.com/reprisemq/reprise/outbox"
)

// Telemetry exports traces and metrics. A nil Telemetry exports nothing.
type Telemetry struct {
	log      *slog.Logger
	resource *resource.Resource
	traces   *sdktrace.TracerProvider // nil: no traces
	spans    *signal                  // nil: no traces
	points   *signal                  // nil: no metrics
	exporter metric.Exporter          // nil: no metrics
	meters   *metric.MeterProvider    // nil: not started
	config   oteltrace.Config
}

// New returns an exporter for a configuration, which may be nil, and the environment. It returns nil if nothing is to be exported. It
// does not connect. Its warnings describe variables that have no effect.
func New(c *config.Telemetry, version string, log *slog.Logger) (t *Telemetry, warnings []string, err error) {
	traces, metrics, warnings := wanted(c)
	if !traces && !metrics {
		return nil, warnings, nil
	}
	if c == nil {
		c = &config.Telemetry{}
	}
	setHandlers(log)
	t = &Telemetry{log: log}
	ctx := context.Background()
	if t.resource, err = describe(ctx, c, version); err != nil {
		return nil, warnings, err
	}
	to, err := newCollector(c)
	if err != nil {
		return nil, warnings, err
	}
	if traces {
		exporter, err := to.spans(ctx)
		if err != nil {
			return nil, warnings, err
		}
		t.spans = to.signal("traces", log)
		options := []sdktrace.TracerProviderOption{
			sdktrace.WithBatcher(&spanExporter{exporter, t.spans}), sdktrace.WithResource(t.resource),
		}
		if c.SampleRatio != nil {
			options = append(options, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(*c.SampleRatio))))
		}
		t.traces = sdktrace.NewTracerProvider(options...)
		t.config = oteltrace.Config{TracerProvider: t.traces, ChildOfProducer: c.ChildOfProducer}
	}
	if metrics {
		exporter, err := to.metrics(ctx)
		if err != nil {
			t.Stop()
			return nil, warnings, err
		}
		t.points = to.signal("metrics", log)
		t.exporter = &metricExporter{exporter, t.points}
	}
	return t, warnings, nil
}

var handlers sync.Once

// setHandlers passes errors of OpenTelemetry to the log.
func setHandlers(log *slog.Logger) {
	handlers.Do(func() {
		otel.SetLogger(logr.New(&sink{log: log}))
		var limit loglimit.Limit
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { limit.Log(log, slog.LevelWarn, "telemetry", "error", err) }))
	})
}

// sink passes the errors of OpenTelemetry about its environment to the log. It omits the values, which can be secrets.
type sink struct {
	logr.LogSink // nil: not used
	log          *slog.Logger
}

// Init implements logr.LogSink.
func (s *sink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (s *sink) Enabled(int) bool { return false }

// Error implements logr.LogSink.
func (s *sink) Error(err error, message string, _ ...any) {
	s.log.Warn("telemetry: "+message, "error", err)
}

// describe returns the attributes of the process. The keys of the file take precedence over the environment.
func describe(ctx context.Context, c *config.Telemetry, version string) (*resource.Resource, error) {
	own := []attribute.KeyValue{semconv.ServiceName("reprise"), semconv.ServiceVersion(version), semconv.ServiceInstanceID(rand.Text())}
	var set []attribute.KeyValue
	for _, a := range c.Attributes {
		set = append(set, attribute.String(a.Name, a.Value))
	}
	if c.Service != "" {
		set = append(set, semconv.ServiceName(c.Service))
	}
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(), resource.WithAttributes(own...),
		resource.WithFromEnv(), resource.WithAttributes(set...))
}

// Middleware returns the middleware that creates the spans of attempts, or nil. It must be the outermost.
func (t *Telemetry) Middleware() []reprise.Middleware {
	if t == nil || t.traces == nil {
		return nil
	}
	return []reprise.Middleware{oteltrace.Middleware(t.config)}
}

// Publisher returns a function that publishes in a span.
func (t *Telemetry) Publisher(publish func(context.Context, *reprise.Message) error) func(context.Context, *reprise.Message) error {
	if t == nil || t.traces == nil {
		return publish
	}
	return oteltrace.Publisher(t.config, publish)
}

// BeforeInsert returns the function that creates the spans of insertions into an outbox, or nil.
func (t *Telemetry) BeforeInsert() func(context.Context, *reprise.Message) error {
	if t == nil || t.traces == nil {
		return nil
	}
	return oteltrace.BeforeInsert(t.config)
}

// Relay returns the publisher of an outbox that publishes in spans.
func (t *Telemetry) Relay(client *reprise.Client) outbox.Publisher {
	if t == nil || t.traces == nil {
		return client
	}
	return oteltrace.RelayPublisher(t.config, client.PublishBatch)
}

// Observe returns an observer that also creates the spans of copies.
func (t *Telemetry) Observe(next reprise.Observer) reprise.Observer {
	if t == nil || t.traces == nil {
		return next
	}
	own := oteltrace.Observer(t.config)
	return reprise.ObserverFunc(func(e reprise.Event) {
		own.Observe(e)
		next.Observe(e)
	})
}

// Metered reports whether Start needs metrics.
func (t *Telemetry) Metered() bool { return t != nil && t.exporter != nil }

// Start begins to export the metrics of a registry.
func (t *Telemetry) Start(metrics prometheus.Gatherer) {
	if t == nil {
		return
	}
	if t.exporter != nil {
		producer := bridge.NewMetricProducer(bridge.WithGatherer(metrics))
		t.meters = metric.NewMeterProvider(metric.WithResource(t.resource), metric.WithReader(metric.NewPeriodicReader(t.exporter, metric.WithProducer(producer))))
	}
	for _, s := range []*signal{t.spans, t.points} {
		if s != nil {
			t.log.Info("exporting "+s.name, "endpoint", s.endpoint)
		}
	}
}

// Maximum durations of Stop.
const (
	stopTimeout   = 5 * time.Second
	failedTimeout = time.Second
)

// Stop exports what is left. It limits its duration, so that a collector that does not respond does not delay the end of the process.
func (t *Telemetry) Stop() {
	if t == nil {
		return
	}
	var stopping sync.WaitGroup
	stop := func(s *signal, shutdown func(context.Context) error) {
		stopping.Go(func() {
			limit := stopTimeout
			if s.failing() {
				limit = failedTimeout
			}
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			if err := shutdown(ctx); err != nil && !errors.Is(err, context.Canceled) {
				s.lost(err)
			}
		})
	}
	if t.traces != nil {
		stop(t.spans, t.traces.Shutdown)
	}
	if t.meters != nil {
		stop(t.points, t.meters.Shutdown)
	} else if t.exporter != nil {
		stop(t.points, t.exporter.Shutdown)
	}
	stopping.Wait()
}

// signal logs the failures of an exporter.
type signal struct {
	name     string // traces or metrics
	endpoint string // for the log
	hide     func(string) string
	log      *slog.Logger

	mu  sync.Mutex
	err error // of the last export
}

// result logs the first failure after a success, and the first success after a failure.
func (s *signal) result(err error) {
	s.mu.Lock()
	before := s.err
	s.err = err
	s.mu.Unlock()
	switch {
	case err != nil && before == nil:
		s.log.Warn("cannot export "+s.name+"; later failures are not logged, and the workers continue", "endpoint", s.endpoint, "error", s.hide(err.Error()))
	case err == nil && before != nil:
		s.log.Info(s.name+" exported again", "endpoint", s.endpoint)
	}
}

func (s *signal) failing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

// lost logs that the end of the process lost data.
func (s *signal) lost(err error) {
	s.log.Warn("last "+s.name+" not exported", "endpoint", s.endpoint, "error", s.hide(cmp.Or(err.Error(), "unknown")))
}
