package preset

import (
	"time"

	"github.com/reprisemq/reprise/topology"
)

// cdnPurgeRoute is the route of all messages of the design, with any routing key. Wait checks the routing key even if the
// message came through the main exchange, because the broker may have routed it by the header BCC, which consumers do not
// receive.
type cdnPurgeRoute struct {
	topology.GrowingTTL                     // for messages whose key leads into the wait queue and back
	otherKeys           topology.GrowingTTL // for all other messages
}

// Unwrap returns the route of messages whose key leads into the wait queue and back.
func (r cdnPurgeRoute) Unwrap() topology.Route { return r.GrowingTTL }

// Wait implements topology.Route.
func (r cdnPurgeRoute) Wait(d topology.Delivery, delay time.Duration) (topology.Hop, error) {
	t := r.Infrastructure
	if t.Leads(r.WaitAddress.Exchange, d.RoutingKey, r.WaitQueue) && t.Leads(r.WorkExchange, d.RoutingKey, d.Queue) {
		return r.GrowingTTL.Wait(d, delay)
	}
	return r.otherKeys.Wait(d, delay)
}

// otherKeys returns the route of messages whose key does not lead into the wait queue and back. Its fanout exchanges
// accept any key and do not change it.
func (w CDNPurge) otherKeys() topology.GrowingTTL {
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
			"x-overflow":             "reject-publish", // required for at-least-once
		}}},
		Bindings: []topology.Binding{{Exchange: wait, Queue: wait}, {Exchange: back, Queue: w.Queue}},
	}
	return r
}
