package rehearsal_test

import (
	"bytes"
	"context"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/examples/coverart/internal/rehearsal"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/internal/testkit/pgtest"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// timeout is the maximum time that a test waits for an expected event.
const timeout = 2 * time.Minute

// quick returns the configuration of a rehearsal on b, with short delays. It gives the test exclusive use of the
// queues, and deletes the queues before and after the test.
func quick(t *testing.T, b testkit.Target, out io.Writer) rehearsal.Config {
	t.Helper()
	postgres := pgtest.Server(t)
	testkit.Alone(t, b, "cover-art-archive")
	remove(t, b)
	t.Cleanup(func() { remove(t, b) })
	return rehearsal.Config{
		Broker: b.URL, Postgres: postgres, RetryDelay: 50 * time.Millisecond, Grace: 50 * time.Millisecond, Out: out,
	}
}

func channel(t *testing.T, b testkit.Target) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func remove(t *testing.T, b testkit.Target) {
	t.Helper()
	conn, err := amqp.Dial(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{".index", ".delete", ".move", ".retry", ".failed"} {
		_, err = ch.QueueDelete("cover-art-archive"+suffix, false, false, false)
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, suffix := range []string{"", ".retry", ".failed"} {
		if err := ch.ExchangeDelete("cover-art-archive"+suffix, false, false); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRehearsal runs the complete plan with a real database and a real S3 store.
func TestRehearsal(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		var out bytes.Buffer
		c := quick(t, b, &out)
		if err := rehearsal.Run(t.Context(), c); err != nil {
			t.Errorf("%v\n%s", err, &out)
		}
		if !strings.Contains(out.String(), "every message is accounted for") {
			t.Errorf("output must contain \"every message is accounted for\":\n%s", &out)
		}
		// Only parked messages remain.
		ch := channel(t, b)
		for suffix, want := range map[string]int{".index": 0, ".delete": 0, ".move": 0, ".retry": 0, ".failed": 4} {
			testkit.Eventually(t, timeout, func() bool {
				q, err := ch.QueueDeclarePassive("cover-art-archive"+suffix, true, false, false, false, nil)
				return err == nil && q.Messages == want
			})
		}
	})
}

// The rehearsal also succeeds with a store that does not create buckets automatically, with quorum queues, and with
// earlier messages in the failed queue.
func TestRehearsalCreatesBuckets(t *testing.T) {
	b := testkit.Embedded(t)
	var out bytes.Buffer
	c := quick(t, b, &out)
	store := httptest.NewServer(gofakes3.New(s3mem.New(), gofakes3.WithTimeSkewLimit(0)).Server())
	t.Cleanup(store.Close)
	c.S3, c.QueueType = store.URL, "quorum"
	for range 2 {
		out.Reset()
		if err := rehearsal.Run(t.Context(), c); err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
	}
}

func TestRehearsalRejectsQueuesWithOtherArguments(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		c := quick(t, b, io.Discard)
		_, err := channel(t, b).QueueDeclare("cover-art-archive.retry", true, false, false, false, amqp.Table{
			"x-message-ttl": int32(14400000), "x-dead-letter-exchange": "cover-art-archive",
		})
		if err != nil {
			t.Fatal(err)
		}
		err = rehearsal.Run(t.Context(), c)
		for _, want := range []string{"cover-art-archive.retry", "x-message-ttl", "14400000", "-retry-delay"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		}
	})
}

func TestConfigValidate(t *testing.T) {
	ok := rehearsal.Config{Broker: "amqp://x", Postgres: "postgres://x"}
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*rehearsal.Config){
		"Broker": func(c *rehearsal.Config) { c.Broker = "" }, "Postgres": func(c *rehearsal.Config) { c.Postgres = "" },
		"Grace": func(c *rehearsal.Config) { c.Grace = -1 }, "RetryDelay": func(c *rehearsal.Config) { c.RetryDelay = 1 },
	} {
		c := ok
		change(&c)
		if err := rehearsal.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error about %s", err, want)
		}
	}
}

// Errors do not contain the password of a database.
func TestNewDatabaseErrorsOmitPassword(t *testing.T) {
	for _, address := range []string{"postgres://user:secret@127.0.0.1:1/x", "postgres://user:sec%ret@h/x", "mysql://user:secret@h/x", "postgres:/user:secret@h"} {
		_, _, err := rehearsal.NewDatabase(t.Context(), address)
		if err == nil || strings.Contains(err.Error(), "sec") {
			t.Errorf("%s: got %v, want an error without the password", address, err)
		}
	}
}

// If another program starts to consume from the same queues during the rehearsal, the ledger includes the messages that
// this program receives, and balances.
func TestRehearsalCountsMessagesOfOtherConsumers(t *testing.T) {
	b := testkit.Embedded(t)
	var out testkit.Buffer
	c := quick(t, b, &out)
	c.RetryDelay = 300 * time.Millisecond // so that retries are pending when the other program starts
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	go func() { ended <- rehearsal.Run(ctx, c) }()
	ch := channel(t, b)
	testkit.Eventually(t, timeout, func() bool { return strings.Contains(out.String(), "failed, retry in") })
	deliveries, err := ch.Consume("cover-art-archive.index", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	patient := time.After(timeout)
	for over := false; !over; {
		select {
		case <-deliveries:
			taken++
		case err = <-ended:
			over = true
		case <-patient:
			t.Fatalf("rehearsal still runs:\n%s", out.String())
		}
	}
	prints := out.String()
	if err != nil || !strings.Contains(prints, "every message is accounted for") || !strings.Contains(prints, "of other programs on these queues: 1") ||
		strings.Contains(prints, "handled by other consumers") != (taken > 0) {
		t.Errorf("got %v; the other program received %d messages\n%s", err, taken, prints)
	}
}
