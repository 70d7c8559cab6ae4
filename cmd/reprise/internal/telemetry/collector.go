package telemetry

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/credentials"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/internal/pemfile"
)

// collector creates exporters. Settings that the file omits are read from the environment by the exporters.
type collector struct {
	*config.Telemetry
	headers map[string]string
	tls     *tls.Config // nil: from the environment, or the authorities of the system
	hide    *strings.Replacer
}

func newCollector(c *config.Telemetry) (*collector, error) {
	to := &collector{Telemetry: c}
	if len(c.Headers) > 0 {
		to.headers = map[string]string{}
		for _, h := range c.Headers {
			to.headers[h.Name] = h.Value
		}
	}
	var pairs []string
	for _, s := range c.Secrets {
		if len(s) >= 4 { // shorter values are parts of other words
			pairs = append(pairs, s, "xxxxx")
		}
	}
	to.hide = strings.NewReplacer(pairs...)
	if c.CACertFile+c.CertFile == "" {
		return to, nil
	}
	to.tls = &tls.Config{}
	var err error
	if c.CACertFile != "" {
		if to.tls.RootCAs, err = pemfile.Authorities(c.CACertFile); err != nil {
			return nil, err
		}
	}
	if c.CertFile != "" {
		load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // again for each connection: certificates are renewed
			pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
			return &pair, err
		}
		if _, err := load(nil); err != nil {
			return nil, fmt.Errorf("certfile %s, keyfile %s: %w", c.CertFile, c.KeyFile, err)
		}
		to.tls.GetClientCertificate = load
	}
	return to, nil
}

// grpc reports whether a signal uses gRPC.
func (to *collector) grpc(signal string) bool {
	if to.Protocol != "" {
		return to.Protocol == config.ProtocolGRPC
	}
	return environment(signal, "PROTOCOL") == config.ProtocolGRPC
}

// url returns the URL for a signal, or "" if the environment decides.
func (to *collector) url(signal string) string {
	if to.Endpoint == "" {
		return ""
	}
	if to.grpc(signal) {
		return to.Endpoint
	}
	return strings.TrimSuffix(to.Endpoint, "/") + "/v1/" + signal
}

// signal returns the state of a signal. Its endpoint has no secrets.
func (to *collector) signal(name string, log *slog.Logger) *signal {
	shown := to.url(name)
	if shown == "" {
		shown = environment(name, "ENDPOINT")
	}
	if shown == "" && to.grpc(name) {
		shown = "http://localhost:4317"
	} else if shown == "" {
		shown = "http://localhost:4318"
	}
	if u, err := url.Parse(shown); err == nil {
		shown = u.Redacted()
	}
	return &signal{name: name, endpoint: to.hide.Replace(shown), hide: to.hide.Replace, log: log}
}

func (to *collector) spans(ctx context.Context) (sdktrace.SpanExporter, error) {
	at := to.url("traces")
	if to.grpc("traces") {
		var o []otlptracegrpc.Option
		if at != "" {
			o = append(o, otlptracegrpc.WithEndpointURL(at))
		}
		if to.headers != nil {
			o = append(o, otlptracegrpc.WithHeaders(to.headers))
		}
		if to.tls != nil {
			o = append(o, otlptracegrpc.WithTLSCredentials(credentials.NewTLS(to.tls)))
		}
		return otlptracegrpc.New(ctx, o...)
	}
	var o []otlptracehttp.Option
	if at != "" {
		o = append(o, otlptracehttp.WithEndpointURL(at))
	}
	if to.headers != nil {
		o = append(o, otlptracehttp.WithHeaders(to.headers))
	}
	if to.tls != nil {
		o = append(o, otlptracehttp.WithTLSClientConfig(to.tls))
	}
	return otlptracehttp.New(ctx, o...)
}

func (to *collector) metrics(ctx context.Context) (metric.Exporter, error) {
	at := to.url("metrics")
	if to.grpc("metrics") {
		var o []otlpmetricgrpc.Option
		if at != "" {
			o = append(o, otlpmetricgrpc.WithEndpointURL(at))
		}
		if to.headers != nil {
			o = append(o, otlpmetricgrpc.WithHeaders(to.headers))
		}
		if to.tls != nil {
			o = append(o, otlpmetricgrpc.WithTLSCredentials(credentials.NewTLS(to.tls)))
		}
		return otlpmetricgrpc.New(ctx, o...)
	}
	var o []otlpmetrichttp.Option
	if at != "" {
		o = append(o, otlpmetrichttp.WithEndpointURL(at))
	}
	if to.headers != nil {
		o = append(o, otlpmetrichttp.WithHeaders(to.headers))
	}
	if to.tls != nil {
		o = append(o, otlpmetrichttp.WithTLSClientConfig(to.tls))
	}
	return otlpmetrichttp.New(ctx, o...)
}

// spanExporter reports results to its signal instead of to OpenTelemetry, which would log each failure.
type spanExporter struct {
	sdktrace.SpanExporter
	*signal
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *spanExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	e.result(e.SpanExporter.ExportSpans(ctx, spans))
	return nil
}

// metricExporter reports results to its signal.
type metricExporter struct {
	metric.Exporter
	*signal
}

// Export implements metric.Exporter.
func (e *metricExporter) Export(ctx context.Context, data *metricdata.ResourceMetrics) error {
	e.result(e.Exporter.Export(ctx, data))
	return nil
}

// environment returns a variable of a signal, such as OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, or the variable of all signals.
func environment(signal, name string) string {
	if s := os.Getenv("OTEL_EXPORTER_OTLP_" + strings.ToUpper(signal) + "_" + name); s != "" {
		return s
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_" + name)
}

// wanted returns the signals to export. Programs share an environment, so that values that only other programs support are
// warnings, not errors.
func wanted(c *config.Telemetry) (traces, metrics bool, warnings []string) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false, false, nil
	}
	want := func(signal string, file func(*config.Telemetry) *bool) bool {
		if c != nil && file(c) != nil {
			return *file(c)
		}
		name := "OTEL_" + strings.ToUpper(signal) + "_EXPORTER"
		switch exporters := strings.Split(os.Getenv(name), ","); {
		case exporters[0] == "":
			return c != nil || environment(signal, "ENDPOINT") != ""
		case !slices.Contains(exporters, "otlp"):
			if !slices.Contains(exporters, "none") {
				warnings = append(warnings, fmt.Sprintf("%s=%s has no effect: %s are exported by otlp only", name, os.Getenv(name), signal))
			}
			return false
		}
		return true
	}
	traces = want("traces", func(c *config.Telemetry) *bool { return c.Traces })
	metrics = want("metrics", func(c *config.Telemetry) *bool { return c.Metrics })
	for _, signal := range []string{"traces", "metrics"} {
		p := environment(signal, "PROTOCOL")
		if (traces || metrics) && p != "" && p != config.ProtocolGRPC && p != config.ProtocolHTTP && (c == nil || c.Protocol == "") {
			warnings = append(warnings, fmt.Sprintf("OTEL_EXPORTER_OTLP_PROTOCOL=%s is not supported: %s are exported with %s", p, signal, config.ProtocolHTTP))
		}
	}
	return traces, metrics, slices.Compact(warnings)
}
