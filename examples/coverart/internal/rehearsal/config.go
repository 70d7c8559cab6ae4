package rehearsal

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/reprisemq/reprise/examples/coverart/coverart"
)

// Defaults of Config. The design uses 4 h and 10 s.
const (
	DefaultRetryDelay = 3 * time.Second
	DefaultGrace      = time.Second
)

// UserAgent identifies the program to web services.
const UserAgent = "reprise-coverart (https://github.com/reprisemq/reprise)"

// Config configures a rehearsal. Broker and Postgres are required.
type Config struct {
	// Broker is an AMQP URL. DialContext, if set, opens the connections to the broker.
	Broker      string
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)

	// Postgres is the URL of a PostgreSQL server. The user must have permission to create databases. The rehearsal
	// creates a temporary database. The caller must register the driver "pgx".
	Postgres string

	// S3 is the URL of the store. The rehearsal creates missing buckets mbid-… and does not delete them. Do not use the
	// store of the Internet Archive, because the releases in the plan are real. Default: a store in this process.
	S3            string
	S3Credentials *credentials.Credentials // default: requests are not signed

	// RetryDelay and Grace are the retry delay and the grace period. Defaults: 3 s and 1 s (the design: 4 h and 10 s).
	RetryDelay time.Duration
	Grace      time.Duration

	// QueueType is the type of all queues (coverart.Design.QueueType). Default: the broker's default, as in the design.
	QueueType string

	// Logger receives the logs of the client, the workers and the indexer. Default: no logs.
	Logger *slog.Logger

	// Out receives the progress and the results. Default: no output.
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

// Validate returns an error if a required setting is missing or a value is invalid.
func (c Config) Validate() error {
	switch {
	case c.Broker == "":
		return fmt.Errorf("rehearsal: Config.Broker must not be empty (example: amqp://user:password@host:5672/vhost)")
	case c.Postgres == "":
		return fmt.Errorf("rehearsal: Config.Postgres must not be empty (example: postgres://user:password@host/database)")
	case c.Grace < 0:
		return fmt.Errorf("rehearsal: Config.Grace must not be negative: got %s (0 means %s)", c.Grace, DefaultGrace)
	}
	return c.design().Validate()
}

func (c Config) design() coverart.Design {
	return coverart.Design{RetryDelay: c.RetryDelay, QueueType: c.QueueType}
}
