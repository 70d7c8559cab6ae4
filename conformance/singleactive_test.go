package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

// sacConsumer is a consumer of a quorum queue with a single active consumer.
type sacConsumer struct {
	ch               *amqp.Channel
	number           int
	priority, window int
	deliveries       <-chan amqp.Delivery
}

// sacOrder compares waiting consumers: the priority, the prefetch, and the order of subscription determine the next active
// consumer, even if the consumer was active before.
func sacOrder(a, b *sacConsumer) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(b.credit(), a.credit()), cmp.Compare(a.number, b.number))
}

// credit returns the number of messages that the consumer accepts; a prefetch of 0 means 2,000.
func (s *sacConsumer) credit() int { return cmp.Or(s.window, 2000) }

// Random consumers join and leave a quorum queue. After each step, the expected consumer is active.
func TestSingleActiveConsumerFailover(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		if b.Version == "3.10" {
			return // ignores priorities
		}
		for seed := range uint64(8) {
			rng := rand.New(rand.NewPCG(seed, 0))
			q := c.queue(fmt.Sprint("q", seed), amqp.Table{"x-queue-type": "quorum", "x-single-active-consumer": true})
			var active *sacConsumer
			var waiting []*sacConsumer
			var steps []string
			for number := range 12 {
				if all := len(waiting) + 1; active != nil && all > 1 && rng.IntN(2) == 0 {
					gone := active
					if n := rng.IntN(2 * all); n < len(waiting) {
						gone = waiting[n]
					}
					steps = append(steps, fmt.Sprint("leave ", gone.number))
					c.must(gone.ch.Close())
					waiting = slices.DeleteFunc(waiting, func(s *sacConsumer) bool { return s == gone })
					if gone == active {
						active, waiting = waiting[0], waiting[1:]
					}
				} else {
					s := &sacConsumer{ch: c.open(), number: number, priority: rng.IntN(3), window: rng.IntN(3)}
					steps = append(steps, fmt.Sprintf("join %d, priority %d, prefetch %d", number, s.priority, s.window))
					c.must(s.ch.Qos(s.window, 0, false))
					var err error
					s.deliveries, err = s.ch.Consume(q, "", false, false, false, false, amqp.Table{"x-priority": s.priority})
					c.must(err)
					switch {
					case active == nil:
						active, s = s, nil
					case s.priority > active.priority:
						active, s = s, active
					}
					if s != nil {
						waiting = append(waiting, s)
					}
					slices.SortFunc(waiting, sacOrder)
				}
				got := c.receiver(q, append([]*sacConsumer{active}, waiting...))
				if got != active.number {
					t.Fatalf("seed %d: after %q: consumer %d is active, want %d", seed, steps, got, active.number)
				}
			}
		}
	})
}

// receiver publishes a message and returns the number of the consumer that receives it.
func (c *client) receiver(q string, all []*sacConsumer) (number int) {
	c.t.Helper()
	c.put(q, "x")
	testkit.Eventually(c.t, timeout, func() error {
		for _, s := range all {
			select {
			case d := <-s.deliveries:
				number = s.number
				return d.Ack(false)
			default:
			}
		}
		return errors.New("no delivery")
	})
	// The reply to a later request on the channel proves that the broker has processed the ack. Until then, the consumer stays
	// active.
	for _, s := range all {
		if s.number == number {
			c.must(s.ch.Qos(s.window, 0, false))
		}
	}
	return number
}
