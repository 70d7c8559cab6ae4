package vhost

import (
	"fmt"
	"time"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// defaultDeliveryLimit is the default maximum number of failed deliveries of a message in a quorum queue
// (https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling).
const defaultDeliveryLimit = 20

// defaultConsumerTimeout is the default acknowledgement timeout of a quorum queue
// (https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout).
const defaultConsumerTimeout = 30 * time.Minute

// kinds is a set of queue types.
type kinds uint8

const (
	classic kinds = 1 << iota
	quorum
	either = classic | quorum
)

// argument is a queue argument that RabbitMQ defines. The broker accepts and ignores all other arguments.
type argument struct {
	name string
	for_ kinds
	// set checks and applies the value. If the value is invalid, set returns a description in RabbitMQ's format. If set is
	// nil, the broker accepts and ignores any value.
	set func(c *queue.Config, v any) (problem string)
}

// arguments lists the arguments in the order of their validation.
var arguments = []argument{
	{"x-expires", either, func(c *queue.Config, v any) string {
		ms, problem := positive(v)
		c.Expires = milliseconds(ms)
		return problem
	}},
	{"x-message-ttl", either, func(c *queue.Config, v any) string {
		ms, problem := expiry(v)
		c.TTL = milliseconds(ms)
		return problem
	}},
	{"x-dead-letter-exchange", either, func(c *queue.Config, v any) string {
		c.DeadLetter = &queue.DeadLetter{}
		return text(v, &c.DeadLetter.Exchange)
	}},
	{"x-dead-letter-routing-key", either, func(c *queue.Config, v any) string {
		if c.DeadLetter == nil {
			return "routing_key_but_no_dlx_defined"
		}
		c.DeadLetter.RoutingKey = new(string)
		return text(v, c.DeadLetter.RoutingKey)
	}},
	{"x-dead-letter-strategy", quorum, func(c *queue.Config, v any) string {
		strategy, problem := oneOf(v, "invalid_dlx_strategy", "at-most-once", "at-least-once")
		if c.DeadLetter != nil {
			c.DeadLetter.AtLeastOnce = strategy == 1
		}
		return problem
	}},
	{"x-max-length", either, func(c *queue.Config, v any) (problem string) {
		c.MaxLength, problem = natural(v)
		return problem
	}},
	{"x-max-length-bytes", either, func(c *queue.Config, v any) (problem string) {
		c.MaxBytes, problem = natural(v)
		return problem
	}},
	{"x-max-priority", classic, func(c *queue.Config, v any) string {
		n, problem := natural(v)
		if n > 255 {
			return fmt.Sprintf("{max_value_exceeded,%d}", n)
		}
		c.MaxPriority = uint8(n)
		return problem
	}},
	{"x-overflow", either, func(c *queue.Config, v any) string {
		overflow, problem := oneOf(v, "invalid_overflow", "drop-head", "reject-publish", "reject-publish-dlx")
		c.Overflow = queue.Overflow(overflow)
		return problem
	}},
	{"x-queue-version", classic, func(_ *queue.Config, v any) string {
		n, problem := natural(v)
		if problem == "" && n != 2 {
			return fmt.Sprintf(`"unsupported queue version '%d'"`, n)
		}
		return problem
	}},
	{"x-single-active-consumer", either, func(c *queue.Config, v any) string {
		var ok bool
		if c.SingleActive, ok = v.(bool); !ok {
			return unacceptable(v)
		}
		return ""
	}},
	{"x-consumer-timeout", quorum, func(c *queue.Config, v any) string {
		ms, problem := natural(v)
		c.ConsumerTimeout = milliseconds(ms)
		return problem
	}},
	{"x-delivery-limit", quorum, func(c *queue.Config, v any) string {
		n, ok := integer(v)
		if !ok {
			return expectedInteger(v)
		}
		c.DeliveryLimit = n
		return ""
	}},
	// RabbitMQ does not validate the arguments of delayed retries. With an invalid value, retries are not delayed.
	{"x-delayed-retry-type", quorum, func(c *queue.Config, v any) string {
		c.Retry.Failed = v == "all" || v == "failed"
		c.Retry.Returned = v == "all" || v == "returned"
		return ""
	}},
	{"x-delayed-retry-min", quorum, func(c *queue.Config, v any) string {
		ms, _ := natural(v)
		c.Retry.Min, c.Retry.Max = milliseconds(ms), milliseconds(ms)
		return ""
	}},
	{"x-delayed-retry-max", quorum, func(c *queue.Config, v any) string {
		ms, _ := natural(v)
		c.Retry.Max = milliseconds(ms) // even if it is less than the minimum
		return ""
	}},
	{"x-queue-mode", classic, nil},
	{"x-queue-master-locator", classic, nil},
	{"x-queue-leader-locator", either, nil},
	{"x-max-in-memory-length", quorum, nil},
	{"x-max-in-memory-bytes", quorum, nil},
	{"x-quorum-initial-group-size", quorum, nil},
	{"x-quorum-target-group-size", quorum, nil},
	{"x-member-placement-tag", quorum, nil},
	{"x-consumer-disconnected-timeout", quorum, nil},
	{"x-queue-type", either, nil}, // validated by kind
}

// queueConfig returns the configuration of a queue for a declaration. It returns an error for invalid arguments.
func (v *VHost) queueConfig(name string, d *amqpwire.QueueDeclare) (queue.Config, error) {
	c := queue.Defaults(name)
	c.Publish, c.Ask = v.publishDead, v.deadLetters.request
	c.Meter, c.Dead = v.config.Meter, &v.config.Stats.Dead
	c.Store, c.Resident, c.Durable, c.Go = v.store, v.config.Resident, isDurable(d), v.reading.Go
	c.Trouble = func(err error) { v.log.Error("cannot read messages", "queue", name, "error", err) }
	kind, err := v.kind(name, d.Arguments)
	if err != nil {
		return c, err
	}
	c.Quorum = kind == quorum
	if c.Quorum {
		c.DeliveryLimit = defaultDeliveryLimit
		c.ConsumerTimeout = defaultConsumerTimeout
	}
	if dlx, found := d.Arguments.Get("x-dead-letter-exchange"); found {
		if _, ok := dlx.(string); !ok {
			return c, exception.New(exception.PreconditionFailed,
				"invalid type '%s' for arg 'x-dead-letter-exchange' in %s", amqpwire.TypeName(dlx), v.queue(name))
		}
	}
	for _, a := range arguments {
		value, found := d.Arguments.Get(a.name)
		if !found || a.set == nil || a.for_&kind == 0 {
			continue
		}
		if problem := a.set(&c, value); problem != "" {
			return c, v.invalidArgument(a.name, name, problem)
		}
	}
	for _, a := range arguments {
		if _, found := d.Arguments.Get(a.name); found && a.for_&kind == 0 {
			return c, exception.New(exception.PreconditionFailed,
				"invalid arg '%s' for %s of queue type %s", a.name, v.queue(name), module(kind))
		}
	}
	if c.Quorum && c.Overflow == queue.RejectPublishDLX {
		c.Overflow = queue.DropHead
	}
	if c.DeadLetter != nil && c.Overflow != queue.RejectPublish {
		// At-least-once requires the overflow reject-publish. Without it, RabbitMQ uses at-most-once.
		c.DeadLetter.AtLeastOnce = false
	}
	if c.Quorum {
		err = v.fitsQuorum(name, d)
	}
	return c, err
}

// kind returns the queue type that a declaration requests, classic by default.
func (v *VHost) kind(name string, args amqpwire.Table) (kinds, error) {
	value, found := args.Get("x-queue-type")
	if !found {
		return classic, nil
	}
	switch value {
	case "classic":
		return classic, nil
	case "quorum":
		return quorum, nil
	}
	if _, ok := value.(string); !ok {
		return 0, v.invalidArgument("x-queue-type", name, unacceptable(value))
	}
	return 0, v.invalidArgument("x-queue-type", name, fmt.Sprintf(`"unsupported queue type '%s'"`, value))
}

// module returns RabbitMQ's module name for a queue type.
func module(k kinds) string {
	if k == quorum {
		return "rabbit_quorum_queue"
	}
	return "rabbit_classic_queue"
}

func (v *VHost) fitsQuorum(name string, d *amqpwire.QueueDeclare) error {
	for _, property := range []struct {
		name string
		set  bool
	}{
		{"non-durable", !d.Durable},
		{"auto-delete", d.AutoDelete},
		{"exclusive-owner", d.Exclusive},
	} {
		if property.set {
			return exception.New(exception.PreconditionFailed, "invalid property '%s' for %s", property.name, v.queue(name))
		}
	}
	return nil
}

func (v *VHost) invalidArgument(arg, queue, problem string) error {
	return exception.New(exception.PreconditionFailed, "invalid arg '%s' for %s: %s", arg, v.queue(queue), problem)
}

// ConsumerArguments returns the priority and the acknowledgement timeout from the arguments of basic.consume.
func (q *Queue) ConsumerArguments(args amqpwire.Table) (priority int64, timeout time.Duration, err error) {
	timeout = q.Config().ConsumerTimeout
	if value, found := args.Get("x-priority"); found {
		var ok bool
		if priority, ok = integer(value); !ok {
			return 0, 0, q.vhost.invalidArgument("x-priority", q.Name(), expectedInteger(value))
		}
	}
	if value, found := args.Get("x-consumer-timeout"); found && q.Config().Quorum {
		ms, problem := natural(value)
		if problem != "" {
			return 0, 0, q.vhost.invalidArgument("x-consumer-timeout", q.Name(), problem)
		}
		timeout = milliseconds(ms)
	}
	return priority, timeout, nil
}
