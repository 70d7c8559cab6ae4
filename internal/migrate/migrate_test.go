package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/migrate"
	"github.com/reprisemq/reprise/topology"
)

// A migration that keeps the name moves messages and bindings.
func TestKeepsName(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.queue(t, "orders", nil)
		f.bound(t, "shop", "orders", "new", "paid")
		f.publish(t, "shop", "new", "a", 600)
		result, err := f.migrate(t.Context(), t, f.url, f.api, migrate.Change{Queue: "orders", Delete: true, Set: quorum})
		if err != nil {
			t.Fatal(err)
		}
		if result.Moved != 1200 || result.Duplicates != 0 {
			t.Errorf("got %+v", result)
		}
		if args := f.arguments(t, "orders"); args["x-queue-type"] != "quorum" {
			t.Errorf("got arguments %v", args)
		}
		f.publish(t, "shop", "paid", "b", 1)
		all := f.bodies(t, "orders")
		if len(all) != 601 || all[600] != "b-0" {
			t.Fatalf("got %d messages", len(all))
		}
		for i := range 600 {
			if all[i] != fmt.Sprintf("a-%d", i) {
				t.Fatalf("message %d is %s", i, all[i])
			}
		}
		f.clean(t, "orders")
	})
}

// A message keeps its properties, headers, routing key and priority.
func TestMessagesKeepProperties(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.settle = time.Millisecond
		f.queue(t, "orders", amqp.Table{"x-dead-letter-exchange": "dead"})
		f.queue(t, "other", nil)
		f.bound(t, "shop", "orders", "new")
		sent := amqp.Publishing{
			Headers: amqp.Table{
				"CC": []any{"other"}, "text": "Büro", "n": int32(7), "list": []any{int64(1), "a"}, "nested": amqp.Table{"b": true}, "bytes": []byte{1},
			},
			ContentType: "a", ContentEncoding: "b", DeliveryMode: amqp.Persistent, Priority: 3, CorrelationId: "c", ReplyTo: "d",
			Expiration: "3600000", MessageId: "e", Timestamp: time.Unix(1e9, 0), Type: "f", UserId: "guest", AppId: "g", Body: []byte("h"),
		}
		if err := f.ch.Publish("shop", "new", true, false, sent); err != nil {
			t.Fatal(err)
		}
		if _, err := f.migrate(t.Context(), t, f.url, f.api, migrate.Change{Queue: "orders", Delete: true, Unset: []string{"x-dead-letter-exchange"}}); err != nil {
			t.Fatal(err)
		}
		got, found, err := f.ch.Get("orders", true)
		if err != nil || !found {
			t.Fatal(err, found)
		}
		if got.RoutingKey != "new" {
			t.Errorf("got routing key %q", got.RoutingKey)
		}
		received := amqp.Publishing{
			Headers: got.Headers, ContentType: got.ContentType, ContentEncoding: got.ContentEncoding, DeliveryMode: got.DeliveryMode,
			Priority: got.Priority, CorrelationId: got.CorrelationId, ReplyTo: got.ReplyTo, Expiration: got.Expiration, MessageId: got.MessageId,
			Timestamp: got.Timestamp, Type: got.Type, UserId: got.UserId, AppId: got.AppId, Body: got.Body,
		}
		if !reflect.DeepEqual(sent, received) {
			t.Errorf("got %+v, want %+v", received, sent)
		}
		if other := f.bodies(t, "other"); len(other) != 0 {
			t.Errorf("got %q in the queue of the header CC", other)
		}
	})
}

// Messages that a consumer has not acknowledged when it stops are not lost.
func TestUnackedMessagesReturn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.queue(t, "orders", nil)
		f.bound(t, "shop", "orders", "new")
		f.publish(t, "shop", "new", "a", 3)
		ch := f.open(t)
		for range 3 {
			if _, found, err := ch.Get("orders", false); err != nil || !found {
				t.Fatal(err, found)
			}
		}
		var once sync.Once
		f.onStep = func(text string) {
			if strings.HasPrefix(text, "wait: ") {
				once.Do(func() { ch.Close() })
			}
		}
		if _, err := f.migrate(t.Context(), t, f.url, f.api, migrate.Change{Queue: "orders", Delete: true, Set: quorum}); err != nil {
			t.Fatal(err)
		}
		conserved(t, []string{"a-0", "a-1", "a-2"}, f.bodies(t, "orders"), 0)
	})
}

