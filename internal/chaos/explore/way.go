package explore

import (
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// A Way specifies how a worker settles a failed message.
type Way struct {
	Name  string
	Order reprise.Order
	Route topology.Route

	// Copies means that a retry is a copy of the message.
	Copies bool

	// classic returns the queues of an exploration with classic queues. The Route of a Way declares quorum
	// queues.
	classic func(queue string) []topology.Queue
}

// The ways.
var (
	Requeue = Way{
		Name:  "requeue",
		Route: topology.Requeuing{},
		classic: func(queue string) []topology.Queue {
			return []topology.Queue{{Name: queue}, {Name: queue + ".failed"}}
		},
	}
	PublishThenAck = Way{
		Name:    "publish, then ack",
		Order:   reprise.PublishThenAck,
		Route:   topology.Buckets{Base: 2 * delay},
		Copies:  true,
		classic: classicBuckets,
	}
	AckThenPublish = Way{
		Name:    "ack, then publish",
		Order:   reprise.AckThenPublish,
		Route:   topology.Buckets{Base: 2 * delay},
		Copies:  true,
		classic: classicBuckets,
	}
	DeadLetter = Way{
		Name:  "dead-letter exchange",
		Route: topology.DeadLettering{Delay: delay},
		classic: func(queue string) []topology.Queue {
			retry := deadLettersTo(queue)
			retry["x-message-ttl"] = delay.Milliseconds()
			return []topology.Queue{
				{Name: queue, Args: deadLettersTo(queue + ".retry")},
				{Name: queue + ".retry", Args: retry},
				{Name: queue + ".failed"},
			}
		},
	}
)

// delay is the delay of a retry.
const delay = 10 * time.Millisecond

func classicBuckets(queue string) []topology.Queue {
	return []topology.Queue{
		{Name: queue},
		{Name: queue + ".wait.0-20", Args: deadLettersTo(queue)},
		{Name: queue + ".failed"},
	}
}

func deadLettersTo(queue string) topology.Table {
	return topology.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
}
