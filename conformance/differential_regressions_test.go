package conformance

import (
	"testing"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// regressions has a script for each difference that was found and corrected.
var regressions = []struct {
	name   string
	script script
}{
	{"of two missing ends of a binding, the source is told of", script{
		call(0, &amqpwire.QueueBind{Queue: "q0", Exchange: "x0"}),
		call(0, &amqpwire.ExchangeBind{Destination: "x1", Source: "x0"}),
		call(0, &amqpwire.QueueBind{Queue: "q0"}),
		call(0, &amqpwire.ExchangeBind{Destination: "x1"}),
	}},
	{"arguments of a quorum queue are compared in an order of its own", script{
		declare("x-queue-type", "quorum", "x-message-ttl", int32(5000), "x-dead-letter-exchange", "x", "x-delivery-limit", int32(3)),
		declare("x-queue-type", "quorum"),
		declare("x-queue-type", "quorum", "x-dead-letter-exchange", "x"),
		declare("x-queue-type", "quorum", "x-dead-letter-exchange", "x", "x-delivery-limit", int32(3)),
		declare("x-dead-letter-exchange", "x"),
	}},
	{"the type of a queue is compared after most arguments", script{
		declare("x-single-active-consumer", true),
		declare("x-queue-type", "quorum"),
		declare("x-queue-type", "quorum", "x-single-active-consumer", true),
	}},
	{"properties count against the size of a quorum queue", script{
		declare("x-queue-type", "quorum", "x-max-length-bytes", int32(9)),
		publish{n: 1, key: "q0"},
		publish{n: 1, key: "q0"},
		publish{n: 1, key: "q0", props: headers("h", "v")},
	}},
	{"what dead-lettering adds to the properties does not count", script{
		declare("x-queue-type", "quorum", "x-max-length-bytes", int32(6), "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "q0"),
		publish{n: 1, key: "q0"},
		get{queue: "q0"},
		settle{how: rejected},
	}},
	{"a declaration counts who has a quorum queue's messages, and not who waits", script{
		declare("x-queue-type", "quorum"),
		publish{n: 3, key: "q0"},
		get{queue: "q0"},
		consume{queue: "q0", tag: "c0"},
		cancel{tag: "c0"},
		settle{how: acked, multiple: true, nth: 1},
		settle{how: requeued},
	}},
	{"a declaration counts only the active one of single active consumers of a quorum queue", script{
		declare("x-queue-type", "quorum", "x-single-active-consumer", true),
		consume{queue: "q0", tag: "c0"},
		consume{queue: "q0", tag: "c1"},
		cancel{tag: "c0"},
	}},
	{"a quorum queue gives out returned messages first, whatever their priority", script{
		declare("x-queue-type", "quorum"),
		publish{n: 1, key: "q0", props: priority(1)},
		get{queue: "q0"},
		publish{n: 1, key: "q0", props: priority(9)},
		settle{how: requeued},
		get{queue: "q0"},
	}},
	{"a quorum queue is not deleted on a condition", script{
		declare("x-queue-type", "quorum"),
		call(0, &amqpwire.QueueDelete{Queue: "q0", IfUnused: true}),
		call(0, &amqpwire.QueueDelete{Queue: "q0", IfEmpty: true}),
		call(0, &amqpwire.QueueDelete{Queue: "q0", IfUnused: true, IfEmpty: true}),
	}},
	{"a quorum queue knows no exclusive consumers", script{
		declare("x-queue-type", "quorum"),
		consume{queue: "q0", tag: "c0", exclusive: true},
		consume{queue: "q0", tag: "c1", exclusive: true},
		consume{queue: "q0", tag: "c2"},
		publish{n: 3, key: "q0"},
	}},
	{"a consumer tag that is in use is an error before the queue is looked for", script{
		declare(),
		consume{queue: "q0", tag: "c0"},
		consume{queue: "missing", tag: "c0"},
	}},
	{"a classic queue drops what is too much before its consumers get what comes back", script{
		declare("x-max-length", int32(0)),
		consume{queue: "q0", tag: "c0"},
		publish{n: 1, key: "q0"},
		settle{how: requeued},
	}},
	{"a quorum queue gives credit for what comes back before it drops what is too much", script{
		declare("x-queue-type", "quorum", "x-max-length", int32(1)),
		consume{queue: "q0", tag: "c0", prefetch: 1},
		publish{n: 2, key: "q0"},
		settle{how: requeued},
	}},
	{"what is too much is so before it expires", script{
		declareAs("q1"),
		declare("x-max-length", int32(0), "x-message-ttl", int32(0), "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "q1"),
		publish{n: 1, key: "q0"},
		get{queue: "q1"},
	}},
	{"in a quorum queue, too", script{
		declare("x-queue-type", "quorum", "x-max-length", int32(1)),
		publish{n: 1, key: "q0", props: priority(9)},
		publish{n: 1, key: "q0", props: amqpwire.Properties{Flags: amqpwire.PropExpiration, Expiration: "0"}},
	}},
	{"a quorum queue's messages come back consumer by consumer when their channel ends", script{
		declare("x-queue-type", "quorum"),
		publish{n: 1, key: "q0"},
		get{queue: "q0"},
		publish{n: 1, key: "q0"},
		consume{queue: "q0", tag: "c1"},
		cancel{tag: "c1"},
		publish{n: 1, key: "q0"},
		consume{queue: "q0", tag: "c0"},
	}},
	{"a rejected dead letter that a classic queue did not have to keep is not redelivered", script{
		declare("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "q0"),
		consume{queue: "q0", tag: "c0"},
		publish{n: 1, key: "q0"},
		settle{how: rejected},
		cancel{tag: "c0"},
		settle{how: rejected},
		get{queue: "q0"},
	}},
	{"a single active consumer of a quorum queue makes way for one with a higher priority when it has settled all", script{
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
	{"a single active consumer of a classic queue does not", script{
		declare("x-single-active-consumer", true),
		consume{queue: "q0", tag: "c0", priority: -1},
		consume{queue: "q0", tag: "c1"},
		publish{n: 1, key: "q0"},
		cancel{tag: "c0"},
		publish{n: 1, key: "q0"},
	}},
	{"a quorum queue's consumer without credit goes to the end of the line when it gets some", script{
		declare("x-queue-type", "quorum"),
		publish{n: 2, key: "q0"},
		consume{queue: "q0", tag: "c0", prefetch: 2},
		consume{queue: "q0", tag: "c1"},
		settle{how: requeued},
	}},
	{"a dead letter brings along to a quorum queue how often its delivery failed, not how often it was acquired", script{
		declare("x-queue-type", "quorum", "x-dead-letter-exchange", ""),
		publish{n: 1, key: "q0"},
		get{queue: "q0"},
		settle{how: rejected},
		get{queue: "q0"},
		settle{how: failed},
		get{queue: "q0"},
	}},
	{"an alternate exchange is asked when no key leads anywhere, not for each key", script{
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
	{"all keys go along from exchange to exchange", script{
		declare(),
		call(0, &amqpwire.ExchangeDeclare{Exchange: "x0", Type: "direct", Durable: true}),
		call(0, &amqpwire.ExchangeDeclare{Exchange: "x1", Type: "direct", Durable: true}),
		call(0, &amqpwire.ExchangeBind{Destination: "x1", Source: "x0", RoutingKey: "a"}),
		call(0, &amqpwire.QueueBind{Queue: "q0", Exchange: "x1", RoutingKey: "b"}),
		publish{n: 1, exchange: "x0", key: "a", props: headers("CC", amqpwire.Array{"b"})},
	}},
	{"a queue that is neither empty nor unused is not deleted for not being empty", script{
		declare(),
		consume{queue: "q0", tag: "c0", prefetch: 1},
		publish{n: 2, key: "q0"},
		call(1, &amqpwire.QueueDelete{Queue: "q0", IfUnused: true, IfEmpty: true}),
	}},
	{"the next single active consumer begins with what comes back from the one whose channel has ended", script{
		declare("x-single-active-consumer", true),
		consume{queue: "q0", tag: "c0", prefetch: 1},
		consume{on: 1, queue: "q0", tag: "c1"},
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

// declare declares the queue q0. The arguments are alternating names and values.
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
				t.Errorf("the brokers differ:\n%s%s", r.script, d)
			}
		})
	}
}
