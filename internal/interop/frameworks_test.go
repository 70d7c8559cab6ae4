package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// fixtures contains failed messages of frameworks. The programs in generate create some of them.
const fixtures = "../archive/framework/testdata"

// libraries are the programs with real frameworks. With the argument fail, a program publishes a message, fails it, and leaves it
// in the dead-letter queues; with handle, it prints each message that it processes.
var libraries = []struct {
	name   string
	args   []string // of the command; URL is the broker
	dead   []string // dead-letter queues
	prints []string // lines with handle
}{
	{"Celery", []string{python, "-W", "ignore", fixtures + "/generate/celery_reject.py", "URL"}, []string{"celery.dead"}, []string{"charged 4711 after 0 retries"}},
	{"Symfony Messenger", []string{"php", fixtures + "/generate/symfony.php", "URL", "json"}, []string{"symfony-json-failed"}, []string{"charged 4711"}},
	{"rascal", []string{"node", fixtures + "/generate/rascal.js", "URL"}, []string{"rascal-dead", "rascal-nack-dead"}, []string{"work charged 4711", "nack charged 4711"}},
}

// documented are frameworks that are not installed. Their consumers are replaced by the rule that the documentation of the framework
// states.
var documented = []struct {
	fixture, work string
	declare       func(ch *amqp.Channel, work, dead string) error
	rule          func(amqp.Delivery) error
}{
	{"nservicebus", "billing", withExchange("error"), without("NServiceBus.FailedQ", "NServiceBus.ExceptionInfo.Message")},
	{"masstransit", "billing", nil, without("MT-Reason", "MT-Fault-Message")},
	{"rebus", "billing", nil, without("rbs2-error-details", "rbs2-source-queue")},
	{"wolverine", "billing", nil, without("exception-type", "attempts")},
	{"easynetq", "billing", nil, func(d amqp.Delivery) error {
		if string(d.Body) != `{"Customer":4711}` || d.Type != "Shop.Charge, Shop" || d.MessageId != "e1" {
			return fmt.Errorf("body %s, type %q, message ID %q", d.Body, d.Type, d.MessageId)
		}
		return nil
	}},
	{"spring", "charges", func(ch *amqp.Channel, work, _ string) error {
		return errors.Join(ch.ExchangeDeclare("shop", "direct", true, false, false, false, nil), ch.QueueBind(work, "charge", "shop", false, nil))
	}, without("x-exception-stacktrace", "x-original-exchange")},
	{"watermill", "watermill.charges", nil, func(d amqp.Delivery) error {
		for name, v := range d.Headers {
			if _, text := v.(string); !text {
				return fmt.Errorf("metadata %s is not a string, but %#v", name, v) // as DefaultMarshaler.Unmarshal
			}
		}
		return without("topic_poisoned")(d)
	}},
}

func withExchange(name string) func(*amqp.Channel, string, string) error {
	return func(ch *amqp.Channel, _, dead string) error {
		return errors.Join(ch.ExchangeDeclare(name, "fanout", true, false, false, false, nil), ch.QueueBind(dead, "", name, false, nil))
	}
}

func without(headers ...string) func(amqp.Delivery) error {
	return func(d amqp.Delivery) error {
		for _, name := range headers {
			if v, found := d.Headers[name]; found {
				return fmt.Errorf("header %s = %v", name, v)
			}
		}
		if len(d.Body) == 0 {
			return errors.New("the body is empty")
		}
		return nil
	}
}

