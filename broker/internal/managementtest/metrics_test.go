package managementtest

import (
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit/hostile"
)

// metrics returns the samples that a broker serves at a path, and the comment lines that describe them.
func metrics(t *testing.T, b *broker.Broker, path string) (samples map[string]string, described []string) {
	t.Helper()
	w := httptest.NewRecorder()
	b.Metrics().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	if got := w.Header().Get("Content-Type"); w.Code != 200 || got != "text/plain; version=0.0.4; charset=utf-8" {
		t.Fatalf("response: got %d %s, want 200 and text/plain", w.Code, got)
	}
	server := httptest.NewServer(b.Metrics())
	defer server.Close()
	if err := testutil.ScrapeAndCompare(server.URL+path, strings.NewReader(""), "no metric"); err != nil { // parses all metrics, and compares none
		t.Fatalf("%s: Prometheus cannot read the metrics: %v", path, err)
	}
	sample := regexp.MustCompile(`^([a-z0-9_]+)(\{[a-z_]+="(?:[^"\\]|\\[\\n"])*"(?:,[a-z_]+="(?:[^"\\]|\\[\\n"])*")*\})? (\S+)$`)
	samples = make(map[string]string)
	family := ""
	for line := range strings.Lines(w.Body.String()) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "# ") {
			described = append(described, line)
			family = strings.Fields(line)[2]
			continue
		}
		parts := sample.FindStringSubmatch(line)
		switch {
		case parts == nil:
			t.Errorf("line is not a sample: %s", line)
		case parts[1] != family:
			t.Errorf("sample %s follows the description of %s", line, family)
		case samples[parts[1]+parts[2]] != "":
			t.Errorf("duplicate sample %s", parts[1]+parts[2])
		default:
			samples[parts[1]+parts[2]] = parts[3]
		}
	}
	return samples, described
}

// The file with the names of RabbitMQ's metrics is from RabbitMQ 4.3.6 with the plugin rabbitmq_prometheus.
func TestMetricNamesMatchRabbitMQ(t *testing.T) {
	text, err := os.ReadFile("testdata/rabbitmq-4.3.6-metrics.txt")
	must(t, err)
	known := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		known[strings.TrimSpace(line)] = true
	}
	b, _ := handler(t, broker.Config{})
	_, described := metrics(t, b, "/metrics")
	for _, line := range described {
		if !known[line] && !strings.Contains(line, " reprise_") {
			t.Errorf("RabbitMQ does not have the line %q", line)
		}
	}
}

