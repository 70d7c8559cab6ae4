package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/idempotent"
)

// answer is a store that always returns the same result.
type answer struct {
	idempotent.Store
	claim idempotent.Claim
	err   error
}

func (a answer) Claim(context.Context, string, string, time.Duration) (idempotent.Claim, error) {
	return a.claim, a.err
}
func (a answer) Release(context.Context, string, string) error { return a.err }

// If the store is unavailable, a worker pauses and does not handle messages. It does not park a message, however few
// attempts the message has. It does not park a message that another run is handling, either.
func TestWorkersWaitForTheirStore(t *testing.T) {
	for name, tt := range map[string]struct {
		store answer
		pause bool
	}{
		"down": {answer{err: errors.New("down")}, true},
		"busy": {answer{claim: idempotent.Claim{State: idempotent.Busy, Left: time.Minute}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stores{of: []idempotent.Store{tt.store}}
			w := config.Worker{Duplicates: &config.Duplicates{}}
			w.Policy = reprise.Policy{MaxAttempts: 2, Rules: []reprise.Rule{
				{Match: reprise.Is(errCrooked), MaxAttempts: 1},
				{Match: func(error) bool { return true }, MaxAttempts: 2},
			}}
			cfg, err := s.protect(0, w, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			h := reprise.HandlerFunc(func(context.Context, *reprise.Message) error {
				t.Error("it was handled")
				return nil
			})
			err = reprise.Chain(h, cfg.Middleware...).Handle(t.Context(), &reprise.Message{MessageID: "m"})
			later, ok := errors.AsType[*reprise.RetryAfterError](err)
			if !ok || later.Pause != tt.pause || later.Delay <= 0 {
				t.Fatalf("%v", err)
			}
			if !cfg.Policy.Decide(err, 1000, 0).Retry {
				t.Error("parked after 1000 attempts")
			}
			if cfg.Policy.Decide(errCrooked, 1, 0).Retry || cfg.Policy.Decide(errors.New("other"), 2, 0).Retry {
				t.Error("the worker's own policy does not hold any more")
			}
			if len(w.Policy.Rules) != 2 {
				t.Error("the configuration was changed")
			}
		})
	}
}

var errCrooked = errors.New("crooked")

// Errors from a database are permanent, except while the database starts.
func TestUnreachable(t *testing.T) {
	wrapped := func(code string) error { return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code}) }
	for code, want := range map[string]bool{"57P03": true, "53300": true, "28P01": false, "3D000": false, "42501": false} {
		if unreachable(wrapped(code)) != want {
			t.Errorf("%s: %t", code, !want)
		}
	}
	if unreachable(errors.New("file is not a database")) {
		t.Error("a file was waited for")
	}
	x, err := openPostgres("postgres://u:hush@127.0.0.1:1/d")
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if err := x.PingContext(t.Context()); !unreachable(err) {
		t.Errorf("nobody listens there, and it is not waited for: %v", err)
	}
}
