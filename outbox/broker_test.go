package outbox_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/outbox"
)

// A relay publishes to a broker. A message to a queue that does not exist stays in the box, until the queue exists.
func TestRelayPublishesToBroker(t *testing.T) {
	testkit.Each(t, func(t *testing.T, target testkit.Target) {
		clock := newClock()
		box := openSQLite(t).box(t, clock)
		client, err := reprise.Dial(t.Context(), target.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(t.Context())
		conn, err := amqp.Dial(target.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		present, missing := testkit.Name(t, "present"), testkit.Name(t, "missing")
		declare := func(queue string) {
			if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		defer func() {
			for _, queue := range []string{present, missing} {
				if _, err := ch.QueueDelete(queue, false, false, false); err != nil {
					t.Error(err)
				}
			}
		}()
		declare(present)
		for i := range 200 {
			m := message(fmt.Sprint(i))
			m.RoutingKey = []string{present, missing}[i%2]
			m.Headers = map[string]any{"n": int32(i)}
			schedule(t, box, m)
		}
		r := relay(t, box, client)
		step(t, r)
		want := func(queue string, first int) {
			t.Helper()
			for i := first; i < 200; i += 2 {
				d, found, err := ch.Get(queue, true)
				if err != nil || !found || d.MessageId != fmt.Sprint(i) || d.Headers["n"] != int32(i) || d.Timestamp.IsZero() {
					t.Fatalf("message %d of queue %s: got %+v (%v)", i, queue, d, err)
				}
			}
		}
		want(present, 0)
		rows, err := box.List(t.Context(), outbox.Filter{Failed: true})
		if err != nil || len(rows) == 0 || !strings.Contains(rows[0].Error, missing) {
			t.Errorf("failed messages: got %v (%v), want messages to a missing queue", rows, err)
		}
		declare(missing)
		for range 3 {
			clock.pass(outbox.DefaultLease)
			step(t, r)
		}
		ids := map[string]bool{}
		for range 100 {
			d, found, err := ch.Get(missing, true)
			if err != nil || !found {
				t.Fatal(errors.Join(err, fmt.Errorf("got %d messages, want 100", len(ids))))
			}
			ids[d.MessageId] = true
		}
		if len(ids) != 100 {
			t.Errorf("got %d different messages, want 100", len(ids))
		}
	})
}
