package load

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// How consumers acknowledge.
const (
	AckAuto     = "auto"     // not at all: the broker takes what it has sent for settled
	AckEach     = "each"     // one basic.ack for each message; those that are due together are written together
	AckMultiple = "multiple" // one basic.ack for all that was read at once
)

// Options say what to do to which broker. The zero value of a field is its
// default.
type Options struct {
	URL string // amqp://user:password@host:port/vhost

	Publishers  int // Default: 1.
	Consumers   int // Default: 1. Negative: none, and what is published stays in the queues.
	Connections int // Shared by publishers and consumers alike. Default: one for each of them.
	Queues      int // Publisher i serves the queues i, i+Publishers and so on, and so do consumers. Default: 1.

	Queue     string         // Name of the queues; a number follows. Default: "bench".
	QueueType string         // classic or quorum. Default: "classic".
	Arguments amqpwire.Table // Further arguments of the queues.
	Transient bool           // Messages need not survive; the queues are durable all the same.
	Body      int            // Bytes of a message, 16 at least. Default: 16.

	// TTL is how long messages wait before they are dead-lettered into another
	// queue, from which they are consumed. Default: they do not wait.
	TTL time.Duration

	Confirms int    // Messages in flight of each publisher. Default: publishing is not confirmed.
	Prefetch int    // Of each consumer of a queue. Default: no limit.
	Ack      string // Default: AckEach.

	Rate     float64       // Messages per second, of all publishers together and evenly spaced. Default: as fast as it goes.
	Count    int64         // Messages to publish in all, or
	Duration time.Duration // for how long to publish.
	WarmUp   time.Duration // How long to publish before that. Default: not at all.

	Late  time.Duration // What counts as late, with a TTL. Default: 50 ms.
	Stall time.Duration // How long nothing may arrive before the rest is taken for lost. Default: 30 s.
	Keep  bool          // Leave the queues, and what is in them, as they are at the end.

	// Dial connects to the broker. Default: a net.Dialer.
	Dial func(network, address string) (net.Conn, error)
}

func (o Options) complete() (Options, error) {
	setDefault(&o.Publishers, 1)
	setDefault(&o.Consumers, 1)
	o.Consumers = max(o.Consumers, 0)
	setDefault(&o.Queues, 1)
	setDefault(&o.Connections, o.Publishers+o.Consumers)
	setDefault(&o.Queue, "bench")
	setDefault(&o.QueueType, "classic")
	setDefault(&o.Body, stampSize)
	setDefault(&o.Ack, AckEach)
	setDefault(&o.Late, 50*time.Millisecond)
	setDefault(&o.Stall, 30*time.Second)
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: 10 * time.Second}).Dial
	}
	switch {
	case (o.Count > 0) == (o.Duration > 0):
		return o, errors.New("give a count or a duration, and not both")
	case o.Publishers < 0 || o.Queues < 0 || o.Connections < 0 || o.Confirms < 0 || o.Rate < 0 || o.TTL < 0:
		return o, errors.New("a number is negative")
	case o.Publishers > maxPublishers:
		return o, fmt.Errorf("%d publishers: %d at most", o.Publishers, maxPublishers)
	case o.Body < stampSize:
		return o, fmt.Errorf("a body of %d bytes has no room for the stamp of %d", o.Body, stampSize)
	case o.Prefetch < 0 || o.Prefetch > 65535:
		return o, fmt.Errorf("prefetch must be 0 to 65535: got %d", o.Prefetch)
	case o.Ack != AckAuto && o.Ack != AckEach && o.Ack != AckMultiple:
		return o, fmt.Errorf("ack is %q: give %s, %s or %s", o.Ack, AckAuto, AckEach, AckMultiple)
	case o.TTL%time.Millisecond != 0:
		return o, fmt.Errorf("ttl must be whole milliseconds: got %v", o.TTL)
	}
	return o, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// queueName is what is published to.
func (o *Options) queueName(i int) string { return fmt.Sprintf("%s-%d", o.Queue, i) }

// outName is what is consumed from.
func (o *Options) outName(i int) string {
	if o.TTL > 0 {
		return o.queueName(i) + "-expired"
	}
	return o.queueName(i)
}

// share returns which of n things the i-th of some takers gets: every one of them
// one at least, and every thing at least one taker.
func share(i, takers, n int) []int {
	if n <= takers {
		return []int{i % n}
	}
	var mine []int
	for j := i; j < n; j += takers {
		mine = append(mine, j)
	}
	return mine
}
