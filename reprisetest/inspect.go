package reprisetest

import (
	"slices"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testhook"
	"github.com/reprisemq/reprise/topology"
)

// Queues returns statistics of the queues in all virtual hosts.
func (b *Broker) Queues() []broker.QueueStats {
	return slices.DeleteFunc(b.server.Queues(), func(q broker.QueueStats) bool { return q.Name == fullQueue })
}

// Depth returns the number of ready messages in a queue. It does not count unacked messages.
func (b *Broker) Depth(t TB, queue string) int {
	t.Helper()
	return len(b.look(t, queue))
}

// Messages returns the ready messages of a queue, in the order of delivery, without removing them. The messages have
// the same content as in a handler, except that Attempt is the number of completed attempts.
func (b *Broker) Messages(t TB, queue string) []*reprise.Delivery {
	t.Helper()
	return decode(b.look(t, queue), queue, b.strategy(queue).Marks)
}

// Parked returns the messages that workers of a work queue have parked, oldest first, without removing them. Their
// field Errors contains the causes. With the default strategy, the messages are in {queue}.failed. Parked uses the
// strategy of the worker that was started last for the queue. If this strategy parks the messages of several work
// queues in one queue, and its marks do not record the work queue, Parked returns the messages of all these work
// queues.
func (b *Broker) Parked(t TB, queue string) []*reprise.Delivery {
	t.Helper()
	s := b.strategy(queue)
	var all []*reprise.Delivery
	for _, failed := range b.failedQueues(t, queue, s) {
		for _, m := range decode(b.inside.Messages("/", failed), queue, s.Marks) {
			if m.Queue == queue {
				all = append(all, m)
			}
		}
	}
	return all
}

// failedQueues returns the queues in which a strategy parks the messages of a work queue.
func (b *Broker) failedQueues(t TB, work string, s topology.Strategy) []string {
	t.Helper()
	hop := s.Route.Failed(topology.Delivery{Queue: work, RoutingKey: work})
	exchange, key := hop.Exchange, hop.RoutingKey
	if hop.Way == topology.DeadLetter {
		b.queue(t, work)
		var found bool
		if exchange, key, found = b.inside.DeadLetterTarget("/", work, work); !found {
			t.Fatalf("reprisetest: queue %q must have a dead-letter exchange for parked messages", work)
		}
	}
	queues, err := b.inside.Route("/", exchange, key)
	if err != nil || len(queues) == 0 {
		t.Fatalf("reprisetest: failed queue of %q not found: exchange %q does not route key %q to a queue (a worker declares it; existing queues: %s)",
			work, exchange, key, b.names())
	}
	return queues
}

// strategy returns the strategy of the worker that was started last for the queue.
func (b *Broker) strategy(queue string) topology.Strategy {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.strategies[queue].WithDefaults()
}

// queue returns a queue, or fails the test.
func (b *Broker) queue(t TB, name string) testhook.Queue {
	t.Helper()
	q, found := b.inside.Queue("/", name)
	if !found {
		t.Fatalf("reprisetest: queue %q not found (existing queues: %s)", name, b.names())
	}
	return q
}

func (b *Broker) look(t TB, name string) []testhook.Message {
	t.Helper()
	b.waitIdle()
	b.queue(t, name)
	return b.inside.Messages("/", name)
}

// names lists the names of the existing queues.
func (b *Broker) names() string {
	var all []string
	for _, q := range b.Queues() {
		if q.VHost == "/" {
			all = append(all, q.Name)
		}
	}
	if all == nil {
		return "no queues"
	}
	return strings.Join(all, ", ")
}

// inventory reports the location of messages, for a failed test.
func (b *Broker) inventory() string {
	var lines []string
	for _, s := range b.survey() {
		if text := s.String(); text != "" {
			lines = append(lines, "\t"+text)
		}
	}
	if lines == nil {
		return "\tnone"
	}
	return strings.Join(lines, "\n")
}
