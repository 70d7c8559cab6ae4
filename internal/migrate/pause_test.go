package migrate_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/migrate"
	"github.com/reprisemq/reprise/internal/testkit"
)

// limits returns the limits of the virtual host.
func (f *fixture) limits(t *testing.T) (all []struct{ Value map[string]int }) {
	t.Helper()
	if err := f.api.Get(t.Context(), "vhost-limits"+f.api.Within(), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// A second command does not permit connections while the first one runs.
func TestRecoverLeavesRunningMigration(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		const record, move = "reprise.migration.orders", "reprise.move.orders"
		for _, name := range []string{record, move} {
			if err := f.ch.ExchangeDeclare(name, "fanout", true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.ch.ExchangeBind(move, "limit/none", record, false, nil); err != nil {
			t.Fatal(err)
		}
		running := f.open(t)
		if _, err := running.QueueDeclare(record, false, false, true, false, nil); err != nil {
			t.Fatal(err)
		}
		if err := f.api.Put(t.Context(), "vhost-limits"+f.api.Within()+"/max-connections", map[string]int{"value": 0}); err != nil {
			t.Fatal(err)
		}
		if recovered, err := migrate.Recover(t.Context(), f.api, "orders"); recovered || !errors.Is(err, migrate.ErrRunning) || len(f.limits(t)) != 1 {
			t.Errorf("got %t, %v and limits %v", recovered, err, f.limits(t))
		}
		if _, err := running.QueueDelete(record, false, false, false); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, time.Minute, func() error {
			_, err := migrate.Recover(t.Context(), f.api, "orders")
			return err
		})
		for _, one := range f.limits(t) {
			if n, found := one.Value["max-connections"]; found {
				t.Errorf("the limit is still %d", n)
			}
		}
	})
}

// losing loses the response to the request that limits connections.
type losing struct{ http.RoundTripper }

func (l losing) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.RoundTripper.RoundTrip(r)
	if err == nil && r.Method == http.MethodPut && strings.Contains(r.URL.Path, "max-connections") {
		answer.Body.Close()
		return nil, errors.New("lost")
	}
	return answer, err
}

// A limit whose confirmation is lost does not stay.
func TestLostConfirmationOfLimit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.queue(t, "orders", amqp.Table{})
		f.settle = time.Millisecond
		api := f.api
		api.Client = &http.Client{Transport: losing{f.api.Client.Transport}}
		if _, err := f.migrate(t.Context(), t, f.url, api, migrate.Change{Queue: "orders", Set: quorum, Disconnect: true}); err == nil {
			t.Fatal("got no error")
		}
		for _, one := range f.limits(t) {
			if n, found := one.Value["max-connections"]; found {
				t.Errorf("the limit is still %d", n)
			}
		}
	})
}

// A wait queue without a dead-letter routing key returns messages by the key with which they reached it.
func TestKeepsQueueOfKeylessWait(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.queue(t, "orders", nil)
		f.queue(t, "waiting", amqp.Table{"x-dead-letter-exchange": "", "x-message-ttl": int64(3_600_000)})
		f.bound(t, "waits", "waiting", "orders")
		f.settle = time.Millisecond
		_, err := f.migrate(t.Context(), t, f.url, f.api, migrate.Change{Queue: "orders", Delete: true, To: "orders.v2", Set: quorum})
		if kept, ok := errors.AsType[*migrate.KeptError](err); !ok || !strings.Contains(kept.Reason, "waiting") {
			t.Errorf("got %v", err)
		}
		if f.arguments(t, "orders") == nil {
			t.Error("the queue is deleted")
		}
	})
}

// A queue without bindings that has received messages got them by its name, also if its consumers have taken all of them.
func TestKeepsQueueOfNamedPublishers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.queue(t, "orders", nil)
		testkit.Eventually(t, time.Minute, func() error {
			f.publish(t, "", "orders", "a", 1) // a busy node can lose the counts of a channel that has closed
			var q struct {
				Stats struct{ Publish int } `json:"message_stats"`
			}
			if err := f.api.Get(t.Context(), "queues"+f.api.Within()+"/orders", &q); err != nil || q.Stats.Publish > 0 {
				return err
			}
			return errors.New("no statistics yet")
		})
		f.bodies(t, "orders")
		f.settle = time.Millisecond
		_, err := f.migrate(t.Context(), t, f.url, f.api, migrate.Change{Queue: "orders", To: "orders.v2", Set: quorum})
		if _, ok := errors.AsType[*migrate.KeptError](err); !ok || f.arguments(t, "orders") == nil {
			t.Errorf("got %v", err)
		}
	})
}
