package presettest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
)

// A client that knows the design refuses to schedule messages to it, because the published program fails on them:
// TestMessagesTravelToForeignPrograms. It publishes messages that are due.
func TestCDNPurgeRefusesScheduledMessages(t *testing.T) {
	b := testkit.Embedded(t)
	for _, workersOnly := range []bool{false, true} {
		design := preset.CDNPurge{WorkersOnly: workersOnly}
		for source, know := range map[string]func(c *reprise.Client) error{
			"declaration": func(c *reprise.Client) error { return c.Declare(t.Context(), design.Topology()) },
			"worker": func(c *reprise.Client) error {
				_, err := reprise.NewWorker(c, reprise.WorkerConfig{
					Queue: preset.CDNPurgeQueue, Strategy: design.Strategy(),
					Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil }),
				})
				return err
			},
		} {
			other, err := reprise.Dial(t.Context(), b.URL, nil)
			ok(t, err)
			ok(t, other.Declare(t.Context(), design.Topology()))
			ok(t, other.Close(t.Context()))
			c, err := reprise.Dial(t.Context(), b.URL, nil)
			ok(t, err)
			ok(t, know(c))
			for _, m := range []reprise.Message{{Exchange: preset.CDNPurgeExchange, RoutingKey: "tag"}, {RoutingKey: preset.CDNPurgeQueue}} {
				if err := c.PublishIn(t.Context(), time.Second, &m); errors.Is(err, reprise.ErrInvalidMessage) == workersOnly {
					t.Errorf("WorkersOnly %v, known from a %s, to %q %q: got error %v", workersOnly, source, m.Exchange, m.RoutingKey, err)
				}
				if m.Exchange != "" {
					if err := c.PublishIn(t.Context(), -time.Second, &m); err != nil {
						t.Errorf("message that is due: %v", err)
					}
				}
			}
			ok(t, c.Close(t.Context()))
		}
	}
}
