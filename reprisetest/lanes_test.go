package reprisetest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

// While one tenant has a backlog of hours, the message of another tenant begins after the running attempt. Its retries wait for
// hours, and return to its lane.
func TestLanesShareWorker(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		const lanes = 4
		burst, quiet := reprise.LaneQueue("orders", "burst", lanes), reprise.LaneQueue("orders", "quiet", lanes)
		if burst == quiet {
			t.Fatal("the keys have the same lane")
		}
		w := b.Work(t, reprise.WorkerConfig{
			Queue: "orders", Lanes: lanes, Policy: reprise.Policy{MaxAttempts: 3, Backoff: backoff.Fixed(time.Hour)},
			Handler: handler(func(m *reprise.Delivery) error {
				time.Sleep(10 * time.Second)
				if m.MessageID == "quiet" {
					return errors.New("closed")
				}
				return nil
			}),
		})
		client := b.Client(t, nil)
		var batch []*reprise.Message
		for range 1000 {
			batch = append(batch, &reprise.Message{RoutingKey: burst})
		}
		if err := client.PublishBatch(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		published := time.Now()
		if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: quiet, MessageID: "quiet"}); err != nil {
			t.Fatal(err)
		}
		b.Drain(t)
		attempts := w.Attempts().Of("quiet")
		if len(attempts) != 3 || len(w.Attempts()) != 1003 {
			t.Fatalf("got %d and %d attempts, want 3 and 1003", len(attempts), len(w.Attempts()))
		}
		if late := attempts[0].Began.Sub(published); late > 10*time.Second {
			t.Errorf("first attempt after %s, want after the running attempt", late)
		}
		for _, delay := range attempts.Delays() {
			if delay < time.Hour || delay > time.Hour+topologySlack {
				t.Errorf("retry after %s, want about 1h", delay)
			}
		}
		for _, a := range attempts {
			if a.Delivery.Queue != "orders" || a.Delivery.RoutingKey != quiet {
				t.Errorf("attempt %d: got queue %s and key %s, want orders and %s", a.Delivery.Attempt, a.Delivery.Queue, a.Delivery.RoutingKey, quiet)
			}
		}
		parked := b.Parked(t, "orders")
		if len(parked) != 1 || len(parked[0].Errors) != 3 || parked[0].Headers[topology.HeaderQueue] != nil {
			t.Errorf("parked: got %+v, want the quiet message with 3 errors", parked)
		}
		if n := b.Depth(t, quiet) + b.Depth(t, burst); n > 0 {
			t.Errorf("got %d messages in the lanes, want none", n)
		}
	})
}

// topologySlack is the width of the bucket for an hour, and the attempt of another lane.
const topologySlack = 15*time.Minute + 10*time.Second
