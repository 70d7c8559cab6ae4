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
	// wayMost is how many queues a channel remembers beyond the frames that are handled together. One that has been deleted is
	// not counted, and takes about a third of what a channel is counted as.
	wayMost = 4
	// wayRoom is for how many queues a channel keeps room.
	wayRoom = 32
)

// route finds the queues that a message goes to. They are valid until the next message.
func (ch *channel) route(m *queue.Message) ([]*vhost.Queue, error) {
	w, now := &ch.way, ch.s.vhost.Generation()
	byKey := len(m.Headers) == 0 // or else what is in them may lead elsewhere
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

// forgetWay forgets a way to many queues.
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
