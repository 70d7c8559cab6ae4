package session

import (
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// routeCache caches the route of a channel's last message, because the next message usually has the same route.
type routeCache struct {
	exchange, key string
	generation    uint64 // generation of the topology; 0: not valid
	queues        []*vhost.Queue
}

const (
	// routeCacheQueues is the maximum number of queues that a channel caches between batches of frames. The memory
	// account does not include deleted queues that are still in the cache. Each of them uses about a third of
	// channelSize.
	routeCacheQueues = 4
	// routeCacheCap is the maximum capacity of the slice that a channel keeps.
	routeCacheCap = 32
)

// route returns the queues for a message. The slice is valid until the next call.
func (ch *channel) route(m *queue.Message) ([]*vhost.Queue, error) {
	w, now := &ch.routeCache, ch.s.vhost.Generation()
	byKey := len(m.Headers)+len(m.BCC) == 0 // otherwise the route may depend on them; BCC is no longer in the headers
	if byKey && now != 0 && w.generation == now && w.exchange == m.Exchange && w.key == m.RoutingKey {
		return w.queues, nil
	}
	clear(w.queues)
	queues, err := ch.s.vhost.Route(w.queues[:0], m)
	*w = routeCache{queues: queues}
	if byKey && err == nil {
		w.exchange, w.key, w.generation = m.Exchange, m.RoutingKey, now
	}
	return queues, err
}

// trimRouteCache removes a route with many queues from the cache.
func (ch *channel) trimRouteCache() {
	switch {
	case ch == nil:
	case cap(ch.routeCache.queues) > routeCacheCap:
		ch.routeCache = routeCache{}
	case len(ch.routeCache.queues) > routeCacheQueues:
		clear(ch.routeCache.queues)
		ch.routeCache = routeCache{queues: ch.routeCache.queues[:0]}
	}
}
