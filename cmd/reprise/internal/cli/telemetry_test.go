//go:build unix

package cli

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
)

// collector is a stand-in for an OpenTelemetry collector.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer

	mu       sync.Mutex
	resource map[string]string
	spans    []*tracepb.Span
	metrics  []string // names
	headers  []http.Header
}

type metricsService struct {
	metricspb.UnimplementedMetricsServiceServer
	*collector
}

// ServeHTTP receives OTLP as http/protobuf.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	c.headers = append(c.headers, r.Header)
	c.mu.Unlock()
	var err error
	switch r.URL.Path {
	case "/base/v1/traces":
		var request collectorpb.ExportTraceServiceRequest
		if err = proto.Unmarshal(body, &request); err == nil {
			_, err = c.Export(r.Context(), &request)
		}
	case "/base/v1/metrics":
		var request metricspb.ExportMetricsServiceRequest
		if err = proto.Unmarshal(body, &request); err == nil {
			_, err = (&metricsService{collector: c}).Export(r.Context(), &request)
		}
	default:
		http.NotFound(w, r)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// Export receives spans.
func (c *collector) Export(_ context.Context, request *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range request.ResourceSpans {
		c.resource = attributesOf(r.Resource.Attributes)
		for _, scope := range r.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// Export receives metrics.
func (m *metricsService) Export(_ context.Context, request *metricspb.ExportMetricsServiceRequest) (*metricspb.ExportMetricsServiceResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range request.ResourceMetrics {
		for _, scope := range r.ScopeMetrics {
			for _, metric := range scope.Metrics {
				m.metrics = append(m.metrics, metric.Name)
			}
		}
	}
	return &metricspb.ExportMetricsServiceResponse{}, nil
}

func attributesOf(all []*commonpb.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range all {
		switch v := a.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			m[a.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			m[a.Key] = fmt.Sprint(v.IntValue)
		case *commonpb.AnyValue_DoubleValue:
			m[a.Key] = fmt.Sprint(v.DoubleValue)
		default:
			m[a.Key] = a.Value.String()
		}
	}
	return m
}

// shown returns what a tracing tool displays of a span, without its times. Names replace the random ids of other spans.
func (c *collector) shown(s *tracepb.Span) map[string]string {
	m := attributesOf(s.Attributes)
	delete(m, "reprise.retry_after")
	m["kind"] = strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_")
	if s.Status != nil && s.Status.Code == tracepb.Status_STATUS_CODE_ERROR {
		m["error"] = s.Status.Message
	}
	if parent := c.name(s.ParentSpanId); parent != "" {
		m["parent"] = parent
	}
	for _, l := range s.Links {
		m["link "+attributesOf(l.Attributes)["reprise.link"]] = c.name(l.SpanId)
	}
	return m
}

// name returns the name of a span, and the number of its attempt.
func (c *collector) name(id []byte) string {
	for _, s := range c.spans {
		if len(id) > 0 && string(s.SpanId) == string(id) {
			return s.Name + " " + attributesOf(s.Attributes)["reprise.attempt"]
		}
	}
	return hex.EncodeToString(id)
}

// find returns the span of an attempt.
func (c *collector) find(t *testing.T, name, attempt, message string) *tracepb.Span {
	t.Helper()
	i := slices.IndexFunc(c.spans, func(s *tracepb.Span) bool {
		a := attributesOf(s.Attributes)
		return s.Name == name && a["reprise.attempt"] == attempt && a["messaging.message.id"] == message
	})
	if i < 0 {
		t.Fatalf("span %s of attempt %s of message %s not found in %v", name, attempt, message, c.spans)
	}
	return c.spans[i]
}

const (
	originSpan = "b7ad6b7169203331"
	origin     = "00-0af7651916cd43dd8448eb211c80319c-" + originSpan + "-01"
)

// relay publishes a message with pika that continues the trace of its own message.
const relay = `
import os, pika
connection = pika.BlockingConnection(pika.URLParameters(os.environ["BROKER"]))
connection.channel().basic_publish("", "orders", b"x", pika.BasicProperties(message_id="relayed", headers={"traceparent": os.environ["TRACEPARENT"]}))
connection.close()
`

// What a person sees in a tracing tool: the names, kinds, links and attributes of the attempts and copies, and the trace that a handler in
// Python continues.
func TestTelemetryOverHTTP(t *testing.T) {
	if exec.Command("/usr/bin/python3", "-c", "import pika").Run() != nil {
		t.Skip("pika not found (run apt-get install python3-pika, or make test)")
	}
	c := &collector{}
	web := httptest.NewServer(c)
	defer web.Close()
	var mu sync.Mutex
	parents := map[string]http.Header{} // of requests, by message and attempt
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		parents[r.Header.Get("Reprise-Message-Id")+" "+r.Header.Get("Reprise-Attempt")] = r.Header
		if r.Header.Get("Reprise-Attempt") == "1" && r.Header.Get("Reprise-Message-Id") == "m-1" {
			http.Error(w, "the bank is closed", http.StatusServiceUnavailable)
		}
	}))
	defer service.Close()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("key", "hush-hush\n")
	write("relay.py", relay)
	write("env.sh", `echo "$TRACEPARENT" >>seen; exit 65`)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil { // the program of a worker needs to know the port
		t.Fatal(err)
	}
	client, stop := runUp(t, write("reprise.yaml", `
listen: `+address+`
data: memory
telemetry:
  endpoint: `+web.URL+`/base
  headers: {Authorization: "Key ${file:key}"}
  service: shop
  attributes: {deployment.environment.name: test}
workers:
  - {queue: orders, http: `+service.URL+`, backoff: {fixed: 1ms}}
  - {queue: broken, exec: [sh, ./env.sh]}
  - queue: relay
    exec: {command: [/usr/bin/python3, relay.py], env: {BROKER: "amqp://guest:guest@`+address+`/"}}
`), "OTEL_BSP_SCHEDULE_DELAY=10", "OTEL_METRIC_EXPORT_INTERVAL=100")
	if err := reloadFile(filepath.Join(dir, "reprise.yaml")); err != nil { // the queues exist
		t.Fatal(err)
	}
	for queue, headers := range map[string]map[string]any{"orders": {"traceparent": origin, "tracestate": "a=b"}, "broken": nil, "relay": nil} {
		if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: queue, MessageID: "m-1", Headers: headers}); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, time.Minute, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.spans) == 7 && slices.Contains(c.metrics, "reprise_attempts_total")
	})
	log := stop()

	first, second := c.find(t, "process orders", "1", "m-1"), c.find(t, "process orders", "2", "m-1")
	relayed, source := c.find(t, "process orders", "1", "relayed"), c.find(t, "process relay", "1", "m-1")
	for _, check := range []struct {
		span *tracepb.Span
		want map[string]string
	}{
		{first, map[string]string{
			"kind": "CONSUMER", "messaging.system": "rabbitmq", "messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.destination.name": "orders", "messaging.rabbitmq.destination.routing_key": "orders", "messaging.message.id": "m-1",
			"reprise.attempt": "1", "reprise.outcome": "retry", "link producer": originSpan,
			"error.type": "503", "error": "POST " + service.URL + ": 503 Service Unavailable: the bank is closed",
		}},
		{second, map[string]string{
			"kind": "CONSUMER", "messaging.system": "rabbitmq", "messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.destination.name": "orders", "messaging.rabbitmq.destination.routing_key": "orders", "messaging.message.id": "m-1",
			"reprise.attempt": "2", "reprise.outcome": "done", "link producer": originSpan, "link previous_attempt": "process orders 1",
		}},
		{c.find(t, "retry orders", "1", "m-1"), map[string]string{
			"kind": "PRODUCER", "messaging.system": "rabbitmq", "messaging.operation.name": "retry", "messaging.operation.type": "send",
			"messaging.destination.name": "orders", "messaging.message.id": "m-1", "reprise.attempt": "1", "parent": "process orders 1",
		}},
		{c.find(t, "park broken", "1", "m-1"), map[string]string{
			"kind": "PRODUCER", "messaging.system": "rabbitmq", "messaging.operation.name": "park", "messaging.operation.type": "send",
			"messaging.destination.name": "broken", "messaging.message.id": "m-1", "reprise.attempt": "1", "parent": "process broken 1",
		}},
		{c.find(t, "process broken", "1", "m-1"), map[string]string{
			"kind": "CONSUMER", "messaging.system": "rabbitmq", "messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.destination.name": "broken", "messaging.rabbitmq.destination.routing_key": "broken", "messaging.message.id": "m-1",
			"reprise.attempt": "1", "reprise.outcome": "park", "error.type": "exit 65", "error": "sh: exit status 65",
		}},
		{relayed, map[string]string{
			"kind": "CONSUMER", "messaging.system": "rabbitmq", "messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.destination.name": "orders", "messaging.rabbitmq.destination.routing_key": "orders", "messaging.message.id": "relayed",
			"reprise.attempt": "1", "reprise.outcome": "done", "link producer": "process relay 1",
		}},
	} {
		if diff := cmp.Diff(check.want, c.shown(check.span)); diff != "" {
			t.Errorf("span %s, -want +got:\n%s", check.span.Name, diff)
		}
	}
	if string(relayed.Links[0].TraceId) != string(source.TraceId) {
		t.Errorf("trace that the relayed message continues: got %x, want %x", relayed.Links[0].TraceId, source.TraceId)
	}
	if string(first.TraceId) == string(second.TraceId) {
		t.Error("both attempts have the same trace")
	}
	for key, span := range map[string]*tracepb.Span{"m-1 1": first, "m-1 2": second} {
		if got := parents[key].Get("Traceparent"); got != traceparent(span) || parents[key].Get("Tracestate") != "" {
			t.Errorf("trace context of request %s: got %s, tracestate %q, want %s without tracestate", key, got, parents[key].Get("Tracestate"), traceparent(span))
		}
	}
	if seen, err := os.ReadFile(filepath.Join(dir, "seen")); err != nil || strings.TrimSpace(string(seen)) != traceparent(c.find(t, "process broken", "1", "m-1")) {
		t.Errorf("TRACEPARENT of the program: got %s, error %v", seen, err)
	}
	if c.resource["service.name"] != "shop" || c.resource["deployment.environment.name"] != "test" || c.resource["service.instance.id"] == "" {
		t.Errorf("resource: got %v", c.resource)
	}
	if !slices.Contains(c.metrics, "reprise_attempts_total") || !slices.Contains(c.metrics, "reprise_handler_duration_seconds") {
		t.Errorf("metrics: got %v", c.metrics)
	}
	if got := c.headers[0].Get("Authorization"); got != "Key hush-hush" {
		t.Errorf("header Authorization: got %q", got)
	}
	if strings.Contains(log, "hush-hush") || !strings.Contains(log, "exporting traces") {
		t.Errorf("log: got %s", log)
	}
}

