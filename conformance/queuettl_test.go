package conformance

import (
	"errors"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

// awaitDeleted waits until a queue has been deleted.
func (c *client) awaitDeleted(queue string) {
	c.t.Helper()
	testkit.Eventually(c.t, timeout, func() error {
		if c.routed(queue) {
			return errors.New(queue + " is still there")
		}
		return nil
	})
}

// routed reports whether a queue exists. It publishes a message, because a declaration would renew the TTL of the queue.
func (c *client) routed(queue string) bool {
	c.t.Helper()
	ch := c.open()
	defer ch.Close()
	returned := ch.NotifyReturn(make(chan amqp.Return, 1))
	confirm, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{})
	c.must(err)
	confirm.Wait()
	return len(returned) == 0 // the broker sends a return before the confirm
}

func (c *client) exists(queue string) bool {
	c.t.Helper()
	ch := c.open()
	defer ch.Close()
	_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	return err == nil
}

// The broker deletes an unused queue with its messages, and does not dead-letter these messages. A queue with a
// consumer does not expire.
func TestUnusedQueueExpires(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q, dead := c.expiring(amqp.Table{"x-expires": 1000})
		held, _ := c.expiring(amqp.Table{"x-expires": 1000})
		ch := c.open()
		_, err := ch.Consume(held, "tag", false, false, false, false, nil)
		c.must(err)
		c.put(q, "x")
		c.awaitDeleted(q)
		if n := c.ready(dead); n != 0 {
			t.Errorf("dead letters: got %d, want 0", n)
		}
		if !c.exists(held) {
			t.Error("queue with a consumer expired")
		}
		c.must(ch.Cancel("tag", false))
		c.awaitDeleted(held)
	})
}

func TestExpiresArgument(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := testkit.Name(t, "q")
		c.refused(406, "invalid arg 'x-expires' for queue '"+q+"' in vhost '/': {value_zero,0}", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-expires": 0})
			return err
		})
	})
}

// Declaring a queue, even passively, renews its queue TTL, as does getting a message from it.
func TestUseRenewsQueueTTL(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", amqp.Table{"x-expires": 1000})
		clock, rung := c.expiring(nil)
		c.putExpiring(clock, "after two TTLs", "2500")
		passive := true
		testkit.Eventually(t, timeout, func() error {
			if passive = !passive; passive {
				if !c.exists(q) {
					t.Fatal("queue expired although it was declared")
				}
			} else if _, _, err := c.Get(q, true); err != nil {
				t.Fatalf("queue expired although basic.get used it: %v", err)
			}
			if c.ready(rung) == 0 {
				return errors.New("not yet")
			}
			return nil
		})
	})
}
