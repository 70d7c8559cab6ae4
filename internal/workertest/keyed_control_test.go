package workertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testkit"
)

// Operators see the blocked keys. They retry a message early, park it so that the next message begins, or park all messages of the
// key that wait. Other keys, and later messages of the key, are not affected.
func TestOperatorControlsKey(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		if b.IsRabbitMQ && b.Version < "4" {
			return // requires RabbitMQ 4.0
		}
		const partitions = 2
		queue := testkit.Name(t, "keyed")
		cleanKeyed(t, b.URL, queue, partitions)
		list, _ := watching(t, dial(t, b.URL))
		var mu sync.Mutex
		var got []string
		consuming := dial(t, b.URL, announced)
		worker, err := reprise.NewWorker(consuming.Client, reprise.WorkerConfig{
			Queue: queue, Concurrency: 4, OrderBy: &reprise.Keyed{Partitions: partitions},
			Policy: reprise.Policy{Backoff: backoff.Fixed(4 * time.Hour)},
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, string(m.Body))
				if strings.HasSuffix(string(m.Body), "!") && m.Attempt < 3 {
					return errors.New("closed")
				}
				return nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		if keys, n := worker.BlockedKeys(t.Context(), 1); len(keys) != 0 || n != 0 {
			t.Errorf("before Run: got %d blocked keys, want none", n)
		}
		startWorker(t, consuming, worker)
		listed(t, list, queue, 1, protocol.WorkerConsuming)
		client := dial(t, b.URL)
		publish := func(key string, bodies ...string) {
			t.Helper()
			for _, body := range bodies {
				if err := client.PublishKeyed(t.Context(), queue, partitions, key, &reprise.Message{Body: []byte(body)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		act := func(key string, act reprise.KeyAct, limit int) {
			t.Helper()
			k := reprise.KeyControl{Queue: queue, Partitions: partitions, Key: key, Act: act, Limit: limit, By: "alice"}
			if err := client.ControlKey(t.Context(), k); err != nil {
				t.Fatal(err)
			}
		}
		handled := func(want ...string) {
			t.Helper()
			testkit.Eventually(t, timeout, func() error {
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(got, want) {
					return fmt.Errorf("attempts: got %q, want %q", got, want)
				}
				return nil
			})
		}
		blocked := func(want ...string) (keys protocol.Keys) {
			t.Helper()
			testkit.Eventually(t, timeout, func() error {
				control(t, client, protocol.Command{Do: protocol.DoReport})
				all := workersOf(list, queue)
				if len(all) != 1 || all[0].Keys == nil {
					return fmt.Errorf("got %d workers, want one that keeps the order of keys", len(all))
				}
				keys = *all[0].Keys
				var shown []string
				for _, k := range keys.Oldest {
					shown = append(shown, fmt.Sprintf("%s %d +%d", k.Key, k.Attempts, k.Behind))
				}
				if slices.Sort(shown); !slices.Equal(shown, want) || keys.Blocked != len(want) {
					return fmt.Errorf("blocked keys: got %q of %d, want %q", shown, keys.Blocked, want)
				}
				return nil
			})
			return keys
		}
		publish("a", "a1!", "a2", "a3!", "a4", "a5!")
		handled("a1!")
		publish("b", "b1!")
		handled("a1!", "b1!")
		keys := blocked("a 1 +4", "b 1 +0")
		if a := keys.Oldest[0]; a.Error != "closed" || time.Until(a.Next) < 3*time.Hour || a.Since.IsZero() || keys.Behind != 4 || keys.Partitions != 2 || keys.Owned != 2 {
			t.Errorf("blocked keys: got %+v", keys)
		}
		own, n := worker.BlockedKeys(t.Context(), 1)
		if a := own[0]; len(own) != 1 || n != 2 || a.Key != "a" || a.Attempts != 1 || a.Error != "closed" || a.Behind != 4 || a.Since.IsZero() || time.Until(a.Next) < 3*time.Hour {
			t.Errorf("BlockedKeys: got %+v of %d, want a of 2", own, n)
		}
		act("a", reprise.RetryFirst, 0)
		handled("a1!", "b1!", "a1!")
		blocked("a 2 +4", "b 1 +0")
		act("a", reprise.ParkFirst, 0)
		handled("a1!", "b1!", "a1!", "a2", "a3!")
		blocked("a 1 +2", "b 1 +0")
		act("a", reprise.ParkAll, 2)
		handled("a1!", "b1!", "a1!", "a2", "a3!", "a5!")
		publish("a", "a6")
		blocked("a 1 +1", "b 1 +0")
		act("a", reprise.ParkAll, 0)
		blocked("b 1 +0")
		act("a", reprise.ParkAll, 0) // has no effect
		publish("a", "a7")
		handled("a1!", "b1!", "a1!", "a2", "a3!", "a5!", "a7")
		act("b", reprise.RetryFirst, 0)
		act("b", reprise.RetryFirst, 0) // the first act applies, or both
		testkit.Eventually(t, timeout, func() error {
			r := newRaw(t, b.URL)
			if n := r.depth(queue + ".failed"); n != 5 {
				return fmt.Errorf("got %d parked messages, want a1, a3, a4, a5 and a6", n)
			}
			return nil
		})
		if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); !errors.Is(err, reprise.ErrUnroutable) {
			t.Errorf("publication to the queue without a partition: got %v, want ErrUnroutable", err)
		}
		if err := client.ControlKey(t.Context(), reprise.KeyControl{Queue: queue, Partitions: 3, Key: "a", Act: reprise.ParkAll}); !errors.Is(err, reprise.ErrUnroutable) {
			t.Errorf("act with another number of partitions: got %v, want ErrUnroutable", err)
		}
	})
}