// The messages of an outbox: a row of a table starts a trace, and a message of another program continues its trace.
func TestTelemetryOfOutbox(t *testing.T) {
	c := &collector{}
	web := httptest.NewServer(c)
	defer web.Close()
	dir := t.TempDir()
	path := filepath.Join(dir, "reprise.yaml")
	text := `
listen: 127.0.0.1:0
data: memory
telemetry: {endpoint: ` + web.URL + `/base}
outbox: {store: "sqlite:outbox.db", tables: [{name: events, queue: orders, message_id_column: name}]}
schedule: reprise.schedule
workers: [{queue: orders, exec: ["true"]}]
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "outbox.db"))
	if err == nil {
		_, err = db.ExecContext(t.Context(), `CREATE TABLE events (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO events (name) VALUES ('row')`)
	}
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	client, stop := runUp(t, path, "OTEL_BSP_SCHEDULE_DELAY=10", "OTEL_METRICS_EXPORTER=none")
	exported := func(n int) {
		t.Helper()
		testkit.Eventually(t, time.Minute, func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.spans) == n
		})
	}
	exported(3) // create, publish and process of the row
	testkit.Eventually(t, time.Minute, func() error { return client.CheckExchange(t.Context(), "reprise.schedule") })
	if err := client.Publish(t.Context(), &reprise.Message{Exchange: "reprise.schedule", RoutingKey: "orders", MessageID: "foreign", Headers: map[string]any{"traceparent": origin}}); err != nil {
		t.Fatal(err)
	}
	exported(5)
	stop()
	const create = "create orders "
	for _, want := range []struct{ name, attempt, message, link, to string }{
		{"create orders", "", "row", "", ""},
		{"publish orders", "", "row", "link producer", create},
		{"process orders", "1", "row", "link producer", create},
		{"publish orders", "", "foreign", "link producer", originSpan},
		{"process orders", "1", "foreign", "link producer", originSpan},
	} {
		if got := c.shown(c.find(t, want.name, want.attempt, want.message)); got["parent"] != "" || got[want.link] != want.to {
			t.Errorf("%s of %s: got %v, want %s to %s, and no parent", want.name, want.message, got, want.link, want.to)
		}
	}
}

func traceparent(s *tracepb.Span) string { return fmt.Sprintf("00-%x-%x-01", s.TraceId, s.SpanId) }

// The variables of OpenTelemetry enable the export without the key, here over gRPC. A process reads the trace context from the line of a
// message.
func TestTelemetryOverGRPC(t *testing.T) {
	c := &collector{}
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	metricspb.RegisterMetricsServiceServer(server, &metricsService{collector: c})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	dir := t.TempDir()
	file := filepath.Join(dir, "reprise.yaml")
	config := `
listen: 127.0.0.1:0
data: memory
workers:
  - queue: orders
    process: [sh, -c, 'echo "{\"ready\":true}"; while read -r line; do echo "$line" >>lines; echo "{\"id\":1,\"result\":\"done\"}"; done']
`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	client, stop := runUp(t, file, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+l.Addr().String(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_SERVICE_NAME=by-environment")
	if err := reloadFile(file); err != nil {
		t.Fatal(err)
	}
	if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: "orders", MessageID: "m-1"}); err != nil {
		t.Fatal(err)
	}
	var line []byte
	testkit.Eventually(t, time.Minute, func() bool {
		line, err = os.ReadFile(filepath.Join(dir, "lines"))
		return err == nil && strings.HasSuffix(string(line), "\n")
	})
	stop()
	span := c.find(t, "process orders", "1", "m-1")
	if want := `"traceparent":"` + traceparent(span) + `"`; !strings.Contains(string(line), want) {
		t.Errorf("line of the message: got %s, want %s", line, want)
	}
	if c.resource["service.name"] != "by-environment" || !slices.Contains(c.metrics, "reprise_attempts_total") {
		t.Errorf("got resource %v, metrics %v", c.resource, c.metrics)
	}
}

// A collector that hangs, that refuses connections or that answers with errors does not stop messages or the end of the process. The log
// reports it once.
func TestTelemetryWithoutCollector(t *testing.T) {
	release := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer hanging.Close()
	defer close(release)
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) }))
	defer failing.Close()
	missing := httptest.NewServer(nil)
	missing.Close()
	for name, url := range map[string]string{"hanging": hanging.URL, "failing": failing.URL, "missing": missing.URL} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "reprise.yaml")
			if err := os.WriteFile(file, []byte("listen: 127.0.0.1:0\ndata: memory\nmetrics: 127.0.0.1:0\ntelemetry: "+url+"\nworkers:\n  - {queue: orders, exec: [\"true\"]}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			client, stop := runUp(t, file, "OTEL_BSP_SCHEDULE_DELAY=1", "OTEL_METRIC_EXPORT_INTERVAL=5")
			if err := reloadFile(file); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: "orders"}); err != nil {
					t.Fatal(err)
				}
			}
			testkit.Eventually(t, time.Minute, func() bool {
				depth, err := client.Depth(t.Context(), "orders")
				return err == nil && depth == 0
			})
			log := stop()
			for _, signal := range []string{"traces", "metrics"} {
				if n := strings.Count(log, "cannot export "+signal); n > 1 || n == 0 && name != "hanging" {
					t.Errorf("got %d log messages about %s, want 1:\n%s", n, signal, log)
				}
			}
		})
	}
}
