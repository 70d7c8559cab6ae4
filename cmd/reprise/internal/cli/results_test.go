//go:build unix

package cli

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
)

// rpc calls the handlers of queues, as the RPC tutorial of RabbitMQ does, through direct reply-to and through a queue of the caller.
const rpc = `
import sys, pika
connection = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
channel = connection.channel()
for queue in sys.argv[2:]:
    for to in "amq.rabbitmq.reply-to", channel.queue_declare("", exclusive=True).method.queue:
        answers = []
        tag = channel.basic_consume(to, lambda ch, method, properties, body: answers.append((properties, body)), auto_ack=True)
        channel.basic_publish("", queue, b"17", pika.BasicProperties(reply_to=to, correlation_id="c-1"))
        while not answers:
            connection.process_data_events(time_limit=1)
        channel.basic_cancel(tag)
        properties, body = answers[0]
        print(properties.correlation_id, properties.content_type, body.decode())
connection.close()
`

// calculator is a handler for process.
const calculator = `
import json, sys
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    print(json.dumps({"id": message["id"], "result": "done", "reply": {"price": int(message["body"])}}), flush=True)
`

// A caller with pika gets the results of each kind of handler.
func TestResultsForCaller(t *testing.T) {
	if exec.Command("/usr/bin/python3", "-c", "import pika").Run() != nil {
		t.Skip("pika not found (run apt-get install python3-pika, or make test)")
	}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/csv")
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(append([]byte("price,"), body...))
	}))
	defer service.Close()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := newResultWorkers(t, b, map[string]string{
			"program": `exec: [sh, -c, 'echo noise >&2; printf "%s euros" "$(cat)"'], results: reply-to`,
			"service": `http: ` + service.URL + `, results: reply-to`,
			"running": `process: [/usr/bin/python3, calculator.py], results: {reply_to: true}`,
		}, map[string]string{"calculator.py": calculator, "rpc.py": rpc})
		log, stop := w.run(t)
		out, err := exec.Command("/usr/bin/python3", filepath.Join(w.dir, "rpc.py"), strings.TrimSuffix(b.URL, "/"), w.name("program"), w.name("service"), w.name("running")).CombinedOutput()
		want := "c-1 None 17 euros\nc-1 None 17 euros\nc-1 text/csv price,17\nc-1 text/csv price,17\nc-1 application/json {\"price\": 17}\nc-1 application/json {\"price\": 17}\n"
		if diff := cmp.Diff(want, string(out)); err != nil || diff != "" {
			t.Errorf("results: error %v, -want +got:\n%s\n%s", err, diff, log())
		}
		if text := stop(); !strings.Contains(text, "text=noise") || strings.Contains(text, `text="17 euros"`) {
			t.Errorf("log: got\n%s\nwant the lines of stderr only", text)
		}
	})
}

// A result whose caller has gone is dropped. A result that is too large parks its message. A missing configured queue delays messages
// until it exists.
func TestResultsWithoutDestination(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := newResultWorkers(t, b, map[string]string{
			"gone":    `exec: [echo, x], results: reply-to`,
			"garbage": `exec: [echo, x], results: reply-to`,
			"large":   `exec: [sh, -c, 'printf 12345678901'], results: {reply_to: true, max_size: 10}`,
			"missing": `exec: [sh, -c, 'printf "price %s" "$(cat)"'], attempts: 1, results: {queue: OUT}`,
		}, nil)
		log, _ := w.run(t)
		for queue, message := range map[string]*reprise.Message{
			"gone": {ReplyTo: w.name("nowhere")}, "garbage": {ReplyTo: "amq.rabbitmq.reply-to.garbage"}, "large": {ReplyTo: w.name("nowhere")}, "missing": {MessageID: "m-1", Body: []byte("17")},
		} {
			message.RoutingKey = w.name(queue)
			if err := w.client.Publish(t.Context(), message); err != nil {
				t.Fatal(err)
			}
		}
		contains := func(text string) {
			t.Helper()
			testkit.Eventually(t, time.Minute, func() bool { return strings.Contains(log(), text) })
		}
		contains("result dropped, because its reply queue does not exist or is full")
		contains("result of the handler must have at most 10 bytes")
		contains("cannot publish the result")
		if _, err := w.channel.QueueDeclare(w.name("OUT"), true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
			t.Fatal(err)
		}
		results, err := w.channel.Consume(w.name("OUT"), "", true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case r := <-results:
			if string(r.Body) != "price 17" || r.CorrelationId != "m-1" || r.MessageId != "m-1-result" || r.DeliveryMode != amqp.Persistent {
				t.Errorf("result: got %q, correlation id %q, id %q, delivery mode %d", r.Body, r.CorrelationId, r.MessageId, r.DeliveryMode)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no result\n%s", log())
		}
		for queue, parked := range map[string]int{"gone": 0, "garbage": 0, "missing": 0, "large": 1} {
			testkit.Eventually(t, time.Minute, func() bool {
				left, err := w.client.Depth(t.Context(), w.name(queue))
				failed, otherwise := w.client.Depth(t.Context(), w.name(queue)+".failed")
				return err == nil && otherwise == nil && left == 0 && failed == parked
			})
		}
	})
}

// resultWorkers are workers on a broker that other tests use, too.
type resultWorkers struct {
	dir     string
	prefix  string
	queues  []string
	client  *reprise.Client
	channel *amqp.Channel
}

// newResultWorkers writes a file with workers, by queue.
func newResultWorkers(t *testing.T, b testkit.Target, workers, files map[string]string) *resultWorkers {
	t.Helper()
	w := &resultWorkers{dir: t.TempDir(), prefix: testkit.Name(t, "results")}
	var config strings.Builder
	config.WriteString("broker: " + b.URL + "\nworkers:\n")
	for queue, settings := range workers {
		config.WriteString("  - {queue: " + w.name(queue) + ", backoff: {fixed: 1ms}, " + strings.ReplaceAll(settings, "OUT", w.name("OUT")) + "}\n")
		w.queues = append(w.queues, w.name(queue))
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(w.dir, "reprise.yaml"), []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	conn, err := amqp.Dial(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if w.channel, err = conn.Channel(); err != nil {
		t.Fatal(err)
	}
	if w.client, err = reprise.Dial(t.Context(), b.URL, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.client.Close(context.Background()) })
	t.Cleanup(func() {
		for _, q := range append(w.queues, w.name("OUT")) {
			for _, name := range []string{q, q + ".failed", q + ".wait.0-1000", q + ".wait.4765-5956", "reprise.paused." + q} {
				_, _ = w.channel.QueueDelete(name, false, false, false)
			}
		}
	})
	return w
}

func (w *resultWorkers) name(queue string) string { return w.prefix + "." + queue }

// run starts the workers.
func (w *resultWorkers) run(t *testing.T) (log, stop func() string) {
	t.Helper()
	log, stop = process(t, filepath.Join(w.dir, "reprise.yaml"))
	testkit.Eventually(t, time.Minute, func() bool { return strings.Count(log(), "INFO  consuming") == len(w.queues) })
	return log, stop
}
