// Package health serves the metrics and the health checks of a process with workers or an archive.
package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/serve"
	"github.com/reprisemq/reprise/cmd/reprise/internal/telemetry"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/prommetrics"
)

// Checks serves metrics and health checks of a worker process over HTTP:
//
//	/metrics          metrics of the process, its workers and its client
//	/metrics/broker   metrics of the broker in the process, if any; …/per-object: metrics of each queue
//	/healthz          200: the process runs
//	/readyz           200: the process is connected, its databases are available, and each worker consumes or is paused by
//	                  an operator; the body is "ok" and the paused workers. 503: the body lists the problems, one per line
type Checks struct {
	Metrics *prommetrics.Metrics
	ending  <-chan struct{} // closed at the start of the drain
	stores  []Store

	mu      sync.Mutex
	check   *check       // the running check, or nil
	address string       // host:port of an external broker, or ""
	broker  http.Handler // metrics of the broker in this process; nil: none, or not started yet
	client  *reprise.Client
	workers []Worker
}

// Worker is a worker with its queue.
type Worker struct {
	*reprise.Worker
	Queue   string
	Handler func() error // the reason why its handler cannot handle messages, or nil; nil: unknown
}

// Serve serves health and metrics at addr, and monitors databases, until stop is called. If addr is "", it only
// monitors the databases. It passes the metrics to export, which may be nil.
func Serve(ending <-chan struct{}, addr string, export *telemetry.Telemetry, log *slog.Logger, stores ...Store) (h *Checks, web *serve.WebServer, stop func(), err error) {
	metrics, err := prommetrics.New(prommetrics.Config{})
	if err != nil {
		return nil, nil, nil, err
	}
	h = &Checks{Metrics: metrics, ending: ending, stores: stores}
	var registry *prometheus.Registry
	if addr != "" || export.Metered() {
		if registry, err = h.registry(); err != nil {
			return nil, nil, nil, err
		}
	}
	if web, err = h.serve(addr, registry, log); err != nil {
		return nil, nil, nil, err
	}
	export.Start(registry)
	unwatch := h.watch(log)
	return h, web, func() {
		unwatch()
		web.Stop()
	}, nil
}

func (h *Checks) serve(addr string, registry *prometheus.Registry, log *slog.Logger) (*serve.WebServer, error) {
	if addr == "" {
		return &serve.WebServer{}, nil
	}
	l, err := serve.Listen(addr)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	log.Info("metrics and health", "url", serve.WebURL(l.Addr()))
	return serve.Web("metrics", l, h.handler(registry), log), nil
}

// registry returns the metrics of the process, its workers and its client.
func (h *Checks) registry() (*prometheus.Registry, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		h.Metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return registry, nil
}

func (h *Checks) handler(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "/metrics\n/metrics/broker\n/metrics/broker/per-object\n/healthz\n/readyz\n")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /metrics/broker", h.brokerMetrics)
	mux.HandleFunc("GET /metrics/broker/per-object", h.brokerMetrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", h.ready)
	return mux
}

// HasBroker sets the metrics of the broker in this process.
func (h *Checks) HasBroker(metrics http.Handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broker = metrics
}

// Dials sets the address of an external broker to which the process tries to connect.
func (h *Checks) Dials(address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.address = address
}

// Works sets the client and the workers after the process has connected.
func (h *Checks) Works(c *reprise.Client, workers []Worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.client, h.workers = c, workers
}

func (h *Checks) brokerMetrics(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	metrics := h.broker
	h.mu.Unlock()
	if metrics == nil {
		http.Error(w, "this process has no embedded broker (RabbitMQ serves its own metrics)", http.StatusNotFound)
		return
	}
	metrics.ServeHTTP(w, r)
}

// checkTimeout limits a check, because probes usually have a timeout of a few seconds.
const checkTimeout = 3 * time.Second

// check is a check for all requests that arrive before it is complete.
type check struct {
	complete chan struct{}
	wrong    []string // set before complete is closed
}

// checking returns the running check, or starts one. Only one check runs at a time, because a check opens channels, and
// clients may send requests at any rate.
func (h *Checks) checking() *check {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.check == nil {
		c := &check{complete: make(chan struct{})}
		h.check = c
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
			defer cancel()
			c.wrong = h.wrong(ctx)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.check = nil
			close(c.complete)
		}()
	}
	return h.check
}

func (h *Checks) ready(w http.ResponseWriter, r *http.Request) {
	c := h.checking()
	select {
	case <-c.complete:
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if len(c.wrong) == 0 {
		_, _ = io.WriteString(w, "ok\n"+h.paused())
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	for _, line := range c.wrong {
		_, _ = io.WriteString(w, line+"\n")
	}
}

// paused lists the workers that an operator has paused. Paused workers do not affect readiness, because a restart does
// not end the pause of a queue.
func (h *Checks) paused() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, w := range h.workers {
		if p, ok := errors.AsType[*reprise.PausedError](w.Status().Pause); ok {
			fmt.Fprintf(&b, "queue %s: %s\n", w.Queue, terminal.OneLine(protocol.Pause(*p).String()))
		}
	}
	return b.String()
}

// wrong lists the problems that prevent the process from working.
func (h *Checks) wrong(ctx context.Context) []string {
	h.mu.Lock()
	client, workers, broker := h.client, h.workers, strings.TrimSpace("broker "+h.address)
	starting := "the process is starting; see its log"
	if h.address != "" {
		starting = broker + ": not connected yet; see the log of the process"
	}
	h.mu.Unlock()
	select {
	case <-h.ending:
		return []string{"the process is stopping"}
	default:
	}
	if client == nil {
		return append([]string{starting}, h.unusable(ctx)...)
	}
	var wrong []string
	var asking sync.WaitGroup
	var unusable []string
	asking.Go(func() { unusable = h.unusable(ctx) })
	if err := client.Healthy(ctx); err != nil {
		wrong = append(wrong, broker+": "+terminal.OneLine(exit.Text(err)))
	}
	for _, w := range workers {
		err := w.Status().Err
		if err != nil && (len(wrong) == 0 || errors.Is(err, reprise.ErrNotConsuming)) {
			wrong = append(wrong, fmt.Sprintf("queue %s: %s", w.Queue, terminal.OneLine(exit.Text(err))))
		}
		if w.Handler == nil {
			continue
		}
		if err := w.Handler(); err != nil {
			wrong = append(wrong, fmt.Sprintf("queue %s: %s", w.Queue, terminal.OneLine(exit.Text(err))))
		}
	}
	asking.Wait()
	return append(wrong, unusable...)
}
