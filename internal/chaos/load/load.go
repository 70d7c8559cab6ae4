package load

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The publishers publish to the queues in sources. The broker dead-letters messages to the queues in ends.
var (
	sources = map[string]amqp.Table{
		"work":    deadLettered("dead", amqp.Table{"x-queue-type": "quorum"}),
		"classic": deadLettered("dead", amqp.Table{}),
		"wait":    deadLettered("done", amqp.Table{"x-message-ttl": 100}),
		"qwait": deadLettered("done", amqp.Table{
			"x-queue-type": "quorum", "x-message-ttl": 150, "x-overflow": "reject-publish", "x-dead-letter-strategy": "at-least-once",
		}),
		// In a full queue, new messages displace older messages. Only the last messages reach the TTL.
		"short": deadLettered("done", amqp.Table{"x-max-length": 20, "x-message-ttl": 1000}),
	}
	ends = map[string]amqp.Table{"dead": {}, "done": {"x-queue-type": "quorum"}}
	// later is an exchange that delays messages before it routes them to the queue done.
	later = "later"
	// consumed lists the queues with a consumer.
	consumed = []string{"work", "classic", "dead", "done"}
)

func deadLettered(to string, t amqp.Table) amqp.Table {
	t["x-dead-letter-exchange"], t["x-dead-letter-routing-key"] = "", to
	return t
}

// rejected reports whether consumers reject a message. The result is the same for every delivery of a message.
func (m message) rejected() bool { return m.number%7 == 3 }

// destination returns the last queue of a message.
func destination(m message) string {
	switch {
	case m.queue == "wait" || m.queue == "qwait" || m.queue == "short" || m.queue == later:
		return "done"
	case m.rejected():
		return "dead"
	}
	return m.queue
}

// A Use publishes to a broker and consumes from it until the connections are lost.
type Use struct {
	Ledger *Ledger
	Dial   func() (*amqp.Connection, error)
	Pause  func()          // if not nil, called after each publish
	Done   context.Context // if not nil, the publishers stop when it is done

	life  int
	conns []*amqp.Connection

	publishing, group sync.WaitGroup
}

const inFlight = 100

// Begin declares the queues and starts publishers and consumers.
func (u *Use) Begin(t *testing.T) {
	t.Helper()
	u.life = u.Ledger.begin()
	ch := u.open(t)
	for _, all := range []map[string]amqp.Table{ends, sources} {
		for name, args := range all {
			if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, queue := range consumed {
		ch := u.open(t)
		if err := ch.Qos(50, 0, false); err != nil {
			t.Fatal(err)
		}
		deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		u.group.Go(func() { u.consume(t, queue, deliveries) })
	}
	if err := ch.ExchangeDeclare(later, "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "direct"}); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind("done", later, later, false, nil); err != nil {
		t.Fatal(err)
	}
	for _, queue := range append(slices.Collect(maps.Keys(sources)), later) {
		ch := u.open(t)
		if err := ch.Confirm(false); err != nil {
			t.Fatal(err)
		}
		flight := make(chan sent, inFlight)
		u.group.Go(func() { u.publish(queue, ch, flight) })
		u.publishing.Go(func() { u.confirm(flight) })
	}
}

func (u *Use) open(t *testing.T) *amqp.Channel {
	t.Helper()
	conn, err := u.Dial()
	if err != nil {
		t.Fatal(err)
	}
	u.conns = append(u.conns, conn)
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

type sent struct {
	message message
	confirm *amqp.DeferredConfirmation
}

func (u *Use) publish(queue string, ch *amqp.Channel, flight chan<- sent) {
	defer close(flight)
	for u.Done == nil || u.Done.Err() == nil {
		m := u.Ledger.next(queue)
		exchange, mandatory, headers := "", true, amqp.Table(nil)
		if queue == later { // a delayed message has no route yet
			exchange, mandatory, headers = later, false, amqp.Table{"x-delay": 120}
		}
		c, err := ch.PublishWithDeferredConfirm(exchange, queue, mandatory, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, Headers: headers, Body: []byte(m.String()),
		})
		if err != nil {
			return // the broker was killed
		}
		flight <- sent{m, c}
		if u.Pause != nil {
			u.Pause()
		}
	}
}

func (u *Use) confirm(flight <-chan sent) {
	for s := range flight {
		<-s.confirm.Done()
		if s.confirm.Acked() {
			u.Ledger.confirm(u.life, s.message)
		}
	}
}

func (u *Use) consume(t *testing.T, queue string, deliveries <-chan amqp.Delivery) {
	for d := range deliveries {
		m, err := parse(d.Body)
		if err != nil {
			t.Errorf("invalid message from %s: %q: %v", queue, d.Body, err)
		}
		if !u.Ledger.deliver(u.life, queue, m, d.Redelivered) {
			return
		}
		switch {
		case queue == m.queue && m.rejected() && queue == "work":
			err = d.Reject(false)
		case queue == m.queue && m.rejected():
			err = d.Nack(false, false)
		default:
			err = d.Ack(false)
		}
		if err != nil && !errors.Is(err, amqp.ErrClosed) {
			return // the broker was killed
		}
	}
}

// Lost waits until all publishers and consumers have lost their connections.
func (u *Use) Lost() {
	u.publishing.Wait()
	u.group.Wait()
}

// Finish waits up to 30 s until every confirmed message has arrived, and then closes the connections. The context
// u.Done must be done before the call.
func (u *Use) Finish(t *testing.T) {
	t.Helper()
	u.publishing.Wait()
	deadline := time.Now().Add(30 * time.Second)
	for !u.Ledger.complete() && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	for _, c := range u.conns {
		_ = c.Close()
	}
	u.group.Wait()
}
