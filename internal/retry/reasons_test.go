package retry_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/retry"
)

// The logger reports the reason of a wait once per minute, and does not report other events.
func TestLoggerReportsOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reasons []string
		ctx, cancel := context.WithTimeout(t.Context(), 130*time.Second)
		defer cancel()
		_, err := reprise.Dial(ctx, "amqp://localhost", &reprise.Config{
			Reconnect: backoff.Fixed(time.Second),
			Logger:    retry.ReasonLogger(time.Minute, func(reason string) { reasons = append(reasons, reason) }),
			Dial: func(context.Context, string, string) (net.Conn, error) {
				return nil, errors.New("reprise: host is down")
			},
		})
		if want := slices.Repeat([]string{"host is down"}, 3); !slices.Equal(reasons, want) || err == nil {
			t.Errorf("got reasons %q and error %v, want %q and an error", reasons, err, want)
		}
	})
}
