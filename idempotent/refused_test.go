package idempotent_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/idempotent"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/testkit"
)

// The busy count of a message survives its retries, even if an older release has written it with the former header
// name.
func TestRetryKeepsBusyCount(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		queue := names(t, b.URL)
		client := dial(t, b.URL, testkit.NewProxy(t, b.URL))
		store := new(idempotent.Memory)
		if c, err := store.Claim(t.Context(), queue+"/order-1", "another", time.Hour); err != nil || c.State != idempotent.Claimed {
			t.Fatalf("Claim: got %v (%v), want claimed", c.State, err)
		}
		work(t, client, reprise.WorkerConfig{
			Queue:   queue,
			Policy:  reprise.Policy{MaxAttempts: 1}, // parked immediately, so that the test can inspect it
			Handler: protect(t, store, idempotent.Config{}, func(context.Context, *reprise.Delivery) error { return nil }),
		})
		conn, err := amqp.Dial(b.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			headers map[string]any
			want    int64
		}{
			{nil, 1},
			{map[string]any{"x-idempotent-busy": 3}, 4},
			{map[string]any{"x-idempotent-busy": 3, "x-reprise-busy": 5}, 6},
		} {
			if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: queue, MessageID: "order-1", Headers: tc.headers}); err != nil {
				t.Fatal(err)
			}
			var parked amqp.Delivery
			testkit.Eventually(t, timeout, func() (found bool) {
				parked, found, err = ch.Get(queue+".failed", true)
				return found && err == nil
			})
			if n, _ := amqpvalue.Integer(parked.Headers["x-reprise-busy"]); n != tc.want {
				t.Errorf("headers after %v: got %v, want busy count %d", tc.headers, parked.Headers, tc.want)
			}
		}
	})
}

// A claim that a process made while the clock was a day fast delays its message, with a warning.
func TestLongBusyKeyIsLoggedAsWarning(t *testing.T) {
	for left, level := range map[time.Duration]string{time.Minute: "INFO", 24 * time.Hour: "WARN"} {
		var log bytes.Buffer
		store := new(idempotent.Memory)
		if c, err := store.Claim(t.Context(), "orders/order-1", "killed", left); err != nil || c.State != idempotent.Claimed {
			t.Fatalf("Claim: got %v (%v), want claimed", c.State, err)
		}
		h := protect(t, store, idempotent.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(context.Context, *reprise.Delivery) error { return nil })
		if err := h.Handle(t.Context(), &reprise.Delivery{Message: reprise.Message{MessageID: "order-1"}, Queue: "orders"}); !errors.Is(err, idempotent.ErrBusy) {
			t.Fatalf("Handle: got %v, want ErrBusy", err)
		}
		if !strings.Contains(log.String(), "level="+level) || !strings.Contains(log.String(), "key=orders/order-1") {
			t.Errorf("rest of the lease %s: got log %q, want level %s and the key", left, log.String(), level)
		}
	}
}
