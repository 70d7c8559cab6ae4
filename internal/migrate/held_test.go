package migrate_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/migrate"
)

// Dead letters that no queue accepts stay in a quorum queue, where no consumer receives them. It must not be deleted, and other
// programs must not be disconnected until they are confirmed.
func TestKeepsUnconfirmedDeadLetters(t *testing.T) {
	t.Parallel()
	for _, c := range []migrate.Change{{Queue: "orders", Delete: true, Set: quorum}, {Queue: "orders", Disconnect: true, Set: quorum}, {Queue: "orders", To: "next", Delete: true}} {
		each(t, func(t *testing.T, f *fixture) {
			args := amqp.Table{
				"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
				"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "missing", "x-message-ttl": int64(1),
			}
			f.queue(t, "orders", args)
			f.bound(t, "shop", "orders", "new")
			f.publish(t, "shop", "new", "a", 3)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			f.onStep = func(step string) {
				if strings.Contains(step, "3 messages that wait") {
					stop()
				}
			}
			c.Unset = []string{"x-message-ttl"}
			if _, err := f.migrate(ctx, t, f.url, f.api, c); !errors.Is(err, context.Canceled) {
				t.Fatal(err, f.steps)
			}
			if f.arguments(t, "orders")["x-message-ttl"] == nil {
				t.Error("the queue is deleted")
			}
			for _, step := range f.steps {
				if strings.HasPrefix(step, "refuse new connections") {
					t.Errorf("got steps %q", f.steps)
				}
			}
		})
	}
}
