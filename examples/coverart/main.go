// Command coverart runs the cover art indexer: three workers, PostgreSQL, an S3 store and a web
// service.
//
//	go run -C examples ./coverart                                 a broker in this process
//	go run -C examples ./coverart -url amqp://…                   a RabbitMQ
//	go run -C examples ./coverart -serve -url amqp://…            process the messages of other programs
//	go run -C examples ./coverart -serve -listen 127.0.0.1:5600   the same, on a broker in this process
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/reprisemq/reprise/examples/coverart/coverart"
	"github.com/reprisemq/reprise/examples/coverart/internal/rehearsal"
	"github.com/reprisemq/reprise/examples/internal/serve"
	"github.com/reprisemq/reprise/examples/internal/stage"
	"github.com/reprisemq/reprise/internal/preset"
)

func main() {
	var c rehearsal.Config
	var f serve.Flags
	var x existing
	f.Define()
	create := flag.Bool("create", false, "permit the demonstration to create a temporary database on -postgres, and buckets in -s3")
	postgres := stage.Address("postgres", "`postgres://user:password@host/database`. With -serve: the MusicBrainz database; default: none, any body is valid. With -create: a server for the temporary database; default: started with scripts/postgres, and removed at the end")
	s3 := stage.Address("s3", "`http://host:port` of an S3, with the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; default: in this process")
	x.define()
	flag.DurationVar(&c.RetryDelay, "retry-delay", 0, fmt.Sprintf("delay of a retry; default %s, with -serve %s as in production", rehearsal.DefaultRetryDelay, preset.CoverArtRetryDelay))
	flag.DurationVar(&c.Grace, "grace", 0, fmt.Sprintf("window of the debounce; default %s, with -serve %s as in production", rehearsal.DefaultGrace, coverart.Grace))
	flag.StringVar(&c.QueueType, "queue-type", "", "x-queue-type of all queues, `classic` or quorum; default: none, as deployed")
	stage.Main(func(ctx context.Context, s *stage.Stage) error {
		c.Postgres, c.S3 = *postgres, *s3
		c.Broker, c.DialContext, c.Logger, c.Out = s.URL, s.DialContext, s.Logger, os.Stdout
		if err := errors.Join(f.Validate(), x.validate(f, *create, c)); err != nil {
			return err
		}
		if f.Serve {
			c.RetryDelay = cmp.Or(c.RetryDelay, preset.CoverArtRetryDelay)
			c.Grace = cmp.Or(c.Grace, coverart.Grace)
			return x.serve(ctx, s, c, f.FailFirst)
		}
		return rehearse(ctx, s, c)
	})
}

func rehearse(ctx context.Context, s *stage.Stage, c rehearsal.Config) (err error) {
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
	return s.Clean(coverart.Design{}.Topology(), func() error { return rehearsal.Run(ctx, c) })
}
