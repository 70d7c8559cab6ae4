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
	AckAuto     = "auto"     // no acks: the broker considers messages settled when it sends them
	AckEach     = "each"     // one basic.ack per message; the acks of all messages in one read are written together
	AckMultiple = "multiple" // one basic.ack per read
)

// Options configures a run. The zero value of a field selects the default.
type Options struct {
	URL string // amqp://user:password@host:port/vhost

	Publishers  int // Default: 1.
	Consumers   int // Default: 1. If negative, the messages stay in the queues.
	Connections int // Number of connections that publishers and consumers share. Default: one per publisher and consumer.
	Queues      int // Publisher i uses the queues i, i+Publishers, …; consumer i uses i, i+Consumers, …. Default: 1.

	Queue     string         // Prefix of the queue names, followed by "-" and a number. Default: "bench".
	QueueType string         // classic or quorum. Default: "classic".
	Arguments amqpwire.Table // Additional arguments of the queues.
	Transient bool           // Messages are transient; the queues remain durable.
	Body      int            // Size of a message in bytes, at least 16. Default: 16.

	// TTL is the time after which the broker dead-letters a message to a second queue. The consumers consume from this
	// queue. Default: no TTL and no second queue.
	TTL time.Duration

	Confirms int    // Maximum number of unconfirmed messages per publisher. Default: no publisher confirms.
	Prefetch int    // Maximum number of unacked messages per subscription. Default: no limit.
	Ack      string // AckAuto, AckEach or AckMultiple. Default: AckEach.

	Rate     float64       // Total rate of all publishers, in messages per second, evenly spaced. Default: no limit.
	Count    int64         // Total number of messages of all publishers.
	Duration time.Duration // Time for which to publish. Set either Count or Duration.
	WarmUp   time.Duration // Time for which to publish before the measurement. Default: no warm-up.

	Late  time.Duration // Lateness above which a message counts as late, if TTL is set. Default: 50 ms.
	Stall time.Duration // Maximum time, in addition to TTL, without a confirm or delivery at the end. Default: 30 s.
	Keep  bool          // Do not delete the queues at the end.

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

// queueName returns the name of queue i, to which publishers publish.
func (o *Options) queueName(i int) string { return fmt.Sprintf("%s-%d", o.Queue, i) }

// outName returns the name of the queue from which consumers receive the messages of queue i.
func (o *Options) outName(i int) string {
	if o.TTL > 0 {
		return o.queueName(i) + "-expired"
	}
	return o.queueName(i)
}

// share distributes n items to takers, and returns the items of taker i. Each taker has at least one item, and each
// item has at least one taker.
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
