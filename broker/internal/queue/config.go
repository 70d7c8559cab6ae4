package queue

import (
	"time"

	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/store"
)

// Config configures a queue. [Defaults] returns a configuration without limits.
type Config struct {
	Name string

	// Quorum selects the semantics of RabbitMQ's quorum queues: the queue counts deliveries, requeued messages keep their
	// relative order, and messages always have 32 priorities.
	Quorum bool

	// TTL is the time after which a waiting message expires. NoTTL sets no limit.
	TTL time.Duration

	// DeadLetter is the target of dead letters. If it is nil, the queue drops the messages.
	DeadLetter *DeadLetter

	// DeliveryLimit is the number of failed deliveries after which a quorum queue still requeues a message. After a further
	// failure it dead-letters the message. A negative value sets no limit.
	DeliveryLimit int64

	// MaxLength and MaxBytes limit the number and the total size of ready messages. A negative value sets no limit.
	MaxLength, MaxBytes int64
	Overflow            Overflow

	// MaxPriority is the highest priority that a classic queue distinguishes. 0 disables priorities.
	MaxPriority uint8

	// SingleActive delivers messages to only one consumer at a time. When this consumer leaves, the next one becomes active.
	SingleActive bool

	// Expires is the queue TTL: the time after which an unused queue expires. 0 means never.
	Expires time.Duration

	// Retry delays requeued messages. The zero value disables the delay.
	Retry Retry

	// ConsumerTimeout is the acknowledgement timeout. 0 disables it. The consuming session enforces the timeout.
	ConsumerTimeout time.Duration

	// Store saves the messages of the queue on disk, under ID. No other queue ever has the same ID. If Store is nil, the
	// messages are in memory only.
	Store store.Store
	ID    uint64

	// Durable makes messages survive the process: persistent messages, and all messages of a quorum queue. Other messages
	// are in the store only if memory was short.
	Durable bool

	// Resident is the memory use in bytes, as counted by the Meter, above which the queue evicts messages that are also in
	// the store.
	Resident int64

	// Go runs a function in a new goroutine. The queue uses it to read from the store.
	Go func(func())

	// Trouble receives errors that prevent the queue from reading its messages. The queue retries the read.
	Trouble func(error)

	// Meter counts the memory of messages.
	Meter *Meter

	// Dead counts the messages that the queue dead-letters or drops.
	Dead *stats.Dead

	// Publish routes a dead letter and publishes it to the target queues. If only is not nil, Publish omits the queues that
	// only does not contain. It returns the queues that refused the message, and reports whether the message was routed to
	// any queue.
	Publish func(m *Message, why Reason, only []string) (refused []string, routed bool)

	// Ask requests that another goroutine call SendDeadLetters until it returns false.
	Ask func(*Queue)

	// Expired is called in a separate goroutine when the queue has been unused for Expires.
	Expired func()
}

// Defaults returns the configuration of a classic queue without arguments.
func Defaults(name string) Config {
	return Config{Name: name, TTL: NoTTL, DeliveryLimit: -1, MaxLength: -1, MaxBytes: -1}
}

// Overflow selects the message that a full queue drops or rejects.
type Overflow uint8

// The overflow behaviors (https://www.rabbitmq.com/docs/maxlength#overflow-behaviour).
const (
	DropHead         Overflow = iota // drop the oldest message
	RejectPublish                    // reject the new message
	RejectPublishDLX                 // reject and dead-letter the new message
)

// quorumDefaultPriority is the priority of messages without a priority property. quorumMaxPriority is the highest priority
// that a quorum queue distinguishes (https://www.rabbitmq.com/docs/quorum-queues#priorities). Requeued messages have the
// priority quorumReturned instead of their original priority, so they precede all other messages.
const (
	quorumDefaultPriority = 4
	quorumMaxPriority     = 31
	quorumReturned        = 32
	quorumDelayed         = 33 // in the store only: messages that wait for a delayed retry
)

func (c *Config) priority(m *Message) uint8 {
	switch {
	case !c.Quorum:
		return min(m.Priority, c.MaxPriority)
	case !m.HasPriority:
		return quorumDefaultPriority
	}
	return min(m.Priority, quorumMaxPriority)
}

// bytes returns the size that a message counts against MaxBytes: the body, and in a quorum queue also the properties.
func (c *Config) bytes(m *Message) int64 {
	if c.Quorum {
		return int64(len(m.Body) + m.propertiesSize())
	}
	return int64(len(m.Body))
}
