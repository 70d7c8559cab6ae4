package presettest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

func TestCDNPurgeDeclaresDeployedTopology(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, work := range []amqp.Table{nil, {"x-queue-type": "quorum"}, {"x-max-priority": int32(4)}} {
			for _, first := range []string{"worker", "other"} {
				t.Run(fmt.Sprint(first, " first ", work), func(t *testing.T) {
					s := newPurgeSystem(t, b, preset.CDNPurge{First: 10 * time.Millisecond})
					c := s.client()
					if first == "worker" {
						if err := c.Declare(t.Context(), s.p.Topology()); err != nil {
							t.Fatal(err)
						}
						s.declareForeign(nil) // the other program chooses the arguments of its work queue
					} else {
						s.declareForeign(work)
						if err := c.Declare(t.Context(), s.p.Topology()); err != nil {
							t.Fatal(err)
						}
					}
					for _, key := range []string{"url", "directory", "tag"} {
						s.publish(s.p.WaitExchange, key, amqp.Publishing{Body: []byte(key), Expiration: "20"})
						d := s.take(s.p.Queue)
						if d.Exchange != s.p.Exchange || d.RoutingKey != key || string(d.Body) != key {
							t.Errorf("message %s: got exchange %q, routing key %q; want exchange %q, routing key and body %q", d.Body, d.Exchange, d.RoutingKey, s.p.Exchange, key)
						}
						if err := d.Ack(false); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
	})
}

// The worker rejects an existing wait queue with different arguments, because messages might not return from it.
func TestCDNPurgeRejectsDifferentWaitQueue(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		s := newPurgeSystem(t, b, preset.CDNPurge{})
		if _, err := s.ch.QueueDeclare(s.p.WaitQueue, true, false, false, false, amqp.Table{
			"x-dead-letter-exchange": s.p.Exchange, "x-message-ttl": int32(60000),
		}); err != nil {
			t.Fatal(err)
		}
		c := s.client()
		err := c.Declare(t.Context(), s.p.Topology())
		refused, ok := errors.AsType[*reprise.DeclareError](err)
		if !ok || refused.Kind != "queue" || refused.Name != s.p.WaitQueue || !strings.Contains(refused.Advice, "x-message-ttl") {
			t.Fatalf("got %v, want DeclareError for x-message-ttl", err)
		}
		t.Log(err)
		s.p.WaitArgs = topology.Table{"x-message-ttl": int64(60000)}
		if err := c.Declare(t.Context(), s.p.Topology()); err != nil {
			t.Error(err)
		}
	})
}

// This test compares the copies in the wait queue and in the failed queue with the design, byte for byte.
func TestCDNPurgeOnTheWire(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		s := newPurgeSystem(t, b, preset.CDNPurge{})
		c := s.client()
		if err := c.Declare(t.Context(), s.p.Topology()); err != nil {
			t.Fatal(err)
		}
		sent := amqp.Publishing{
			ContentType: "application/json", ContentEncoding: "identity", Priority: 3, CorrelationId: "c", ReplyTo: "r", MessageId: "m",
			Timestamp: time.Unix(1700000000, 0), Type: "t", AppId: "a", Body: []byte(`["/index.html"]`),
			Headers: amqp.Table{"own": "kept", "n": int16(7)},
		}
		for _, key := range []string{"url", "directory", "tag"} {
			s.publish(s.p.Exchange, key, sent)
			s.failOnce(c, reprise.Policy{})
			d := s.take(s.p.WaitQueue)
			if err := d.Ack(false); err != nil {
				t.Error(err)
			}
			if d.Exchange != s.p.WaitExchange || d.RoutingKey != key {
				t.Errorf("copy of %s: got exchange %q, routing key %q; want %q, %q", key, d.Exchange, d.RoutingKey, s.p.WaitExchange, key)
			}
			want := sent
			want.DeliveryMode, want.Expiration = amqp.Persistent, "10000"
			want.Headers = nil
			got := amqp.Publishing{
				ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode, Priority: d.Priority,
				CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration, MessageId: d.MessageId, Timestamp: d.Timestamp,
				Type: d.Type, UserId: d.UserId, AppId: d.AppId, Body: d.Body,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("copy of %s: -want +got:\n%s", key, diff)
			}
			if h := d.Headers; h["own"] != "kept" || h["n"] != int16(7) || h["x-death"] != nil ||
				h["x-reprise-attempts"] != int64(1) || h["x-reprise-waits"] != int64(10000) {
				t.Errorf("headers of the copy: got %v, want own headers, no x-death, 1 attempt and a wait of 10000", h)
			}
		}

		s.publish(s.p.Exchange, "tag", sent)
		s.failOnce(c, reprise.Policy{MaxAttempts: 1})
		d := s.take(s.p.FailedQueue)
		if err := d.Ack(false); err != nil {
			t.Error(err)
		}
		if h := d.Headers; d.Expiration != "" || h["own"] != "kept" || h["x-reprise-routing-key"] != "tag" || h["x-reprise-exchange"] != s.p.Exchange {
			t.Errorf("parked message: got expiration %q, headers %v; want no expiration, the header own, and the original exchange and key", d.Expiration, h)
		}
	})
}

