package reprisetest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/reprisetest"
)

func publishKeyed(t *testing.T, client *reprise.Client, key string, n int) {
	t.Helper()
	for i := range n {
		m := &reprise.Message{Body: fmt.Appendf(nil, "%s%d", key, i+1)}
		if err := client.PublishKeyed(t.Context(), "orders", 1, key, m); err != nil {
			t.Fatal(err)
		}
	}
}

// A key above its rate waits, in order, also through a retry. Other keys continue. A new owner may start one more burst.
func TestKeyRate(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		var began time.Time
		var got []string
		config := reprise.WorkerConfig{
			Queue: "orders", Concurrency: 1, OrderBy: &reprise.Keyed{Partitions: 1, Rate: 6, Per: time.Minute, Burst: 2},
			Policy: reprise.Policy{Backoff: backoff.Fixed(time.Second)},
			Handler: handler(func(m *reprise.Delivery) error {
				got = append(got, fmt.Sprintf("%s after %s", m.Body, time.Since(began).Round(time.Second)))
				if string(m.Body) == "a3" && m.Attempt == 1 {
					return errors.New("fails")
				}
				return nil
			}),
		}
		first := b.Work(t, config)
		client := b.Client(t, nil)
		began = time.Now()
		publishKeyed(t, client, "a", 7)
		publishKeyed(t, client, "b", 1)
		first.Await(t, 3)
		time.Sleep(34 * time.Second)
		if err := first.Stop(); err != nil {
			t.Fatal(err)
		}
		b.Work(t, config)
		b.Drain(t)
		want := []string{
			"a1 after 0s", "a2 after 0s", "b1 after 0s", "a3 after 10s", "a3 after 20s", "a4 after 30s",
			"a5 after 34s", "a6 after 34s", "a7 after 44s", // another owner
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("attempts: -want +got\n%s", diff)
		}
		if parked := b.Messages(t, "orders.failed"); len(parked) != 0 {
			t.Errorf("parked: %v", parked)
		}
	})
}

// The backlog of a key above its rate delays neither the other keys nor their retries, as long as half of MaxHeld has room for it.
// Without this room, the partition stops, but no message is parked.
func TestBacklogOfKeyAboveRate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		backlog int
		late    bool
	}{{400, false}, {700, true}} {
		t.Run(fmt.Sprint(tc.backlog), func(t *testing.T) {
			reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
				var published time.Time
				late := time.Duration(-1)
				var got []string
				w := b.Work(t, reprise.WorkerConfig{
					Queue: "orders", Concurrency: 1, OrderBy: &reprise.Keyed{Partitions: 1, MaxHeld: 1000, Rate: 1},
					Policy: reprise.Policy{Backoff: backoff.Fixed(time.Second)},
					Handler: handler(func(m *reprise.Delivery) error {
						body := string(m.Body)
						switch {
						case body == "b1" && m.Attempt == 1:
							return errors.New("fails")
						case body == "b1":
							late = time.Since(published).Round(time.Second)
						default:
							got = append(got, body)
						}
						return nil
					}),
				})
				client := b.Client(t, nil)
				publishKeyed(t, client, "a", tc.backlog)
				published = time.Now()
				publishKeyed(t, client, "b", 1)
				w.Await(t, 1)
				b.Drain(t)
				if (late > time.Second) != tc.late {
					t.Errorf("the retry of the other key began after %s", late)
				}
				for i, body := range got {
					if body != fmt.Sprint("a", i+1) {
						t.Fatalf("got %s as message %d", body, i+1)
					}
				}
				if len(got) != tc.backlog {
					t.Errorf("handled %d messages of %d: %s", len(got), tc.backlog, strings.Join(got, " "))
				}
				if parked := b.Messages(t, "orders.failed"); len(parked) != 0 {
					t.Errorf("%d messages parked", len(parked))
				}
			})
		})
	}
}
