// Command coverart runs the cover art indexer: three workers, PostgreSQL, an S3 store and a web
// service.
//
//	go run ./examples/coverart                                 a broker in this process
//	go run ./examples/coverart -url amqp://…                   a RabbitMQ
//	go run ./examples/coverart -serve -url amqp://…            process the messages of other programs
//	go run ./examples/coverart -serve -listen 127.0.0.1:5600   the same, on a broker in this process
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

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/coverart/coverart"
	"github.com/reprisemq/reprise/examples/coverart/internal/rehearsal"
	"github.com/reprisemq/reprise/examples/internal/serve"
	"github.com/reprisemq/reprise/examples/internal/stage"
	"github.com/reprisemq/reprise/topology/preset"
)

func main() {
	var c rehearsal.Config
	var f serve.Flags
	f.Define()
	postgres := stage.Address("postgres", "`postgres://user:password@host/database` of a PostgreSQL in which to create a database; default: started with scripts/postgres, and removed at the end. With -serve: have the indexer itself handle what comes; default: any body will do")
	s3 := stage.Address("s3", "`http://host:port` of an S3, with the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; default: in this process")
	flag.DurationVar(&c.RetryDelay, "retry-delay", 0, fmt.Sprintf("delay of a retry; default %s, with -serve %s as in production", rehearsal.DefaultRetryDelay, preset.CoverArtRetryDelay))
	flag.DurationVar(&c.Grace, "grace", 0, fmt.Sprintf("window of the debounce; default %s, with -serve %s as in production", rehearsal.DefaultGrace, coverart.Grace))
	flag.StringVar(&c.QueueType, "queue-type", "", "x-queue-type of all queues, `classic` or quorum; default: none, as deployed")
	stage.Main(func(ctx context.Context, s *stage.Stage) error {
		if err := f.Validate(); err != nil {
			return err
		}
		c.Postgres, c.S3 = *postgres, *s3
		c.Serve, c.Broker, c.DialContext, c.Logger, c.Out = f.Serve, s.URL, s.DialContext, s.Logger, os.Stdout
		if c.Serve && !s.Shared {
			return serve.ErrAlone
		}
		if c.Serve {
			c.RetryDelay = cmp.Or(c.RetryDelay, preset.CoverArtRetryDelay)
			c.Grace = cmp.Or(c.Grace, coverart.Grace)
			if c.Postgres == "" {
				return standIn(ctx, s, c, f.FailFirst)
			}
			if f.FailFirst != 0 {
				return errors.New("cannot combine -fail-first with -postgres (the real indexer decides which messages fail)")
			}
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
	if c.Serve {
		return rehearsal.Run(ctx, c)
	}
	return s.Clean(preset.CoverArt{}.Topology(), func() error { return rehearsal.Run(ctx, c) })
}

// standIn consumes from the indexer's queues, with the same strategy and debouncing, but needs no database or other
// service.
func standIn(ctx context.Context, s *stage.Stage, c rehearsal.Config, failFirst int) error {
	design := preset.CoverArt{RetryDelay: c.RetryDelay, QueueType: c.QueueType}
	if err := design.Validate(); err != nil {
		return err
	}
	service := serve.Service{
		Design: serve.Plain(design.Topology()), FailFirst: failFirst, Flags: "-retry-delay and -queue-type", Out: os.Stdout,
		Intro: fmt.Sprintf("Working on %s until interrupted. Equal events are debounced for %s;\nfailed messages are retried after %s, up to %d times, and then parked.",
			preset.CoverArtExchange, c.Grace, c.RetryDelay, preset.CoverArtRetries),
	}
	for _, queue := range []string{preset.CoverArtIndexQueue, preset.CoverArtDeleteQueue, preset.CoverArtMoveQueue} {
		service.Workers = append(service.Workers, reprise.WorkerConfig{
			Queue: queue, Strategy: design.Strategy(), Debounce: &reprise.Debounce{Window: c.Grace, Key: reprise.ContentKey},
		})
	}
	return service.Run(ctx, s)
}
