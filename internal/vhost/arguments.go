package vhost

import (
	"fmt"
	"math"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/exception"
	"github.com/reprisemq/reprise/internal/queue"
)

// defaultDeliveryLimit is how often a quorum queue takes a message back when it was not told
// (https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling).
const defaultDeliveryLimit = 20

// argument is a queue argument that means something to the broker. All others are kept by nobody, and accepted.
type argument struct {
	name   string
	quorum bool // for quorum queues only
	// set checks the value and puts it to use. What it returns as a problem is printed in RabbitMQ's way.
	set func(c *queue.Config, v any) (problem string)
}

// arguments are checked and compared in this order.
var arguments = []argument{
	{name: "x-message-ttl", set: func(c *queue.Config, v any) string {
		ms, problem := natural(v)
		c.TTL = milliseconds(ms)
		return problem
	}},
	{name: "x-dead-letter-exchange", set: func(c *queue.Config, v any) string {
		name, ok := v.(string)
		if !ok {
			return "" // reported by queueConfig in words of its own
		}
		deadLetter(c).Exchange = name
		return ""
	}},
	{name: "x-dead-letter-routing-key", set: func(c *queue.Config, v any) string {
		key, ok := v.(string)
		if !ok {
			return unacceptable(v)
		}
		deadLetter(c).RoutingKey = &key
		return ""
	}},
	{name: "x-dead-letter-strategy", quorum: true, set: func(c *queue.Config, v any) string {
		switch v {
		case "at-least-once":
			deadLetter(c).AtLeastOnce = true
		case "at-most-once":
		default:
			return "invalid_dlx_strategy"
		}
		return ""
	}},
	{name: "x-overflow", set: func(_ *queue.Config, v any) string {
		switch v {
		case "drop-head", "reject-publish", "reject-publish-dlx": // without a length limit nothing overflows
			return ""
		}
		return "invalid_overflow"
	}},
	{name: "x-delivery-limit", quorum: true, set: func(c *queue.Config, v any) string {
		n, ok := integer(v)
		if !ok {
			return expectedInteger(v)
		}
		c.DeliveryLimit = n
		return ""
	}},
	{name: "x-queue-type", set: func(c *queue.Config, v any) string {
		switch v {
		case "classic":
		case "quorum":
			c.Quorum = true
		default:
			return fmt.Sprintf("%q", fmt.Sprintf("unsupported queue type '%v'", v))
		}
		return ""
	}},
}

// missing are arguments that RabbitMQ has and this broker has not. To ignore them would lose what they promise.
var missing = []string{
	"x-expires", "x-max-length", "x-max-length-bytes", "x-max-priority", "x-single-active-consumer",
	"x-consumer-timeout", "x-delayed-retry-type",
}

// queueConfig turns a declaration into what a queue does.
func (v *VHost) queueConfig(name string, d *amqpwire.QueueDeclare) (queue.Config, error) {
	none := queue.Config{}
	for _, name := range missing {
		if _, found := d.Arguments.Get(name); found {
			return none, exception.New(exception.PreconditionFailed,
				"queue argument '%s' is not supported by this broker: leave it out, or use RabbitMQ", name)
		}
	}
	c := queue.Config{Name: name, TTL: queue.NoTTL, DeliveryLimit: defaultDeliveryLimit, Publish: v.publishDead}
	dlx, hasDLX := d.Arguments.Get("x-dead-letter-exchange")
	if _, ok := dlx.(string); hasDLX && !ok {
		return none, exception.New(exception.PreconditionFailed,
			"invalid type '%s' for arg 'x-dead-letter-exchange' in %s", amqpwire.TypeName(dlx), v.queue(name))
	}
	for _, a := range arguments {
		if value, found := d.Arguments.Get(a.name); found {
			if problem := a.set(&c, value); problem != "" {
				return none, exception.New(exception.PreconditionFailed,
					"invalid arg '%s' for %s: %s", a.name, v.queue(name), problem)
			}
		}
	}
	if _, hasKey := d.Arguments.Get("x-dead-letter-routing-key"); hasKey && !hasDLX {
		return none, exception.New(exception.PreconditionFailed,
			"invalid arg 'x-dead-letter-routing-key' for %s: routing_key_but_no_dlx_defined", v.queue(name))
	}
	if !hasDLX {
		c.DeadLetter = nil
	}
	// At-least-once needs a queue that refuses what is too much; else RabbitMQ goes by at-most-once.
	if overflow, _ := d.Arguments.Get("x-overflow"); c.DeadLetter != nil && overflow != "reject-publish" {
		c.DeadLetter.AtLeastOnce = false
	}
	return c, v.fitsType(c, d)
}

