// Command run plays the cover art indexer through: three workers, PostgreSQL, an S3
// and a web service.
//
//	go run ./examples/coverart/run                           a broker in this process
//	go run ./examples/coverart/run -url amqp://…             a RabbitMQ
//	go run ./examples/coverart/run -url amqp://… -serve      work on what others publish
package main

import (
	"context"
	"errors"
	"flag"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/reprisemq/reprise/examples/coverart/rehearsal"
	"github.com/reprisemq/reprise/examples/internal/stage"
)

func main() {
	var c rehearsal.Config
	flag.StringVar(&c.Postgres, "postgres", "", "a PostgreSQL to make a database in, `postgres://user:password@host/database`; default: one that is started with scripts/postgres and removed at the end")
	flag.StringVar(&c.S3, "s3", "", "an S3 to use, `http://host:port`, with the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; default: one in this process")
	flag.DurationVar(&c.RetryDelay, "retry-delay", rehearsal.DefaultRetryDelay, "after which a failed message comes back; in production 4h")
	flag.DurationVar(&c.Grace, "grace", rehearsal.DefaultGrace, "for which equal events are gathered; in production 10s")
	flag.StringVar(&c.QueueType, "queue-type", "", "x-queue-type of all queues, `classic` or quorum; default: not named, as deployed")
	flag.BoolVar(&c.Serve, "serve", false, "publish nothing, and work on what others publish until interrupted")
	stage.Main(func(ctx context.Context, s *stage.Stage) (err error) {
		c.Broker, c.DialContext, c.Logger, c.Out = s.URL, s.DialContext, s.Logger, os.Stdout
		if c.S3 != "" {
			c.S3Credentials = credentials.NewEnvAWS()
		}
		if c.Postgres == "" {
			url, stop, err := rehearsal.StartPostgres(ctx)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, stop()) }()
			c.Postgres = url
		}
		return rehearsal.Run(ctx, c)
	})
}
