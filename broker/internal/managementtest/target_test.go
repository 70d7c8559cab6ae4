package managementtest

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// target is a broker with a management API.
type target struct {
	amqp, api string // URLs; api does not include the path /api
	rabbitMQ  bool
	client    *http.Client
}

// embedded starts an embedded broker for a test.
func embedded(t *testing.T, config broker.Config) *target {
	t.Helper()
	b, api := testkit.EmbeddedManaged(t, config)
	return &target{amqp: b.URL, api: api, client: testkit.HTTPClient(t)}
}

// rabbitMQ returns the RabbitMQ node for the tests. It skips the test if the node is not configured.
func rabbitMQ(t *testing.T) *target {
	t.Helper()
	for _, b := range testkit.RabbitMQs() {
		if b.Version != "4.3" {
			continue
		}
		b.Require(t)
		return &target{amqp: b.URL, api: b.ManagementURL(t), rabbitMQ: true, client: testkit.HTTPClient(t)}
	}
	t.Fatal("RabbitMQ 4.3 is not one of the configured brokers")
	return nil
}

// both runs a test as two subtests, with the embedded broker and with RabbitMQ.
func both(t *testing.T, test func(t *testing.T, b *target)) {
	t.Run("embedded", func(t *testing.T) { test(t, embedded(t, broker.Config{})) })
	t.Run("rabbitmq-4.3", func(t *testing.T) { test(t, rabbitMQ(t)) })
}

// vhost creates a virtual host and deletes it when the test is complete.
func (b *target) vhost(t *testing.T) string {
	t.Helper()
	name := testkit.Name(t, "management")
	b.must(t, "PUT", "/api/vhosts/"+url.PathEscape(name), "")
	t.Cleanup(func() { b.must(t, "DELETE", "/api/vhosts/"+url.PathEscape(name), "") })
	return name
}

func (b *target) dial(t *testing.T, vhost string) *amqp.Connection {
	t.Helper()
	conn, err := amqp.DialConfig(b.amqp, amqp.Config{Vhost: vhost, Properties: amqp.Table{"connection_name": t.Name()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// call sends a request as guest, and returns the status and the body of the response.
func (b *target) call(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	return b.callAs(t, "guest", "guest", method, path, body)
}

func (b *target) callAs(t *testing.T, user, password, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, b.api+path, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		r.SetBasicAuth(user, password)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := b.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func (b *target) must(t *testing.T, method, path, body string) string {
	t.Helper()
	status, text := b.call(t, method, path, body)
	if status/100 != 2 {
		t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	return text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get[T any](t *testing.T) func(v T, err error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