// fitsType refuses what the queue's type does not have.
func (v *VHost) fitsType(c queue.Config, d *amqpwire.QueueDeclare) error {
	if !c.Quorum {
		for _, a := range arguments {
			if _, found := d.Arguments.Get(a.name); found && a.quorum {
				return exception.New(exception.PreconditionFailed,
					"invalid arg '%s' for %s of queue type rabbit_classic_queue", a.name, v.queue(c.Name))
			}
		}
		return nil
	}
	for _, property := range []struct {
		name string
		set  bool
	}{
		{"non-durable", !d.Durable},
		{"auto-delete", d.AutoDelete},
		{"exclusive-owner", d.Exclusive},
	} {
		if property.set {
			return exception.New(exception.PreconditionFailed,
				"invalid property '%s' for %s", property.name, v.queue(c.Name))
		}
	}
	return nil
}

// sameArguments compares the arguments that mean something.
func (v *VHost) sameArguments(q *Queue, received amqpwire.Table) error {
	for _, a := range arguments {
		was, had := q.arguments.Get(a.name)
		is, has := received.Get(a.name)
		if !had && !has || had && has && equivalent(was, is) {
			continue
		}
		if a.name == "x-queue-type" && (!had && is == "classic" || !has && was == "classic") {
			continue
		}
		if had && has && class(was) == class(is) {
			return inequivalent(a.name, v.queue(q.Name()), fmt.Sprintf("'%v'", is), fmt.Sprintf("'%v'", was))
		}
		return inequivalent(a.name, v.queue(q.Name()), describe(is, has), describe(was, had))
	}
	return nil
}

// equivalent compares by value: the width of an integer does not matter.
func equivalent(a, b any) bool {
	x, xOK := integer(a)
	y, yOK := integer(b)
	if xOK && yOK {
		return x == y
	}
	return class(a) == class(b) && fmt.Sprint(a) == fmt.Sprint(b)
}

// class is a type by which values are compared.
func class(v any) string {
	if _, ok := integer(v); ok {
		return "integer"
	}
	return amqpwire.TypeName(v)
}

func describe(v any, present bool) string {
	if !present {
		return "none"
	}
	return fmt.Sprintf("the value '%v' of type '%s'", v, amqpwire.TypeName(v))
}

func deadLetter(c *queue.Config) *queue.DeadLetter {
	if c.DeadLetter == nil {
		c.DeadLetter = &queue.DeadLetter{}
	}
	return c.DeadLetter
}

// integer returns the value of any of the wire's integer types.
func integer(v any) (int64, bool) {
	switch n := v.(type) {
	case int8:
		return int64(n), true
	case uint8:
		return int64(n), true
	case int16:
		return int64(n), true
	case uint16:
		return int64(n), true
	case int32:
		return int64(n), true
	case uint32:
		return int64(n), true
	case int64:
		return n, true
	}
	return 0, false
}

// natural returns an integer that is not negative.
func natural(v any) (n int64, problem string) {
	n, ok := integer(v)
	switch {
	case !ok:
		return 0, expectedInteger(v)
	case n < 0:
		return 0, fmt.Sprintf("{value_negative,%d}", n)
	}
	return n, ""
}

func expectedInteger(v any) string {
	return fmt.Sprintf(`"expected integer, got %s"`, amqpwire.TypeName(v))
}

func unacceptable(v any) string { return fmt.Sprintf("{unacceptable_type,%s}", amqpwire.TypeName(v)) }

// milliseconds turns a number into a duration; what is too long for one is as good as for ever.
func milliseconds(n int64) time.Duration {
	if n > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Millisecond
}
