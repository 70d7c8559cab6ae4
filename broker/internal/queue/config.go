package queue

import (
	"time"

	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/store"
)

// Config describes a queue. [Defaults] is one that sets no limit to anything.
type Config struct {
	Name string

	// Quorum gives the queue the semantics of RabbitMQ's quorum queues: deliveries are counted, messages given back keep
	// the order in which they were, and there are always 32 priorities.
	Quorum bool

	// TTL is how long a message may wait; or NoTTL.
	TTL time.Duration

	// DeadLetter is where messages go that the queue gives up; nil: they are dropped.
	DeadLetter *DeadLetter

	// DeliveryLimit is how many failed deliveries a quorum queue takes back before it gives a message up; negative: all.
	DeliveryLimit int64

	// MaxLength and MaxBytes limit the messages that are ready, by number and by size; negative: not.
	MaxLength, MaxBytes int64
	Overflow            Overflow

	// MaxPriority is the highest priority that a classic queue tells from others; zero: it knows none.
	MaxPriority uint8

	// SingleActive lets only one consumer have messages, the next one when it leaves.
	SingleActive bool

	// Expires is how long the queue lives unused; zero: for ever.
	Expires time.Duration

	// Retry holds back messages that were given back; the zero value: not.
	Retry Retry

	// ConsumerTimeout is how long a consumer may keep a message unsettled; zero: for ever. Whoever consumes sees to it.
	ConsumerTimeout time.Duration

	// Store has the queue's messages on disk, under ID, which no other queue has or will have; nil: they are in memory only.
	Store store.Store
	ID    uint64

	// Durable keeps messages beyond the life of the process: the persistent ones, and in a quorum queue all. Others are
	// in the store only while there is no room for them in memory.
	Durable bool

	// Resident is how much memory, by the Meter, messages may take that are in the store as well.
	Resident int64

	// Go runs a function that reads from the store, in a goroutine of its own.
	Go func(func())

	// Trouble is told what keeps the queue from reading its messages. It goes on trying.
	Trouble func(error)

	// Meter is told of the memory that messages take.
	Meter *Meter

	// Dead counts the messages that the queue gives up.
	Dead *stats.Dead

	// Publish sends a dead letter on its way, to those of the queues it is routed to that are in only, or to all if that
	// is nil. It returns those that did not accept it, and whether there were any queues at all.
	Publish func(m *Message, why Reason, only []string) (refused []string, routed bool)

	// Ask is told that SendDeadLetters is to be called, again and again while it says that there are more.
	Ask func(*Queue)

	// Expired is told, in a goroutine of its own, that the queue has been unused for too long.
	Expired func()
}

// Defaults returns the configuration of a classic queue without arguments.
func Defaults(name string) Config {
	return Config{Name: name, TTL: NoTTL, DeliveryLimit: -1, MaxLength: -1, MaxBytes: -1}
}

// Overflow says what gives way when a queue is full.
type Overflow uint8

// The ways to overflow (https://www.rabbitmq.com/docs/maxlength#overflow-behaviour).
const (
	DropHead         Overflow = iota // the oldest message
	RejectPublish                    // the new message
	RejectPublishDLX                 // the new message, which is dead-lettered
)

// quorumDefaultPriority is that of messages without one, and quorumMaxPriority the highest that is told from others
// (https://www.rabbitmq.com/docs/quorum-queues#priorities). Messages given back come before all others, whatever their
// priority: quorumReturned is what they have instead.
const (
	quorumDefaultPriority = 4
	quorumMaxPriority     = 31
	quorumReturned        = 32
	quorumDelayed         = 33 // in the store only: those that wait for a delayed retry
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

// bytes is what a message counts against MaxBytes: in a classic queue its body, in a quorum queue its properties, too.
func (c *Config) bytes(m *Message) int64 {
	if c.Quorum {
		return int64(len(m.Body) + m.propertiesSize())
	}
	return int64(len(m.Body))
}
