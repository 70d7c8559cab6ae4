package session

import (
	"fmt"
	"slices"
	"testing"

	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// A channel caches a route to a few queues. A cached route to many queues would keep all of them in memory, including
// deleted queues.
func TestRouteToManyQueuesIsNotCached(t *testing.T) {
	s := open(t, nil)
	s.receive(1, &amqpwire.ChannelOpen{})
	s.receive(2, &amqpwire.ChannelOpen{})
	bind := func(from, to int) {
		for i := from; i < to; i++ {
			queue := fmt.Sprint("q", i)
			s.receive(1, &amqpwire.QueueDeclare{Queue: queue}, &amqpwire.QueueBind{Queue: queue, Exchange: "amq.fanout"})
		}
	}
	publish := func() {
		s.receive(1, &amqpwire.BasicPublish{Exchange: "amq.fanout"})
		s.receiveFrames(emptyMessage())
	}
	bind(0, routeCacheQueues)
	publish()
	if n := len(s.channels[1].routeCache.queues); n != routeCacheQueues {
		t.Errorf("cached queues: got %d, want %d", n, routeCacheQueues)
	}
	bind(routeCacheQueues, 2*routeCacheQueues)
	publish()
	s.receive(2, &amqpwire.QueueDeclare{})
	queues := s.channels[1].routeCache.queues
	if queues = queues[:cap(queues)]; slices.ContainsFunc(queues, func(q *vhost.Queue) bool { return q != nil }) {
		t.Errorf("cache is not empty: %v", queues)
	}
}
