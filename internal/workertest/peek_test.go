package workertest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// Peek returns the messages in order. Afterwards, all messages are in the queue in the same order.
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
				peek := func(n int) (seen []string) {
					err := c.Peek(t.Context(), queue, n, func(m *reprise.Message) {
						seen = append(seen, m.MessageID)
						if m.MessageID != fmt.Sprint("id-", m.Headers["n"]) || m.Headers[topology.HeaderQueue] != "orders" || string(m.Body) != "b" || m.RoutingKey != queue || m.Queue != queue {
							t.Errorf("message: got %+v, want the published message in queue %s", m, queue)
						}
					})
					if err != nil {
						t.Fatal(err)
					}
					return seen
				}
				testkit.Eventually(t, timeout, func() bool { n, err := c.Depth(t.Context(), queue); return n == 7 && err == nil })
				if seen := peek(3); !slices.Equal(seen, want[:3]) {
					t.Errorf("first three messages: got %v, want %v", seen, want[:3])
				}
				for i := range 30 { // repeated calls do not remove messages
					testkit.Eventually(t, timeout, func() bool { n, err := c.Depth(t.Context(), queue); return n == 7 && err == nil })
					if seen := peek(10); i < reprise.MaxPeeks-1 && !slices.Equal(seen, want) {
						t.Errorf("all messages: got %v, want %v", seen, want)
					}
				}
				testkit.Eventually(t, timeout, func() bool { n, err := c.Depth(t.Context(), queue); return n == 7 && err == nil })
			})
		})
	}
}

func TestPeekReturnsErrorForMissingQueue(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		c := dial(t, b.URL)
		err := c.Peek(t.Context(), testkit.Name(t, "none"), 1, func(*reprise.Message) { t.Error("message exists") })
		if e, ok := errors.AsType[*reprise.QueueError](err); !ok || e.Code != 404 {
			t.Errorf("got %v, want QueueError", err)
		}
	})
}
