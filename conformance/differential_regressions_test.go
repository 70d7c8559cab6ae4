package conformance

import (
	"testing"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// regressions contains a script for each difference that the test has found and that was then corrected.
var regressions = []struct {
	name   string
	script script
}{
	{"the error for two missing ends of a binding names the source", script{
		call(0, &amqpwire.QueueBind{Queue: "q0", Exchange: "x0"}),
		call(0, &amqpwire.ExchangeBind{Destination: "x1", Source: "x0"}),
		call(0, &amqpwire.QueueBind{Queue: "q0"}),
		call(0, &amqpwire.ExchangeBind{Destination: "x1"}),
	}},
	{"arguments of a quorum queue are compared in a different order", script{
		declare("x-queue-type", "quorum", "x-message-ttl", int32(5000), "x-dead-letter-exchange", "x", "x-delivery-limit", int32(3)),
		declare("x-queue-type", "quorum"),
		declare("x-queue-type", "quorum", "x-dead-letter-exchange", "x"),
		declare("x-queue-type", "quorum", "x-dead-letter-exchange", "x", "x-delivery-limit", int32(3)),
		declare("x-dead-letter-exchange", "x"),
	}},
	{"the queue type is compared after most arguments", script{
		declare("x-single-active-consumer", true),
		declare("x-queue-type", "quorum"),
		declare("x-queue-type", "quorum", "x-single-active-consumer", true),
	}},
	{"properties count towards the size of a quorum queue", script{
		declare("x-queue-type", "quorum", "x-max-length-bytes", int32(9)),
		publish{n: 1, key: "q0"},
		publish{n: 1, key: "q0"},
		publish{n: 1, key: "q0", props: headers("h", "v")},
	}},
	{"headers that dead-lettering adds do not count towards the size", script{
		declare("x-queue-type", "quorum", "x-max-length-bytes", int32(6), "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "q0"),
		publish{n: 1, key: "q0"},
		get{queue: "q0"},
		settle{how: rejected},
	}},
	{"declare-ok counts holders of messages as consumers of a quorum queue", script{
		declare("x-queue-type", "quorum"),
		publish{n: 3, key: "q0"},
		get{queue: "q0"},
		consume{queue: "q0", tag: "c0"},
		cancel{tag: "c0"},
		settle{how: acked, multiple: true, nth: 1},
		settle{how: requeued},
	}},
	{"declare-ok counts only the single active consumer of a quorum queue", script{
		declare("x-queue-type", "quorum", "x-single-active-consumer", true),
		consume{queue: "q0", tag: "c0"},
		consume{queue: "q0", tag: "c1"},
		cancel{tag: "c0"},
	}},
	{"a quorum queue delivers requeued messages first, regardless of their priority", script{
		declare("x-queue-type", "quorum"),
		publish{n: 1, key: "q0", props: priority(1)},
		get{queue: "q0"},
		publish{n: 1, key: "q0", props: priority(9)},
		settle{how: requeued},
		get{queue: "q0"},
	}},
	{"a quorum queue does not support conditional deletion", script{
		declare("x-queue-type", "quorum"),
		call(0, &amqpwire.QueueDelete{Queue: "q0", IfUnused: true}),
		call(0, &amqpwire.QueueDelete{Queue: "q0", IfEmpty: true}),
		call(0, &amqpwire.QueueDelete{Queue: "q0", IfUnused: true, IfEmpty: true}),
	}},
	{"a quorum queue does not support exclusive consumers", script{
		declare("x-queue-type", "quorum"),
		consume{queue: "q0", tag: "c0", exclusive: true},
		consume{queue: "q0", tag: "c1", exclusive: true},
		consume{queue: "q0", tag: "c2"},
		publish{n: 3, key: "q0"},
	}},
	{"a duplicate consumer tag is reported before a missing queue", script{
		declare(),
		consume{queue: "q0", tag: "c0"},
		consume{queue: "missing", tag: "c0"},
	}},
	{"a classic queue applies its limit before it redelivers requeued messages", script{
		declare("x-max-length", int32(0)),
		consume{queue: "q0", tag: "c0"},
		publish{n: 1, key: "q0"},
		settle{how: requeued},
	}},
	{"a quorum queue returns credit for requeued messages before it applies its limit", script{
		declare("x-queue-type", "quorum", "x-max-length", int32(1)),
		consume{queue: "q0", tag: "c0", prefetch: 1},
		publish{n: 2, key: "q0"},
		settle{how: requeued},
	}},
	{"the limit of a classic queue applies before messages expire", script{
		declareAs("q1"),
		declare("x-max-length", int32(0), "x-message-ttl", int32(0), "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "q1"),
		publish{n: 1, key: "q0"},
		get{queue: "q1"},
	}},
	{"the limit of a quorum queue applies before messages expire", script{
		declare("x-queue-type", "quorum", "x-max-length", int32(1)),
		publish{n: 1, key: "q0", props: priority(9)},
		publish{n: 1, key: "q0", props: amqpwire.Properties{Flags: amqpwire.PropExpiration, Expiration: "0"}},
	}},
	{"the end of a channel requeues messages of a quorum queue by consumer", script{
		declare("x-queue-type", "quorum"),
		publish{n: 1, key: "q0"},
		get{queue: "q0"},
		publish{n: 1, key: "q0"},
		consume{queue: "q0", tag: "c1"},
		cancel{tag: "c1"},
		publish{n: 1, key: "q0"},
		consume{queue: "q0", tag: "c0"},
	}},
	{"a rejected dead letter that a classic queue delivered immediately is not redelivered", script{
		declare("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "q0"),
		consume{queue: "q0", tag: "c0"},
		publish{n: 1, key: "q0"},
		settle{how: rejected},
		cancel{tag: "c0"},
		settle{how: rejected},
		get{queue: "q0"},
	}},
	{"a consumer with a higher priority replaces the single active consumer of a quorum queue after it has settled all messages", script{
		declare("x-queue-type", "quorum", "x-single-active-consumer", true),
		consume{queue: "q0", tag: "c0", priority: -1},
		publish{n: 2, key: "q0"},
		consume{queue: "q0", tag: "c1"},
		publish{n: 1, key: "q0"},
		settle{how: acked},
		settle{how: requeued},
		consume{queue: "q0", tag: "c2", priority: 1},
		cancel{tag: "c1"},
	}},
	{"a consumer with a higher priority does not replace the single active consumer of a classic queue", script{
		declare("x-single-active-consumer", true),
		consume{queue: "q0", tag: "c0", priority: -1},
		consume{queue: "q0", tag: "c1"},
		publish{n: 1, key: "q0"},
		cancel{tag: "c0"},
		publish{n: 1, key: "q0"},
	}},
	{"a consumer of a quorum queue that regains credit is served last", script{
		declare("x-queue-type", "quorum"),
		publish{n: 2, key: "q0"},
		consume{queue: "q0", tag: "c0", prefetch: 2},
		consume{queue: "q0", tag: "c1"},
		settle{how: requeued},
	}},
	{"a dead letter preserves the number of failed deliveries, but not of acquisitions", script{
		declare("x-queue-type", "quorum", "x-dead-letter-exchange", ""),
		publish{n: 1, key: "q0"},
		get{queue: "q0"},
		settle{how: rejected},
		get{queue: "q0"},
		settle{how: returned},
		get{queue: "q0"},
	}},
	{"an alternate exchange applies if no key matches, not per key", script{
		declare(), declareAs("q1"),
		call(0, &amqpwire.ExchangeDeclare{Exchange: "x1", Type: "fanout", Durable: true}),
		call(0, &amqpwire.ExchangeDeclare{
			Exchange: "x0", Type: "direct", Durable: true, Arguments: amqpwire.Table{{Name: "alternate-exchange", Value: "x1"}},
		}),
		call(0, &amqpwire.QueueBind{Queue: "q0", Exchange: "x0", RoutingKey: "a"}),
		call(0, &amqpwire.QueueBind{Queue: "q1", Exchange: "x1"}),
		publish{n: 1, exchange: "x0", key: "a", props: headers("BCC", amqpwire.Array{"b"})},
		publish{n: 1, exchange: "x0", key: "b", props: headers("CC", amqpwire.Array{"a"})},
		publish{n: 1, exchange: "x0", key: "b", props: headers("CC", amqpwire.Array{"c"})},
	}},
	{"all keys apply to bindings between exchanges", script{
		declare(),
		call(0, &amqpwire.ExchangeDeclare{Exchange: "x0", Type: "direct", Durable: true}),
		call(0, &amqpwire.ExchangeDeclare{Exchange: "x1", Type: "direct", Durable: true}),
		call(0, &amqpwire.ExchangeBind{Destination: "x1", Source: "x0", RoutingKey: "a"}),
		call(0, &amqpwire.QueueBind{Queue: "q0", Exchange: "x1", RoutingKey: "b"}),
		publish{n: 1, exchange: "x0", key: "a", props: headers("CC", amqpwire.Array{"b"})},
	}},
	{"conditional deletion checks the messages before the consumers", script{
		declare(),
		consume{queue: "q0", tag: "c0", prefetch: 1},
		publish{n: 2, key: "q0"},
		call(1, &amqpwire.QueueDelete{Queue: "q0", IfUnused: true, IfEmpty: true}),
	}},
	{"the next single active consumer first receives the requeued messages of the closed channel", script{
		declare("x-single-active-consumer", true),
		consume{queue: "q0", tag: "c0", prefetch: 1},
		consume{clientIndex: 1, queue: "q0", tag: "c1"},
		publish{n: 2, key: "q0"},
		reopen{0},
	}},
	{"basic.get from a quorum queue counts messages that are about to expire", script{
		declare("x-queue-type", "quorum"),
		publish{n: 1, key: "q0"},
		publish{n: 1, key: "q0", props: amqpwire.Properties{Flags: amqpwire.PropExpiration, Expiration: "0"}},
		get{queue: "q0"},
		settle{how: requeued},
		publish{n: 1, key: "q0", props: amqpwire.Properties{Flags: amqpwire.PropExpiration, Expiration: "0"}},
		get{queue: "q0", noAck: true},
	}},
}

// declare declares the queue q0. The parameters are alternating names and values of queue arguments.
func declare(args ...any) operation { return declareAs("q0", args...) }

func declareAs(queue string, args ...any) operation {
	m := &amqpwire.QueueDeclare{Queue: queue, Durable: true}
	for i := 0; i < len(args); i += 2 {
		m.Arguments = append(m.Arguments, amqpwire.Field{Name: args[i].(string), Value: args[i+1]})
	}
	return call(1, m)
}

func headers(name string, value any) amqpwire.Properties {
	return amqpwire.Properties{Headers: amqpwire.Table{{Name: name, Value: value}}}
}

func priority(n uint8) amqpwire.Properties {
	return amqpwire.Properties{Flags: amqpwire.PropPriority, Priority: n}
}

func TestDifferentialRegressions(t *testing.T) {
	b := brokers(t)
	for _, r := range regressions {
		t.Run(r.name, func(t *testing.T) {
			if d := b.differ(r.script); d != "" {
				t.Errorf("brokers differ:\n%s%s", r.script, d)
			}
		})
	}
}
