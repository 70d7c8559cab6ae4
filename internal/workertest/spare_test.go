package workertest

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
)

// What a destination that does not confirm takes of a connection's channels is there
// again for others when nobody publishes to it any more, whether it has answered late
// or not at all.
func TestADetourThatNobodyTakesHasNoChannel(t *testing.T) {
	t.Parallel()
	for name, told := range map[string]bool{"late answers": true, "no answers": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, m := mutedMemory(t, "channel_max=6")
				names := declareQueues(t, c, 8)
				for _, stuck := range names[:7] {
					m.mute(stuck)
					for range 2 { // the second one on the detour
						if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: stuck}); !errors.Is(err, reprise.ErrUnconfirmed) {
							t.Errorf("to %s: %v", stuck, err)
						}
					}
					if told {
						m.tell(t)
					}
					time.Sleep(6 * time.Minute)
					if n := m.channels(); n > 2 { // of messages, and of copies
						t.Errorf("after %s %d channels are open", stuck, n)
					}
				}
				if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: names[7]}); err != nil {
					t.Errorf("to another queue: %v", err)
				}
				m.tell(t)
				for _, queue := range names {
					if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); err != nil {
						t.Errorf("to %s, which confirms again: %v", queue, err)
					}
				}
			})
		})
	}
}

// A broker that does not even close a channel does not read: the connection is
// replaced, though nothing else is published that would tell.
func TestABrokerThatDoesNotCloseAChannel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := mutedMemory(t)
		declareQueues(t, c, 1)
		m.mute("q0")
		for range 2 {
			if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q0"}); !errors.Is(err, reprise.ErrUnconfirmed) {
				t.Errorf("not confirmed: %v", err)
			}
		}
		m.unmute("q0")
		m.deafen()
		time.Sleep(time.Hour)
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q0"}); err != nil {
			t.Errorf("over another connection: %v", err)
		}
	})
}
