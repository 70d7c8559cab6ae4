package vhost

import (
	"encoding/base64"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// ReplyTo is the pseudo-queue of direct reply-to. A client consumes from it, and sets it as the reply-to of its requests
// (https://www.rabbitmq.com/docs/direct-reply-to).
const ReplyTo = "amq.rabbitmq.reply-to"

// replyPrefix is the prefix of the names of reply queues.
const replyPrefix = ReplyTo + "."

// isReply reports whether name is reserved for reply queues.
func isReply(name string) bool { return strings.HasPrefix(name, replyPrefix) }

// NewReplyQueue returns the queue for the direct replies to one channel. Any client that knows the queue's name may
// publish to it, but only the owner consumes from it. The broker deletes the queue with its consumer.
func (v *VHost) NewReplyQueue(owner any) *Queue {
	name := RandomName(replyPrefix)
	config := queue.Defaults(name)
	config.Clock, config.Meter = v.config.Clock, v.config.Meter
	q := &Queue{Queue: queue.New(config), AutoDelete: true, vhost: v}
	v.addOwned(q, owner)
	_ = v.reserve(sizeOfQueue(&config, nil), q, "") // cannot fail, because the limit does not apply to exclusive queues
	v.mu.Lock()
	defer v.mu.Unlock()
	v.queues[name] = q
	return q
}

// declareReply checks whether a reply queue still exists. RPC servers declare the queue to find out whether the
// client still waits for the reply.
func (v *VHost) declareReply(name string) (*Queue, error) {
	if name == ReplyTo {
		return v.pseudoQueue(name), nil
	}
	if q := v.lookupQueue(name); q != nil {
		return q, nil
	}
	return nil, v.noQueue(name)
}

// deletedReply returns a queue that drops all messages, or nil if the broker cannot have generated the name. As in RabbitMQ,
// a client can use the name of a reply queue after its deletion.
func (v *VHost) deletedReply(name string) *Queue {
	if id, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(name, replyPrefix)); err != nil || len(id) != randomBytes {
		return nil
	}
	return v.pseudoQueue(name)
}

func (v *VHost) pseudoQueue(name string) *Queue {
	q := &Queue{vhost: v, Queue: queue.New(queue.Defaults(name))}
	q.Delete(queue.Condition{})
	return q
}

// Reply reports whether the queue is a reply queue. Only its owner can consume from it, and it does not store messages.
func (q *Queue) Reply() bool { return isReply(q.Name()) }

// Publish is like [queue.Queue.Publish], but a deleted reply queue drops messages instead of refusing them.
func (q *Queue) Publish(m *queue.Message) (accepted bool, ticket store.Ticket) {
	accepted, ticket = q.Queue.Publish(m)
	return accepted || q.Reply(), ticket
}

// Stats is like [queue.Queue.Stats], but reports the consumer of a reply queue even before it exists.
func (q *Queue) Stats() queue.Stats {
	s := q.Queue.Stats()
	if q.Reply() || q.Name() == ReplyTo {
		s.Declared = 1
	}
	return s
}

// SetReplyTo replaces ReplyTo in a request with the name of the reply queue.
func SetReplyTo(p *amqpwire.Properties, queue string) (changed bool, err error) {
	if p.ReplyTo != ReplyTo {
		return false, nil
	}
	if queue == "" {
		return false, exception.New(exception.PreconditionFailed, "fast reply consumer does not exist")
	}
	p.ReplyTo = queue
	return true, nil
}
