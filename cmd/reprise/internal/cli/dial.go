package cli

import (
	"context"
	"errors"
	"time"

	"github.com/reprisemq/reprise"
)

// dial connects to a broker. A URL that makes no sense is a usageError. The
// others come from the library, which shows no passwords.
func dial(ctx context.Context, rawURL string, cfg *reprise.Config) (*reprise.Client, error) {
	if bad, ok := errors.AsType[*reprise.ConnectError](reprise.CheckURL(rawURL)); ok {
		return nil, usagef("%s", bad.Reason)
	}
	return reprise.Dial(ctx, rawURL, cfg)
}

// hangUp closes a client that is of use no more. Connections that do not close in time go
// with the process.
func hangUp(c *reprise.Client, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_ = c.Close(ctx)
}
