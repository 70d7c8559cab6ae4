// Package testhook lets tests and package reprisetest do what packages broker and failed do not export: inspect and disturb
// a broker, and record the results of a replay's messages. These packages set its variables.
package testhook

import (
	"net"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Of returns the internal interface of a *broker.Broker. Package broker sets it.
var Of func(broker any) Broker

// Broker is the internal interface of a broker. Methods have no effect for a virtual host that does not exist.
type Broker interface {
	// Serve starts a session on the server's end of a connection.
	Serve(net.Conn) error

	// Block blocks connections that publish, as a memory alarm does, or unblocks them.
	Block(blocked bool)

	// Queues returns the queues of all virtual hosts, ordered by virtual host and name.
	Queues() []Queue

	// Queue returns one queue.
	Queue(vhost, name string) (Queue, bool)

	// DeadLetterTarget returns the exchange and the key with which a queue dead-letters a message that has the given key.
	DeadLetterTarget(vhost, queue, key string) (exchange, deadLetterKey string, ok bool)

	// Messages returns the messages of a queue, except unacked messages, in the order in which the broker will deliver
	// them. Delayed retries come last. It returns only messages that are in memory.
	Messages(vhost, queue string) []Message

	// Route returns the names of the queues to which an exchange routes a message without headers.
	Route(vhost, exchange, key string) ([]string, error)

	// Declare declares a queue.
	Declare(vhost string, queue *amqpwire.QueueDeclare)

	// Publish publishes a message as the user in its user-id property.
	Publish(vhost, exchange, key string, properties, body []byte)
}

// Queue is the state of a queue. If two states are equal, the queue did not change between them.
type Queue struct {
	VHost, Name string

	Ready, Unacked, Consumers int
	Delayed                   int // messages that wait for a delayed retry
	Dead                      int // dead letters that no other queue has stored yet

	Leaving bool      // dead letters are in flight to other queues
	Expires time.Time // next expiry, unless a message is delivered first; zero means never
	Due     time.Time // time of the next delayed retry; zero means never

	DeadLetters bool // whether the queue has a dead-letter exchange

	// Counts are the message counters of the queue. They change whenever a message enters or leaves the queue.
	Counts any
}

// Message is a message in a queue.
type Message struct {
	Exchange, RoutingKey string
	Properties           []byte // encoded as for a delivery
	Body                 []byte // must not be changed
	Redelivered          bool
}
