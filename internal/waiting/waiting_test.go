package waiting_test

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
	"github.com/reprisemq/reprise/internal/waiting"
)

// The logger reports the reason once per minute, and nothing else.
func TestLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var actions []string
		ctx, cancel := context.WithTimeout(t.Context(), 130*time.Second)
		defer cancel()
		_, err := reprise.Dial(ctx, "amqp://localhost", &reprise.Config{
			Reconnect: backoff.Fixed(time.Second),
			Logger:    waiting.Logger(time.Minute, func(reason string) { actions = append(actions, reason) }),
			Dial: func(context.Context, string, string) (net.Conn, error) {
				return nil, errors.New("reprise: nobody is home")
			},
		})
		if want := slices.Repeat([]string{"nobody is home"}, 3); !slices.Equal(actions, want) || err == nil {
			t.Errorf("%q, %v", actions, err)
		}
	})
}
