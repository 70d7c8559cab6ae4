package conformance

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

func (c *client) transaction() *amqp.Channel {
	c.t.Helper()
	ch, err := c.conn.Channel()
	c.must(err)
	c.must(ch.Tx())
	return ch
}

// Publishes and acks take effect at the commit, and a rollback discards them.
func TestTransactions(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		ch := c.transaction()
		c.must(ch.Publish("", q, false, false, amqp.Publishing{Body: []byte("1")}))
		c.must(ch.Qos(1, 0, false)) // the broker replies after it has processed the publish
		if n := c.ready(q); n != 0 {
			t.Errorf("ready before the commit: got %d, want 0", n)
		}
		c.must(ch.TxCommit())
		c.awaitReady(q, 1)

		c.must(ch.Publish("", q, false, false, amqp.Publishing{Body: []byte("2")}))
		d, _, err := ch.Get(q, false)
		c.must(err)
		c.must(d.Ack(false))
		c.must(ch.TxRollback())
		c.must(d.Ack(false)) // the rollback reverted the first ack
		c.must(ch.TxCommit())
		c.must(ch.Close())
		if n := c.ready(q); n != 0 {
			t.Errorf("ready after the rollback: got %d, want 0", n)
		}
	})
}

// If a channel with a transaction closes before the commit, the broker requeues the messages that were acked in the
// transaction.
func TestUncommittedAcksAreRequeued(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		c.put(q, "1", "2", "3")
		ch := c.transaction()
		for i := range 3 {
			d, _, err := ch.Get(q, false)
			c.must(err)
			switch i {
			case 0:
				c.must(d.Ack(false))
			case 1:
				c.must(d.Reject(false))
			}
		}
		c.must(ch.Close())
		c.awaitReady(q, 3)
	})
}

// The broker returns an unroutable mandatory message at the commit, but reports a missing exchange immediately.
func TestTransactionalErrors(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		ch := c.transaction()
		returned := ch.NotifyReturn(make(chan amqp.Return, 1))
		c.must(ch.Publish("amq.direct", testkit.Name(t, "nowhere"), true, false, amqp.Publishing{}))
		c.must(ch.Qos(1, 0, false))
		select {
		case <-returned:
			t.Error("broker returned the message before the commit")
		default:
		}
		c.must(ch.TxCommit())
		select {
		case <-returned:
		case <-time.After(timeout):
			t.Error("broker did not return the message")
		}

		missing := testkit.Name(t, "missing")
		c.refused(404, "no exchange '"+missing+"' in vhost '/'", func(ch *amqp.Channel) error {
			c.must(ch.Tx())
			return ch.Publish(missing, "", false, false, amqp.Publishing{})
		})
		c.refused(406, "unknown delivery tag 5", func(ch *amqp.Channel) error {
			c.must(ch.Tx())
			return ch.Ack(5, false)
		})
	})
}

func TestTransactionsExcludeConfirms(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		c.refused(406, "channel is not transactional", func(ch *amqp.Channel) error { return ch.TxCommit() })
		c.refused(406, "channel is not transactional", func(ch *amqp.Channel) error { return ch.TxRollback() })
		c.refused(406, "cannot switch from tx to confirm mode", func(ch *amqp.Channel) error {
			c.must(ch.Tx())
			return ch.Confirm(false)
		})
		c.refused(406, "cannot switch from confirm to tx mode", func(ch *amqp.Channel) error {
			c.must(ch.Confirm(false))
			return ch.Tx()
		})
	})
}

// The broker routes a message when it receives the message. The deletion of the exchange before the commit therefore
// has no effect on the message.
func TestCommitAfterExchangeDeletion(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		if b.Version == "3.10" {
			return // 3.10 routes at the commit
		}
		x, q := c.exchange("x", "fanout"), c.queue("q", nil)
		c.bind(q, "", x)
		ch := c.transaction()
		c.must(ch.Publish(x, "", false, false, amqp.Publishing{Body: []byte("1")}))
		c.must(ch.Qos(1, 0, false))
		c.must(c.ExchangeDelete(x, false, false))
		c.must(ch.TxCommit())
		if got := c.bodies(q, 1); got != "1" {
			t.Errorf("message: got %s, want 1", got)
		}
	})
}

