package reprisetest_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/reprisetest"
)

// A message waits for hours, and the later messages of its key wait behind it, also when another process takes over. Other keys
// continue. A message without another attempt is parked.
func TestKeyWaitsForRetry(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		began := time.Now()
		var got []string
		config := reprise.WorkerConfig{
			Queue: "orders", Concurrency: 1, OrderBy: &reprise.Keyed{Partitions: 2},
			Policy: reprise.Policy{MaxAttempts: 3, Backoff: backoff.Fixed(4 * time.Hour)},
			Handler: handler(func(m *reprise.Delivery) error {
				got = append(got, fmt.Sprintf("%s attempt %d after %s", m.Body, m.Attempt, time.Since(began).Round(time.Minute)))
				if string(m.Body) == "a1" && m.Attempt < 3 || string(m.Body) == "a2" {
					return errors.New("closed")
				}
				return nil
			}),
		}
		first := b.Work(t, config)
		client := b.Client(t, nil)
		publish := func(key, body string) {
			t.Helper()
			m := &reprise.Message{Body: []byte(body), Expiration: time.Hour * 100, Priority: 9, Headers: map[string]any{"n": int64(1)}}
			if err := client.PublishKeyed(t.Context(), "orders", 2, key, m); err != nil {
				t.Fatal(err)
			}
		}
		publish("a", "a1")
		publish("a", "a2")
		publish("a", "a3")
		first.Await(t, 1)
		publish("b", "b1")
		first.Await(t, 2)
		time.Sleep(time.Hour)
		b.Work(t, config) // waits for its turn
		if err := first.Stop(); err != nil {
			t.Fatal(err)
		}
		publish("b", "b2")
		b.Drain(t)
		want := []string{
			"a1 attempt 1 after 0s", "b1 attempt 1 after 0s", "b2 attempt 1 after 1h0m0s", "a1 attempt 2 after 4h0m0s",
			"a1 attempt 3 after 8h0m0s", "a2 attempt 1 after 8h0m0s", "a2 attempt 2 after 12h0m0s", "a2 attempt 3 after 16h0m0s", "a3 attempt 1 after 16h0m0s",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("attempts: -want +got\n%s", diff)
		}
		parked := b.Messages(t, "orders.failed")
		if len(parked) != 1 || string(parked[0].Body) != "a2" || len(parked[0].Errors) != 3 || parked[0].RoutingKey != "orders.part.0-of-2" && parked[0].RoutingKey != "orders.part.1-of-2" {
			t.Errorf("parked: got %+v, want a2 with 3 errors and its original routing key", parked)
		}
		for _, q := range b.Queues() {
			if q.Ready+q.Unacked > 2 && q.Name != "orders.failed" {
				t.Errorf("queue %s has %d ready and %d unacked messages", q.Name, q.Ready, q.Unacked)
			}
		}
	})
}

// If too many messages wait, the later messages of their keys are parked in order. Other keys continue.
func TestFullPartitionParksKey(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		var got []string
		w := b.Work(t, reprise.WorkerConfig{
			Queue: "orders", Concurrency: 1, OrderBy: &reprise.Keyed{Partitions: 1, MaxHeld: 2},
			Policy: reprise.Policy{Backoff: backoff.Fixed(time.Hour)},
			Handler: handler(func(m *reprise.Delivery) error {
				got = append(got, string(m.Body))
				if string(m.Body) == "a1" && m.Attempt == 1 {
					return errors.New("closed")
				}
				return nil
			}),
		})
		client := b.Client(t, nil)
		for _, body := range []string{"a1", "a2", "a3", "b1", "a4"} {
			m := &reprise.Message{Body: []byte(body)}
			if err := client.PublishKeyed(t.Context(), "orders", 1, body[:1], m); err != nil {
				t.Fatal(err)
			}
		}
		w.Await(t, 2)
		b.Drain(t)
		if err := client.PublishKeyed(t.Context(), "orders", 1, "a", &reprise.Message{Body: []byte("a5")}); err != nil {
			t.Fatal(err)
		}
		b.Drain(t)
		if diff := cmp.Diff([]string{"a1", "b1", "a1", "a2", "a5"}, got); diff != "" {
			t.Errorf("attempts: -want +got\n%s", diff)
		}
		var parked []string
		for _, m := range b.Messages(t, "orders.failed") {
			parked = append(parked, string(m.Body))
		}
		if diff := cmp.Diff([]string{"a3", "a4"}, parked); diff != "" {
			t.Errorf("parked: -want +got\n%s", diff)
		}
	})
}

// While an alarm blocks publishers, the attempts continue, so that consumers can end the alarm. A failed message waits, with the
// later messages of its key, until the broker accepts its copy. Nothing is repeated.
func TestKeysContinueDuringAlarm(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		var got []string
		w := b.Work(t, reprise.WorkerConfig{
			Queue: "orders", Concurrency: 1, OrderBy: &reprise.Keyed{Partitions: 1},
			Policy: reprise.Policy{Backoff: backoff.Fixed(time.Second)},
			Handler: handler(func(m *reprise.Delivery) error {
				got = append(got, fmt.Sprintf("%s attempt %d", m.Body, m.Attempt))
				time.Sleep(time.Minute)
				if string(m.Body) == "a1" && m.Attempt == 1 {
					return errors.New("closed")
				}
				return nil
			}),
		})
		client := b.Client(t, nil)
		for _, body := range []string{"a1", "a2", "b1", "b2", "c1"} {
			if err := client.PublishKeyed(t.Context(), "orders", 1, body[:1], &reprise.Message{Body: []byte(body)}); err != nil {
				t.Fatal(err)
			}
		}
		b.Block()
		w.Await(t, 4)
		time.Sleep(time.Hour)
		b.Unblock()
		b.Drain(t)
		slices.Sort(got[1:4]) // the keys start in any order
		want := []string{"a1 attempt 1", "b1 attempt 1", "b2 attempt 1", "c1 attempt 1", "a1 attempt 2", "a2 attempt 1"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("attempts: -want +got\n%s", diff)
		}
	})
}

// The concurrency of a route also applies with OrderBy. A message above it does not delay other routes.
func TestKeyedRoutes(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		var mu sync.Mutex
		var reports, most int
		w := b.Work(t, reprise.WorkerConfig{
			Queue: "orders", Concurrency: 10, OrderBy: &reprise.Keyed{Partitions: 1},
			Handler: &reprise.Mux{Routes: []reprise.Route{
				{Pattern: "report", Concurrency: 2, Handler: handler(func(*reprise.Delivery) error {
					mu.Lock()
					reports++
					most = max(most, reports)
					mu.Unlock()
					time.Sleep(time.Minute)
					mu.Lock()
					defer mu.Unlock()
					reports--
					return nil
				})},
				{Pattern: "order", Handler: handler(func(*reprise.Delivery) error { return nil })},
			}},
		})
		client := b.Client(t, nil)
		began := time.Now()
		for n, kind := range []string{"report", "report", "report", "report", "order"} {
			if err := client.PublishKeyed(t.Context(), "orders", 1, fmt.Sprint(n), &reprise.Message{Type: kind}); err != nil {
				t.Fatal(err)
			}
		}
		w.Await(t, 1)
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the order began after %s, want immediately", waited)
		}
		b.Drain(t)
		if most != 2 || len(w.Attempts()) != 5 {
			t.Errorf("got at most %d reports at a time and %d attempts, want 2 and 5", most, len(w.Attempts()))
		}
	})
}
