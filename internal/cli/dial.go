package cli

import (
	"context"
	"net/url"

	"github.com/reprisemq/reprise"
)

// dial connects to a broker. A URL that makes no sense is a usageError. The
// others come from the library, which shows no passwords.
func dial(ctx context.Context, rawURL string, cfg *reprise.Config) (*reprise.Client, error) {
	u, err := url.Parse(rawURL)
	if err != nil || (u.Scheme != "amqp" && u.Scheme != "amqps") || u.Hostname() == "" {
		return nil, usagef("the URL of the broker makes no sense: write amqp://user:password@host:5672/, " +
			"with special characters of the password percent-encoded (@ is %%40, / is %%2F)")
	}
	return reprise.Dial(ctx, rawURL, cfg)
}
