package session

import (
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// way caches the route of the last message of a channel, because the next message usually has the same route.
type way struct {
	exchange, key string
	generation    uint64 // generation of the topology; 0: not valid
	queues        []*vhost.Queue
}

const (
	// wayMost is the number of queues that a channel caches between batches of frames. A deleted queue in the cache is not
	// accounted for, and uses about a third of the accounted size of a channel.
	wayMost = 4
	// wayRoom is the maximum capacity of the slice that a channel keeps.
	wayRoom = 32
)

// route returns the queues for a message. The slice is valid until the next message.
func (ch *channel) route(m *queue.Message) ([]*vhost.Queue, error) {
	w, now := &ch.way, ch.s.vhost.Generation()
	byKey := len(m.Headers) == 0 // otherwise the headers may change the route
	if byKey && w.generation == now && w.exchange == m.Exchange && w.key == m.RoutingKey {
		return w.queues, nil
	}
	clear(w.queues)
	queues, err := ch.s.vhost.Route(w.queues[:0], m)
	*w = way{queues: queues}
	if byKey && err == nil {
		w.exchange, w.key, w.generation = m.Exchange, m.RoutingKey, now
	}
	return queues, err
}

// forgetWay removes a route with many queues from the cache.
func (ch *channel) forgetWay() {
	switch {
	case ch == nil:
	case cap(ch.way.queues) > wayRoom:
		ch.way = way{}
	case len(ch.way.queues) > wayMost:
		clear(ch.way.queues)
		ch.way = way{queues: ch.way.queues[:0]}
	}
}
