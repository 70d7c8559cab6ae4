package rehearsal

import (
	"context"
	"fmt"
	"net"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/preset"
)

// The work queues, by event.
var workQueues = map[string]string{
	"index":  preset.CoverArtIndexQueue,
	"delete": preset.CoverArtDeleteQueue,
	"move":   preset.CoverArtMoveQueue,
}

// dialRaw connects without the worker library, for an independent inspection of the queues.
func dialRaw(c Config) (*amqp.Connection, error) {
	config := amqp.Config{}
	if c.DialContext != nil {
		config.Dial = func(network, addr string) (net.Conn, error) {
			return c.DialContext(context.Background(), network, addr)
		}
	}
	conn, err := amqp.DialConfig(c.Broker, config)
	if err != nil {
		return nil, fmt.Errorf("rehearsal: cannot connect to broker: %w", err)
	}
	return conn, nil
}

// consumers returns the total number of consumers of the work queues.
func consumers(conn *amqp.Connection) (n int, err error) {
	ch, err := conn.Channel()
	if err != nil {
		return 0, err
	}
	for _, queue := range workQueues {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			return 0, err
		}
		n += q.Consumers
	}
	return n, ch.Close()
}

// inFailed returns, for each message in the failed queue, the number of errors in its headers. It ignores a message if
// ours returns false for the message ID. All messages remain in the queue.
func inFailed(conn *amqp.Connection, ours func(id string) bool) (map[string]int, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	var last uint64
	for {
		d, ok, err := ch.Get(preset.CoverArtFailedQueue, false)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		last = d.DeliveryTag
		if ours(d.MessageId) {
			texts, _ := d.Headers[preset.CoverArtExceptionsHeader].([]any)
			found[d.MessageId] = len(texts)
		}
	}
	if last > 0 {
		if err := ch.Nack(last, true, true); err != nil {
			return nil, err
		}
	}
	return found, ch.Close()
}
