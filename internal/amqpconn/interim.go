package amqpconn

import (
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// OpenRaw opens a channel of the client's.
func (c *Conn) OpenRaw() (*amqp.Channel, error) { return c.openRaw() }

// CloseRaw closes one.
func (c *Conn) CloseRaw(ch *amqp.Channel) { c.closeRaw(ch) }

// Insist makes a request that the broker has to answer.
func (c *Conn) Insist(request func() error) error { return c.insist(request) }

// Hold holds writes until Flush.
func (c *Conn) Hold() { c.socket.hold() }

// Flush writes what is held.
func (c *Conn) Flush() { c.socket.flush() }

// Publishing is a message as the client publishes it.
func (m *Message) Publishing() amqp.Publishing { return m.publishing() }

// WaitGroup is that of the goroutines.
func (t *Tasks) WaitGroup() *sync.WaitGroup { return &t.wg }

// Unconnected is for tests.
func Unconnected(frameSize int) *Conn {
	return &Conn{raw: &amqp.Connection{Config: amqp.Config{FrameSize: frameSize}}}
}
