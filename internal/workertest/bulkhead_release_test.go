package workertest

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
)

// A destination that does not confirm occupies channels of the connection. Some time after the last publish to this
// destination, the channels are available to other destinations, even if the destination never confirms.
func TestUnusedBulkheadReleasesChannel(t *testing.T) {
	t.Parallel()
	for name, answered := range map[string]bool{"late answers": true, "no answers": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, m := dialEmbeddedWithGate(t, "channel_max=6")
				names := declareQueues(t, c, 8)
				for _, stuck := range names[:7] {
					m.mute(stuck)
					for range 2 { // the second message uses a bulkhead
						if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: stuck}); !errors.Is(err, reprise.ErrUnconfirmed) {
							t.Errorf("publish to %s: got %v, want ErrUnconfirmed", stuck, err)
						}
					}
					if answered {
						m.release(t)
					}
					time.Sleep(6 * time.Minute)
					if n := m.channels(); n > 2 { // one for messages, one for copies
						t.Errorf("open channels after queue %s: got %d, want at most 2", stuck, n)
					}
				}
				if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: names[7]}); err != nil {
					t.Errorf("cannot publish to another queue: %v", err)
				}
				m.release(t)
				for _, queue := range names {
					if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); err != nil {
						t.Errorf("cannot publish to queue %s after its recovery: %v", queue, err)
					}
				}
			})
		})
	}
}

// A broker that does not even confirm that a channel is closed has stopped reading. The client replaces the connection,
// although no publish reveals the problem.
func TestClientReplacesConnectionIfChannelIsNotClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := dialEmbeddedWithGate(t)
		declareQueues(t, c, 1)
		m.mute("q0")
		for range 2 {
			if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q0"}); !errors.Is(err, reprise.ErrUnconfirmed) {
				t.Errorf("got %v, want ErrUnconfirmed", err)
			}
		}
		m.unmute("q0")
		m.dropFrames()
		time.Sleep(time.Hour)
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q0"}); err != nil {
			t.Errorf("cannot publish over the new connection: %v", err)
		}
	})
}