// commit commits a transaction on a channel that may be closed by the commit, and returns the result as text.
func commit(ch *amqp.Channel) string {
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	if err := ch.TxCommit(); err != nil {
		if e := <-closed; e != nil {
			return e.Reason
		}
		return err.Error()
	}
	return "committed"
}

// full declares a queue that refuses further messages.
func (c *client) full(label, kind, overflow string) string {
	c.t.Helper()
	q := c.queue(label, amqp.Table{"x-queue-type": kind, "x-max-length": int64(1), "x-overflow": overflow})
	for n := 0; c.publish("", q, amqp.Publishing{Body: []byte("old")}); n++ {
		if n == 100 {
			c.t.Fatal("queue does not refuse messages")
		}
	}
	return q
}

// A commit fails if a queue refuses a message of the transaction. The broker performs all other actions of the
// transaction.
func TestCommitToFullQueue(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		for _, full := range []string{
			c.full("reject", "classic", "reject-publish"), c.full("dead-letter", "classic", "reject-publish-dlx"),
			c.full("quorum", "quorum", "reject-publish"),
		} {
			if b.IsRabbitMQ && strings.HasPrefix(full, "quorum") {
				continue // RabbitMQ commits, and drops the message
			}
			x, q, work := c.exchange("x", "fanout"), c.queue("q", nil), c.queue("work", nil)
			c.bind(full, "", x)
			c.bind(q, "", x)
			c.put(work, "1", "2", "3")
			ch := c.transaction()
			ack, _, err := ch.Get(work, false)
			c.must(err)
			requeue, _, err := ch.Get(work, false)
			c.must(err)
			c.must(ack.Ack(false))
			c.must(ch.Publish(x, "", true, false, amqp.Publishing{Body: []byte("both")}))
			c.must(ch.Publish("", q, true, false, amqp.Publishing{Body: []byte("one")}))
			c.must(requeue.Nack(false, true))
			if got, want := commit(ch), "PRECONDITION_FAILED - partial tx completion"; got != want {
				t.Errorf("%s: got %s, want %s", full, got, want)
			}
			if got := c.bodies(q, 2); got != "both one" {
				t.Errorf("%s: other messages: got %s, want both one", full, got)
			}
			c.awaitReady(work, 2)
		}
	})
}

// A commit closes the connection if a queue was deleted after the broker had routed a message to it.
func TestCommitAfterQueueDeletion(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		if b.Version == "3.10" {
			return // 3.10 routes at the commit
		}
		for _, kind := range []string{"classic", "quorum"} {
			deleted, q, work := c.queue(kind, amqp.Table{"x-queue-type": kind}), c.queue(kind+"-q", nil), c.queue(kind+"-work", nil)
			c.put(work, "1", "2")
			ch := connect(t, b).transaction()
			d, _, err := ch.Get(work, false)
			c.must(err)
			c.must(d.Ack(false))
			c.must(ch.Publish("", q, false, false, amqp.Publishing{Body: []byte("before")}))
			c.must(ch.Publish("", deleted, false, false, amqp.Publishing{}))
			c.must(ch.Publish("", q, false, false, amqp.Publishing{Body: []byte("after")}))
			c.must(ch.Qos(1, 0, false))
			_, err = c.QueueDelete(deleted, false, false, false)
			c.must(err)
			got := strings.Join(strings.Fields(commit(ch)), "") // RabbitMQ adds line breaks
			want := `RESOURCE_ERROR-failedtodelivermessage:{not_found,{resource,<<"/">>,queue,<<"` + deleted + `">>}}`
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if got := c.bodies(q, 1); got != "before" {
				t.Errorf("message: got %s, want before", got)
			}
			c.awaitReady(work, 2) // the ack had no effect
			c.awaitReady(q, 0)
		}
	})
}
