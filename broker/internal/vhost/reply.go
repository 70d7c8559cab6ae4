package vhost

import (
	"strings"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// ReplyTo is the name by which a client asks for direct replies: it consumes from it, and gives it as the reply-to of its
// requests (https://www.rabbitmq.com/docs/direct-reply-to).
const ReplyTo = "amq.rabbitmq.reply-to"

// isReply reports whether a name stands for direct replies: the general one, or that of one consumer.
func isReply(name string) bool { return strings.HasPrefix(name, ReplyTo) }

// NewReplyQueue returns the queue behind direct replies to one channel. Anybody may publish to it who was told its name,
// the owner alone consumes from it, and it goes with its consumer.
func (v *VHost) NewReplyQueue(owner any) *Queue {
	name := RandomName(ReplyTo + ".")
	config := queue.Defaults(name)
	config.Meter = v.config.Meter
	q := &Queue{Queue: queue.New(config), AutoDelete: true, vhost: v}
	v.own(q, owner)
	_ = v.take(sizeOfQueue(&config, nil), q, "") // it is the owner's: nobody refuses it
	v.mu.Lock()
	defer v.mu.Unlock()
	v.queues[name] = q
	return q
}

// declareReply answers those who want to know whether somebody still waits for their reply.
func (v *VHost) declareReply(name string) (*Queue, error) {
	if name == ReplyTo {
		return &Queue{vhost: v, Queue: queue.New(queue.Defaults(name))}, nil
	}
	if q := v.lookupQueue(name); q != nil {
		return q, nil
	}
	return nil, v.noQueue(name)
}

// SetReplyTo puts the name of a reply queue where a request has the general one.
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
