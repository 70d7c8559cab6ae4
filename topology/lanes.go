package topology

import (
	"cmp"
	"fmt"
	"time"
)

// MaxLanes is the maximum number of lanes of a work queue. Each process has a consumer for each lane.
const MaxLanes = 256

// Lanes is the Route of a work queue that is divided into lanes, so that many messages with one key do not delay the messages with
// other keys. A worker with WorkerConfig.Lanes of package reprise uses it by default.
//
//	orders.lane.0-of-8 … orders.lane.7-of-8 ─► handler ─► failed ─► orders.lane.wait.1000-1250 ─► the same lane
//
// The lanes have common wait queues, as with Buckets, and a common failed queue {queue}.failed. A wait queue has a fanout exchange
// of the same name, so that a copy keeps the name of its lane as the routing key, and returns only to this lane. A work queue
// can have several numbers of lanes at the same time, because the name of a lane contains the number.
type Lanes struct {
	Count   int     // number of lanes, from 1 to MaxLanes
	Buckets Buckets // settings of the wait queues
}

// Queue returns the name of a lane, from 0.
func (l Lanes) Queue(queue string, n int) string {
	return fmt.Sprintf("%s.lane.%d-of-%d", queue, n, l.Count)
}

// Queues returns the names of all lanes.
func (l Lanes) Queues(queue string) []string {
	all := make([]string, l.Count)
	for n := range all {
		all[n] = l.Queue(queue, n)
	}
	return all
}

// Validate reports an invalid number of lanes, and invalid settings of the wait queues.
func (l Lanes) Validate() error {
	if l.Count < 1 || l.Count > MaxLanes {
		return fmt.Errorf("topology: Lanes.Count must be between 1 and %d: got %d", MaxLanes, l.Count)
	}
	return l.Buckets.Validate()
}

// ValidateQueue reports a work queue whose lanes, wait queues or failed queue would have names that no broker accepts.
func (l Lanes) ValidateQueue(queue string) error {
	return validateNames(queue, l.Queue(queue, l.Count), l.Buckets.waitQueue(lanes(queue), MaxDelay), FailedQueue(queue))
}

// lanes returns the prefix that the names of the lanes and of their wait queues share.
func lanes(queue string) string { return queue + ".lane" }

// Topology returns the lanes, which are declared only if they do not exist, and the failed queue.
func (l Lanes) Topology(queue string) (t Topology) {
	for _, lane := range l.Queues(queue) {
		t = t.Merge(workAndFailed(lane, FailedQueue(queue)))
	}
	return t
}

// Wait returns the hop through the fanout exchange into the wait queue for the delay.
func (l Lanes) Wait(d Delivery, delay time.Duration) (Hop, error) {
	hop, err := l.Buckets.Wait(Delivery{Queue: lanes(d.Queue)}, delay)
	wait := hop.RoutingKey
	hop.Exchange, hop.RoutingKey = wait, cmp.Or(d.Source, l.Queue(d.Queue, 0))
	hop.Topology = Topology{
		Exchanges: []Exchange{{Name: wait, Kind: Fanout}},
		Queues:    []Queue{waitQueue(wait, "", "")}, // an expired copy keeps its routing key
		Bindings:  []Binding{{Exchange: wait, Queue: wait}},
	}
	return hop, err
}

// Failed returns the hop into the failed queue, through the default exchange.
func (l Lanes) Failed(d Delivery) Hop { return failed(d.Queue) }
