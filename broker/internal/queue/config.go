package queue

import (
	"time"

	"github.com/reprisemq/reprise/broker/internal/clock"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/store"
)

// Config configures a queue. [Defaults] returns a configuration without limits.
type Config struct {
	Name string

	// Quorum selects the semantics of RabbitMQ's quorum queues. If it is set, the queue counts deliveries and always
	// distinguishes 32 priorities. Requeued messages precede all other messages, in the order in which they were requeued.
	Quorum bool

	Settings

	// MaxPriority is the highest priority that a classic queue distinguishes. 0 disables priorities.
	MaxPriority uint8

	// SingleActive makes the queue deliver messages to only one consumer at a time. When this consumer leaves, or a
	// consumer with a higher priority subscribes to a quorum queue, another consumer becomes active.
	SingleActive bool

	// Delay returns the time for which the queue holds a message. After that time, the queue passes the message to Publish,
	// unchanged and as a dead letter without a reason. Such a queue saves all messages, has DeadLetter.AtLeastOnce, and does
	// not support consumers. If Delay is nil, messages are ready immediately.
	Delay func(*Message) time.Duration

	// Store saves the messages of the queue on disk, under ID. IDs are never reused. If Store is nil, the messages are
	// only in memory.
	Store store.Store
	ID    uint64

	// Durable means that persistent messages (in a quorum queue, all messages) survive the process. Other messages are
	// in the store only if memory was low.
	Durable bool

	// Resident is the memory in bytes, as counted by Meter, for messages that could also wait in the store. See spills.
	Resident int64

	// Go runs a function in a new goroutine. The queue uses it to read from the store.
	Go func(func())

	// Trouble is called with errors that prevent the queue from reading its messages.
	Trouble func(error)

	// Clock is the time of TTLs and delays. Default: real time.
	Clock *clock.Clock

	// Meter counts the memory of messages.
	Meter *Meter

	// Dead counts the messages that the queue dead-letters or drops.
	Dead *stats.Dead

	// Publish routes a dead letter and publishes it to the target queues. If the list only is not nil, Publish omits
	// all queues that are not in the list. Publish returns the queues that refused the message, and reports whether the
	// message was routed to any queue.
	Publish func(m *Message, why Reason, only []string) (refused []string, routed bool)

	// Ask requests that another goroutine call SendDeadLetters until it returns false.
	Ask func(*Queue)

	// Expired is called in a separate goroutine when the queue has been unused for the duration Expires.
	Expired func()
}

// Settings are the part of a configuration that can change while the queue is in use.
type Settings struct {
	// TTL is the time after which a waiting message expires. With NoTTL, only messages that have their own TTL expire.
	TTL time.Duration

	// DeadLetter is the target of dead letters. If it is nil, the queue drops rejected, expired and excess messages.
	DeadLetter *DeadLetter

	// DeliveryLimit is the maximum number of failed deliveries of a message after which a quorum queue still requeues
	// the message. After one more failed delivery, the queue dead-letters or drops the message. A negative value means
	// no limit.
	DeliveryLimit int64

	// MaxLength and MaxBytes limit the number and the total size of ready messages and unsent at-least-once dead
	// letters. A negative value means no limit.
	MaxLength, MaxBytes int64
	Overflow            Overflow

	// Expires is the queue TTL, after which an unused queue expires. With 0, the queue does not expire.
	Expires time.Duration

	// Retry delays requeued messages. The zero value disables the delay.
	Retry Retry

	// ConsumerTimeout is the acknowledgement timeout. 0 disables it. The consuming session enforces the timeout.
	ConsumerTimeout time.Duration
}

// Defaults returns the configuration of a classic queue without arguments.
func Defaults(name string) Config {
	return Config{Name: name, Settings: Settings{TTL: NoTTL, DeliveryLimit: -1, MaxLength: -1, MaxBytes: -1}}
}

// Overflow selects the message that a full queue drops or rejects
// (https://www.rabbitmq.com/docs/maxlength#overflow-behaviour).
type Overflow uint8

// The overflow behaviors.
const (
	DropHead         Overflow = iota // drop the message at the head
	RejectPublish                    // reject the new message
	RejectPublishDLX                 // reject and dead-letter the new message
)

// quorumDefaultPriority is the priority of messages without a priority property. quorumMaxPriority is the highest priority
// that a quorum queue distinguishes (https://www.rabbitmq.com/docs/quorum-queues#priorities). Requeued messages have the
// priority quorumReturned instead of their original priority, so that they precede all other messages.
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

// bytes returns the size with which a message counts against MaxBytes. It includes the body and, in a quorum queue, the
// properties.
func (c *Config) bytes(m *Message) int64 {
	if c.Quorum {
		return int64(len(m.Body) + m.propertiesSize())
	}
	return int64(len(m.Body))
}
