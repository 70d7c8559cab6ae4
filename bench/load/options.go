package load

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// The acknowledgement modes of consumers.
const (
	AckAuto     = "auto"     // no acks: the broker treats sent messages as settled
	AckEach     = "each"     // one basic.ack per message; the acks for one read are one write
	AckMultiple = "multiple" // one basic.ack per read
)

// Options configures a run. A field with the zero value has its default.
type Options struct {
	URL string // amqp://user:password@host:port/vhost

	Publishers  int // Default: 1.
	Consumers   int // Default: 1. If negative, the messages stay in the queues.
	Connections int // Publishers and consumers share the connections. Default: one for each publisher and consumer.
	Queues      int // Publisher i and consumer i use the queues i, i+Publishers (i+Consumers) and so on. Default: 1.

	Queue     string         // Prefix of the names; a number follows. Default: "bench".
	QueueType string         // classic or quorum. Default: "classic".
	Arguments amqpwire.Table // Additional arguments of the queues.
	Transient bool           // Messages are transient; the queues remain durable.
	Body      int            // Size of a message in bytes, at least 16. Default: 16.

	// TTL is the time that messages wait before the broker dead-letters them into a second queue, where the consumers receive them.
	// Default: no delay.
	TTL time.Duration

	Confirms int    // Maximum number of unconfirmed messages per publisher. Default: no publisher confirms.
	Prefetch int    // Maximum number of unacked messages per subscription. Default: no limit.
	Ack      string // AckAuto, AckEach or AckMultiple. Default: AckEach.

	Rate     float64       // Messages per second of all publishers, evenly spaced. Default: no limit.
	Count    int64         // Number of messages. Set either Count or Duration.
	Duration time.Duration // Time to publish.
	WarmUp   time.Duration // Time to publish before the measurement. Default: no warm-up.

	Late  time.Duration // Lateness from which a message counts as late, if TTL is set. Default: 50 ms.
	Stall time.Duration // Maximum time without a new message; later messages count as lost. Default: 30 s.
	Keep  bool          // Do not delete the queues and their messages at the end.

	// Dial connects to the broker. Default: net.Dialer with a timeout of 10s.
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
		return o, errors.New("either Count or Duration must be set, not both")
	case o.Publishers < 0 || o.Queues < 0 || o.Connections < 0 || o.Confirms < 0 || o.Rate < 0 || o.TTL < 0:
		return o, errors.New("numbers must not be negative")
	case o.Publishers > maxPublishers:
		return o, fmt.Errorf("publishers must be at most %d: got %d", maxPublishers, o.Publishers)
	case o.Body < stampSize:
		return o, fmt.Errorf("body must have at least %d bytes: got %d", stampSize, o.Body)
	case o.Prefetch < 0 || o.Prefetch > 65535:
		return o, fmt.Errorf("prefetch must be 0 to 65535: got %d", o.Prefetch)
	case o.Ack != AckAuto && o.Ack != AckEach && o.Ack != AckMultiple:
		return o, fmt.Errorf("ack must be %s, %s or %s: got %q", AckAuto, AckEach, AckMultiple, o.Ack)
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

// queueName returns the name of the queue that publishers use.
func (o *Options) queueName(i int) string { return fmt.Sprintf("%s-%d", o.Queue, i) }

// outName returns the name of the queue that consumers use.
func (o *Options) outName(i int) string {
	if o.TTL > 0 {
		return o.queueName(i) + "-expired"
	}
	return o.queueName(i)
}

// share returns the items of taker i, out of n items. Each taker has at least one item, and each item has at least one
// taker.
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
