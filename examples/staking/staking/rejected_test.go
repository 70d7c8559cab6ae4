package staking_test

import (
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/examples/staking/staking"
	"github.com/reprisemq/reprise/internal/testkit"
)

// A rejected message blocks the delay queue until this message is moved to another queue.
func TestRejectedMessageBlocksTheDelayQueue(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, queueType := range []string{"quorum", "classic"} {
			t.Run(queueType, func(t *testing.T) {
				testkit.Alone(t, b, staking.RejectedQueue)
				var out strings.Builder
				demo := staking.Demo{URL: b.URL, Design: staking.Design{RetryDelay: 50 * time.Millisecond, QueueType: queueType}, Out: &out}
				if err := demo.Rejected(t.Context()); err != nil {
					t.Error(err)
				}
				for _, want := range []string{
					"for 50ms. It does not return within 200ms.\nrejected_example_queue_delay has 2 messages",
					"balance: 2 sent = 1 done + 1 moved\n",
				} {
					if !strings.Contains(out.String(), want) {
						t.Errorf("%q not found in:\n%s", want, &out)
					}
				}
			})
		}
	})
}
