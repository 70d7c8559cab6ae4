package rehearsal

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/reprisemq/reprise/topology/preset"
)

// Defaults of Config. Production has 4 h and 10 s.
const (
	DefaultRetryDelay = 3 * time.Second
	DefaultGrace      = time.Second
)

// Config says what to play on. Broker and Postgres are required.
type Config struct {
	// Broker is an AMQP URL. DialContext, unless nil, opens its connections.
	Broker      string
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)

	// Postgres is the URL of a PostgreSQL, and a user who may create databases:
	// one is made for the time it takes. The driver "pgx" has to be registered.
	Postgres string

	// S3 is the URL of a store to use, whose buckets mbid-… are made where they
	// are missing, and stay. Not that of the Internet Archive: the releases are
	// real. Default: a store in the process.
	S3            string
	S3Credentials *credentials.Credentials // default: requests are not signed

	// RetryDelay and Grace are what production has 4 h and 10 s for. Defaults 3 s
	// and 1 s.
	RetryDelay time.Duration
	Grace      time.Duration

	// QueueType is that of all queues: preset.CoverArt.QueueType. Default: the
	// broker's, as deployed.
	QueueType string

	// Serve publishes nothing, and works on what others publish until the context
	// ends.
	Serve bool

	// Logger is told what clients, workers and the indexer do. Default: nothing
	// is logged.
	Logger *slog.Logger

	// Out is where the story goes. Default: nowhere.
	Out io.Writer
}

func (c Config) withDefaults() Config {
	if c.RetryDelay == 0 {
		c.RetryDelay = DefaultRetryDelay
	}
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Out == nil {
		c.Out = io.Discard
	}
	return c
}

// Validate reports what is missing and what to write instead.
func (c Config) Validate() error {
	switch {
	case c.Broker == "":
		return fmt.Errorf("rehearsal: Config.Broker is empty: write amqp://user:password@host:5672/vhost")
	case c.Postgres == "":
		return fmt.Errorf("rehearsal: Config.Postgres is empty: write postgres://user:password@host/database")
	case c.Grace < 0:
		return fmt.Errorf("rehearsal: Config.Grace %s: use a positive duration, or 0 for %s", c.Grace, DefaultGrace)
	}
	return c.design().Validate()
}

func (c Config) design() preset.CoverArt {
	return preset.CoverArt{RetryDelay: c.RetryDelay, QueueType: c.QueueType}
}
