package session

import (
	"fmt"
	"slices"
	"testing"

	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// A channel caches a route to a few queues. A cached route to many queues would keep all of them in memory, including deleted
// queues.
func TestAWayToManyQueuesIsForgotten(t *testing.T) {
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
	bind(0, wayMost)
	publish()
	if n := len(s.channels[1].way.queues); n != wayMost {
		t.Errorf("%d queues are remembered of %d", n, wayMost)
	}
	bind(wayMost, 2*wayMost)
	publish()
	s.receive(2, &amqpwire.QueueDeclare{})
	queues := s.channels[1].way.queues
	if queues = queues[:cap(queues)]; slices.ContainsFunc(queues, func(q *vhost.Queue) bool { return q != nil }) {
		t.Errorf("queues are remembered: %v", queues)
	}
}
