package conformance

import (
	"maps"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

// delayed declares a quorum queue with a delayed retry, or returns "" where there is none: it came with 4.3.
func (c *client) delayed(b testkit.Target, args amqp.Table) string {
	if b.Version == "3.10" {
		return ""
	}
	all := amqp.Table{"x-queue-type": "quorum"}
	maps.Copy(all, args)
	return c.queue("q", all)
}

// What is given back waits, and does not keep the others waiting. While it does it is not ready.
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
			t.Errorf("%d ready", n)
		}
		if got := c.bodies(q, 2); got != "2 1" {
			t.Errorf("order is %s", got)
		}
	})
}

// The maximum counts, also where it is below the minimum.
func TestDelayedRetryMaximumBelowMinimum(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		q := c.delayed(b, amqp.Table{"x-delayed-retry-type": "all", "x-delayed-retry-min": 600000, "x-delayed-retry-max": 10})
		if q == "" {
			return
		}
		c.put(q, "1")
		c.must(c.get(q).Nack(false, true))
		if got := c.bodies(q, 1); got != "1" {
			t.Errorf("got %s", got)
		}
	})
}

// The type says which of them wait: those whose delivery failed, or those that were given back on purpose.
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

// A message that was taken before says how often: all deliveries, and those that failed.
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
					t.Errorf("delivery %d: %s is %v, want %v", i+1, header, d.Headers[header], want[header])
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
