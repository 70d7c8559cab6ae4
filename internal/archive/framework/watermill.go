package framework

// watermill: https://watermill.io/docs/middlewares (PoisonQueue). It records a topic, which is the name of an exchange or of a queue,
// by the configuration of the publisher. Its consumer rejects a message with a header that is not a string for ever.
var watermill = framework{
	name: "Watermill",
	read: func(m message) (failure, bool) {
		topic := m.text("topic_poisoned")
		f := failure{exchange: topic, key: topic, text: m.text("reason_poisoned")}
		_, poisoned := m.Headers["reason_poisoned"]
		return f, poisoned && topic != ""
	},
	owns:        named("reason_poisoned", "topic_poisoned", "handler_poisoned", "subscriber_poisoned", "_watermill_requeuer_retries"),
	stringsOnly: true,
}