// Both programs retry a message in various orders, and each program continues the backoff of the other.
func TestCDNPurgeContinuesBackoffOfOtherProgram(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, copyDeath := range []bool{false, true} {
			for _, order := range []string{"OTOT", "TOTO", "TTOO", "OOTT", "TTTO"} {
				t.Run(fmt.Sprintf("%s, x-death copied %v", order, copyDeath), func(t *testing.T) {
					t.Parallel()
					s := newPurgeSystem(t, b, preset.CDNPurge{First: 10 * time.Millisecond})
					c := s.client()
					s.declareForeign(nil)
					if err := c.Declare(t.Context(), s.p.Topology()); err != nil {
						t.Fatal(err)
					}
					s.publish(s.p.Exchange, "tag", amqp.Publishing{Body: []byte("body"), MessageId: "m", Headers: amqp.Table{"own": "kept"}})
					waits := int64(0) // expected count in x-death
					for i, who := range order {
						if who == 'O' {
							m := s.failOnce(c, reprise.Policy{})
							if m.Attempt != i+1 || m.RoutingKey != "tag" || m.Exchange != s.p.Exchange || len(m.Headers) != 1 || m.MessageID != "m" {
								t.Errorf("attempt %d: got %+v, want the number of the attempt, and the original message", i+1, m)
							}
							waits = 1
							continue
						}
						d := s.take(s.p.Queue)
						if i > 0 {
							if _, count := s.lastWait(d); count != waits {
								t.Errorf("attempt %d: got count %d in x-death, want %d", i+1, count, waits)
							}
						}
						s.backOff(d, copyDeath)
						if waits++; !copyDeath || b.Version != "3.10" { // RabbitMQ 4 ignores a copied x-death
							waits = 1
						}
					}
					d := s.take(s.p.Queue)
					if d.RoutingKey != "tag" || d.MessageId != "m" || string(d.Body) != "body" || d.Headers["own"] != "kept" {
						t.Errorf("message: got %+v, want the original key, ID, body and header own", d)
					}
					if err := d.Ack(false); err != nil {
						t.Error(err)
					}
				})
			}
		}
	})
}

// A worker computes the expiration from the expiration of another program, and vice versa.
func TestCDNPurgeContinuesExpirations(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, copyDeath := range []bool{false, true} {
			for previous := range 4 {
				t.Run(fmt.Sprintf("%d attempts of the other program, x-death copied %v", previous, copyDeath), func(t *testing.T) {
					t.Parallel()
					s := newPurgeSystem(t, b, preset.CDNPurge{First: 20 * time.Millisecond})
					c := s.client()
					s.declareForeign(nil)
					if err := c.Declare(t.Context(), s.p.Topology()); err != nil {
						t.Fatal(err)
					}
					s.publish(s.p.Exchange, "url", amqp.Publishing{MessageId: "m"})
					last, want := int64(0), int64(20)
					for i := range previous {
						last = s.backOff(s.take(s.p.Queue), copyDeath)
						// RabbitMQ before 4.0 keeps a copied x-death with its first expiration. Therefore the backoff of the design
						// stops at three times that value.
						if stuck := copyDeath && b.Version == "3.10"; stuck && i > 1 && (last < 60 || last > 64) ||
							!stuck && !tripled(want, last, 0, 0.05, i == 0) {
							t.Errorf("other program, delivery %d: got expiration %d ms, want three times %d", i+1, last, want)
						}
						want = last
					}
					m := s.failOnce(c, reprise.Policy{})
					if m.Attempt != previous+1 {
						t.Errorf("attempt of the worker: got %d, want %d", m.Attempt, previous+1)
					}
					d := s.take(s.p.Queue)
					waited, count := s.lastWait(d)
					if count != 1 || !tripled(want, waited, 0.16, 0.16, previous == 0) {
						t.Errorf("worker: got expiration %d ms and count %d, want three times %d and count 1", waited, count, want)
					}
					// The other program continues the backoff.
					if next := s.backOff(d, copyDeath); !tripled(waited, next, 0, 0.05, false) {
						t.Errorf("other program: got expiration %d ms, want three times %d of the worker", next, waited)
					}
				})
			}
		}
	})
}