// One command finds the dead-letter queues of all frameworks and shows what failed. After a replay, their consumers, which know nothing
// of Reprise, process the messages.
func TestReplaysReachConsumersOfFrameworks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("skipped with -short (starts other programs)")
	}
	needNode(t)
	needFrameworks(t)
	reprise := filepath.Join(t.TempDir(), "reprise")
	command(t, "go", "build", "-o", reprise, "../../cmd/reprise")
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		vhost := testkit.Name(t, "frameworks")
		manage(t, api, http.MethodPut, "vhosts/"+vhost)
		t.Cleanup(func() { manage(t, api, http.MethodDelete, "vhosts/"+vhost) })
		url := strings.TrimSuffix(b.URL, "/") + "/" + vhost
		conn, err := amqp.Dial(url)
		must(t, err)
		defer conn.Close()
		ch, err := conn.Channel()
		must(t, err)

		_, err = ch.QueueDeclare("billing.wait", true, false, false, false, amqp.Table{"x-message-ttl": int32(3_600_000), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing"})
		must(t, err)
		must(t, ch.PublishWithContext(t.Context(), "", "billing.wait", false, false, amqp.Publishing{Body: []byte("waits for its retry")}))
		for _, d := range documented {
			dead := publishFixture(t, ch, d.fixture)
			_, err := ch.QueueDeclare(d.work, true, false, false, false, nil)
			must(t, err)
			if d.declare != nil {
				must(t, d.declare(ch, d.work, dead))
			}
		}
		n := len(documented)
		for _, l := range libraries {
			stop := startLibrary(t, io.Discard, url, "fail", l.args)
			for _, queue := range l.dead {
				awaitDepth(t, conn, queue, 1)
			}
			stop()
			n += len(l.dead)
		}

		management := strings.Replace(api, "://", "://guest:guest@", 1)
		console := startConsole(t, reprise, url, management)
		failed := func(args ...string) string {
			out, err := exec.CommandContext(t.Context(), reprise, append(append([]string{"failed"}, args...), "--server", console)...).CombinedOutput()
			if err != nil {
				return fmt.Sprintf("%s\n%v", out, err)
			}
			return string(out)
		}
		testkit.Eventually(t, within, func() error {
			if ids := failed("ls", "--ids"); strings.Count(ids, "\n") != n || strings.Contains(ids, "exit status") {
				return fmt.Errorf("archived messages: got %s, want %d", ids, n)
			}
			return nil
		})
		for _, want := range []string{"System.InvalidOperationException: no such customer", "java.lang.IllegalStateException: no such customer", "RuntimeException: no such customer", "task shop.charge was rejected"} {
			if groups := failed("groups"); !strings.Contains(groups, want) {
				t.Errorf("groups: got\n%s\nwant %q", groups, want)
			}
		}

		outputs := make([]*output, len(libraries))
		for i, l := range libraries {
			outputs[i] = &output{}
			defer startLibrary(t, outputs[i], url, "handle", l.args)()
		}
		failed("replay", "--all", "--yes")
		for i, l := range libraries {
			testkit.Eventually(t, within, func() error {
				for _, line := range l.prints {
					if !strings.Contains(outputs[i].String(), line) {
						return fmt.Errorf("%s: got output %q, want %q\n%s", l.name, outputs[i], line, failed("replays"))
					}
				}
				return nil
			})
		}
		received := map[string][]amqp.Delivery{}
		for _, d := range documented {
			testkit.Eventually(t, within, func() error {
				for {
					m, ok, err := ch.Get(d.work, true)
					must(t, err)
					if !ok {
						break
					}
					received[d.work] = append(received[d.work], m)
				}
				for _, m := range received[d.work] {
					id := fixtureOf(t, d.fixture).MessageID()
					if d.fixture == "easynetq" {
						id = "e1" // in the envelope
					}
					if id == "" || m.MessageId == id {
						return d.rule(m)
					}
				}
				return fmt.Errorf("%s: message not received; got %d in %s", d.fixture, len(received[d.work]), d.work)
			})
		}
		awaitDepth(t, conn, "billing.wait", 1)
	})
}

func needFrameworks(t *testing.T) {
	t.Helper()
	if exec.Command(python, "-c", "import celery").Run() != nil {
		t.Skip("Celery not found (run apt-get install python3-celery, or make test)")
	}
	if _, err := os.Stat(filepath.Join("node", "node_modules", "rascal")); err != nil {
		t.Skip("npm package rascal not found (run npm ci in internal/interop/node, or make test)")
	}
	if exec.Command("php", "-r", `exit((int) !is_file("/usr/share/php/Symfony/Component/Messenger/Bridge/Amqp/autoload.php"));`).Run() != nil {
		t.Skip("Symfony Messenger not found (run apt-get install php-symfony-amqp-messenger, or make test)")
	}
}

