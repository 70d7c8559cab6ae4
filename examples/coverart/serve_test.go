package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/examples/coverart/coverart"
	"github.com/reprisemq/reprise/examples/coverart/internal/rehearsal"
	"github.com/reprisemq/reprise/examples/coverart/internal/standin"
	"github.com/reprisemq/reprise/examples/internal/serve"
	"github.com/reprisemq/reprise/examples/internal/stage"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/internal/testkit/pgtest"
)

// timeout is the maximum time that a test waits for an expected event.
const timeout = time.Minute

// reader returns the URL of a MusicBrainz database for a user who can only read it.
func reader(t *testing.T) (address string, db *sql.DB) {
	t.Helper()
	server := pgtest.Server(t)
	db, remove, err := rehearsal.NewDatabase(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	role := "reader_" + strings.ToLower(rand.Text())
	execute := func(statement string) {
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
			t.Error(err)
		}
	}
	execute("CREATE ROLE " + role + " LOGIN")
	execute("GRANT USAGE ON SCHEMA musicbrainz, cover_art_archive TO " + role)
	execute("GRANT SELECT ON ALL TABLES IN SCHEMA musicbrainz, cover_art_archive TO " + role)
	t.Cleanup(func() {
		execute("DROP OWNED BY " + role)
		execute("DROP ROLE " + role)
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	var name string
	if err := db.QueryRowContext(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	u.User, u.Path = url.User(role), "/"+name
	return u.String(), db
}

const loveBug = "aff4a693-5970-4e2e-bd46-e2ee49c22de7"

// With -postgres, -s3 and -bucket, the indexer reads the given database as a user with read permissions, and writes to the
// given bucket. It creates neither a database nor a bucket.
func TestServeIndexesWhatExists(t *testing.T) {
	address, db := reader(t)
	backend := s3mem.New()
	if err := backend.CreateBucket("covers"); err != nil {
		t.Fatal(err)
	}
	busy := false
	s3 := gofakes3.New(backend, gofakes3.WithTimeSkewLimit(0)).Server()
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !busy { // the first request is refused
			busy = true
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		s3.ServeHTTP(w, r)
	}))
	t.Cleanup(store.Close)
	service := httptest.NewServer(standin.WebService(&coverart.Postgres{DB: db}))
	t.Cleanup(service.Close)

	b := testkit.Embedded(t)
	var out testkit.Buffer
	c := rehearsal.Config{Broker: b.URL, Postgres: address, S3: store.URL, RetryDelay: 20 * time.Millisecond, Grace: 20 * time.Millisecond, Out: &out}
	x := existing{bucket: "covers", service: service.URL + "/"}
	if err := x.validate(serve.Flags{Serve: true}, false, c); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- x.serve(ctx, &stage.Stage{URL: b.URL, Shared: true, Logger: slog.New(slog.DiscardHandler)}, c, 0)
	}()
	prints := func(text string) {
		t.Helper()
		testkit.Eventually(t, timeout, func() error {
			if !strings.Contains(out.String(), text) {
				return errors.New("output does not contain " + text + ":\n" + out.String())
			}
			return nil
		})
	}
	prints("until interrupted")
	conn, err := amqp.Dial(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	publish := func(key, body string, headers amqp.Table) {
		t.Helper()
		if err := ch.PublishWithContext(t.Context(), "cover-art-archive", key, false, false, amqp.Publishing{MessageId: key, Body: []byte(body), Headers: headers}); err != nil {
			t.Fatal(err)
		}
	}
	publish("index", loveBug, amqp.Table{"mb-retries": "3", "mb-exceptions": []any{"from the Perl program"}})
	prints("index  attempt 2: failed, retry in 20ms")
	prints("index  attempt 3: done")
	publish("delete", "index.json\n"+loveBug, nil)
	prints("delete  attempt 1: done")
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	buckets, err := backend.ListBuckets()
	if err != nil || len(buckets) != 1 {
		t.Errorf("buckets: got %v, %v, want only covers", buckets, err)
	}
	metadata := "mbid-" + loveBug + "/mbid-" + loveBug + "_mb_metadata.xml"
	if _, err := backend.HeadObject("covers", metadata); err != nil {
		t.Errorf("%s in bucket covers: %v", metadata, err)
	}
	if _, err := backend.HeadObject("covers", "mbid-"+loveBug+"/index.json"); !gofakes3.HasErrorCode(err, gofakes3.ErrNoSuchKey) {
		t.Errorf("index.json after the delete event: got %v, want that it does not exist", err)
	}
}

// A database without the tables of MusicBrainz is an error at the start, and not of each message.
func TestServeRejectsOtherDatabase(t *testing.T) {
	c := rehearsal.Config{Postgres: pgtest.Server(t), S3: "http://127.0.0.1:1", RetryDelay: time.Second}
	err := (&existing{}).serve(t.Context(), &stage.Stage{Shared: true}, c, 0)
	if err == nil || !strings.Contains(err.Error(), "-postgres") || !strings.Contains(err.Error(), "musicbrainz.release") {
		t.Errorf("got %v, want an error about the missing table", err)
	}
}

func TestFlagsCreateOnlyIfPermitted(t *testing.T) {
	given := rehearsal.Config{Postgres: "postgres://x", S3: "http://x"}
	for i, tc := range []struct {
		x      existing
		f      serve.Flags
		create bool
		c      rehearsal.Config
		want   string
	}{
		{},
		{create: true, c: given},
		{f: serve.Flags{Serve: true}},
		{f: serve.Flags{Serve: true}, c: given, x: existing{bucket: "b", service: "http://x", v2: true}},
		{c: given, want: "permit it with -create"},
		{c: rehearsal.Config{S3: "http://x"}, want: "permit it with -create"},
		{f: serve.Flags{Serve: true}, create: true, c: given, want: "-create excludes -serve"},
		{f: serve.Flags{Serve: true}, c: rehearsal.Config{Postgres: "postgres://x"}, want: "requires -s3"},
		{f: serve.Flags{Serve: true, FailFirst: 1}, c: given, want: "-fail-first"},
		{f: serve.Flags{Serve: true}, c: rehearsal.Config{S3: "http://x"}, want: "require -serve and -postgres"},
		{x: existing{bucket: "b"}, create: true, c: given, want: "require -serve and -postgres"},
	} {
		got := fmt.Sprint(tc.x.validate(tc.f, tc.create, tc.c))
		if tc.want == "" && got != "<nil>" || !strings.Contains(got, tc.want) {
			t.Errorf("%d: got %s, want %q", i, got, tc.want)
		}
	}
}
