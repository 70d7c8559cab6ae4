package preset

import (
	"time"

	"github.com/reprisemq/reprise/topology"
)

// cdnPurgeRoute is the way of all messages of the design, whatever their key. Which
// exchange they came from says nothing of whether it leads back: the header BCC, which
// nobody sees, may have been what led here.
type cdnPurgeRoute struct {
	topology.GrowingTTL                     // of those whose key leads into the wait queue and back
	aside               topology.GrowingTTL // of the others
}

// Unwrap returns the way of most messages.
func (r cdnPurgeRoute) Unwrap() topology.Route { return r.GrowingTTL }

// Wait implements topology.Route.
func (r cdnPurgeRoute) Wait(d topology.Delivery, delay time.Duration) (topology.Hop, error) {
	t := r.Infrastructure
	if t.Leads(r.WaitAddress.Exchange, d.RoutingKey, r.WaitQueue) && t.Leads(r.WorkExchange, d.RoutingKey, d.Queue) {
		return r.GrowingTTL.Wait(d, delay)
	}
	return r.aside.Wait(d, delay)
}

// aside is the way of messages with other keys, which fanout exchanges leave alone.
func (w CDNPurge) aside() topology.GrowingTTL {
	w = w.withDefaults()
	wait, back := w.WaitQueue+".aside", w.Queue+".aside"
	r := w.route()
	r.WaitQueue = wait
	r.WaitAddress.Exchange, r.WorkExchange = wait, back
	r.Infrastructure = topology.Topology{
		Exchanges: []topology.Exchange{{Name: wait, Kind: topology.Fanout}, {Name: back, Kind: topology.Fanout}},
		Queues: []topology.Queue{{Name: wait, Args: topology.Table{
			"x-queue-type":           "quorum",
			"x-dead-letter-exchange": back,
			"x-dead-letter-strategy": "at-least-once",
			"x-overflow":             "reject-publish", // without which it would not be at least once
		}}},
		Bindings: []topology.Binding{{Exchange: wait, Queue: wait}, {Exchange: back, Queue: w.Queue}},
	}
	return r
}