// A message that arrives immediately before the deletion of a queue is not lost. If the name is kept, the queue is too.
func TestArrivalBeforeDeletion(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"classic", "quorum"} {
		for _, to := range []string{"", "orders.v2"} {
			t.Run(kind+" to "+to, func(t *testing.T) {
				t.Parallel()
				each(t, func(t *testing.T, f *fixture) {
					f.settle = time.Millisecond
					f.queue(t, "orders", amqp.Table{"x-queue-type": kind})
					var once sync.Once
					f.onStep = func(text string) {
						if text == "delete orders" {
							once.Do(func() { f.publish(t, "", "orders", "a", 1) })
						}
					}
					change := migrate.Change{Queue: "orders", Delete: true, To: to, Set: topology.Table{"x-message-ttl": int64(3600000)}}
					_, err := f.migrate(t.Context(), t, f.url, f.api, change)
					if _, ok := errors.AsType[*migrate.KeptError](err); ok != (to == "") || !ok && err != nil {
						t.Errorf("got %v", err)
					}
					queue := "orders.migrating"
					if to != "" {
						queue = to
					}
					conserved(t, []string{"a-0"}, f.bodies(t, queue), 0)
				})
			})
		}
	}
}

// A queue whose dead letters return by name delays the deletion, or prevents it if the name changes.
func TestDeadLettersByName(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.settle = time.Millisecond
		f.queue(t, "orders", nil)
		f.queue(t, "wait", amqp.Table{"x-message-ttl": int64(3600000), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"})
		_, err := f.migrate(t.Context(), t, f.url, f.api, migrate.Change{Queue: "orders", Delete: true, To: "orders.v2", Set: quorum})
		if kept, ok := errors.AsType[*migrate.KeptError](err); !ok || !strings.Contains(kept.Reason, "dead letters of wait") {
			t.Fatalf("got %v", err)
		}
		f.queue(t, "other", nil)
		f.queue(t, "wait2", amqp.Table{"x-message-ttl": int64(3600000), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "other"})
		f.publish(t, "", "wait2", "a", 1)
		var once sync.Once
		f.onStep = func(text string) {
			if strings.HasPrefix(text, "wait: wait2 has messages that return to other") {
				once.Do(func() {
					if _, err := f.ch.QueuePurge("wait2", false); err != nil {
						t.Error(err)
					}
				})
			}
		}
		if _, err := f.migrate(t.Context(), t, f.url, f.api, migrate.Change{Queue: "other", Delete: true, Set: quorum}); err != nil {
			t.Fatal(err)
		}
		waited := false
		once.Do(func() { waited = true })
		if waited {
			t.Error("the migration did not wait")
		}
	})
}

// A user without a permission, or arguments that the broker refuses, change nothing.
func TestRefusedMigrationChangesNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.queue(t, "orders", nil)
		f.bound(t, "shop", "orders", "new")
		_, err := f.migrate(t.Context(), t, f.url, f.api, migrate.Change{Queue: "orders", Delete: true, Set: topology.Table{"x-queue-type": "quorum", "x-max-priority": int64(3)}})
		if err == nil || !strings.Contains(err.Error(), "wanted arguments") {
			t.Errorf("got %v", err)
		}
		f.clean(t, "orders")
		user := f.api.VHost
		if err := f.api.Put(t.Context(), "users/"+user, map[string]string{"password": "x", "tags": "management"}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.api.Delete(context.Background(), "users/"+user) })
		for _, permissions := range []map[string]string{
			{"configure": "^(orders.*|reprise.*)$", "write": ".*", "read": "^orders.*"}, // not the exchange
			{"configure": "^reprise.*", "write": ".*", "read": ".*"},
			{"configure": "^orders$", "write": ".*", "read": ".*"},
		} {
			if err := f.api.Put(t.Context(), "permissions"+f.api.Within()+"/"+user, permissions); err != nil {
				t.Fatal(err)
			}
			api := f.api
			api.User, api.Password = user, "x"
			result, err := f.migrate(t.Context(), t, strings.Replace(f.url, "guest:guest", user+":x", 1), api, migrate.Change{Queue: "orders", Delete: true, Set: maps.Clone(quorum)})
			if err == nil || result.Begun {
				t.Errorf("%v: got %+v, %v", permissions, result, err)
			}
			f.clean(t, "orders")
		}
	})
}

// A migration that stops can be undone, and the queue has its bindings, messages and arguments again.
func TestUndo(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.settle = time.Millisecond
		f.queue(t, "orders", nil)
		f.bound(t, "shop", "orders", "new")
		f.publish(t, "", "orders", "a", 3)
		change := migrate.Change{Queue: "orders", Delete: true, Set: quorum}
		_, err := f.migrate(t.Context(), t, f.url, f.api, change)
		if _, kept := errors.AsType[*migrate.KeptError](err); !kept && !strings.Contains(fmt.Sprint(err), "by its name") {
			t.Fatalf("got %v", err)
		}
		f.publish(t, "shop", "new", "b", 3)
		_, err = f.migrate(t.Context(), t, f.url, f.api, migrate.Change{Queue: "orders", Undo: true})
		if err != nil && !strings.Contains(err.Error(), "no migration") { // the management API has shown the publishers in time
			t.Fatal(err)
		}
		f.publish(t, "shop", "new", "c", 1)
		conserved(t, []string{"a-0", "a-1", "a-2", "b-0", "b-1", "b-2", "c-0"}, f.bodies(t, "orders"), 0)
		f.queue(t, "orders", nil)
		f.clean(t, "orders")
	})
}
