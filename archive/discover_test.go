package archive_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/archive"
	"github.com/reprisemq/reprise/internal/testkit"
)

const within = 3 * time.Minute

// discovery is an archive with Discover, in a virtual host with the queues of other programs.
type discovery struct {
	*testing.T
	archive *archive.Archive
	conn    *amqp.Connection
	ch      *amqp.Channel
	log     logBuffer
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *logBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *logBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// discovering runs a test with an archive that starts after prepare has returned.
func discovering(t *testing.T, prepare, test func(d *discovery)) {
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		t.Parallel()
		vhost := testkit.Name(t, "discover")
		manageVHost(t, api, http.MethodPut, vhost)
		t.Cleanup(func() { manageVHost(t, api, http.MethodDelete, vhost) })
		url := strings.TrimSuffix(b.URL, "/") + "/" + vhost
		d := &discovery{T: t}
		var err error
		d.conn, err = amqp.Dial(url)
		must(err)
		defer d.conn.Close()
		d.ch, err = d.conn.Channel()
		must(err)
		prepare(d)
		cfg := newConfig(t)
		cfg.Queues, cfg.Discover, cfg.Logger = nil, true, slog.New(slog.NewTextHandler(&d.log, nil))
		cfg.Management = &archive.Management{URL: api, User: "guest", Password: "guest", VHost: vhost}
		d.archive, err = archive.Open(t.Context(), cfg)
		must(err)
		client, err := reprise.Dial(t.Context(), url, &reprise.Config{Name: "reprise console"})
		must(err)
		d.archive.Connect(client)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.archive.Run(ctx) }()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			must(client.Close(context.WithoutCancel(t.Context())))
			if t.Failed() {
				t.Logf("log:\n%s", d.log.String())
			}
		}()
		test(d)
	})
}

func manageVHost(t *testing.T, api, method, vhost string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, api+"/api/vhosts/"+vhost, nil)
	must(err)
	r.SetBasicAuth("guest", "guest")
	answer, err := testkit.HTTPClient(t).Do(r)
	must(err)
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s", method, vhost, answer.Status)
	}
}

func (d *discovery) declare(queue string, args amqp.Table) {
	_, err := d.ch.QueueDeclare(queue, true, false, false, false, args)
	must(err)
}

func (d *discovery) publish(queue string, headers amqp.Table) {
	must(d.ch.PublishWithContext(d.Context(), "", queue, true, false, amqp.Publishing{Headers: headers, Body: []byte("17")}))
}

func (d *discovery) depth(queue string) int {
	q, err := d.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	must(err)
	return q.Messages
}

// logs waits until the log has a line with all parts.
func (d *discovery) logs(parts ...string) {
	d.Helper()
	testkit.Eventually(d.T, within, func() error {
		for line := range strings.Lines(d.log.String()) {
			found := true
			for _, part := range parts {
				found = found && strings.Contains(line, part)
			}
			if found {
				return nil
			}
		}
		return fmt.Errorf("log has no line with %q", parts)
	})
}

// archived waits until the archive has n messages.
func (d *discovery) awaitArchived(n int) {
	d.Helper()
	testkit.Eventually(d.T, within, func() error {
		if _, got := ask(d.archive, "GET", "/api/v1/messages/count", ""); !strings.Contains(got, fmt.Sprintf(`"n":%d}`, n)) {
			return fmt.Errorf("archive: got %s, want %d messages", got, n)
		}
		return nil
	})
}

var fault = amqp.Table{"MT-Reason": "fault", "MT-Fault-ExceptionType": "System.Exception", "MT-Fault-InputAddress": "rabbitmq://host/billing"}

// A program that repairs dead letters, or that processes failed orders once a day, is not there when the console starts, and nothing
// that the broker reports shows that it exists. So the console takes no queue whose first message no framework has failed.
func TestDiscoveryLeavesQueuesOfOthers(t *testing.T) {
	discovering(t, func(d *discovery) {
		d.declare("orders", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders-fallback"})
		d.declare("orders-fallback", nil)
		d.declare("payment", nil)
		d.declare("payment.failed", nil) // orders whose payment failed
		d.declare("billing", nil)
		d.declare("billing_error", nil)
		must(d.ch.ExchangeDeclare("billing_error", "fanout", true, false, false, false, nil))
		d.publish("orders", nil)
		deliveries, err := d.ch.Consume("orders", "", false, false, false, false, nil)
		must(err)
		must((<-deliveries).Nack(false, false))
		testkit.Eventually(d.T, within, func() bool { return d.depth("orders-fallback") == 1 })
		d.publish("payment.failed", nil)
		d.publish("billing_error", fault)
	}, func(d *discovery) {
		d.awaitArchived(1)
		for _, queue := range []string{"orders-fallback", "payment.failed"} {
			d.logs("queue left alone", "queue="+queue, "no framework has recorded a failure in its first message")
			if n := d.depth(queue); n != 1 {
				d.Errorf("%s: got %d messages, want 1", queue, n)
			}
			if _, page := ask(d.archive, "GET", "/", ""); !strings.Contains(page, "<code>--queue "+queue+"</code>") {
				d.Errorf("overview does not list %s", queue)
			}
		}
	})
}

// When another program uses a queue that the console has taken, the console stops and says so. It keeps what it has, and does not
// take the queue again, because the program may be away most of the time.
func TestDiscoveryStopsAtOtherUsers(t *testing.T) {
	discovering(t, func(d *discovery) {
		for _, work := range []string{"billing", "shipping", "mails"} {
			d.declare(work, nil)
			d.declare(work+"_error", nil)
			must(d.ch.ExchangeDeclare(work+"_error", "fanout", true, false, false, false, nil))
			d.publish(work+"_error", fault)
		}
		must(d.ch.ExchangeDeclare("events", "fanout", true, false, false, false, nil))
	}, func(d *discovery) {
		d.awaitArchived(3)
		_, err := d.ch.Consume("billing_error", "repair", false, false, false, false, nil)
		must(err)
		must(d.ch.QueueBind("shipping_error", "", "events", false, nil))
		d.publish("mails_error", nil)
		d.logs("archiving stopped", "queue=billing_error", "it has consumers of other programs: 1")
		d.logs("archiving stopped", "queue=shipping_error", "events")
		d.logs("archiving stopped", "queue=mails_error", "without any trace of a failure")
		must(d.ch.Cancel("repair", false))
		d.publish("billing_error", fault)
		testkit.Eventually(d.T, within, func() error {
			if billing, mails := d.depth("billing_error"), d.depth("mails_error"); billing != 1 || mails != 1 {
				return fmt.Errorf("got %d and %d messages, want 1 and 1", billing, mails)
			}
			return nil
		})
		d.awaitArchived(3)
		_, page := ask(d.archive, "GET", "/", "")
		_, acts := ask(d.archive, "GET", "/api/v1/acts", "")
		if !strings.Contains(page, "No longer archived") || strings.Count(acts, "stop archiving") != 3 {
			d.Errorf("overview and audit log do not state it: %s", acts)
		}
	})
}
