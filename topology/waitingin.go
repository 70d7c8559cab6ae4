package topology

// WaitingIn returns the queue in which a message waits after a hop of the strategy's Route, according to the Topology of
// the hop or the Route. It returns "" if the message does not wait, if the queue is unknown, or if the message waits in
// several queues in turn.
func (s Strategy) WaitingIn(d Delivery, hop Hop) string {
	switch {
	case hop.Delay <= 0 || hop.Stations > 1:
		return ""
	case hop.Way == Requeue:
		return d.Queue
	case hop.Way == Copy && hop.Exchange == "":
		return hop.RoutingKey
	case hop.Way == Copy:
		return hop.Topology.singleQueue(hop.Exchange, hop.RoutingKey)
	}
	t := s.WithDefaults().Route.Topology(d.Queue)
	for _, q := range t.Queues {
		if exchange, found := q.Args["x-dead-letter-exchange"].(string); found && q.Name == d.Queue {
			key, _ := q.Args["x-dead-letter-routing-key"].(string)
			if key == "" {
				key = d.RoutingKey
			}
			return t.singleQueue(exchange, key)
		}
	}
	return ""
}

// singleQueue returns the only queue that receives messages with the given exchange and key. It returns "" if the queue is
// unknown, or if there are several.
func (t Topology) singleQueue(exchange, key string) string {
	if queues, err := t.Reach(exchange, key); err == nil && len(queues) == 1 {
		return queues[0]
	}
	return ""
}
