package vhost

import (
	"strings"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// ReplyTo is the pseudo-queue of direct reply-to. A client consumes from it, and sets it as the reply-to of its requests
// (https://www.rabbitmq.com/docs/direct-reply-to).
const ReplyTo = "amq.rabbitmq.reply-to"

// isReply reports whether the name is ReplyTo or the name of a reply queue.
func isReply(name string) bool { return strings.HasPrefix(name, ReplyTo) }

// NewReplyQueue returns the queue for the direct replies to one channel. Any client that knows the queue's name may
// publish to it, but only the owner consumes from it. The broker deletes the queue with its consumer.
func (v *VHost) NewReplyQueue(owner any) *Queue {
	name := RandomName(ReplyTo + ".")
	config := queue.Defaults(name)
	config.Meter = v.config.Meter
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
		return &Queue{vhost: v, Queue: queue.New(queue.Defaults(name))}, nil
	}
	if q := v.lookupQueue(name); q != nil {
		return q, nil
	}
	return nil, v.noQueue(name)
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
