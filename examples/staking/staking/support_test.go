package staking_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/examples/staking/staking"
	"github.com/reprisemq/reprise/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// within is the maximum time that a test waits for an expected event.
const within = 2 * time.Minute

// original represents the original client of this design. It uses the same AMQP operations.
type original struct {
	t          *testing.T
	ch         *amqp.Channel
	queue      string
	delay      time.Duration
	deliveries <-chan amqp.Delivery
}

// message is a message that the original receives.
type message struct {
	body     string
	receipt  uint64
	attempts int32
	wire     amqp.Delivery
}

// newOriginal connects to the broker and declares the queues like the original client. The queues are deleted at the
// end of the test.
func newOriginal(t *testing.T, url, queue, queueType string, delay time.Duration) *original {
	t.Helper()
	conn, err := amqp.Dial(url)
	must(t, err)
	ch, err := conn.Channel()
	must(t, err)
	must(t, ch.ExchangeDeclare("common_dlx", "direct", true, false, false, false, amqp.Table{"x-queue-type": queueType}))
	_, err = ch.QueueDeclare(queue+"_delay", true, false, false, false, amqp.Table{
		"x-queue-type": queueType, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue,
	})
	must(t, err)
	_, err = ch.QueueDeclare(queue, true, false, false, false, amqp.Table{
		"x-queue-type": queueType, "x-dead-letter-exchange": "common_dlx", "x-dead-letter-routing-key": queue + "_routing_key",
	})
	must(t, err)
	must(t, ch.QueueBind(queue+"_delay", queue+"_routing_key", "common_dlx", false, nil))
	must(t, ch.Confirm(false))
	t.Cleanup(func() {
		for _, suffix := range []string{"", "_delay", "_failed"} {
			if _, err := ch.QueueDelete(queue+suffix, false, false, false); err != nil {
				t.Errorf("cannot delete queue %s: %v", queue+suffix, err)
			}
		}
		conn.Close()
	})
	return &original{t: t, ch: ch, queue: queue, delay: delay}
}

func (o *original) send(body string) { o.publish(o.queue, body, 0, 0) }

func (o *original) publish(queue, body string, attempts int32, ttl time.Duration) {
	o.t.Helper()
	p := amqp.Publishing{
		DeliveryMode: amqp.Persistent,
		ContentType:  "text/plain",
		Body:         []byte(body),
		Headers:      amqp.Table{"x-processing-attempts": attempts},
	}
	if ttl > 0 {
		p.Expiration = strconv.Itoa(int(ttl.Milliseconds()))
	}
	o.put(queue, p)
}

// put publishes p to a queue and waits for the confirm.
func (o *original) put(queue string, p amqp.Publishing) {
	o.t.Helper()
	confirm, err := o.ch.PublishWithDeferredConfirmWithContext(o.t.Context(), "", queue, true, false, p)
	must(o.t, err)
	if ok, err := confirm.WaitContext(o.t.Context()); !ok || err != nil {
		o.t.Fatal("message not confirmed: ", err)
	}
}

// receive returns the next message. The first call starts the consumer, which stop cancels.
func (o *original) receive() message {
	o.t.Helper()
	if o.deliveries == nil {
		var err error
		o.deliveries, err = o.ch.Consume(o.queue, "original", false, false, false, false, nil)
		must(o.t, err)
	}
	select {
	case d := <-o.deliveries:
		attempts := d.Headers["x-processing-attempts"]
		if attempts == nil {
			attempts = int32(0)
		}
		n, ok := attempts.(int32) // the original client panics on other types
		if !ok {
			o.t.Fatalf("x-processing-attempts: got %T, want int32 (the original client would panic)", attempts)
		}
		return message{string(d.Body), d.DeliveryTag, n, d}
	case <-time.After(within):
		o.t.Fatal("no message received")
		return message{}
	}
}

func (o *original) delete(receipt uint64) {
	o.t.Helper()
	must(o.t, o.ch.Ack(receipt, false))
}

func (o *original) requeue(m message) {
	o.t.Helper()
	o.publish(o.queue+"_delay", m.body, m.attempts+1, o.delay)
	o.delete(m.receipt)
}

// stop cancels the consumer, so that only the Queue or worker under test receives messages.
func (o *original) stop() {
	o.t.Helper()
	must(o.t, o.ch.Cancel("original", false))
	o.deliveries = nil
}

// take waits for a message in a queue, removes the message, and returns it.
func (o *original) take(queue string) amqp.Delivery {
	o.t.Helper()
	var d amqp.Delivery
	testkit.Eventually(o.t, within, func() bool {
		var ok bool
		var err error
		d, ok, err = o.ch.Get(queue, true)
		must(o.t, err)
		return ok
	})
	return d
}

func (o *original) depth(queue string) int {
	o.t.Helper()
	q, err := o.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	must(o.t, err)
	return q.Messages
}

// open opens a Queue, which is stopped at the end of the test.
func open(t *testing.T, url, name string, config staking.Config) *staking.Queue {
	t.Helper()
	client := reprise.Config{}
	if config.Client != nil {
		client = *config.Client
	}
	client.Reconnect = backoff.Exponential{Initial: 5 * time.Millisecond, Max: 100 * time.Millisecond}
	config.Client = &client
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	q, err := staking.Open(ctx, url, name, &config)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if err := q.Stop(ctx); err != nil {
			t.Errorf("cannot stop Queue: %v", err)
		}
	})
	return q
}

func receive(t *testing.T, q *staking.Queue) staking.Received {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	m, err := q.Receive(ctx)
	must(t, err)
	return m
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// short returns the design with a short delay, for tests in real time.
func short(queueType string) staking.Design {
	return staking.Design{RetryDelay: 20 * time.Millisecond, QueueType: queueType}
}

// long returns the design with a delay that does not elapse during a test, so that the test can inspect the delay
// queue.
func long(queueType string) staking.Design {
	return staking.Design{RetryDelay: time.Hour, QueueType: queueType}
}
