package workertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

// An attempt that does not count leaves all attempts for real errors, for all marks of copies.
func TestUncountedAttemptsKeepTheBudget(t *testing.T) {
	t.Parallel()
	closed := errors.New("closed at night")
	rule := reprise.Policy{
		MaxAttempts: 3, Backoff: backoff.Fixed(time.Minute),
		Rules: []reprise.Rule{{Match: reprise.MatchIs(closed), Uncounted: true, Backoff: backoff.Fixed(time.Hour)}},
	}
	plain := rule
	plain.Rules = nil
	for _, tc := range []struct {
		name   string
		policy reprise.Policy
		marks  topology.Marks
		err    error
	}{
		{"rule", rule, nil, closed},
		{"snooze", plain, nil, reprise.Snooze(time.Hour, closed)},
		{"wrapped snooze", plain, nil, fmt.Errorf("wrapped: %w", reprise.Snooze(time.Hour, closed))},
		{"count up", rule, topology.CountUp{Header: "tries"}, closed},
		{"count down", reprise.Policy{Backoff: backoff.Fixed(time.Minute), Rules: rule.Rules}, topology.CountDown{Header: "left", Errors: "errors", Default: 2}, closed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
				runs, errs := 0, 0
				w := b.Work(t, reprise.WorkerConfig{
					Queue: "work", Policy: tc.policy, Strategy: topology.Strategy{Marks: tc.marks},
					Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
						runs++
						if m.Attempt != errs+1 || len(m.Errors) != errs {
							t.Errorf("run %d: attempt %d with %d errors, want attempt %d", runs, m.Attempt, len(m.Errors), errs+1)
						}
						if runs%10 != 0 { // nine runs before each real error
							return tc.err
						}
						errs++
						return errors.New("real")
					}),
				})
				b.Publish(t, &reprise.Message{RoutingKey: "work", Body: []byte("b")})
				b.Drain(t)
				if runs != 30 || errs != 3 || b.Depth(t, "work.failed") != 1 {
					t.Errorf("got %d runs, %d errors and %d parked messages, want 30, 3 and 1", runs, errs, b.Depth(t, "work.failed"))
				}
				_ = w
			})
		})
	}
}

// If the broker counts the attempts, an uncounted attempt counts, so that the message does not circulate without end.
func TestUncountedAttemptsCountInTheBroker(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		runs := 0
		b.Work(t, reprise.WorkerConfig{
			Queue: "work", Policy: reprise.Policy{MaxAttempts: 3}, Strategy: topology.Strategy{Route: topology.DeadLettering{Delay: time.Minute}},
			Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
				runs++
				return reprise.Snooze(time.Hour, errors.New("closed"))
			}),
		})
		b.Publish(t, &reprise.Message{RoutingKey: "work", Body: []byte("b")})
		b.Drain(t)
		if runs != 3 || b.Depth(t, "work.failed") != 1 {
			t.Errorf("got %d runs and %d parked messages, want 3 and 1", runs, b.Depth(t, "work.failed"))
		}
	})
}
