package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/migrate"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

func TestMain(m *testing.M) {
	migrate.SetResumeTimeout(time.Second) // killed migrations cannot reach the broker
	testkit.Main(testkit.Waiting{M: m})
}

// fixture is a broker with a virtual host of its own.
type fixture struct {
	testkit.Target
	url string // AMQP
	api mgmtapi.API
	ch  *amqp.Channel // of the test

	settle time.Duration // see migrate.Config
	batch  int
	steps  []string // of the migrations
	onStep func(string)
}

// each calls test for each broker, with a virtual host that the test may disconnect.
func each(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) { test(t, newFixture(t, b, api)) })
}

// newFixture creates a virtual host for a test.
func newFixture(t *testing.T, b testkit.Target, api string) *fixture {
	t.Helper()
	f := &fixture{Target: b, url: b.URL, api: mgmtapi.API{URL: api, User: "guest", Password: "guest", Client: testkit.HTTPClient(t)}}
	f.api.Client.Transport.(*http.Transport).MaxIdleConnsPerHost = 10
	vhost := testkit.Name(t, "migrate")
	vhost = "migrate-" + vhost[len(vhost)-8:]
	f.api.VHost = vhost
	within := "vhosts" + f.api.Within()
	if err := f.api.Put(t.Context(), within, map[string]any{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.api.Delete(context.Background(), within); err != nil {
			t.Error(err)
		}
	})
	if err := f.api.Put(t.Context(), "permissions"+f.api.Within()+"/guest", map[string]string{"configure": ".*", "write": ".*", "read": ".*"}); err != nil {
		t.Fatal(err)
	}
	f.url = strings.TrimSuffix(f.url, "/") + "/" + vhost
	f.ch = f.open(t)
	return f
}

// open opens a channel on a new connection.
func (f *fixture) open(t *testing.T) *amqp.Channel {
	t.Helper()
	conn, err := amqp.DialConfig(f.url, amqp.Config{Heartbeat: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// queue declares a durable queue.
func (f *fixture) queue(t *testing.T, name string, args amqp.Table) {
	t.Helper()
	if _, err := f.ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
}

// bound declares an exchange with bindings to a queue.
func (f *fixture) bound(t *testing.T, exchange, queue string, keys ...string) {
	t.Helper()
	if err := f.ch.ExchangeDeclare(exchange, "direct", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if err := f.ch.QueueBind(queue, key, exchange, false, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// publish publishes messages with the bodies prefix-0, prefix-1 and so on, and waits for the confirms.
func (f *fixture) publish(t *testing.T, exchange, key, prefix string, n int) {
	t.Helper()
	ch := f.open(t)
	defer ch.Close()
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	var all []*amqp.DeferredConfirmation
	for i := range n {
		c, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, amqp.Publishing{Body: fmt.Appendf(nil, "%s-%d", prefix, i)})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for _, c := range all {
		if !c.Wait() {
			t.Fatal("not confirmed")
		}
	}
}

// bodies removes all messages of a queue, and returns their bodies.
func (f *fixture) bodies(t *testing.T, queue string) (all []string) {
	t.Helper()
	ch := f.open(t)
	defer ch.Close()
	state, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Qos(500, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range state.Messages {
		d := <-deliveries
		all = append(all, string(d.Body))
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// name is the name of the connections of migrations.
const name = "migration of a test"

// migrate runs a migration through the URL of a broker or a proxy.
func (f *fixture) migrate(ctx context.Context, t *testing.T, url string, api mgmtapi.API, c migrate.Change) (migrate.Result, error) {
	t.Helper()
	if _, err := migrate.Recover(ctx, api, c.Queue); err != nil {
		return migrate.Result{}, err
	}
	client, err := reprise.Dial(ctx, url, &reprise.Config{Name: name})
	if err != nil {
		return migrate.Result{}, err
	}
	defer client.Close(context.Background())
	return migrate.Run(ctx, migrate.Config{
		Client: client, Name: name, API: api, Change: c, Settle: f.settle, Batch: f.batch, Step: func(text string) {
			if f.steps = append(f.steps, text); f.onStep != nil {
				f.onStep(text)
			}
		},
	})
}

// arguments returns the type and the arguments of a queue, or nil if it does not exist.
func (f *fixture) arguments(t *testing.T, queue string) map[string]any {
	t.Helper()
	queues, err := f.api.Queues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		if q.Name == queue {
			return q.Args
		}
	}
	return nil
}

// clean checks that nothing of a migration is left.
func (f *fixture) clean(t *testing.T, queues ...string) {
	t.Helper()
	var all []string
	testkit.Eventually(t, time.Minute, func() error { // the broker deletes the lock when it notices the lost connection
		found, err := f.api.Queues(t.Context())
		all = nil
		for _, q := range found {
			if all = append(all, q.Name); strings.HasPrefix(q.Name, "reprise.migration.") {
				err = errors.New("the lock exists")
			}
		}
		return err
	})
	if len(all) != len(queues) {
		t.Errorf("got queues %q, want %q", all, queues)
	}
	found, err := f.api.Topology(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range found.Exchanges {
		if len(x.Name) > 8 && x.Name[:8] == "reprise." {
			t.Errorf("exchange %s is left", x.Name)
		}
	}
}

var quorum = topology.Table{"x-queue-type": "quorum"}