// message is a fixture.
type message struct {
	Queue      string
	Properties json.RawMessage
	Headers    json.RawMessage
	Body       []byte
}

func (m message) MessageID() string {
	var p struct {
		ID string `json:"message-id"`
	}
	_ = json.Unmarshal(m.Properties, &p)
	return p.ID
}

func fixtureOf(t *testing.T, name string) (m message) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(fixtures, name+".json"))
	must(t, err)
	must(t, json.Unmarshal(text, &m))
	return m
}

// publishFixture publishes a fixture to its queue, and returns the name of the queue.
func publishFixture(t *testing.T, ch *amqp.Channel, name string) string {
	t.Helper()
	m := fixtureOf(t, name)
	headers, err := failed.DecodeTable(string(m.Headers))
	must(t, err)
	table, err := failed.DecodeTable(string(m.Properties))
	must(t, err)
	p := failed.PropertiesOf(table)
	_, err = ch.QueueDeclare(m.Queue, true, false, false, false, nil)
	must(t, err)
	must(t, ch.PublishWithContext(t.Context(), "", m.Queue, true, false, amqp.Publishing{
		Headers: amqpTable(headers), Body: m.Body, ContentType: p.ContentType, MessageId: p.MessageID, Type: p.Type, CorrelationId: p.CorrelationID, ReplyTo: p.ReplyTo,
	}))
	return m.Queue
}

func amqpTable(t topology.Table) amqp.Table {
	out := amqp.Table{}
	for name, v := range t {
		if nested, ok := v.(topology.Table); ok {
			v = amqpTable(nested)
		}
		out[name] = v
	}
	return out
}

// output collects the output of a program.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// startLibrary starts a program, and returns a function that kills it.
func startLibrary(t *testing.T, out io.Writer, url, what string, args []string) (stop func()) {
	t.Helper()
	args = strings.Split(strings.ReplaceAll(strings.Join(append(args[:len(args):len(args)], what), "\n"), "URL", url), "\n")
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	node, err := filepath.Abs("node/node_modules")
	must(t, err)
	cmd.Env = append(os.Environ(), "NODE_PATH="+node)
	cmd.Stdout, cmd.Stderr = out, out
	must(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	return func() { cancel(); <-ended }
}

// startConsole starts reprise console, and returns its URL.
func startConsole(t *testing.T, reprise, url, management string) string {
	t.Helper()
	var log, out output
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, reprise, "console", "--url", url, "--management", management, "--discover", "--listen", "127.0.0.1:0",
		"--archive", "sqlite:"+filepath.Join(t.TempDir(), "failed.db"))
	cmd.Stdout, cmd.Stderr = &out, &log
	must(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("log of the console:\n%s", &log)
		}
	})
	testkit.Eventually(t, within, func() error {
		if !strings.HasPrefix(out.String(), "http") {
			return fmt.Errorf("console did not start: %s", &log)
		}
		return nil
	})
	return strings.TrimSpace(out.String())
}

// awaitDepth waits until a queue exists and has n ready messages.
func awaitDepth(t *testing.T, conn *amqp.Connection, queue string, n int) {
	t.Helper()
	testkit.Eventually(t, within, func() error {
		ch, err := conn.Channel() // a missing queue closes the channel
		must(t, err)
		defer ch.Close()
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err == nil && q.Messages != n {
			err = fmt.Errorf("queue %s has %d messages, want %d", queue, q.Messages, n)
		}
		return err
	})
}

// manage sends a request to the management API.
func manage(t *testing.T, api, method, path string) {
	t.Helper()
	r, err := http.NewRequest(method, api+"/api/"+path, nil)
	must(t, err)
	r.SetBasicAuth("guest", "guest")
	answer, err := testkit.HTTPClient(t).Do(r)
	must(t, err)
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s", method, path, answer.Status)
	}
}
