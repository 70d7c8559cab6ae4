package replay

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

// A limited redrive moves the first messages of a queue, and the others keep their order.
func TestRedriveLimit(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := archivetest.NewWire(t, b.URL)
		from, to := w.Queue("failed", nil), w.Queue("work", nil)
		w.Publish(from, nil, ids(5)...)
		got, err := redriveFrom(t.Context(), w.Client, RedriveConfig{From: from, To: &failed.Target{RoutingKey: to}, Limit: 2})
		if err != nil || got != (redriveResult{Found: 2, Sent: 2}) {
			t.Errorf("got %+v, %v, want 2 of 2", got, err)
		}
		testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(from) == 3 })
		for i, d := range append(w.Take(to), w.Take(from)...) {
			if d.MessageId != fmt.Sprint("id-", i) {
				t.Errorf("message %d: got ID %s, want id-%d", i, d.MessageId, i)
			}
		}
	})
}

// A redrive sends at most Rate messages per second, even at its start.
func TestRedriveRate(t *testing.T) {
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		c := b.Client(t, nil)
		b.Declare(t, topology.Buckets{}.Topology("orders"))
		for range 21 {
			b.Publish(t, &reprise.Message{RoutingKey: "orders.failed"})
		}
		began := time.Now()
		got, err := redriveFrom(t.Context(), c, RedriveConfig{From: "orders.failed", To: &failed.Target{RoutingKey: "orders"}, Rate: 4})
		if err != nil || got.Sent != 21 {
			t.Errorf("got %+v, %v, want 21 sent", got, err)
		}
		if took := time.Since(began); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("21 messages at 4 per second took %v, want 5 to 6 s", took)
		}
	})
}

// If the worker loses its connection after the limiter has permitted a message, the handler of this message does not
// start. The limiter must still permit the next message.
func TestRedriveContinuesAfterUnstartedMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &redrive{
			cfg: RedriveConfig{From: ".failed"}, end: func(error) {}, changed: make(chan struct{}, 1),
			found: 1, pace: newPace(failed.Plan{}, 1, time.Now()),
		}
		begins := func(after string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := d.Wait(ctx); err != nil {
				t.Fatalf("next message after %s must not wait: %v", after, err)
			}
		}
		begins("the start")
		begins("a message that did not start")
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.move(gone, &reprise.Delivery{}); err == nil { // its work queue is not known
			t.Fatal("message was sent")
		}
		begins("a requeued message")
	})
}

// A message whose publish or confirm is lost stays in the failed queue until the broker has confirmed it.
func TestRedriveOfLostPublishes(t *testing.T) {
	for name, lose := range map[string]func(b *reprisetest.Broker){
		"messages": func(b *reprisetest.Broker) { b.LosePublishes(2) },
		"confirms": func(b *reprisetest.Broker) { b.LoseConfirms(2) },
	} {
		t.Run(name, func(t *testing.T) {
			reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
				b.Declare(t, topology.Topology{Queues: []topology.Queue{{Name: "orders"}, {Name: "orders.failed"}}})
				for _, id := range ids(5) {
					b.Publish(t, &reprise.Message{RoutingKey: "orders.failed", MessageID: id})
				}
				client := b.Client(t, nil)
				lose(b)
				if _, _, err := Redrive(t.Context(), client, RedriveConfig{From: "orders.failed", To: &failed.Target{RoutingKey: "orders"}}); err != nil {
					t.Error(err)
				}
				arrived := map[string]bool{}
				for _, m := range b.Messages(t, "orders") {
					arrived[m.MessageID] = true
				}
				if n := b.Depth(t, "orders.failed"); len(arrived) != 5 || n != 0 {
					t.Errorf("got %d different messages in the work queue and %d in the failed queue, want 5 and 0", len(arrived), n)
				}
			})
		})
	}
}
