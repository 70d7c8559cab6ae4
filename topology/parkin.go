package topology

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// ParkIn is a Route with another failed queue than {queue}.failed, for example the existing dead-letter queue of other
// programs. The failed queue is declared only if it does not exist. Several work queues may share it. The inner Route must park messages in
// {queue}.failed, as Buckets and Levels do, and the other routes of this package by default.
type ParkIn struct {
	Route Route  // default: Buckets{}
	Queue string // name of the failed queue
}

// Unwrap returns the inner route.
func (p ParkIn) Unwrap() Route { return Strategy{Route: p.Route}.WithDefaults().Route }

// Validate reports an invalid name, and the problems of the inner route.
func (p ParkIn) Validate() error {
	errs := []error{validateName("failed queue", p.Queue), validateReserved("failed queue", p.Queue), Strategy{Route: p.Unwrap()}.Validate()}
	if amqpvalue.IsWaitQueue(p.Queue) {
		errs = append(errs, fmt.Errorf("topology: ParkIn.Queue must not be a wait queue, whose messages return: got %q", p.Queue))
	}
	return errors.Join(errs...)
}

// ValidateQueue reports a work queue that is also the failed queue, or that does not park messages in {queue}.failed.
func (p ParkIn) ValidateQueue(queue string) error {
	if queue == p.Queue {
		return fmt.Errorf("topology: ParkIn.Queue must not be the work queue: got %q", queue)
	}
	if hop := p.Unwrap().Failed(Delivery{Queue: queue, RoutingKey: queue}); hop.Exchange != "" || hop.RoutingKey != FailedQueue(queue) {
		return fmt.Errorf("topology: ParkIn.Route must park messages in queue %q: got %T, which sets another destination (set it in the route itself)", FailedQueue(queue), p.Unwrap())
	}
	return Strategy{Route: p.Unwrap()}.ValidateQueue(queue)
}

// Topology returns the topology of the inner route, with the other failed queue.
func (p ParkIn) Topology(queue string) Topology { return p.rename(queue, p.Unwrap().Topology(queue)) }

// Wait returns the hop of the inner route.
func (p ParkIn) Wait(d Delivery, delay time.Duration) (Hop, error) {
	hop, err := p.Unwrap().Wait(d, delay)
	hop.Topology = p.rename(d.Queue, hop.Topology)
	return hop, err
}

// Failed returns the hop into the failed queue, through the default exchange.
func (p ParkIn) Failed(d Delivery) Hop {
	return Hop{RoutingKey: p.Queue, Topology: p.rename(d.Queue, p.Unwrap().Failed(d).Topology)}
}

// rename replaces {queue}.failed, also as a destination of dead letters.
func (p ParkIn) rename(queue string, t Topology) Topology {
	t.Queues = slices.Clone(t.Queues)
	for i, q := range t.Queues {
		if q.Name == FailedQueue(queue) {
			t.Queues[i].Name, t.Queues[i].IfAbsent = p.Queue, true
		}
		if q.Args["x-dead-letter-routing-key"] == FailedQueue(queue) {
			t.Queues[i].Args = q.Args.with("x-dead-letter-routing-key", p.Queue)
		}
	}
	return t
}
