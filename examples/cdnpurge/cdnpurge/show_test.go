package cdnpurge_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/breaker"
	"github.com/reprisemq/reprise/examples/cdnpurge/cdnpurge"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
)

// The service processes all purges over HTTP and AMQP: alone, with a circuit breaker, and
// together with a program that does not use Reprise.
func TestShow(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, name := range []string{"alone", "with a breaker", "beside another program"} {
			t.Run(name, func(t *testing.T) {
				conn := clean(t, b)
				var out strings.Builder
				others := 0
				s := cdnpurge.Show{
					Purges: 40, Over: 600 * time.Millisecond, Room: 5, First: 10 * time.Millisecond, Out: &out,
					Dial: func(ctx context.Context, c *reprise.Config) (*reprise.Client, error) {
						return reprise.Dial(ctx, b.URL, c)
					},
				}
				switch name {
				case "with a breaker":
					full, err := breaker.New(breaker.Config{Failures: 1, OpenFor: 50 * time.Millisecond})
					if err != nil {
						t.Fatal(err)
					}
					s.Breaker = full
				case "beside another program":
					s.Foreign = func(ctx context.Context, design cdnpurge.Design, p *cdnpurge.Purger, done func(string)) error {
						count := func(id string) { others++; done(id) }
						return (&cdnpurge.Other{Design: design, Purger: p, Done: count}).Run(ctx, conn)
					}
				}
				if err := s.Run(t.Context()); err != nil {
					t.Errorf("%v\n%s", err, &out)
				}
				if !strings.Contains(out.String(), "40 sent = 40 done + 0 parked; ") {
					t.Errorf("output must contain 40 sent = 40 done + 0 parked:\n%s", &out)
				}
				if s.Foreign != nil && (others == 0 || others == s.Purges) {
					t.Errorf("purges processed by the other program: got %d of %d, want some but not all", others, s.Purges)
				}
			})
		}
	})
}

func TestShowRejectsInvalidSettings(t *testing.T) {
	for _, s := range []cdnpurge.Show{
		{Over: time.Second, Room: 1},
		{Purges: -1, Over: time.Second, Room: 1},
		{Purges: 1, Room: 1},
		{Purges: 1, Over: time.Second},
		{Purges: 1, Over: time.Second, Room: 1, First: time.Nanosecond},
	} {
		if err := s.Run(t.Context()); err == nil {
			t.Errorf("settings accepted: %+v", s)
		}
	}
}

// clean deletes the queues and exchanges of the design before and after the test. It returns a connection to the
// broker.
func clean(t *testing.T, b testkit.Target) *amqp.Connection {
	t.Helper()
	testkit.Alone(t, b, preset.CDNPurgeQueue)
	conn, err := amqp.Dial(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	remove := func() error {
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		design := cdnpurge.Design{RoutingKeys: cdnpurge.Kinds}.Topology()
		for _, q := range design.Queues {
			_, deleteErr := ch.QueueDelete(q.Name, false, false, false)
			err = errors.Join(err, deleteErr)
		}
		for _, e := range design.Exchanges {
			err = errors.Join(err, ch.ExchangeDelete(e.Name, false, false))
		}
		return errors.Join(err, ch.Close())
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(remove(), conn.Close()); err != nil {
			t.Error(err)
		}
	})
	return conn
}
