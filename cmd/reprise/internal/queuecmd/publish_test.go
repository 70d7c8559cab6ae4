package queuecmd

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

func TestPublishTimeoutAppliesPerMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Publish{Timeout: 10 * time.Second, Count: 200}
		took := 9 * time.Second
		slow := func(ctx context.Context, m *reprise.Message) error {
			m.MessageID = "id"
			select {
			case <-time.After(took):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		var out bytes.Buffer
		err := c.publish(t.Context(), slow, &reprise.Message{}, terminal.IO{Stdout: &out})
		if n := strings.Count(out.String(), "id\n"); err != nil || n != 200 {
			t.Errorf("published %d messages, want 200: %v", n, err)
		}

		c.Count = 3
		out.Reset()
		n := 0
		err = c.publish(t.Context(), func(ctx context.Context, m *reprise.Message) error {
			if n++; n == 3 {
				took = time.Minute
			}
			return slow(ctx, m)
		}, &reprise.Message{}, terminal.IO{Stdout: &out})
		if want := "message 3 of 3: timed out after 10s; the 2 before it were published"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}
