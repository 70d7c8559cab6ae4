package presettest

import (
	"context"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
)

// The routing key of a message selects its action. After a retry, a message returns only to its work queue and with its
// original key, even if a program in another language has retried the message.
func TestCDNPurgeKeepsUnknownRoutingKeys(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		s := newPurgeSystem(t, b, preset.CDNPurge{First: 20 * time.Millisecond, Jitter: -1})
		aside := s.p.WaitQueue + ".aside"
		elsewhere, otherQueue := s.p.Exchange+".elsewhere", s.p.Queue+".otherQueue"
		t.Cleanup(func() { s.remove([]string{aside, otherQueue}, []string{aside, s.p.Queue + ".aside", elsewhere}) })
		c := s.client()
		s.declare(c)

		// Another program has bound the work queue and another queue to this exchange.
		if err := s.ch.ExchangeDeclare(elsewhere, "fanout", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := s.ch.QueueDeclare(otherQueue, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		for _, to := range [][3]string{{s.p.Queue, "host", s.p.Exchange}, {otherQueue, "host", s.p.Exchange}, {otherQueue, "blind", s.p.Exchange}, {s.p.Queue, "", elsewhere}} {
			if err := s.ch.QueueBind(to[0], to[1], to[2], false, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, way := range []struct {
			name, exchange, key string
			headers             amqp.Table
			copies              int // number of copies that the publish adds to the other queue
		}{
			{"key of another queue", s.p.Exchange, "host", nil, 1},
			{"another exchange", elsewhere, "url?", nil, 0},
			{"default exchange", "", s.p.Queue, nil, 0},
			{"header BCC, key of another queue", s.p.Exchange, "blind", amqp.Table{"BCC": []any{"url"}}, 1},
		} {
			s.publish(way.exchange, way.key, amqp.Publishing{MessageId: way.name, Headers: way.headers, Body: []byte(way.name)})
			var keys []string
			attempts := 0
			again := make(chan string, 16)
			stop := s.run(c, reprise.Policy{MaxAttempts: 4}, func(_ context.Context, m *reprise.Delivery) error {
				again <- fmt.Sprint(m.Attempt, " ", m.RoutingKey)
				if m.Attempt < 3 {
					return errQueueFull
				}
				return nil
			})
			for attempts < 3 {
				select {
				case k := <-again:
					attempts++
					keys = append(keys, k)
				case <-time.After(purgeTimeout):
					t.Fatalf("%s: message did not return; got keys %v", way.name, keys)
				}
			}
			stop()
			if want := fmt.Sprint([]string{"1 " + way.key, "2 " + way.key, "3 " + way.key}); fmt.Sprint(keys) != want {
				t.Errorf("%s: handled keys: got %v, want %s", way.name, keys, want)
			}

			// A program of the design receives the same message as before.
			s.publish(way.exchange, way.key, amqp.Publishing{MessageId: way.name, Headers: way.headers})
			s.failOnce(c, reprise.Policy{})
			d := s.take(s.p.Queue)
			if d.RoutingKey != way.key {
				t.Errorf("%s: got routing key %q, want %q", way.name, d.RoutingKey, way.key)
			}
			deaths, _ := d.Headers["x-death"].([]any)
			if len(deaths) != 1 || deaths[0].(amqp.Table)["original-expiration"] != "20" {
				t.Errorf("%s: got x-death %v, want one entry with original-expiration 20", way.name, deaths)
			}
			if err := d.Ack(false); err != nil {
				t.Error(err)
			}
			if n, err := s.ch.QueuePurge(otherQueue, false); err != nil || n != 2*way.copies {
				t.Errorf("%s: other queue has %d messages, want %d (%v)", way.name, n, 2*way.copies, err)
			}
		}
	})
}

// declare declares the topology of the preset.
func (s *purgeSystem) declare(c *reprise.Client) {
	s.t.Helper()
	if err := c.Declare(s.t.Context(), s.p.Topology()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *purgeSystem) remove(queues, exchanges []string) {
	s.t.Helper()
	s.reopen()
	for _, q := range queues {
		if _, err := s.ch.QueueDelete(q, false, false, false); err != nil {
			s.t.Error(err)
		}
	}
	for _, e := range exchanges {
		if err := s.ch.ExchangeDelete(e, false, false); err != nil {
			s.t.Error(err)
		}
	}
}
