package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/coverart/coverart"
	"github.com/reprisemq/reprise/examples/coverart/internal/rehearsal"
	"github.com/reprisemq/reprise/examples/internal/serve"
	"github.com/reprisemq/reprise/examples/internal/stage"
	"github.com/reprisemq/reprise/internal/preset"
)

// existing contains the flags for the services that -serve uses with -postgres, and does not create.
type existing struct {
	bucket, service string
	v2              bool
}

func (x *existing) define() {
	flag.StringVar(&x.bucket, "bucket", "", "with -serve: an existing `bucket` for the objects of all releases; default: a bucket mbid-… for each release, which the store of the Internet Archive creates")
	flag.BoolVar(&x.v2, "s3-v2", false, "with -serve: sign the requests to -s3 with version 2, as the Internet Archive requires")
	flag.StringVar(&x.service, "web-service", "", "with -serve: the `URL` of a MusicBrainz server; default https://musicbrainz.org")
}

func (x *existing) validate(f serve.Flags, create bool, c rehearsal.Config) error {
	indexes := f.Serve && c.Postgres != ""
	switch {
	case f.Serve && create:
		return errors.New("-create excludes -serve, which creates no database and no buckets")
	case indexes && c.S3 == "":
		return errors.New("-serve with -postgres requires -s3, the store to write to")
	case indexes && f.FailFirst != 0:
		return errors.New("cannot combine -fail-first with -postgres (the real indexer decides which messages fail)")
	case !indexes && *x != existing{} || f.Serve && !indexes && c.S3 != "":
		return errors.New("-s3, -s3-v2, -bucket and -web-service of the real indexer require -serve and -postgres")
	case !f.Serve && !create && (c.Postgres != "" || c.S3 != ""):
		return errors.New("the demonstration creates a database on -postgres, and buckets in -s3 (permit it with -create, or index what exists with -serve)")
	}
	return nil
}

// serve processes the messages that other programs publish. With a database, the indexer handles them. Otherwise, they
// can have any body.
func (x *existing) serve(ctx context.Context, s *stage.Stage, c rehearsal.Config, failFirst int) error {
	design := coverart.Design{RetryDelay: c.RetryDelay, QueueType: c.QueueType}
	if err := design.Validate(); err != nil {
		return err
	}
	service := serve.Service{
		Design: serve.Plain(design.Topology()), FailFirst: failFirst, Flags: "-retry-delay and -queue-type", Out: c.Out,
		Intro: fmt.Sprintf("Working on %s until interrupted. Equal events are debounced for %s;\nfailed messages are retried after %s, up to %d times, and then parked.",
			preset.CoverArtExchange, c.Grace, c.RetryDelay, preset.CoverArtRetries),
	}
	for _, queue := range []string{preset.CoverArtIndexQueue, preset.CoverArtDeleteQueue, preset.CoverArtMoveQueue} {
		service.Workers = append(service.Workers, reprise.WorkerConfig{
			Queue: queue, Strategy: design.Strategy(), Debounce: &reprise.Debounce{Window: c.Grace, Key: reprise.ContentKey},
		})
	}
	if c.Postgres == "" {
		return service.Run(ctx, s)
	}
	db, err := sql.Open("pgx", c.Postgres)
	if err != nil {
		return errors.New("-postgres must be a URL (example: postgres://user:password@host/database)") // err can contain the password
	}
	defer func() { _ = db.Close() }() // all queries have ended
	indexer, err := x.indexer(ctx, db, c)
	if err != nil {
		return err
	}
	for i, handler := range []reprise.HandlerFunc{indexer.Index, indexer.Delete, indexer.Move} {
		service.Workers[i].Handler = handler
	}
	return service.Run(ctx, s)
}

// indexer returns the indexer for the given services. It returns an error if it cannot read the database.
func (x *existing) indexer(ctx context.Context, db *sql.DB, c rehearsal.Config) (*coverart.Indexer, error) {
	catalogue := &coverart.Postgres{DB: db}
	const none = "00000000-0000-0000-0000-000000000000"
	if _, err := catalogue.Release(ctx, none); !errors.Is(err, coverart.ErrUnknownRelease) {
		return nil, fmt.Errorf("-postgres: %w", err)
	}
	config := coverart.S3Config{Endpoint: c.S3, Bucket: x.bucket, Credentials: credentials.NewEnvAWS()}
	if x.v2 {
		config.Credentials = credentials.NewStaticV2(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), "")
	}
	archive, err := coverart.NewS3(config)
	if err != nil {
		return nil, fmt.Errorf("-s3: %w", err)
	}
	service := &coverart.HTTPWebService{BaseURL: strings.TrimRight(cmp.Or(x.service, "https://musicbrainz.org"), "/"), UserAgent: rehearsal.UserAgent}
	return &coverart.Indexer{Catalogue: catalogue, Archive: archive, WebService: service, Logger: c.Logger}, nil
}
