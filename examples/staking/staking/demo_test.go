package staking_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/staking/staking"
	"github.com/reprisemq/reprise/reprisetest"
)

func TestLedgerRejectsEarlyEvents(t *testing.T) {
	l := &staking.Ledger{}
	steps := []staking.Event{
		&staking.ActiveStaking{StakingTxHash: "aa"}, &staking.UnbondingStaking{StakingTxHash: "aa"},
		&staking.ExpiredStaking{StakingTxHash: "aa"}, &staking.WithdrawStaking{StakingTxHash: "aa"},
	}
	for i, e := range steps {
		for _, later := range steps[i+1:] {
			if _, skips := later.(*staking.ExpiredStaking); skips && i > 0 {
				continue // a stake can expire without an unbonding event
			}
			if err := l.Book(later); !errors.Is(err, staking.ErrTooEarly) {
				t.Errorf("%s before %s: got %v, want ErrTooEarly", later.Kind(), e.Kind(), err)
			}
		}
		must(t, l.Book(e))
		for _, earlier := range steps[:i+1] {
			must(t, l.Book(earlier)) // a repeated booking
		}
	}
	if got := l.Stakes(); len(got) != 1 || got["withdrawn"] != 1 {
		t.Errorf("stakes: got %v, want 1 withdrawn", got)
	}
}

func TestDemoBalances(t *testing.T) {
	for _, queueType := range []string{"quorum", "classic"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
				var out strings.Builder
				demo := demo(b, &out)
				demo.Design.QueueType = queueType
				if err := demo.Run(t.Context()); err != nil {
					t.Error(err)
				}
				for _, want := range []string{
					"unbonding_staking_queue      11     10",
					"staking_stats_queue, attempt 1: reprise: cannot decode body as ",
					"unbonding_staking_queue, attempt 11: staking: ",
					"balance: 72 sent = 70 done + 2 parked\n",
					"ledger:  10 stakes withdrawn, newest block 857919, newest confirmed block 857919\n",
				} {
					if !strings.Contains(out.String(), want) {
						t.Errorf("%q not found in:\n%s", want, out.String())
					}
				}
				if n := b.Depth(t, "staking_stats_queue_failed") + b.Depth(t, "unbonding_staking_queue_failed"); n != 2 {
					t.Errorf("parked messages: got %d, want 2", n)
				}
			})
		})
	}
}

// The indexer and the services run in separate Demos, and the connections of the services fail midway.
func TestDemoSurvivesConnectionFailure(t *testing.T) {
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		var sent, served strings.Builder
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- demo(b, &served).Serve(ctx) }()
		synctest.Wait()
		must(t, demo(b, &sent).Index(t.Context()))
		b.Advance(3 * time.Second)
		b.Cut()
		b.Advance(10 * time.Minute)
		for _, q := range b.Queues() {
			if q.Ready+q.Unacked > 0 && !strings.HasSuffix(q.Name, "_failed") {
				t.Errorf("queue %s has %d messages, want 0", q.Name, q.Ready+q.Unacked)
			}
		}
		interrupt()
		must(t, <-ended)
		if !strings.Contains(sent.String(), "10 events sent to each of 7 queues, and 2 that will be parked") ||
			!strings.Contains(served.String(), "balance: 0 sent + 7") || !strings.Contains(served.String(), " done + 2 parked") {
			t.Errorf("unexpected output:\n%s\n%s", sent.String(), served.String())
		}
	})
}

// If another program consumes some of the messages, Run does not wait indefinitely, but returns an error.
func TestDemoReturnsErrorIfMessagesAreMissing(t *testing.T) {
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		thief := open(t, b.URL(), "btc_info_queue", staking.Config{Client: &reprise.Config{Dial: b.DialContext}})
		stolen := make(chan error, 1)
		go func() {
			m, err := thief.Receive(t.Context())
			if err == nil {
				err = thief.Delete(m.Receipt)
			}
			stolen <- errors.Join(err, thief.Stop(t.Context()))
		}()
		synctest.Wait()
		var out strings.Builder
		err := demo(b, &out).Run(t.Context())
		must(t, <-stolen)
		if err == nil || !strings.Contains(err.Error(), "72 sent, 69 done, 2 parked, 1 without a result") {
			t.Errorf("got %v, output:\n%s", err, out.String())
		}
	})
}

func demo(b *reprisetest.Broker, out *strings.Builder) staking.Demo {
	return staking.Demo{
		URL: b.URL(), Client: reprise.Config{Dial: b.DialContext, Heartbeat: time.Hour}, Design: staking.Design{RetryDelay: 5 * time.Second},
		Stakes: 10, MaxRetries: 10, FailEvery: 5, Out: out,
	}
}
