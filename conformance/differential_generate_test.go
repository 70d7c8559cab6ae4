package conformance

import (
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

var (
	someQueue    = rapid.SampledFrom([]string{"q0", "q0", "q0", "q1", "q1", "q2"})
	someExchange = rapid.SampledFrom([]string{"x0", "x0", "x0", "x0", "x1", "x1", "x1", "x2"})
	someKey      = rapid.SampledFrom([]string{"a", "a.b", "b", "", "a.b.c"})
	somePattern  = rapid.SampledFrom([]string{"#", "a", "a.*", "*.b", "a.#", "b", "", "#.b"})
	someClient   = rapid.SampledFrom([]clientIndex{0, 1})
	someTag      = rapid.SampledFrom([]string{"c0", "c1", "c2"})
	rarely       = rapid.Custom(func(t *rapid.T) bool { return rapid.IntRange(0, 9).Draw(t, "") == 9 })
	sometimes    = rapid.Custom(func(t *rapid.T) bool { return rapid.IntRange(0, 3).Draw(t, "") == 3 })
	oftenQueue   = rapid.Custom(func(t *rapid.T) string {
		if rapid.IntRange(0, 99).Draw(t, "") == 99 {
			return "missing"
		}
		return someQueue.Draw(t, "")
	})
)

func one[T any](t *rapid.T, values ...T) T { return rapid.SampledFrom(values).Draw(t, "") }

// scripts generates scripts that declare objects and then use them.
var scripts = rapid.Custom(func(t *rapid.T) script {
	var s script
	for _, q := range []string{"q0", "q1", "q2"} {
		s = append(s, declareQueue(t, q))
	}
	for _, x := range []string{"x0", "x1", "x2"} {
		s = append(s, declareExchange(t, x))
	}
	s = append(s, rapid.SliceOfN(bind, 1, 5).Draw(t, "bindings")...)
	s = append(s, rapid.SliceOfN(step, 12, 40).Draw(t, "steps")...)
	return removeRaces(s)
})

// step generates single operations. Operations with more effects are more likely.
var step = rapid.Custom(func(t *rapid.T) operation {
	weighted := []*rapid.Generator[operation]{
		publishing, publishing, publishing, publishing, publishing, publishing, publishing, publishing, publishing,
		settling, settling, settling, settling, settling, settling, settling, settling, settling, settling,
		getting, getting, getting, getting, getting, consuming, consuming, consuming, consuming, canceling,
		reopening, reopening, managing, transaction, bind, rareStep,
	}
	return rapid.SampledFrom(weighted).Draw(t, "kind").Draw(t, "operation")
})

// rareStep generates operations that can close a channel or delete objects that later operations need.
var rareStep = rapid.Custom(func(t *rapid.T) operation {
	return rapid.SampledFrom([]*rapid.Generator[operation]{mistake, deleting, redeclare}).Draw(t, "kind").Draw(t, "operation")
})

var redeclare = rapid.Custom(func(t *rapid.T) operation {
	if rapid.Bool().Draw(t, "exchange") {
		return declareExchange(t, someExchange.Draw(t, "exchange"))
	}
	return declareQueue(t, someQueue.Draw(t, "queue"))
})

func declareQueue(t *rapid.T, name string) operation {
	m := &amqpwire.QueueDeclare{Queue: name, Durable: true}
	quorum := rapid.Bool().Draw(t, "quorum")
	add := func(name string, value any) {
		m.Arguments = append(m.Arguments, amqpwire.Field{Name: name, Value: value})
	}
	if quorum {
		add("x-queue-type", "quorum")
	}
	if sometimes.Draw(t, "ttl") {
		add("x-message-ttl", one[any](t, int32(3600000), int64(86400000), int32(0)))
	}
	deadLetters := rapid.Bool().Draw(t, "dlx")
	if deadLetters {
		to := one(t, "", "", "x0", "x1")
		add("x-dead-letter-exchange", to)
		switch {
		case to == "" && !rarely.Draw(t, "no key"):
			add("x-dead-letter-routing-key", one(t, "q0", "q1", "q2", "q2"))
		case to != "" && rapid.Bool().Draw(t, "key"):
			add("x-dead-letter-routing-key", someKey.Draw(t, "key"))
		}
		if quorum && to == "" && sometimes.Draw(t, "at least once") {
			add("x-dead-letter-strategy", "at-least-once")
			add("x-overflow", "reject-publish")
		}
	}
	_, strict := m.Arguments.Get("x-dead-letter-strategy")
	if !strict && sometimes.Draw(t, "limited") {
		if rapid.Bool().Draw(t, "bytes") {
			add("x-max-length-bytes", one[any](t, int32(14), int32(9), int32(5), int32(0)))
		} else {
			add("x-max-length", one[any](t, int32(2), int32(1), int32(3), int32(0)))
		}
		if rapid.Bool().Draw(t, "overflow") {
			if quorum {
				add("x-overflow", one(t, "drop-head", "reject-publish-dlx"))
			} else {
				add("x-overflow", one(t, "drop-head", "reject-publish", "reject-publish-dlx"))
			}
		}
	}
	if !quorum && sometimes.Draw(t, "priorities") {
		add("x-max-priority", one[any](t, int32(1), int32(5), int32(10)))
	}
	if quorum && sometimes.Draw(t, "deliveries") {
		add("x-delivery-limit", one[any](t, int32(0), int32(1), int32(2), int32(-1)))
	}
	if sometimes.Draw(t, "single") {
		add("x-single-active-consumer", true)
	}
	if !quorum && rarely.Draw(t, "auto-delete") {
		m.AutoDelete = true
	}
	return call(someClient.Draw(t, "client"), m)
}

func declareExchange(t *rapid.T, name string) operation {
	m := &amqpwire.ExchangeDeclare{
		Exchange: name, Durable: true, Type: one(t, "direct", "topic", "fanout", "headers", "x-modulus-hash"),
	}
	if sometimes.Draw(t, "alternate") {
		m.Arguments = amqpwire.Table{{Name: "alternate-exchange", Value: one(t, "x1", "x2")}}
	}
	m.AutoDelete = rarely.Draw(t, "auto-delete")
	m.Internal = rarely.Draw(t, "internal") && rapid.Bool().Draw(t, "internal")
	return call(someClient.Draw(t, "client"), m)
}

var bind = rapid.Custom(func(t *rapid.T) operation {
	var args amqpwire.Table
	if sometimes.Draw(t, "match") {
		args = amqpwire.Table{
			{Name: "x-match", Value: one(t, "all", "any", "any-with-x", "all-with-x")},
			{Name: "h", Value: one[any](t, int32(1), "1", nil)},
		}
		if rapid.Bool().Draw(t, "more") {
			args = append(args, amqpwire.Field{Name: "x-h", Value: "v"})
		}
	}
	c, x := someClient.Draw(t, "client"), someExchange.Draw(t, "exchange")
	if rarely.Draw(t, "exchange") {
		return call(c, &amqpwire.ExchangeBind{
			Source: x, Destination: someExchange.Draw(t, "destination"), RoutingKey: somePattern.Draw(t, "key"), Arguments: args,
		})
	}
	return call(c, &amqpwire.QueueBind{
		Queue: oftenQueue.Draw(t, "queue"), Exchange: x, RoutingKey: somePattern.Draw(t, "key"), Arguments: args,
	})
})

var publishing = rapid.Custom(func(t *rapid.T) operation {
	o := publish{clientIndex: someClient.Draw(t, "client"), mandatory: sometimes.Draw(t, "mandatory"), n: one(t, 1, 2, 1, 3, 1)}
	if !sometimes.Draw(t, "by exchange") {
		o.key = oftenQueue.Draw(t, "queue")
	} else {
		o.exchange, o.key = someExchange.Draw(t, "exchange"), someKey.Draw(t, "key")
	}
	if sometimes.Draw(t, "priority") {
		o.props.Flags |= amqpwire.PropPriority
		o.props.Priority = one[uint8](t, 0, 1, 3, 4, 5, 9, 40)
	}
	if sometimes.Draw(t, "expiration") {
		o.props.Flags |= amqpwire.PropExpiration
		o.props.Expiration = one(t, "0", "3600000")
	}
	if sometimes.Draw(t, "copies") {
		copies := amqpwire.Array{}
		for _, k := range rapid.SliceOfN(someKey, 1, 2).Draw(t, "keys") {
			copies = append(copies, k)
		}
		o.props.Headers = o.props.Headers.Set(one(t, "CC", "BCC"), copies)
	}
	if sometimes.Draw(t, "headers") {
		o.props.Headers = o.props.Headers.Set("h", one[any](t, int32(1), int64(1), "1", true))
		if sometimes.Draw(t, "more") {
			o.props.Headers = o.props.Headers.Set("x-h", "v")
		}
	}
	if rarely.Draw(t, "properties") {
		o.props.Flags |= amqpwire.PropContentType | amqpwire.PropDeliveryMode | amqpwire.PropCorrelationID | amqpwire.PropMessageID
		o.props.ContentType, o.props.DeliveryMode, o.props.CorrelationID, o.props.MessageID = "text/plain", 2, "c", "id"
	}
	return o
})

var getting = rapid.Custom(func(t *rapid.T) operation {
	return get{someClient.Draw(t, "client"), oftenQueue.Draw(t, "queue"), sometimes.Draw(t, "no ack")}
})

var settling = rapid.Custom(func(t *rapid.T) operation {
	return settle{
		clientIndex: someClient.Draw(t, "client"), how: one(t, acked, nacked, requeued, rejected, returned),
		nth: rapid.IntRange(0, 3).Draw(t, "nth"), multiple: sometimes.Draw(t, "multiple"),
	}
})

var consuming = rapid.Custom(func(t *rapid.T) operation {
	return consume{
		clientIndex: someClient.Draw(t, "client"), queue: oftenQueue.Draw(t, "queue"), tag: someTag.Draw(t, "tag"),
		prefetch: one[uint16](t, 0, 1, 2, 3), noAck: sometimes.Draw(t, "no ack"), exclusive: rarely.Draw(t, "exclusive"),
		priority: one[int32](t, 0, 0, 0, 1, -1),
	}
})

var canceling = rapid.Custom(func(t *rapid.T) operation {
	return cancel{someClient.Draw(t, "client"), someTag.Draw(t, "tag")}
})

var reopening = rapid.Custom(func(t *rapid.T) operation { return reopen{someClient.Draw(t, "client")} })

var managing = rapid.Custom(func(t *rapid.T) operation {
	c, q, x := someClient.Draw(t, "client"), oftenQueue.Draw(t, "queue"), someExchange.Draw(t, "exchange")
	return call(c, one[amqpwire.Method](t,
		&amqpwire.QueuePurge{Queue: q},
		&amqpwire.QueueDeclare{Queue: q, Passive: true},
		&amqpwire.QueueUnbind{Queue: q, Exchange: x, RoutingKey: somePattern.Draw(t, "key")},
		&amqpwire.BasicRecover{Requeue: true},
	))
})

var deleting = rapid.Custom(func(t *rapid.T) operation {
	c, q, x := someClient.Draw(t, "client"), oftenQueue.Draw(t, "queue"), someExchange.Draw(t, "exchange")
	return call(c, one[amqpwire.Method](t,
		&amqpwire.QueueDelete{Queue: q},
		&amqpwire.QueueDelete{Queue: q, IfUnused: rapid.Bool().Draw(t, "if-unused"), IfEmpty: rapid.Bool().Draw(t, "if-empty")},
		&amqpwire.ExchangeDelete{Exchange: x, IfUnused: rapid.Bool().Draw(t, "if-unused")},
	))
})

var mistake = rapid.Custom(func(t *rapid.T) operation {
	c := someClient.Draw(t, "client")
	how := one(t, acked, nacked, requeued, rejected, returned)
	return one[operation](t,
		settleUnknown{c, how, 999, false},
		settleAgain{c, how},
		settleUnknown{c, how, 999, true},
		settleUnknown{c, how, 0, rapid.Bool().Draw(t, "multiple")},
		call(c, &amqpwire.ExchangeDeclare{Exchange: "missing", Passive: true, Type: "direct"}),
		call(c, &amqpwire.QueueBind{Queue: "q0", Exchange: "missing"}),
		call(c, &amqpwire.QueueDeclare{Queue: "q0", Durable: true, AutoDelete: true}),
		publish{clientIndex: c, exchange: "missing", n: 1},
	)
})

var transaction = rapid.Custom(func(t *rapid.T) operation {
	return call(someClient.Draw(t, "client"), one[amqpwire.Method](t,
		&amqpwire.TxSelect{}, &amqpwire.TxCommit{}, &amqpwire.TxCommit{}, &amqpwire.TxRollback{}, &amqpwire.ConfirmSelect{},
	))
})