func TestMetrics(t *testing.T) {
	b, call := handler(t, broker.Config{})
	conn := inMemory(t, b)
	ch := get[*amqp.Channel](t)(conn.Channel())
	must(t, ch.Confirm(false))
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, 10))
	get[amqp.Queue](t)(ch.QueueDeclare("a \"b\"\n\\", true, false, false, false, nil))
	get[amqp.Queue](t)(ch.QueueDeclare("q", true, false, false, false, amqp.Table{"x-queue-type": "quorum"}))
	for range 3 {
		must(t, ch.Publish("", "q", true, false, amqp.Publishing{Body: []byte("12345")}))
	}
	must(t, ch.Publish("", "nosuch", false, false, amqp.Publishing{}))
	for range 4 {
		<-confirms
	}
	deliveries := get[<-chan amqp.Delivery](t)(ch.Consume("q", "", false, false, false, false, nil))
	first, second, third := <-deliveries, <-deliveries, <-deliveries
	must(t, first.Ack(false))
	must(t, second.Reject(false))
	_, err := ch.QueueDeclarePassive("q", true, false, false, false, nil) // returns when the broker has processed the earlier commands
	must(t, err)
	defer func() { _ = third.Ack(false) }()

	check := func(samples map[string]string, want map[string]string) {
		t.Helper()
		for name, value := range want {
			if samples[name] != value {
				t.Errorf("%s: got %q, want %s", name, samples[name], value)
			}
		}
	}
	all, _ := metrics(t, b, "/metrics")
	want := map[string]string{
		"rabbitmq_connections": "1", "rabbitmq_channels": "1", "rabbitmq_consumers": "1", "rabbitmq_queues": "2",
		"rabbitmq_connections_opened_total": "1", "rabbitmq_channels_opened_total": "1", "rabbitmq_queues_created_total": "2",
		"rabbitmq_queue_messages": "1", "rabbitmq_queue_messages_ready": "0", "rabbitmq_queue_messages_unacked": "1",
		"rabbitmq_queue_consumers":              "1",
		"rabbitmq_alarms_memory_used_watermark": "0",

		`rabbitmq_global_messages_received_total{protocol="amqp091"}`:                                                             "4",
		`rabbitmq_global_messages_received_confirm_total{protocol="amqp091"}`:                                                     "4",
		`rabbitmq_global_messages_confirmed_total{protocol="amqp091"}`:                                                            "4",
		`rabbitmq_global_messages_unroutable_dropped_total{protocol="amqp091"}`:                                                   "1",
		`rabbitmq_global_publishers{protocol="amqp091"}`:                                                                          "1",
		`rabbitmq_global_messages_delivered_consume_manual_ack_total{protocol="amqp091",queue_type="rabbit_quorum_queue"}`:        "3",
		`rabbitmq_global_messages_delivered_consume_manual_ack_total{protocol="amqp091",queue_type="rabbit_classic_queue"}`:       "0",
		`rabbitmq_global_messages_acknowledged_total{protocol="amqp091",queue_type="rabbit_quorum_queue"}`:                        "1",
		`rabbitmq_global_messages_dead_lettered_rejected_total{queue_type="rabbit_quorum_queue",dead_letter_strategy="disabled"}`: "1",
	}
	check(all, want)

	each, _ := metrics(t, b, "/metrics/per-object")
	check(each, map[string]string{
		`rabbitmq_queue_messages_unacked{vhost="/",queue="q"}`:         "1",
		`rabbitmq_queue_messages_published_total{vhost="/",queue="q"}`: "3",
		`rabbitmq_queue_consumers{vhost="/",queue="a \"b\"` + `\\"}`:   "0",
	})

	// Totals keep their values after the counted objects are deleted.
	must(t, conn.Close())
	call("DELETE", "/api/queues/%2F/q", "")
	later, _ := metrics(t, b, "/metrics")
	for name := range want {
		if strings.Contains(name, "messages") && strings.Contains(name, "_total") && later[name] != all[name] {
			t.Errorf("total %s changed from %s to %s", name, all[name], later[name])
		}
	}
}

// Names of any characters leave the metrics readable for Prometheus, and each queue has its own sample.
func TestMetricsOfForeignNamesAreReadable(t *testing.T) {
	b, call := handler(t, broker.Config{})
	conn := inMemory(t, b)
	ch := get[*amqp.Channel](t)(conn.Channel())
	names := map[string]bool{"a\nb 1": true, `a"} 1`: true, `\`: true, "a\rb": true, "\x00": true}
	for i := range 100 {
		if name := hostile.Text.Example(i); name != "" && len(name) < 256 && utf8.ValidString(name) {
			names[name] = true
		}
	}
	for name := range names {
		get[amqp.Queue](t)(ch.QueueDeclare(name, false, false, false, false, nil))
		must(t, ch.Publish("", name, false, false, amqp.Publishing{AppId: name, UserId: "guest", Headers: amqp.Table{name: name}}))
		if w := call("PUT", "/api/vhosts/"+url.PathEscape(name), ""); w.Code != 201 && w.Code != 400 {
			t.Errorf("virtual host %q: got status %d: %s", name, w.Code, w.Body)
		}
	}
	metrics(t, b, "/metrics")
	each, _ := metrics(t, b, "/metrics/per-object")
	for name := range names {
		label := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\r", "", "\n", "").Replace(name) // a declaration removes line breaks from the name
		if _, ok := each[`rabbitmq_queue_messages_ready{vhost="/",queue="`+label+`"}`]; !ok {
			t.Errorf("queue %q has no sample", name)
		}
	}
}

func TestMetricsRequireLogin(t *testing.T) {
	_, call := handler(t, broker.Config{})
	if w := call("GET", "/metrics/per-object", ""); w.Code != 200 || !strings.Contains(w.Body.String(), "rabbitmq_queues 0\n") {
		t.Errorf("metrics: got %d %s, want 200 with \"rabbitmq_queues 0\"", w.Code, w.Body)
	}
	call("PUT", "/api/users/ada", `{"password":"p","tags":"management"}`)
	if w := call("GET", "/metrics", "", "Authorization", "Basic YWRhOnA="); w.Code != 401 {
		t.Errorf("status: got %d, want 401", w.Code)
	}
	if w := call("GET", "/metrics", "", "Authorization", ""); w.Code != 401 {
		t.Errorf("status: got %d, want 401", w.Code)
	}
}
