package workertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/topology"
)

// A worker follows the time limit and the rules of the policy, and the requests of handlers. A panic in Match affects at
// most the retries of the message.
func TestWorkerFollowsPolicy(t *testing.T) {
	t.Parallel()
	odd := errors.New("odd")
	outcomes := map[string]error{
		"slow":  errScripted,
		"busy":  errBusy,
		"later": reprise.RetryAfter(23*time.Hour, errScripted),
		"odd":   odd,
	}
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		c := dial()
		began := time.Now()
		var mu sync.Mutex
		attempts := map[string][]time.Duration{}
		stop := start(t, c, reprise.WorkerConfig{
			Queue: "work",
			Policy: reprise.Policy{
				MaxAttempts: 100,
				GiveUpAfter: 24 * time.Hour,
				Backoff:     backoff.Fixed(5 * time.Hour),
				Rules: []reprise.Rule{
					{Match: reprise.MatchIs(errBusy), MaxAttempts: 3, Backoff: backoff.Fixed(time.Minute)},
					{Match: func(err error) bool { return errors.Is(err, odd) && panics() }},
				},
			},
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				attempts[m.MessageID] = append(attempts[m.MessageID], time.Since(began).Truncate(time.Minute))
				return outcomes[m.MessageID]
			}),
		})
		for id := range outcomes {
			r.publish("", "work", amqp.Publishing{MessageId: id})
		}
		time.Sleep(30 * time.Hour) // in virtual time; longer than any possible retry
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}

		for id, want := range map[string][]time.Duration{
			"slow":  {0, 5 * time.Hour, 10 * time.Hour, 15 * time.Hour, 20 * time.Hour},
			"busy":  {0, time.Minute, 2 * time.Minute},
			"later": {0, 23 * time.Hour},
			"odd":   {0},
		} {
			if got := attempts[id]; !slices.Equal(got, want) {
				t.Errorf("%s: attempts at %v, want %v", id, got, want)
			}
		}
		reasons := map[string]any{}
		for range outcomes {
			d := r.take("work.failed")
			reasons[d.MessageId] = d.Headers[topology.HeaderReason]
		}
		for id, want := range map[string]any{
			"slow":  "a retry in 5h would begin 25h after the first failure; the limit is 24h",
			"busy":  "3 attempts made (Rules[0])",
			"later": "a retry in 23h would begin 46h after the first failure; the limit is 24h",
			"odd":   nil,
		} {
			if got := reasons[id]; got != want {
				t.Errorf("%s: got reason %v, want %v", id, got, want)
			}
		}
	})
}

func panics() bool { panic("a rule that went wrong") }
