package upcmd

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/idempotent"
)

// fixedStore is a store that always returns the same result.
type fixedStore struct {
	idempotent.Store
	claim idempotent.Claim
	err   error
}

func (a fixedStore) Claim(context.Context, string, string, time.Duration) (idempotent.Claim, error) {
	return a.claim, a.err
}

func (a fixedStore) Release(context.Context, string, string) error { return a.err }

// If the store is unavailable, the worker pauses and does not handle messages. Even if the attempts of a message are
// exhausted, the worker does not park it while the store is unavailable or another worker handles the message.
func TestWorkerPausesWhileStoreIsDown(t *testing.T) {
	for name, tt := range map[string]struct {
		store fixedStore
		pause bool
	}{
		"down": {fixedStore{err: errors.New("down")}, true},
		"busy": {fixedStore{claim: idempotent.Claim{State: idempotent.Busy, Left: time.Minute}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := config.Worker{Duplicates: &config.Duplicates{}}
			w.Policy = reprise.Policy{MaxAttempts: 2, Rules: []reprise.Rule{
				{Match: reprise.MatchIs(errCrooked), MaxAttempts: 1},
				{Match: func(error) bool { return true }, MaxAttempts: 2},
			}}
			cfg, err := protect(w, tt.store, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			h := reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
				t.Error("message was handled")
				return nil
			})
			err = reprise.Chain(h, cfg.Middleware...).Handle(t.Context(), &reprise.Delivery{Message: reprise.Message{MessageID: "m"}})
			later, ok := errors.AsType[*reprise.RetryAfterError](err)
			if !ok || later.Pause != tt.pause || later.Delay <= 0 {
				t.Fatalf("got error %v", err)
			}
			if !cfg.Policy.Decide(err, 1000, 0).Retry {
				t.Error("message was parked after 1000 attempts")
			}
			if cfg.Policy.Decide(errCrooked, 1, 0).Retry || cfg.Policy.Decide(errors.New("other"), 2, 0).Retry {
				t.Error("policy of the worker was ignored")
			}
			if len(w.Policy.Rules) != 2 {
				t.Error("configuration of the worker was changed")
			}
		})
	}
}

var errCrooked = errors.New("crooked")
