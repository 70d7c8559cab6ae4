package conformance

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Waiting{M: m}.Run()) }

// timeout limits the wait for a condition that the test expects soon.
const timeout = 2 * time.Minute

// client is a connection and a channel in confirm mode, with shorthand methods for tests.
type client struct {
	*amqp.Channel
	t    *testing.T
	b    testkit.Target
	conn *amqp.Connection
}

// each runs a test on each broker, each time with a new connection.
func each(t *testing.T, test func(t *testing.T, b testkit.Target, c *client)) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) { test(t, b, connect(t, b)) })
}

func connect(t *testing.T, b testkit.Target) *client {
	t.Helper()
	conn, err := amqp.Dial(b.URL)
	if err != nil {
		t.Fatalf("cannot connect to %s: %v", b.Name, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &client{t: t, b: b, conn: conn}
	c.Channel = c.open()
	return c
}

// open returns an additional channel in confirm mode.
func (c *client) open() *amqp.Channel {
	c.t.Helper()
	ch, err := c.conn.Channel()
	c.must(err)
	c.must(ch.Confirm(false))
	return ch
}

func (c *client) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// queue declares a durable queue with a unique name, and deletes it after the test.
func (c *client) queue(label string, args amqp.Table) string {
	c.t.Helper()
	name := testkit.Name(c.t, label)
	c.declare(name, args)
	return name
}

func (c *client) declare(name string, args amqp.Table) {
	c.t.Helper()
	_, err := c.QueueDeclare(name, true, false, false, false, args)
	c.must(err)
	c.cleanup(func(ch *amqp.Channel) { _, _ = ch.QueueDelete(name, false, false, false) })
}

// exchange declares a durable exchange with a unique name, and deletes it after the test.
func (c *client) exchange(label, kind string) string {
	c.t.Helper()
	name := testkit.Name(c.t, label)
	c.must(c.ExchangeDeclare(name, kind, true, false, false, false, nil))
	c.cleanup(func(ch *amqp.Channel) { _ = ch.ExchangeDelete(name, false, false) })
	return name
}

func (c *client) bind(queue, key, exchange string) {
	c.t.Helper()
	c.must(c.QueueBind(queue, key, exchange, false, nil))
}

// cleanup runs f after the test. It uses a separate channel, because the test may have caused the broker to close the
// channel of c.
func (c *client) cleanup(f func(*amqp.Channel)) {
	c.t.Cleanup(func() {
		if ch, err := c.conn.Channel(); err == nil {
			f(ch)
		}
	})
}

// publish publishes a message to an exchange and reports whether the broker acked the message.
func (c *client) publish(exchange, key string, m amqp.Publishing) bool {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	confirm, err := c.PublishWithDeferredConfirm(exchange, key, false, false, m)
	c.must(err)
	ack, err := confirm.WaitContext(ctx)
	c.must(err)
	return ack
}

// put publishes one message per body to a queue, through the default exchange.
func (c *client) put(queue string, bodies ...string) {
	c.t.Helper()
	for _, body := range bodies {
		if !c.publish("", queue, amqp.Publishing{Body: []byte(body)}) {
			c.t.Fatalf("broker nacked %q", body)
		}
	}
}

// get waits for a message in a queue and returns it. It does not ack the message.
func (c *client) get(queue string) amqp.Delivery {
	c.t.Helper()
	var d amqp.Delivery
	testkit.Eventually(c.t, timeout, func() error {
		found, ok, err := c.Get(queue, false)
		switch {
		case err != nil:
			c.t.Fatal(err)
		case !ok:
			return errors.New("no message in " + queue)
		}
		d = found
		return nil
	})
	return d
}

// bodies gets and acks n messages from a queue, and returns their bodies, separated by spaces.
func (c *client) bodies(queue string, n int) string {
	c.t.Helper()
	var got []string
	for range n {
		d := c.get(queue)
		got = append(got, string(d.Body))
		c.must(d.Ack(false))
	}
	return strings.Join(got, " ")
}

// ready returns the number of ready messages in a queue.
func (c *client) ready(queue string) int {
	c.t.Helper()
	q, err := c.QueueDeclarePassive(queue, true, false, false, false, nil)
	c.must(err)
	return q.Messages
}

// awaitReady waits until a queue has n ready messages.
func (c *client) awaitReady(queue string, n int) {
	c.t.Helper()
	testkit.Eventually(c.t, timeout, func() error {
		if got := c.ready(queue); got != n {
			return errors.New(queue + " has not the right number of messages")
		}
		return nil
	})
}

// consume starts a consumer and returns its deliveries.
func (c *client) consume(queue string, args amqp.Table) <-chan amqp.Delivery {
	c.t.Helper()
	deliveries, err := c.Consume(queue, "", false, false, false, false, args)
	c.must(err)
	return deliveries
}

// next waits for a delivery.
func (c *client) next(deliveries <-chan amqp.Delivery) amqp.Delivery {
	c.t.Helper()
	select {
	case d, ok := <-deliveries:
		if !ok {
			c.t.Fatal("broker cancelled the consumer")
		}
		return d
	case <-time.After(timeout):
		c.t.Fatal("no delivery")
	}
	panic("unreachable")
}

// refused calls f with a channel on a new connection, and checks the error with which the broker closes the channel or
// the connection.
func (c *client) refused(code int, text string, f func(ch *amqp.Channel) error) {
	c.t.Helper()
	conn, err := amqp.Dial(c.b.URL)
	c.must(err)
	defer conn.Close()
	ch, err := conn.Channel()
	c.must(err)
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	err = f(ch)
	if err == nil { // the broker reports the error asynchronously
		select {
		case e := <-closed:
			err = e
		case <-time.After(timeout):
			c.t.Fatalf("broker did not report an error, want %d %s", code, text)
		}
	}
	e, ok := errors.AsType[*amqp.Error](err)
	if !ok {
		c.t.Fatalf("got %v, want %d %s", err, code, text)
	}
	name, _, _ := strings.Cut(e.Reason, " - ")
	want := name + " - " + text
	if len(want) > 255 { // the maximum length of a short string on the wire
		want = want[:252] + "..."
	}
	if e.Code != code || e.Reason != want {
		c.t.Errorf("got  %v\nwant %d %s", err, code, want)
	}
}
