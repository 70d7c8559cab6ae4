package workertest

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// RabbitMQ pauses at-least-once dead-lettering from a queue while 32 of its dead letters are unconfirmed. Even if that many
// messages wait for a deleted or full queue, the retries of another queue arrive.
func TestFullQueueDoesNotBlockRetriesOfOtherQueues(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		const waiting = 50
		for _, how := range []string{"deleted", "full"} {
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				r := newRaw(t, b.URL)
				stuck, strategy := r.names(topology.Buckets{})
				fine, _ := r.names(topology.Buckets{})
				c := dial(t, b.URL)
				if _, err := r.QueueDeclare(stuck, true, false, false, false, amqp.Table{
					"x-queue-type": "quorum", "x-max-length": int32(1), "x-overflow": "reject-publish",
				}); err != nil {
					t.Fatal(err)
				}
				h := newScript(func(*reprise.Delivery) error { return reprise.RetryAfter(900*time.Millisecond, errScripted) })
				stop := start(t, c, reprise.WorkerConfig{Queue: stuck, Handler: h, Strategy: strategy})
				r.publish("", stuck, amqp.Publishing{})
				c.log.wait(t, "retry", 1) // the wait queue now exists
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				wait := stuck + ".wait.0-1000"
				for range waiting {
					r.publish("", wait, amqp.Publishing{Expiration: "900"})
				}
				if how == "deleted" {
					if _, err := r.QueueDelete(stuck, false, false, false); err != nil {
						t.Fatal(err)
					}
				}
				testkit.Eventually(t, timeout, func() error { // until the messages have expired
					if n := r.depth(wait); n > 0 {
						return fmt.Errorf("%d messages are still waiting", n)
					}
					return nil
				})
				works := newScript(func(*reprise.Delivery) error { return reprise.RetryAfter(500*time.Millisecond, errScripted) })
				start(t, c, reprise.WorkerConfig{Queue: fine, Handler: works, Strategy: strategy, Policy: quick(3)})
				r.publish("", fine, amqp.Publishing{})
				works.wait(t, 3)
			})
		}
	})
}
