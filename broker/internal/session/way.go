package session

import (
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// way is where a channel's last message went. Most of the time the next one goes there, too.
type way struct {
	exchange, key string
	generation    uint64 // of the topology that it was found in; 0: it cannot be relied on
	queues        []*vhost.Queue
}

const (
	wordSize = 8
	// wayFree is for how many queues the size of a channel has room.
	wayFree = 32
)

// route finds the queues that a message goes to. They are valid until the next message.
func (ch *channel) route(m *queue.Message) ([]*vhost.Queue, error) {
	w, now := &ch.way, ch.s.vhost.Generation()
	byKey := len(m.Headers) == 0 // or else what is in them may lead elsewhere
	if byKey && w.generation == now && w.exchange == m.Exchange && w.key == m.RoutingKey {
		return w.queues, nil
	}
	queues, err := ch.s.vhost.Route(w.queues[:0], m)
	*w = way{queues: queues}
	ch.routed.Set(wordSize * int64(max(0, cap(queues)-wayFree)))
	if byKey && err == nil {
		w.exchange, w.key, w.generation = m.Exchange, m.RoutingKey, now
	}
	return queues, err
}
