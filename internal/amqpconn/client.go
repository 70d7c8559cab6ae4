package amqpconn

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/topology"
)

// client is a connection of an AMQP client. There are two clients: native.go adapts package amqpclient, and amqp091.go
// adapts amqp091-go. Errors of a client are those of amqp091-go or of this package.
//
// Requests block until the broker has answered or the connection has closed. A channel makes one request at a time.
type client interface {
	open() (channel, error)
	updateSecret(secret string) error
	flush() // writes the publications that the client has buffered

	// close closes the connection, and waits for the broker's answer until the deadline.
	close(deadline time.Time)
	isClosed() bool
	ended() <-chan struct{} // closed when the connection has closed, and no further events follow
	err() *amqp.Error       // the reason; valid after ended is closed; nil if this side has closed the connection
	unreadable() bool       // whether the reason is invalid data from the broker
}

// tuning is what a client has negotiated with the broker, and the properties of the broker.
type tuning struct {
	channelMax int
	frameSize  int // 0: no limit
	heartbeat  time.Duration

	version, platform string
}

// channel is a channel of a client.
type channel interface {
	close() error
	isClosed() bool
	ended() <-chan struct{}
	err() error // why the channel has closed; valid after ended is closed

	confirm(window int) (publisher, error)
	send(exchange, key string, m *Message) error

	qos(prefetch int) error
	consume(c consumer) (Deliveries, error)
	cancel(tag string) error
	get(queue string) (Delivery, bool, error)
	ack(tag uint64, multiple bool) error
	nack(tag uint64, multiple, requeue bool) error
	reject(tag uint64, requeue bool) error

	declareExchange(e topology.Exchange, passive bool) error
	deleteExchange(name string) error
	declareQueue(q topology.Queue, passive bool) (messages, consumers int, err error)
	deleteQueue(name string, ifIdle bool) error
	bind(b topology.Binding) error
	unbind(b topology.Binding) error
}

// publisher publishes on a channel in confirm mode.
type publisher interface {
	// publish writes a mandatory, persistent message, or buffers it until client.flush. It returns ErrNotWritten if at least
	// the last frame was not written. It sets Publication.answered.
	publish(p *Publication) error

	// result returns nil for a confirmed publication, a *Return, ErrNacked, or errChannelClosed. It is called once, after
	// Publication.answered is closed.
	result(p *Publication) error
}

// consumer are the arguments of basic.consume.
type consumer struct {
	queue, tag       string
	prefetch         int
	noAck, exclusive bool
	args             topology.Table
}

// blocking is an event: the broker has blocked or unblocked a connection.
type blocking struct {
	active bool
	reason string
}
