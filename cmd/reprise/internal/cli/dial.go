package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
)

// dial connects to a broker. An invalid URL is a usageError. Other errors come from the library, which hides passwords.
func dial(ctx context.Context, rawURL string, cfg *reprise.Config) (*reprise.Client, error) {
	if bad, ok := errors.AsType[*reprise.ConnectError](reprise.CheckURL(rawURL)); ok {
		return nil, usagef("%s", bad.Reason)
	}
	client, err := reprise.Dial(ctx, rawURL, cfg)
	if err != nil && rawURL == defaultURL {
		err = fmt.Errorf("%w (this is the embedded broker's default; use --url or REPRISE_URL for another broker)", err)
	}
	return client, err
}

// hangUp closes a client. Connections that are still open after the timeout are closed when the process exits.
func hangUp(c *reprise.Client, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_ = c.Close(ctx)
}
