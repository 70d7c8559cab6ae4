package staking

import (
	"errors"
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
)

// Receipts become invalid when their channel is closed, and not earlier. The handler that waits for an invalid receipt
// returns nil, which would acknowledge the message on an open channel.
func TestClosedChannelInvalidatesReceipts(t *testing.T) {
	closed := fmt.Errorf("consuming channel closed: %w", &amqp.Error{Code: amqp.PreconditionFailed})
	for _, tc := range []struct {
		event reprise.Event
		stale bool
	}{
		{reprise.Event{Kind: reprise.EventDisconnected, Connection: "consume", Err: errors.New("EOF")}, true},
		{reprise.Event{Kind: reprise.EventInterrupted, Err: fmt.Errorf("%w: %w", reprise.ErrNotConsuming, closed)}, true},
		{reprise.Event{Kind: reprise.EventDisconnected, Connection: "publish", Err: errors.New("EOF")}, false},
		{reprise.Event{Kind: reprise.EventInterrupted, Err: errors.New("the broker cancelled the consumer")}, false},
		{reprise.Event{Kind: reprise.EventCopyFailed, Err: closed}, false},
		{reprise.Event{Kind: reprise.EventConsuming}, false},
	} {
		var passedOn int
		q := &Queue{receipts: newReceipts("id")}
		receipt, _ := q.receipts.issue()
		q.observer(reprise.ObserverFunc(func(reprise.Event) { passedOn++ })).Observe(tc.event)
		if stale := errors.Is(q.Delete(receipt), ErrStale); stale != tc.stale || passedOn != 1 {
			t.Errorf("%s of %q: got stale %t, forwarded %d times, want stale %t, forwarded once",
				tc.event.Kind, tc.event.Connection, stale, passedOn, tc.stale)
		}
	}
}

// Regardless of the order of the operations, each receipt is accepted once while its channel is open. Each later use
// returns the correct error.
func TestReceipts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newReceipts("id")
		type issued struct {
			receipt string
			held    <-chan error
			is      error // expected result of settle
		}
		var all []*issued
		verdict := errors.New("verdict")
		draw := func() *issued { return all[rapid.IntRange(0, len(all)-1).Draw(t, "which")] }
		t.Repeat(map[string]func(*rapid.T){
			"issue": func(*rapid.T) {
				receipt, held := r.issue()
				all = append(all, &issued{receipt: receipt, held: held})
			},
			"settle": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				x := draw()
				if err := r.settle(x.receipt, verdict); !errors.Is(err, x.is) {
					t.Fatalf("settle %s: got %v, want %v", x.receipt, err, x.is)
				}
				if x.is == nil {
					if got := <-x.held; got != verdict {
						t.Fatalf("result of %s: got %v, want %v", x.receipt, got, verdict)
					}
					x.is = ErrSettled
				}
			},
			"withdraw": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				x := draw()
				if got := r.withdraw(x.receipt); got != (x.is == nil) {
					t.Fatalf("withdraw %s: got %t, want %t", x.receipt, got, x.is == nil)
				}
				if x.is == nil {
					x.is = ErrSettled
				}
			},
			"lose": func(t *rapid.T) {
				r.lose()
				for _, x := range all {
					if x.is == nil {
						if _, open := <-x.held; open {
							t.Fatalf("receipt %s is still open", x.receipt)
						}
					}
					x.is = ErrStale
				}
			},
			"": func(t *rapid.T) {
				seen := map[string]bool{}
				for _, x := range all {
					if seen[x.receipt] {
						t.Fatalf("receipt %s was issued twice", x.receipt)
					}
					seen[x.receipt] = true
				}
				invented := rapid.StringMatching(`(id|)(-[0-9]{1,3}){0,3}x?`).Draw(t, "invented")
				if !seen[invented] && r.settle(invented, nil) == nil {
					t.Fatalf("receipt %q accepted", invented)
				}
			},
		})
	})
}
