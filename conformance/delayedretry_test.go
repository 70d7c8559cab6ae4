package conformance

import (
	"maps"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

// delayed declares a quorum queue with delayed retries. It returns "" for RabbitMQ 3.10, which does not support delayed
// retries.
func (c *client) delayed(b testkit.Target, args amqp.Table) string {
	if b.Version == "3.10" {
		return ""
	}
	all := amqp.Table{"x-queue-type": "quorum"}
	maps.Copy(all, args)
	return c.queue("q", all)
}

// A requeued message is not ready until its delay has passed. While it waits, it does not block other messages.
func TestDelayedRetry(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		q := c.delayed(b, amqp.Table{"x-delayed-retry-type": "all", "x-delayed-retry-min": 2000})
		if q == "" {
			return
		}
		c.put(q, "1", "2")
		c.must(c.get(q).Nack(false, true))
		if n := c.ready(q); n != 1 {
			t.Errorf("ready: got %d, want 1", n)
		}
		if got := c.bodies(q, 2); got != "2 1" {
			t.Errorf("order: got %s, want 2 1", got)
		}
	})
}

// The maximum delay applies even if it is shorter than the minimum delay.
func TestDelayedRetryMaximumBelowMinimum(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		q := c.delayed(b, amqp.Table{"x-delayed-retry-type": "all", "x-delayed-retry-min": 600000, "x-delayed-retry-max": 10})
		if q == "" {
			return
		}
		c.put(q, "1")
		c.must(c.get(q).Nack(false, true))
		if got := c.bodies(q, 1); got != "1" {
			t.Errorf("redelivered message: got %s, want 1", got)
		}
	})
}

// The type of the delayed retry selects which requeued messages are delayed: messages whose deliveries failed
// (basic.reject) or were returned (basic.nack), or both.
func TestDelayedRetryTypes(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		for _, test := range []struct {
			kind                   string
			nackWaits, rejectWaits bool
		}{
			{"all", true, true},
			{"failed", false, true},
			{"returned", true, false},
			{"disabled", false, false},
			{"bogus", false, false},
		} {
			q := c.delayed(b, amqp.Table{"x-delayed-retry-type": test.kind, "x-delayed-retry-min": 600000})
			if q == "" {
				return
			}
			c.put(q, "1", "2")
			first, second := c.get(q), c.get(q)
			c.must(first.Nack(false, true))
			c.must(second.Reject(true))
			want := 0
			for _, waits := range []bool{test.nackWaits, test.rejectWaits} {
				if !waits {
					want++
				}
			}
			c.awaitReady(q, want)
		}
	})
}

// A redelivered message contains the number of its earlier deliveries and the number of its failed deliveries.
func TestAcquiredCount(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		if b.Version == "3.10" {
			return
		}
		q := c.queue("q", amqp.Table{"x-queue-type": "quorum"})
		c.put(q, "x")
		for i, want := range []amqp.Table{
			{},
			{"x-acquired-count": int64(1)},
			{"x-acquired-count": int64(2), "x-delivery-count": int64(1)},
		} {
			d := c.get(q)
			for _, header := range []string{"x-acquired-count", "x-delivery-count"} {
				if d.Headers[header] != want[header] {
					t.Errorf("delivery %d: %s: got %v, want %v", i+1, header, d.Headers[header], want[header])
				}
			}
			if i == 0 {
				c.must(d.Nack(false, true))
			} else {
				c.must(d.Reject(true))
			}
		}
	})
}
