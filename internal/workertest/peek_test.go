package workertest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/sift"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// Peek returns the messages in order, and leaves them in the queue in the same order. If calls count towards the delivery
// limit, Peek returns ErrPeekLimit before the broker drops a message.
func TestPeekDoesNotModifyQueue(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]topology.Table{
		"classic": {}, "quorum": {"x-queue-type": "quorum", "x-delivery-limit": int64(20)},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Each(t, func(t *testing.T, b testkit.Target) {
				r, c := newRaw(t, b.URL), dial(t, b.URL)
				queue := queueFor(t, r, c, args)
				var want []string
				for i := range 7 {
					want = append(want, fmt.Sprint("id-", i))
					r.publish("", queue, amqp.Publishing{MessageId: want[i], Body: []byte("b"), Headers: amqp.Table{"n": int32(i), topology.HeaderQueue: "orders"}})
				}
				peek := func(n int) (seen []string, err error) {
					err = c.Peek(t.Context(), queue, n, func(m *reprise.Delivery) {
						seen = append(seen, m.MessageID)
						if m.MessageID != fmt.Sprint("id-", m.Headers["n"]) || m.Headers[topology.HeaderQueue] != "orders" || string(m.Body) != "b" || m.RoutingKey != queue || m.Queue != queue {
							t.Errorf("message: got %+v, want the published message in queue %s", m, queue)
						}
					})
					return seen, err
				}
				testkit.Eventually(t, timeout, func() bool { n, err := c.Depth(t.Context(), queue); return n == 7 && err == nil })
				if seen, err := peek(3); err != nil || !slices.Equal(seen, want[:3]) {
					t.Errorf("first three messages: got %v (%v), want %v", seen, err, want[:3])
				}
				peeks := 1 // number of times that Peek returned the first message
				for peeks < 30 {
					testkit.Eventually(t, timeout, func() bool { n, err := c.Depth(t.Context(), queue); return n == 7 && err == nil })
					seen, err := peek(10)
					if errors.Is(err, reprise.ErrPeekLimit) {
						break
					}
					if err != nil || !slices.Equal(seen, want) {
						t.Fatalf("all messages: got %v (%v), want %v", seen, err, want)
					}
					peeks++
				}
				limit := 30
				if name == "quorum" && b.Version == "3.10" {
					limit = reprise.MaxPeeks
				}
				if peeks != limit {
					t.Errorf("Peek examined the first message %d times, want %d", peeks, limit)
				}
				testkit.Eventually(t, timeout, func() bool { n, err := c.Depth(t.Context(), queue); return n == 7 && err == nil })
			})
		})
	}
}

// A publisher can set x-delivery-count, and RabbitMQ keeps the header of a dead-lettered message.
func TestPeekIgnoresPublishedDeliveryCount(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]topology.Table{"classic": {}, "quorum": {"x-queue-type": "quorum"}} {
		t.Run(name, func(t *testing.T) {
			testkit.Each(t, func(t *testing.T, b testkit.Target) {
				r, c := newRaw(t, b.URL), dial(t, b.URL)
				queue := queueFor(t, r, c, args)
				r.publish("", queue, amqp.Publishing{MessageId: "1", Headers: amqp.Table{"x-delivery-count": int64(9)}})
				peeks := 3
				if b.Version == "3.10" {
					peeks = 1 // a classic queue does not overwrite the header
				}
				for i := range peeks {
					testkit.Eventually(t, timeout, func() bool { n, err := c.Depth(t.Context(), queue); return n == 1 && err == nil })
					seen := 0
					if err := c.Peek(t.Context(), queue, 1, func(*reprise.Delivery) { seen++ }); err != nil || seen != 1 {
						t.Errorf("Peek %d: got %d messages and error %v, want 1 message", i, seen, err)
					}
				}
			})
		})
	}
}

func TestPeekReturnsErrorForMissingQueue(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		c := dial(t, b.URL)
		err := c.Peek(t.Context(), testkit.Name(t, "none"), 1, func(*reprise.Delivery) { t.Error("message exists") })
		if e, ok := errors.AsType[*reprise.QueueError](err); !ok || e.Code != 404 {
			t.Errorf("got %v, want QueueError", err)
		}
	})
}

// When Peek or Sift returns, the requeued messages are in the queue again. A quorum queue of RabbitMQ showed an empty queue for a
// moment, so that a redrive after a preview found nothing.
func TestPeekAndSiftReturnMessages(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		const messages = 5
		r, c := newRaw(t, b.URL), dial(t, b.URL)
		for _, kind := range []string{"quorum", "classic"} {
			queue := testkit.Name(t, kind)
			if _, err := r.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
				t.Fatal(err)
			}
			r.deleteQueues(queue)
			for round := range 20 {
				if _, err := r.QueuePurge(queue, false); err != nil { // a message permits only a few requeues before RabbitMQ 4.3
					t.Fatal(err)
				}
				for range messages {
					r.publish("", queue, amqp.Publishing{})
				}
				seen := 0
				if err := c.Peek(t.Context(), queue, messages, func(*reprise.Delivery) { seen++ }); err != nil {
					t.Fatal(err)
				}
				sifted, _, err := sift.Queue(t.Context(), c.Client, queue, messages, func(*reprise.Delivery) (picked, last bool) { return false, false },
					func([]*reprise.Delivery) []sift.Verdict { return nil })
				depth, depthErr := c.Depth(t.Context(), queue)
				if seen != messages || sifted != messages || depth != messages || err != nil || depthErr != nil {
					t.Fatalf("%s, round %d: Peek saw %d, Sift saw %d and %d remain (errors %v, %v), want %d", kind, round, seen, sifted, depth, err, depthErr, messages)
				}
			}
		}
	})
}
