package migrate_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/migrate"
)

// A message that a program has taken from the holding queue, and not acknowledged, is not lost.
func TestUnackedMessageOfHoldingQueue(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.queue(t, "orders", nil)
		f.bound(t, "shop", "orders", "new")
		f.publish(t, "shop", "new", "a", 1)
		peek := f.open(t)
		var take, back sync.Once
		f.onStep = func(text string) {
			switch {
			case text == "declare orders":
				take.Do(func() {
					if _, found, err := peek.Get("orders.migrating", false); err != nil || !found {
						t.Error(err, found)
					}
				})
			case strings.HasPrefix(text, "wait: orders.migrating has"):
				back.Do(func() { peek.Close() })
			}
		}
		if _, err := f.migrate(t.Context(), t, f.url, f.api, migrate.Change{Queue: "orders", Set: quorum, Delete: true}); err != nil {
			t.Fatal(err)
		}
		conserved(t, []string{"a-0"}, f.bodies(t, "orders"), 0)
		f.clean(t, "orders")
	})
}

// slow answers requests for the counts of a queue as a broker does that collects statistics once per a number of requests.
type slow struct {
	http.RoundTripper
	mu      sync.Mutex
	every   int
	n       int
	unacked map[string]uint64 // collected counts
	read    func() map[string]uint64
}

// RoundTrip implements [http.RoundTripper].
func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.RoundTripper.RoundTrip(r)
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if err != nil || answer.StatusCode != http.StatusOK || len(path) != 4 || path[1] != "queues" {
		return answer, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n%s.every == 0 {
		s.unacked = s.read()
	}
	s.n++
	var q map[string]any
	err = json.NewDecoder(answer.Body).Decode(&q)
	answer.Body.Close()
	if n, known := s.unacked[path[3]]; known {
		q["messages_unacknowledged"] = n
	} else {
		delete(q, "messages_unacknowledged")
	}
	text, _ := json.Marshal(q)
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return answer, err
}

// Unacked messages that the management API shows late are not lost.
func TestLateStatistics(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.settle = 101 * time.Millisecond
		f.queue(t, "orders", nil)
		f.bound(t, "shop", "orders", "new")
		ch, taken := f.open(t), 0
		counts := func() map[string]uint64 {
			all := map[string]uint64{}
			queues, err := f.api.Queues(t.Context())
			if err != nil {
				t.Error(err)
			}
			for _, q := range queues {
				all[q.Name] = 0
			}
			all["orders"] = uint64(taken)
			return all
		}
		s := &slow{RoundTripper: f.api.Client.Transport, every: 12, read: counts}
		api := f.api
		api.Client = &http.Client{Transport: s}
		var take, back sync.Once
		f.onStep = func(text string) {
			switch {
			case strings.HasPrefix(text, "move the messages from orders "):
				take.Do(func() { // immediately after the broker has collected statistics
					s.mu.Lock()
					defer s.mu.Unlock()
					s.unacked, s.n = counts(), 1
					if _, found, err := ch.Get("orders", false); err != nil || !found {
						t.Error(err, found)
					}
					taken = 1
				})
			case strings.HasPrefix(text, "wait: orders has unacked"):
				back.Do(func() {
					ch.Close()
					taken = 0
				})
			}
		}
		f.publish(t, "shop", "new", "a", 1)
		if _, err := f.migrate(t.Context(), t, f.url, api, migrate.Change{Queue: "orders", Set: quorum, Delete: true}); err != nil {
			t.Fatal(err)
		}
		conserved(t, []string{"a-0"}, f.bodies(t, "orders"), 0)
		f.clean(t, "orders")
	})
}

// The pause returns the unacked messages of the consumers that it disconnects.
func TestUnackedMessagesOfDisconnectedConsumers(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, f *fixture) {
				f.queue(t, "orders", amqp.Table{"x-queue-type": kind})
				f.publish(t, "", "orders", "a", 500)
				for range 2 {
					ch := f.open(t)
					if err := ch.Qos(200, 0, false); err != nil {
						t.Fatal(err)
					}
					deliveries, err := ch.Consume("orders", "stuck", false, false, false, false, nil)
					if err != nil {
						t.Fatal(err)
					}
					for range 200 {
						<-deliveries
					}
					if err := ch.Cancel("stuck", false); err != nil { // its messages stay unacked
						t.Fatal(err)
					}
				}
				change := migrate.Change{Queue: "orders", Set: map[string]any{"x-message-ttl": int64(3600000)}, Disconnect: true}
				result, err := f.migrate(t.Context(), t, f.url, f.api, change)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("paused for %s", result.Paused)
				f.ch = f.open(t)
				all := f.bodies(t, "orders")
				if len(all) != 500 {
					t.Errorf("got %d messages", len(all))
				}
			})
		})
	}
}
