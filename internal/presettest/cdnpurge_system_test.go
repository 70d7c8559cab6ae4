package presettest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
)

// purgeSystem is the design on a broker, with a Reprise worker and another program that implements the design with only
// an AMQP client.
type purgeSystem struct {
	p       preset.CDNPurge
	t       *testing.T
	broker  testkit.Target
	conn    *amqp.Connection
	ch      *amqp.Channel // in confirm mode
	returns chan amqp.Return
}

const purgeTimeout = 2 * time.Minute

var errQueueFull = errors.New("507: queue is full")

// newPurgeSystem gives p unique names, and removes the system at the end of the test.
func newPurgeSystem(t *testing.T, b testkit.Target, p preset.CDNPurge) *purgeSystem {
	t.Helper()
	name := testkit.Name(t, "purge")
	p.Exchange, p.Queue = name, name
	p.WaitExchange, p.WaitQueue, p.FailedQueue = name+".wait", name+".wait", name+".failed"
	conn, err := amqp.Dial(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := &purgeSystem{p: p, t: t, broker: b, conn: conn}
	s.reopen()
	t.Cleanup(func() {
		s.reopen()
		for _, q := range []string{p.Queue, p.WaitQueue, p.FailedQueue} {
			if _, err := s.ch.QueueDelete(q, false, false, false); err != nil {
				t.Error(err)
			}
		}
		for _, e := range []string{p.Exchange, p.WaitExchange} {
			if err := s.ch.ExchangeDelete(e, false, false); err != nil {
				t.Error(err)
			}
		}
		_ = conn.Close()
	})
	return s
}

func (s *purgeSystem) reopen() {
	s.t.Helper()
	ch, err := s.conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.ch, s.returns = ch, ch.NotifyReturn(make(chan amqp.Return, 16))
}

// declareForeign declares the design as another program does. The table work contains additional arguments of the work
// queue.
func (s *purgeSystem) declareForeign(work amqp.Table) {
	s.t.Helper()
	_, err := s.ch.QueueDeclare(s.p.Queue, true, false, false, false, work)
	if err == nil {
		_, err = s.ch.QueueDeclare(s.p.WaitQueue, true, false, false, false, amqp.Table{"x-dead-letter-exchange": s.p.Exchange})
	}
	for _, to := range [][2]string{{s.p.Exchange, s.p.Queue}, {s.p.WaitExchange, s.p.WaitQueue}} {
		if err == nil {
			err = s.ch.ExchangeDeclare(to[0], "direct", true, false, false, false, nil)
		}
		for _, key := range []string{"url", "directory", "tag"} {
			if err == nil {
				err = s.ch.QueueBind(to[1], key, to[0], false, nil)
			}
		}
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *purgeSystem) publish(exchange, key string, msg amqp.Publishing) {
	s.t.Helper()
	msg.DeliveryMode = amqp.Persistent
	confirm, err := s.ch.PublishWithDeferredConfirm(exchange, key, true, false, msg)
	if err != nil {
		s.t.Fatal(err)
	}
	if !confirm.Wait() || len(s.returns) > 0 {
		s.t.Fatalf("publish to exchange %q, key %q: message was not stored", exchange, key)
	}
}

// take waits for a message in a queue.
func (s *purgeSystem) take(queue string) amqp.Delivery {
	s.t.Helper()
	var d amqp.Delivery
	testkit.Eventually(s.t, purgeTimeout, func() error {
		var ok bool
		var err error
		if d, ok, err = s.ch.Get(queue, false); err != nil || !ok {
			return fmt.Errorf("queue %s has no message: %v", queue, err)
		}
		return nil
	})
	return d
}

// backOff retries a delivery as the design specifies. It publishes a copy with the same key and, except for the
// delivery mode and the user-id, all properties. Then it acks the original. The first expiration is First. Each further
// expiration is three times x-death[0].original-expiration, plus up to 5%. If copyDeath is set, it also copies the
// header x-death, as some programs do.
func (s *purgeSystem) backOff(d amqp.Delivery, copyDeath bool) (expiration int64) {
	s.t.Helper()
	expiration = s.p.First.Milliseconds()
	if deaths, ok := d.Headers["x-death"].([]any); ok && len(deaths) > 0 {
		text, _ := deaths[0].(amqp.Table)["original-expiration"].(string)
		last, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			s.t.Fatalf("x-death[0].original-expiration: got %q in %v", text, deaths)
		}
		expiration = int64(float64(last) * 3 * (1 + 0.05*rand.Float64()))
	}
	headers := amqp.Table{}
	for k, v := range d.Headers {
		if copyDeath || k != "x-death" {
			headers[k] = v
		}
	}
	s.publish(s.p.WaitExchange, d.RoutingKey, amqp.Publishing{
		Headers: headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, Priority: d.Priority,
		CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, MessageId: d.MessageId, Timestamp: d.Timestamp,
		Type: d.Type, AppId: d.AppId, Body: d.Body, Expiration: strconv.FormatInt(expiration, 10),
	})
	if err := d.Ack(false); err != nil {
		s.t.Fatal(err)
	}
	return expiration
}

func (s *purgeSystem) client() *reprise.Client {
	s.t.Helper()
	c, err := reprise.Dial(s.t.Context(), s.broker.URL, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			s.t.Error(err)
		}
	})
	return c
}

// run runs a Reprise worker until the returned function is called. That function waits until the worker has settled its
// messages.
func (s *purgeSystem) run(c *reprise.Client, policy reprise.Policy, h reprise.HandlerFunc) (stop func()) {
	s.t.Helper()
	w, err := reprise.NewWorker(c, reprise.WorkerConfig{Queue: s.p.Queue, Strategy: s.p.Strategy(), Handler: h, Policy: policy, Concurrency: 4})
	if err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(context.Background()) }()
	return sync.OnceFunc(func() {
		s.t.Helper()
		if err := errors.Join(w.Shutdown(context.Background()), <-ended); err != nil {
			s.t.Error(err)
		}
	})
}

// failOnce runs a worker whose handler fails, until it has handled one message. It returns the message.
func (s *purgeSystem) failOnce(c *reprise.Client, policy reprise.Policy) *reprise.Delivery {
	s.t.Helper()
	seen := make(chan *reprise.Delivery, 16)
	stop := s.run(c, policy, func(_ context.Context, m *reprise.Delivery) error {
		seen <- m
		return errQueueFull
	})
	defer stop()
	select {
	case m := <-seen:
		return m
	case <-time.After(purgeTimeout):
		s.t.Fatal("worker got no message")
		return nil
	}
}

// lastWait returns the expiration and the count from the x-death entry of the wait queue.
func (s *purgeSystem) lastWait(d amqp.Delivery) (expiration, count int64) {
	s.t.Helper()
	deaths, _ := d.Headers["x-death"].([]any)
	if len(deaths) != 1 {
		s.t.Fatalf("x-death: got %v, want one entry", d.Headers["x-death"])
	}
	death := deaths[0].(amqp.Table)
	if death["queue"] != s.p.WaitQueue || death["reason"] != "expired" {
		s.t.Fatalf("x-death: got %v, want queue %s and reason expired", death, s.p.WaitQueue)
	}
	expiration, err := strconv.ParseInt(death["original-expiration"].(string), 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return expiration, death["count"].(int64)
}
