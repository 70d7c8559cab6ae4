package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/migrate"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A queue with bindings may also have rare publishers by its name, which RabbitMQ does not report by default.
func TestUnseenPublishersByName(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.settle = time.Millisecond
		f.queue(t, "orders", nil)
		f.bound(t, "shop", "orders", "new")
		f.publish(t, "shop", "new", "a", 1)
		result, err := f.migrate(t.Context(), t, f.url, f.api, migrate.Change{Queue: "orders", Set: quorum})
		if err == nil || result.Begun || !strings.Contains(err.Error(), "--disconnect") || !strings.Contains(err.Error(), "--delete") {
			t.Errorf("got %+v, %v", result, err)
		}
		_, err = f.migrate(t.Context(), t, f.url, f.api, migrate.Change{Queue: "orders", To: "orders.v2", Set: quorum})
		if _, kept := errors.AsType[*migrate.KeptError](err); !kept || f.arguments(t, "orders") == nil {
			t.Errorf("got %v", err)
		}
		f.publish(t, "", "orders", "b", 1)
		if _, err = f.migrate(t.Context(), t, f.url, f.api, migrate.Change{Queue: "orders", Delete: true}); err != nil {
			t.Error(err)
		}
		conserved(t, []string{"a-0", "b-0"}, f.bodies(t, "orders.v2"), 0)
		f.clean(t, "orders.v2")
	})
}

// The limit of connections that the operator has set after an interrupted run is restored.
func TestLimitChangedBetweenRuns(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.settle = time.Millisecond
		f.queue(t, "orders", nil)
		limit := func(n int) {
			if err := f.api.Put(t.Context(), "vhost-limits"+f.api.Within()+"/max-connections", map[string]int{"value": n}); err != nil {
				t.Fatal(err)
			}
		}
		change := migrate.Change{Queue: "orders", Set: quorum, Disconnect: true}
		ctx, kill := context.WithCancel(t.Context())
		f.onStep = func(text string) {
			if text == "close all other connections" {
				kill()
			}
		}
		limit(50)
		if _, err := f.migrate(ctx, t, f.url, f.api, change); err == nil {
			t.Fatal("got no error")
		}
		// As after a kill: the entry of the journal is left.
		f.ch = f.open(t)
		if err := f.ch.ExchangeBind("reprise.move.orders", "limit/50", "reprise.migration.orders", false, nil); err != nil {
			t.Fatal(err)
		}
		limit(70)
		f.onStep = func(text string) {
			if text == "close all other connections" {
				recorded := f.journal(t)
				if !slices.Contains(recorded, "limit/70") || slices.Contains(recorded, "limit/50") {
					t.Errorf("got journal %q", recorded)
				}
			}
		}
		if _, err := f.migrate(t.Context(), t, f.url, f.api, change); err != nil {
			t.Fatal(err)
		}
		if all := f.limits(t); len(all) != 1 || all[0].Value["max-connections"] != 70 {
			t.Errorf("got limits %v", all)
		}
	})
}

// journal returns the keys of the journal of a migration.
func (f *fixture) journal(t *testing.T) (keys []string) {
	t.Helper()
	var all []struct {
		Key string `json:"routing_key"`
	}
	if err := f.api.Get(t.Context(), "exchanges"+f.api.Within()+"/reprise.migration.orders/bindings/source", &all); err != nil {
		t.Error(err)
	}
	for _, one := range all {
		keys = append(keys, one.Key)
	}
	return keys
}

// An ordered migration does not move a message before one that the new queue refuses.
func TestOrderedStopsAtRefusedMessage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.settle = time.Millisecond
		f.queue(t, "orders", nil)
		var want []string
		for i := range 6 {
			body := fmt.Sprintf("%d-", i)
			if i == 3 {
				body += strings.Repeat("x", 1000)
			}
			want = append(want, body)
			if err := f.ch.Publish("", "orders", true, false, amqp.Publishing{Body: []byte(body)}); err != nil {
				t.Fatal(err)
			}
		}
		change := migrate.Change{
			Queue: "orders", Ordered: true, Disconnect: true,
			Set: topology.Table{"x-overflow": "reject-publish", "x-max-length-bytes": int64(500)},
		}
		if _, err := f.migrate(t.Context(), t, f.url, f.api, change); err == nil {
			t.Fatal("got no error")
		}
		f.ch = f.open(t)
		got := append(f.bodies(t, "orders"), f.bodies(t, "orders.migrating")...)
		if !slices.Equal(got, want) {
			t.Errorf("got %.8q, want %.8q", got, want)
		}
	})
}

// Killed runs do not use up a low delivery limit for more than one message, and a run that ends with an error for none.
func TestLowDeliveryLimit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.settle = time.Millisecond
		f.queue(t, "orders", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(1)})
		f.bound(t, "shop", "orders", "new")
		f.publish(t, "shop", "new", "a", 10)
		change := migrate.Change{Queue: "orders", Unset: []string{"x-delivery-limit"}, Delete: true}
		const kills = 3
		for range kills {
			ctx, cancel := context.WithCancel(t.Context())
			proxy := testkit.NewProxy(t, f.url)
			f.onStep = func(text string) {
				if strings.HasPrefix(text, "move the messages from orders ") {
					cut := proxy.CutAfterFrame(testkit.ToServer, proxy.Frames(testkit.ToServer)+10)
					go func() {
						<-cut
						proxy.Refuse()
						cancel()
					}()
				}
			}
			testkit.Eventually(t, time.Minute, func() error {
				_, err := f.migrate(ctx, t, proxy.URL(), f.api, change)
				if errors.Is(err, migrate.ErrRunning) {
					return err
				}
				return nil
			})
			cancel()
		}
		f.onStep = nil
		testkit.Eventually(t, time.Minute, func() error {
			_, err := f.migrate(t.Context(), t, f.url, f.api, change)
			return err
		})
		if got := f.bodies(t, "orders"); len(got) < 10-kills {
			t.Errorf("got %q", got)
		}
		f.queue(t, "none", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(0)})
		_, err := f.migrate(t.Context(), t, f.url, f.api, migrate.Change{Queue: "none", Unset: []string{"x-delivery-limit"}, Delete: true})
		if err == nil || !strings.Contains(err.Error(), "delivery limit") {
			t.Errorf("got %v", err)
		}
	})
}
