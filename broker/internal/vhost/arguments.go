package vhost

import (
	"cmp"
	"fmt"
	"slices"
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
	stream // not supported, but streams have arguments that other types refuse
	either = classic | quorum
)

// argument is a queue argument that RabbitMQ defines. The broker accepts and ignores all other arguments.
type argument struct {
	name string
	for_ kinds
	// set checks and applies the value. If the value is invalid, set returns a description in RabbitMQ's format. If set and
	// check are nil, the broker accepts and ignores any value.
	set func(c *queue.Config, v any) (problem string)
	// check checks a value that has no effect. Earlier versions stored any value.
	check func(v any) (n int64, problem string)
}

// arguments lists the arguments in the order of their validation.
var arguments = []argument{
	{name: "x-expires", for_: either, set: func(c *queue.Config, v any) string {
		ms, problem := positive(expiry, v)
		c.Expires = milliseconds(ms)
		return problem
	}},
	{name: "x-message-ttl", for_: either, set: func(c *queue.Config, v any) string {
		ms, problem := expiry(v)
		c.TTL = milliseconds(ms)
		return problem
	}},
	{name: "x-dead-letter-exchange", for_: either, set: func(c *queue.Config, v any) string {
		c.DeadLetter = &queue.DeadLetter{}
		return name(v, &c.DeadLetter.Exchange)
	}},
	{name: "x-dead-letter-routing-key", for_: either, set: func(c *queue.Config, v any) string {
		if c.DeadLetter == nil {
			return "routing_key_but_no_dlx_defined"
		}
		c.DeadLetter.RoutingKey = new(string)
		return name(v, c.DeadLetter.RoutingKey)
	}},
	{name: "x-dead-letter-strategy", for_: quorum, set: func(c *queue.Config, v any) string {
		strategy, problem := oneOf(v, "invalid_dlx_strategy", "at-most-once", "at-least-once")
		if c.DeadLetter != nil {
			c.DeadLetter.AtLeastOnce = strategy == 1
		}
		return problem
	}},
	{name: "x-max-length", for_: either, set: func(c *queue.Config, v any) (problem string) {
		c.MaxLength, problem = natural(v)
		return problem
	}},
	{name: "x-max-length-bytes", for_: either, set: func(c *queue.Config, v any) (problem string) {
		c.MaxBytes, problem = natural(v)
		return problem
	}},
	{name: "x-max-in-memory-length", for_: quorum, check: natural},
	{name: "x-max-in-memory-bytes", for_: quorum, check: natural},
	{name: "x-max-priority", for_: classic, set: func(c *queue.Config, v any) string {
		n, problem := natural(v)
		if n > 255 {
			return fmt.Sprintf("{max_value_exceeded,%d}", n)
		}
		c.MaxPriority = uint8(n)
		return problem
	}},
	{name: "x-overflow", for_: either, set: func(c *queue.Config, v any) string {
		overflow, problem := oneOf(v, "invalid_overflow", "drop-head", "reject-publish", "reject-publish-dlx")
		c.Overflow = queue.Overflow(overflow)
		return problem
	}},
	{name: "x-queue-version", for_: classic, check: func(v any) (int64, string) {
		n, problem := natural(v)
		if problem == "" && n != 2 {
			problem = fmt.Sprintf(`"unsupported queue version '%d'"`, n)
		}
		return n, problem
	}},
	{name: "x-single-active-consumer", for_: either, set: func(c *queue.Config, v any) string {
		var ok bool
		if c.SingleActive, ok = v.(bool); !ok {
			return unacceptable(v)
		}
		return ""
	}},
	{name: "x-consumer-timeout", for_: quorum, set: func(c *queue.Config, v any) string {
		ms, problem := natural(v)
		c.ConsumerTimeout = milliseconds(ms)
		return problem
	}},
	{name: "x-consumer-disconnected-timeout", for_: quorum, check: natural},
	{name: "x-quorum-initial-group-size", for_: quorum, check: func(v any) (int64, string) { return positive(natural, v) }},
	{name: "x-queue-leader-locator", for_: either | stream, check: func(v any) (int64, string) {
		n, problem := oneOf(v, "invalid_queue_locator_arg", "client-local", "balanced", "random", "least-leaders", "min-masters")
		return int64(n), problem
	}},
	// RabbitMQ does not validate the delivery limit. An invalid limit is the default.
	{name: "x-delivery-limit", for_: quorum, set: func(c *queue.Config, v any) string {
		if n, ok := integer(v); ok {
			c.DeliveryLimit = n
		}
		return ""
	}},
	// RabbitMQ does not validate the arguments of delayed retries. With an invalid value, retries are not delayed.
	{name: "x-delayed-retry-type", for_: quorum, set: func(c *queue.Config, v any) string {
		c.Retry.Failed = v == "all" || v == "failed"
		c.Retry.Returned = v == "all" || v == "returned"
		return ""
	}},
	{name: "x-delayed-retry-min", for_: quorum, set: func(c *queue.Config, v any) string {
		ms, _ := natural(v)
		c.Retry.Min, c.Retry.Max = milliseconds(ms), milliseconds(ms)
		return ""
	}},
	{name: "x-delayed-retry-max", for_: quorum, set: func(c *queue.Config, v any) string {
		ms, _ := natural(v)
		c.Retry.Max = milliseconds(ms) // even if it is less than the minimum
		return ""
	}},
	{name: "x-queue-mode", for_: classic},
	{name: "x-queue-master-locator", for_: classic}, // refused by accepts
	{name: "x-max-age", for_: stream},
	{name: "x-stream-max-segment-size-bytes", for_: stream},
	{name: "x-stream-filter-size-bytes", for_: stream},
	{name: "x-initial-cluster-size", for_: stream},
	{name: "x-queue-type", for_: either}, // validated by kind
}

