package handler

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
)

// reaping is the environment variable that makes the test binary run as a Reaper process.
const reaping = "HANDLER_TEST_REAPS"

func TestMain(m *testing.M) {
	if os.Getenv(reaping) != "" {
		Reap(os.Stdin)
		return
	}
	testkit.Main(m)
}

// full returns a message with all properties.
func full() *reprise.Delivery {
	return &reprise.Delivery{
		Message: reprise.Message{
			Body: []byte("the body"), Exchange: "shop", RoutingKey: "order.new",
			ContentType: "text/plain; charset=utf-8", ContentEncoding: "identity", CorrelationID: "c-1", ReplyTo: "answers",
			MessageID: "m-1", Type: "order", AppID: "till", UserID: "guest", Priority: 7,
			Timestamp: time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600)), Expiration: 90 * time.Second,
			Headers: map[string]any{"tenant-id": "acme", "tries": int32(3)},
		},
		Queue: "orders", Attempt: 3, Errors: []reprise.AttemptError{{Error: "first"}, {Error: "second"}},
		FirstFailed: time.Date(2026, 1, 2, 3, 5, 0, 0, time.UTC), Redelivered: true,
	}
}

func textLog(w *testkit.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, nil))
}

// kind describes the outcome of an attempt whose handler returns err.
func kind(err error) string {
	if err == nil {
		return "ack"
	}
	if _, ok := errors.AsType[*reprise.ParkError](err); ok {
		return "park"
	}
	if r, ok := errors.AsType[*reprise.RetryAfterError](err); ok {
		if r.Pause {
			return "pause for " + r.Delay.String()
		}
		return "retry after " + r.Delay.String()
	}
	return "retry"
}

// bounded returns a context with a timeout, so that the test fails instead of hanging.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func expect(t *testing.T, err error, text string) {
	t.Helper()
	switch {
	case text == "" && err != nil:
		t.Errorf("unexpected error: %v", err)
	case text != "" && (err == nil || !strings.Contains(err.Error(), text)):
		t.Errorf("got error %v, want one with %q", err, text)
	}
}