// tripled reports whether expiration is three times previous. It may be lower by the fraction under or higher by the
// fraction over. If first is set, expiration must be equal to previous.
func tripled(previous, expiration int64, under, over float64, first bool) bool {
	if first {
		return expiration == previous
	}
	three := 3 * float64(previous)
	return float64(expiration) >= three*(1-under)-1 && float64(expiration) <= three*(1+over)+1
}

// Both programs work on the same queues, and the downstream system refuses each message three times. The attempts of
// both programs count.
func TestCDNPurgeSharesQueuesWithOtherProgram(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		const messages, refusals = 40, 3
		s := newPurgeSystem(t, b, preset.CDNPurge{First: 10 * time.Millisecond})
		c := s.client()
		s.declareForeign(nil)
		var mu sync.Mutex
		calls, done := map[string]int{}, 0
		call := func(id string) error {
			mu.Lock()
			defer mu.Unlock()
			if calls[id]++; calls[id] <= refusals {
				return errQueueFull
			}
			done++
			return nil
		}
		stop := s.run(c, reprise.Policy{}, func(_ context.Context, m *reprise.Delivery) error { return call(m.MessageID) })
		defer stop()
		for i := range messages {
			s.publish(s.p.Exchange, []string{"url", "directory", "tag"}[i%3], amqp.Publishing{MessageId: fmt.Sprint(i)})
		}
		deliveries, err := s.ch.Consume(s.p.Queue, "", false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		finished := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return done == messages
		}
		handled := 0
		for deadline := time.After(purgeTimeout); !finished(); {
			select {
			case d := <-deliveries:
				if handled++; call(d.MessageId) != nil {
					s.backOff(d, handled%2 == 0)
				} else if err := d.Ack(false); err != nil {
					t.Fatal(err)
				}
			case <-time.After(10 * time.Millisecond): // the worker may have finished the message
			case <-deadline:
				t.Fatalf("processed messages: got %d, want %d", done, messages)
			}
		}
		stop()
		for id, n := range calls {
			if n != refusals+1 {
				t.Errorf("attempts of message %s: got %d, want %d", id, n, refusals+1)
			}
		}
		for _, queue := range []string{s.p.Queue, s.p.WaitQueue, s.p.FailedQueue} {
			if d, ok, err := s.ch.Get(queue, true); ok || err != nil {
				t.Errorf("queue %s must be empty: got message %q, %v", queue, d.MessageId, err)
			}
		}
		if handled == 0 || handled == messages*(refusals+1) {
			t.Errorf("attempts of the other program must be more than 0 and less than %d: got %d", messages*(refusals+1), handled)
		}
	})
}

// A message that has no retries left is parked with its history, and does not affect other messages.
func TestCDNPurgeParksMessageWithHistory(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		s := newPurgeSystem(t, b, preset.CDNPurge{First: 10 * time.Millisecond})
		c := s.client()
		if err := c.Declare(t.Context(), s.p.Topology()); err != nil {
			t.Fatal(err)
		}
		s.publish(s.p.Exchange, "directory", amqp.Publishing{MessageId: "m"})
		s.backOff(s.take(s.p.Queue), true) // one attempt of the other program
		stop := s.run(c, reprise.Policy{MaxAttempts: 4}, func(context.Context, *reprise.Delivery) error { return errQueueFull })
		defer stop()
		d := s.take(s.p.FailedQueue)
		if err := d.Ack(false); err != nil {
			t.Error(err)
		}
		errs, _ := d.Headers["x-reprise-errors"].([]any)
		if d.Headers["x-reprise-attempts"] != int64(4) || len(errs) != 3 || d.Headers["x-reprise-waits"] != nil || d.Headers["x-reprise-routing-key"] != "directory" {
			t.Errorf("parked message: got headers %v, want 4 attempts, 3 errors and routing key directory", d.Headers)
		}
	})
}
