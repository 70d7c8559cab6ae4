package topology

import "cmp"

// Rejected returns the declaration of the work queue, and the queue to which the broker moves the delivery if the worker
// rejects it. It returns false unless this queue is the only destination of failed, the hop of a copy that is parked. It
// also returns false if the worker must not reject the delivery because of a forged header x-death.
//
// The result is valid only if the work queue exists with these arguments. If sure is false, the broker drops the message if
// the other queue does not exist.
func (t Topology) Rejected(d Delivery, failed Hop) (work Queue, to string, sure, ok bool) {
	for _, q := range t.Queues {
		exchange, found := q.Args["x-dead-letter-exchange"].(string)
		if q.Name != cmp.Or(d.Source, d.Queue) || !found || checkRejectable(d) != nil {
			continue
		}
		key, fixed := q.Args["x-dead-letter-routing-key"].(string)
		if !fixed {
			key = d.RoutingKey
		}
		to = t.singleQueue(exchange, key)
		sure = q.Args["x-dead-letter-strategy"] == "at-least-once"
		return q, to, sure, to != "" && to == t.singleQueue(failed.Exchange, failed.RoutingKey) && (sure || exchange == "")
	}
	return Queue{}, "", false, false
}
