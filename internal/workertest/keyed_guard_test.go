package workertest

import (
	"strings"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/testkit"
)

// While no worker with OrderBy runs, its queues contain the state and the order of the keys. No act of an operator takes messages from them.
func TestKeyedQueuesAreNotEmptied(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		if b.IsRabbitMQ && b.Version < "4" {
			return // requires RabbitMQ 4.0
		}
		queue := testkit.Name(t, "keyed")
		cleanKeyed(t, b.URL, queue, 1)
		client := dial(t, b.URL)
		if err := client.Declare(t.Context(), reprise.Keyed{Partitions: 1}.Route().Topology(queue)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{queue + ".part.0-of-1", queue + ".part.0-of-1.held", queue + ".part.members"} {
			if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: name}); err != nil {
				t.Fatal(err)
			}
			_, _, err := replay.Redrive(t.Context(), client.Client, replay.RedriveConfig{From: name})
			_, _, look := replay.LookBeforeRedrive(t.Context(), client.Client, replay.RedriveConfig{From: name})
			_, empty := ingest.Empty(t.Context(), client.Client, nil, ingest.EmptyConfig{Queue: name, Limit: 1, Reason: "test", Drop: true}, "me")
			peek := client.Peek(t.Context(), name, 1, func(*reprise.Delivery) { t.Errorf("message of %s shown", name) })
			for what, err := range map[string]error{"redrive": err, "look": look, "purge": empty, "peek": peek} {
				if err == nil || !strings.Contains(err.Error(), "reprise keys") {
					t.Errorf("%s of %s: got %v, want a refusal that names reprise keys", what, name, err)
				}
			}
			if n := newRaw(t, b.URL).depth(name); n != 1 {
				t.Errorf("queue %s: got %d messages, want 1", name, n)
			}
		}
	})
}