// queueConfig returns the configuration of a queue for a declaration. It returns an error for invalid arguments.
func (v *VHost) queueConfig(name string, d *amqpwire.QueueDeclare) (queue.Config, error) {
	c := queue.Defaults(name)
	c.Publish, c.Ask = v.publishDead, v.deadLetters.request
	c.Clock, c.Meter, c.Dead = v.config.Clock, v.config.Meter, &v.config.Stats.Dead
	c.Store, c.Resident, c.Durable, c.Go = v.store, v.config.Resident, isDurable(d), v.reading.Go
	c.Trouble = func(err error) { v.log.Error("cannot read messages", "queue", name, "error", err) }
	kind, err := v.kind(name, d.Arguments)
	if err != nil {
		return c, err
	}
	setKind(&c, kind)
	if dlx, found := d.Arguments.Get("x-dead-letter-exchange"); found {
		if _, ok := dlx.(string); !ok {
			return c, exception.New(exception.PreconditionFailed,
				"invalid type '%s' for arg 'x-dead-letter-exchange' in %s", amqpwire.TypeName(dlx), v.queue(name))
		}
	}
	for _, a := range arguments {
		value, found := d.Arguments.Get(a.name)
		problem := ""
		switch {
		case !found || a.for_&kind == 0:
		case a.set != nil:
			problem = a.set(&c, value)
		case a.check != nil && !v.loading:
			_, problem = a.check(value)
		}
		if problem != "" {
			return c, v.invalidArgument(a.name, name, problem)
		}
	}
	if err := v.accepts(kind, name, d.Arguments); err != nil {
		return c, err
	}
	reconcile(&c)
	if c.Quorum {
		err = v.fitsQuorum(name, d)
	}
	return c, err
}

// setKind sets the queue type with its default settings.
func setKind(c *queue.Config, kind kinds) {
	if c.Quorum = kind == quorum; c.Quorum {
		c.DeliveryLimit = defaultDeliveryLimit
		c.ConsumerTimeout = defaultConsumerTimeout
	}
}

// reconcile replaces settings that RabbitMQ ignores in combination with others.
func reconcile(c *queue.Config) {
	if c.Quorum && c.Overflow == queue.RejectPublishDLX {
		c.Overflow = queue.DropHead
	}
	if c.DeadLetter != nil && c.Overflow != queue.RejectPublish {
		// At-least-once requires the overflow reject-publish. Without it, RabbitMQ uses at-most-once.
		c.DeadLetter.AtLeastOnce = false
	}
}

// accepts returns an error if an argument belongs to another queue type. A queue in the store may have such arguments,
// because earlier versions ignored some of them.
func (v *VHost) accepts(kind kinds, name string, args amqpwire.Table) error {
	if v.loading {
		return nil
	}
	if _, given := args.Get("x-queue-type"); !given { // RabbitMQ adds the type and sorts the arguments
		args = slices.Clone(args)
		slices.SortStableFunc(args, func(a, b amqpwire.Field) int { return cmp.Compare(a.Name, b.Name) })
	}
	if err := v.belong(arguments, kind, name, args); err != nil {
		return err
	}
	if _, given := args.Get("x-queue-master-locator"); given {
		return exception.New(exception.InternalError, "Feature `queue_master_locator` is deprecated.")
	}
	return nil
}

// belong returns an error for the first argument that is known, but not for this queue type.
func (v *VHost) belong(known []argument, kind kinds, queue string, args amqpwire.Table) error {
	for name := range args.All() {
		if slices.ContainsFunc(known, func(a argument) bool { return a.name == name && a.for_&kind == 0 }) {
			return exception.New(exception.PreconditionFailed, "invalid arg '%s' for %s of queue type %s", name, v.queue(queue), module(kind))
		}
	}
	return nil
}

// kind returns the queue type that a declaration requests, classic by default.
func (v *VHost) kind(name string, args amqpwire.Table) (kinds, error) {
	value, found := args.Get("x-queue-type")
	if !found {
		return classic, nil
	}
	switch value {
	case "classic", "", "undefined":
		return classic, nil
	case "quorum":
		return quorum, nil
	case "stream":
		return 0, v.invalidArgument("x-queue-type", name, streamsUnsupported)
	}
	if _, ok := value.(string); !ok {
		return 0, v.invalidArgument("x-queue-type", name, unacceptable(value))
	}
	return 0, v.invalidArgument("x-queue-type", name, fmt.Sprintf(`"unsupported queue type '%s'"`, value))
}

const streamsUnsupported = `"streams are not supported: this broker deletes a message after its acknowledgement, and does not ` +
	`keep a log that consumers read again; declare a quorum or classic queue"`

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

// consumerArguments lists the arguments of basic.consume that RabbitMQ defines.
var consumerArguments = []argument{
	{name: "x-priority", for_: either},
	{name: "x-consumer-timeout", for_: quorum},
	{name: "x-stream-offset", for_: stream},
	{name: "x-stream-filter", for_: stream},
	{name: "x-stream-match-unfiltered", for_: stream},
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
	if value, found := args.Get("x-consumer-timeout"); found && q.kind() == quorum {
		ms, problem := natural(value)
		if problem != "" {
			return 0, 0, q.vhost.invalidArgument("x-consumer-timeout", q.Name(), problem)
		}
		timeout = milliseconds(ms)
	}
	return priority, timeout, q.vhost.belong(consumerArguments, q.kind(), q.Name(), args)
}

func (q *Queue) kind() kinds {
	c := q.Config()
	return kindOf(&c)
}

func kindOf(c *queue.Config) kinds {
	if c.Quorum {
		return quorum
	}
	return classic
}
